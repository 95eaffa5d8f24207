// Every error that a kernel can end in or a launch be refused with, each in a process of its own, as most of them stay for the process.
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

__global__ void nop() {}
__global__ void wild(int* p) { *p = 1; }
__global__ void skewed(char* p) { *(volatile int*)(p + 2) = 1; }
__global__ void trapped() { if (threadIdx.x == 31) __trap(); }
__global__ void resident(int* p) { *p = 1; }
// 128 values that must be kept over a barrier do not fit the 64 registers that each of 1024 threads can have.
__global__ void hungry(float* p) {
  float kept[128];
#pragma unroll
  for (int i = 0; i < 128; i++) kept[i] = p[threadIdx.x + 1024 * i];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; i++) sum += kept[i] * kept[127 - i];
  p[threadIdx.x] = sum;
}

// Sticky: the launch is good, and from the next synchronisation on everything gives the error.
static void ends(cudaError_t launched, cudaError_t wanted) {
  CK(launched);
  cudaError_t e = cudaDeviceSynchronize(); WANT(e == wanted, "synchronise gave %d", (int)e);
  (void)cudaGetLastError();
  void* p; e = cudaMalloc(&p, 4); WANT(e == wanted, "a later cudaMalloc gave %d", (int)e);
  nop<<<1, 1>>>(); e = cudaGetLastError(); WANT(e == wanted, "a later launch gave %d", (int)e);
}

// Not sticky: the call itself gives the error, and the next one is good.
static void refused(cudaError_t got, cudaError_t wanted) {
  WANT(got == wanted, "the call gave %d", (int)got);
  (void)cudaGetLastError();
  nop<<<1, 32>>>(); CK(cudaGetLastError()); CK(cudaDeviceSynchronize());
}

static void one(int code) {
  char* p; CK(cudaMalloc(&p, 1024 * 128 * 4)); CK(cudaMemset(p, 0, 1024 * 128 * 4));
  switch (code) {
    case 2: { size_t free_b, total_b; CK(cudaMemGetInfo(&free_b, &total_b)); refused(cudaMalloc(&p, total_b + 1), cudaErrorMemoryAllocation); break; }
    case 700: wild<<<1, 32>>>((int*)0x10000); ends(cudaGetLastError(), cudaErrorIllegalAddress); break;
    case 701: {
      hungry<<<1, 1024>>>((float*)p); refused(cudaGetLastError(), cudaErrorLaunchOutOfResources);
      hungry<<<1, 256>>>((float*)p); CK(cudaGetLastError()); CK(cudaDeviceSynchronize()); break;
    }
    case 716: skewed<<<1, 32>>>(p); ends(cudaGetLastError(), cudaErrorMisalignedAddress); break;
    case 719: trapped<<<2, 64>>>(); ends(cudaGetLastError(), cudaErrorLaunchFailure); break;
    case 720: { void* args[] = {&p}; refused(cudaLaunchCooperativeKernel((void*)resident, 1 << 20, 32, args), cudaErrorCooperativeLaunchTooLarge); break; }
  }
}

int main() {
  const int codes[] = {2, 700, 701, 716, 719, 720};
  for (int code : codes) {
    // Before the first call of CUDA, which a child could not go on with.
    pid_t child = fork();
    if (child == 0) { one(code); std::fflush(stdout); _exit(0); }
    int status = -1;
    WANT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "code %d: status %d", code, status);
  }
  std::puts("PASS error_codes");
}
