// The default stream in both builds: legacy (orders against blocking streams) and, with --default-stream per-thread, one a host thread.
#include "check.h"
#include <thread>
__global__ void add(int* x, int k) { atomicAdd(x, k); }
__global__ void times(int* x, int k) { *x *= k; }
int main() {
  int *d, got = 0; cudaStream_t s; CK(cudaMalloc(&d, 4)); CK(cudaStreamCreate(&s)); CK(cudaMemset(d, 0, 4)); CK(cudaDeviceSynchronize());
  // In the default stream itself, order is program order, in either build.
  for (int i = 0; i < 50; i++) add<<<1, 1>>>(d, 1);
  times<<<1, 1>>>(d, 2); add<<<1, 1>>>(d, 5); CK(cudaStreamSynchronize(0));
  CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == 105, "got %d", got);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  std::vector<std::thread> all;
  for (int t = 0; t < 3; t++) all.emplace_back([d] { for (int i = 0; i < 20; i++) add<<<1, 1>>>(d, 1); CK(cudaStreamSynchronize(0)); });
  for (auto& t : all) t.join();
  CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == 165, "got %d", got);
  add<<<1, 1, 0, cudaStreamPerThread>>>(d, 1); CK(cudaStreamSynchronize(cudaStreamPerThread));
  CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == 166, "got %d", got);
#else
  // Legacy: work in a blocking stream waits for the default stream's, and the default stream's for it.
  CK(cudaMemset(d, 0, 4)); add<<<1, 1, 0, s>>>(d, 3); times<<<1, 1>>>(d, 7); add<<<1, 1, 0, s>>>(d, 4); times<<<1, 1, 0, cudaStreamLegacy>>>(d, 2);
  CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == 50, "got %d", got);
  add<<<1, 1, 0, cudaStreamPerThread>>>(d, 1); CK(cudaStreamSynchronize(cudaStreamPerThread));
  CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == 51, "got %d", got);
#endif
  CK(cudaStreamDestroy(s)); CK(cudaFree(d));
  std::puts("PASS default_stream");
}
