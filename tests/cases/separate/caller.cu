// Device code of two files: a function, a variable and a constant of the other one.
#include "../check.h"
#include "callee.h"

__global__ void call(int* out) {
  out[threadIdx.x] = transformed(threadIdx.x) + offset;
  atomicAdd(&calls, 1);
}

int main() {
  int *device, got[64];
  CK(cudaMalloc(&device, sizeof got));
  set_offset(100);
  call<<<1, 64>>>(device);
  CK(cudaGetLastError());
  CK(cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; i++) WANT(got[i] == i * 7 + 1 + 100, "element %d: %d", i, got[i]);
  int counted = counted_calls();
  WANT(counted == 64, "%d calls", counted);
  std::puts("PASS separate");
}
