// Memory that the program has already, pinned afterwards and used by kernels.
#include "../check.h"
#include <unistd.h>

__global__ void triple(int* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= 3; }

int main() {
  const int n = 300000;
  std::vector<int> own(n);
  for (int i = 0; i < n; i++) own[i] = i;
  CK(cudaHostRegister(own.data(), n * 4, cudaHostRegisterMapped));
  cudaError_t again = cudaHostRegister(own.data(), n * 4, cudaHostRegisterMapped);
  WANT(again == cudaErrorHostMemoryAlreadyRegistered, "%d", (int)again);
  (void)cudaGetLastError();
  int* there;
  CK(cudaHostGetDevicePointer(&there, own.data(), 0));
  triple<<<(n + 255) / 256, 256>>>(there, n);
  CK(cudaDeviceSynchronize());
  for (int i = 0; i < n; i++) WANT(own[i] == 3 * i, "element %d: %d", i, own[i]);
  CK(cudaHostUnregister(own.data()));
  cudaError_t gone = cudaHostUnregister(own.data());
  WANT(gone == cudaErrorHostMemoryNotRegistered, "%d", (int)gone);
  std::puts("PASS registered");
}
