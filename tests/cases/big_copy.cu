// 64 MiB and odd sizes in both directions, pageable and pinned, with offsets; every byte is checked.
#include "check.h"
#include <cstring>
#include <cstdint>
static void fill(unsigned char* p, size_t n, uint64_t x) { for (size_t i = 0; i < n; i++) { x = x * 6364136223846793005ULL + 1442695040888963407ULL; p[i] = x >> 56; } }
static void there_and_back(unsigned char* out, unsigned char* back, unsigned char* d, size_t n, size_t offset, uint64_t seed) {
  fill(out, n, seed); std::memset(back, 0xee, n);
  CK(cudaMemcpy(d + offset, out, n, cudaMemcpyHostToDevice)); CK(cudaMemcpy(back, d + offset, n, cudaMemcpyDeviceToHost));
  if (std::memcmp(out, back, n)) for (size_t i = 0; i < n; i++) WANT(out[i] == back[i], "%zu bytes at offset %zu: byte %zu went %d came %d", n, offset, i, out[i], back[i]);
}
int main() {
  const size_t most = 64u << 20; unsigned char *d, *e, *pa, *pb; std::vector<unsigned char> a(most + 64), b(most + 64);
  CK(cudaMalloc(&d, most + 4096)); CK(cudaMalloc(&e, most + 4096)); CK(cudaMallocHost(&pa, most)); CK(cudaMallocHost(&pb, most));
  const size_t sizes[] = {1, 3, 7, 63, 64, 65, 4095, 4097, 65535, 65537, (1u << 20) - 1, (1u << 20) + 1, (3u << 20) + 12345, most - 1, most};
  for (size_t n : sizes) {
    there_and_back(a.data() + 1, b.data() + 3, d, n, 0, n); there_and_back(pa, pb, d, n, 0, n + 1);
    if (n < most - 1) there_and_back(a.data(), b.data(), d, n, 13, n + 2);
  }
  // Two copies in flight on two streams, device to device, and back.
  cudaStream_t s, t; CK(cudaStreamCreate(&s)); CK(cudaStreamCreate(&t)); fill(pa, most, 99);
  CK(cudaMemcpyAsync(d, pa, most, cudaMemcpyHostToDevice, s)); CK(cudaMemcpyAsync(e, a.data(), most, cudaMemcpyHostToDevice, t));
  CK(cudaStreamSynchronize(t)); CK(cudaMemcpyAsync(e, d, most, cudaMemcpyDeviceToDevice, s)); CK(cudaMemcpyAsync(pb, e, most, cudaMemcpyDeviceToHost, s));
  CK(cudaStreamSynchronize(s)); WANT(!std::memcmp(pa, pb, most), "device to device differs");
  // Rows with a pitch.
  std::vector<int> m(100 * 37), r(100 * 37, -1); for (size_t i = 0; i < m.size(); i++) m[i] = (int)i;
  CK(cudaMemcpy2D(d, 512, m.data(), 37 * 4, 37 * 4, 100, cudaMemcpyHostToDevice)); CK(cudaMemcpy2D(r.data(), 37 * 4, d, 512, 37 * 4, 100, cudaMemcpyDeviceToHost));
  WANT(m == r, "2D copy differs");
  CK(cudaFree(d)); CK(cudaFree(e)); CK(cudaFreeHost(pa)); CK(cudaFreeHost(pb));
  std::puts("PASS big_copy");
}
