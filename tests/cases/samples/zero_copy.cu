// Kernels on pinned memory of the host: mapped by the allocation, and mapped afterwards.
#include "../check.h"
#include <unistd.h>

__global__ void add(const float* a, const float* b, float* c, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }
__global__ void slow(float* a, int n, int rounds) { for (int k = 0; k < rounds; k++) for (int i = threadIdx.x; i < n; i += blockDim.x) a[i] += 1; }
// Waits for the host, then answers it.
__global__ void answer(volatile int* question, volatile int* reply) {
  while (*question == 0) {}
  *reply = *question + 1;
  __threadfence_system();
}

int main() {
  const int n = 100000;
  int can = 0;
  CK(cudaDeviceGetAttribute(&can, cudaDevAttrCanMapHostMemory, 0));
  WANT(can == 1, "no mapped memory");
  float *host[3], *device[3];
  for (int i = 0; i < 3; i++) {
    CK(cudaHostAlloc(&host[i], n * 4, cudaHostAllocMapped));
    CK(cudaHostGetDevicePointer(&device[i], host[i], 0));
  }
  for (int i = 0; i < n; i++) { host[0][i] = i; host[1][i] = 2.f * i; }
  add<<<(n + 255) / 256, 256>>>(device[0], device[1], device[2], n);
  CK(cudaDeviceSynchronize());
  for (int i = 0; i < n; i++) WANT(host[2][i] == 3.f * i, "element %d: %g", i, host[2][i]);

  // A set of the host's memory is over when its call returns, whatever stands before it in the stream.
  slow<<<1, 32>>>(device[0], n, 50);
  CK(cudaMemset(device[2], 0, n * 4));
  WANT(host[2][0] == 0 && host[2][n - 1] == 0, "not set yet: %g, %g", host[2][0], host[2][n - 1]);
  CK(cudaDeviceSynchronize());
  WANT(host[0][n - 1] == n - 1 + 50, "%g", host[0][n - 1]);

  // The program and a running kernel talk.
  volatile int* words;
  CK(cudaHostAlloc((void**)&words, 8, cudaHostAllocMapped));
  words[0] = words[1] = 0;
  int* there;
  CK(cudaHostGetDevicePointer(&there, (int*)words, 0));
  answer<<<1, 1>>>(there, there + 1);
  CK(cudaGetLastError());
  usleep(1000);
  WANT(words[1] == 0, "an answer without a question");
  words[0] = 41;
  for (long waits = 0; words[1] == 0; waits++) { WANT(waits < 20000, "no answer"); usleep(1000); }
  WANT(words[1] == 42, "%d", words[1]);
  CK(cudaDeviceSynchronize());
  std::puts("PASS zero_copy");
}
