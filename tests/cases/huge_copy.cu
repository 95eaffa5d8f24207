// 1 GiB and an odd number of bytes more in both directions, at odd offsets: pageable, pinned and registered, synchronous and not.
#include "check.h"
#include <cstring>
#include <cstdint>
static void fill(unsigned char* p, size_t n, uint64_t x) {
  for (size_t i = 0; i + 8 <= n; i += 8) { x = x * 6364136223846793005ULL + 1442695040888963407ULL; std::memcpy(p + i, &x, 8); }
  for (size_t i = n / 8 * 8; i < n; i++) p[i] = (unsigned char)(x >> i % 8);
}
static void same(const unsigned char* a, const unsigned char* b, size_t n, const char* what) {
  if (std::memcmp(a, b, n)) for (size_t i = 0; i < n; i++) WANT(a[i] == b[i], "%s: byte %zu went %d came %d", what, i, a[i], b[i]);
}
const size_t N = (1u << 30) + 4099, ROOM = N + 64;
static unsigned char* d; static cudaStream_t s;
static void both(unsigned char* out, unsigned char* back, uint64_t seed, const char* what) {
  fill(out, N, seed); std::memset(back, 0xEE, N);
  CK(cudaMemcpy(d + 13, out, N, cudaMemcpyHostToDevice)); CK(cudaMemcpy(back, d + 13, N, cudaMemcpyDeviceToHost));
  same(out, back, N, what);
  fill(out, N, seed + 1); std::memset(back, 0xEE, N);
  CK(cudaMemcpyAsync(d + 7, out, N, cudaMemcpyHostToDevice, s)); CK(cudaMemcpyAsync(back, d + 7, N, cudaMemcpyDeviceToHost, s));
  CK(cudaStreamSynchronize(s));
  same(out, back, N, what);
}
int main() {
  unsigned char* p; CK(cudaMalloc(&d, ROOM)); CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  unsigned char *a = (unsigned char*)std::malloc(ROOM), *b = (unsigned char*)std::malloc(ROOM);
  both(a + 1, b + 3, 1, "pageable");
  CK(cudaHostRegister(b, ROOM, 0)); both(a + 5, b + 9, 3, "registered"); CK(cudaHostUnregister(b)); std::free(b);
  CK(cudaMallocHost(&p, ROOM)); both(a, p + 1, 5, "to pinned"); both(p + 3, a, 7, "from pinned");
  CK(cudaFreeHost(p)); std::free(a); CK(cudaFree(d)); CK(cudaStreamDestroy(s));
  std::puts("PASS huge_copy");
}
