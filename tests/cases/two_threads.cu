// Several host threads, each with its own stream and buffers, at the same time on one device; one error stays in its own thread.
#include "check.h"
#include <thread>
__global__ void step(int* x, int n, int k) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * 3 + k; }
__global__ void nop() {}
static void work(int id) {
  const int n = 10000 + 111 * id; std::vector<int> h(n); int* d; cudaStream_t s;
  CK(cudaSetDevice(0)); CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CK(cudaMalloc(&d, n * sizeof(int)));
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < n; i++) h[i] = i + id;
    CK(cudaMemcpyAsync(d, h.data(), n * sizeof(int), cudaMemcpyHostToDevice, s));
    for (int k = 0; k < 5; k++) step<<<(n + 127) / 128, 128, 0, s>>>(d, n, id + k);
    CK(cudaGetLastError());
    CK(cudaMemcpyAsync(h.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost, s)); CK(cudaStreamSynchronize(s));
    for (int i = 0; i < n; i++) {
      int w = i + id; for (int k = 0; k < 5; k++) w = w * 3 + id + k;
      WANT(h[i] == w, "thread %d round %d i=%d got %d want %d", id, round, i, h[i], w);
    }
    if (id == 0) { nop<<<1, 4096>>>(); WANT(cudaGetLastError() == cudaErrorInvalidConfiguration, "block of 4096 threads accepted"); }
  }
  CK(cudaFree(d)); CK(cudaStreamDestroy(s));
}
int main() {
  std::vector<std::thread> all; for (int id = 0; id < 4; id++) all.emplace_back(work, id);
  for (auto& t : all) t.join();
  CK(cudaDeviceSynchronize());
  std::puts("PASS two_threads");
}
