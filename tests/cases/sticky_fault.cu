// A kernel that writes to a wild address: error 700, and it stays for this process (other processes must not notice).
#include "check.h"
__global__ void wild(int* p) { *p = 1; }
__global__ void nop() {}
int main() {
  int* d; CK(cudaMalloc(&d, 4)); nop<<<1, 1>>>(); CK(cudaDeviceSynchronize());
  wild<<<1, 1>>>((int*)0xdead0000ULL);
  cudaError_t e = cudaDeviceSynchronize(); WANT(e == cudaErrorIllegalAddress, "synchronise gave %d %s", (int)e, cudaGetErrorString(e));
  (void)cudaGetLastError();
  // Sticky: everything that touches the context says the same from now on.
  e = cudaMalloc(&d, 4); WANT(e == cudaErrorIllegalAddress, "a later cudaMalloc gave %d", (int)e);
  e = cudaDeviceSynchronize(); WANT(e == cudaErrorIllegalAddress, "a later synchronise gave %d", (int)e);
  nop<<<1, 1>>>(); WANT(cudaGetLastError() == cudaErrorIllegalAddress, "a later launch passed");
  std::puts("PASS sticky_fault");
}
