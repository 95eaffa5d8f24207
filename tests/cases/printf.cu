// printf in a kernel: its text reaches the host's stdout before the synchronise that flushes it returns.
// The test that runs this case checks the order of the lines, with stdout a pipe, as it is under most batch systems.
#include "check.h"
__global__ void say(const char* word, int n) {
  if (threadIdx.x < (unsigned)n)
    printf("device %s: thread %d of %d, %.3f, %llu, 0x%x, %c%%\n", word, threadIdx.x, n, threadIdx.x * 0.5, 1234567890123456789ULL, 48879u, 'z');
}
__global__ void bare() { printf("device: no argument\n"); }
int main() {
  char text[] = "hello", *word; CK(cudaMalloc(&word, sizeof text)); CK(cudaMemcpy(word, text, sizeof text, cudaMemcpyHostToDevice));
  std::puts("host: before the launch"); std::fflush(stdout);
  say<<<1, 32>>>(word, 3); CK(cudaDeviceSynchronize());
  std::puts("host: after the first synchronise"); std::fflush(stdout);
  cudaStream_t s; CK(cudaStreamCreate(&s)); bare<<<1, 1, 0, s>>>(); CK(cudaStreamSynchronize(s));
  std::puts("host: after the second synchronise"); std::fflush(stdout);
  std::puts("PASS printf");
}
