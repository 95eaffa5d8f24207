// Copies between devices by their numbers, and kernels of one device on the memory of the other: only after access was given, and no longer.
#include "../check.h"

__global__ void sum(const int* from, int* to, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) to[i] += from[i] * 3; }

int main() {
  const int n = 100000;
  int count = 0, can = 0;
  CK(cudaGetDeviceCount(&count));
  WANT(count == 2, "%d devices: this case is run with two", count);
  CK(cudaDeviceCanAccessPeer(&can, 0, 1));
  WANT(can == 1, "no peer access");
  std::vector<int> v(n);
  for (int i = 0; i < n; i++) v[i] = i;
  int* a[2];
  for (int d = 0; d < 2; d++) {
    CK(cudaSetDevice(d));
    CK(cudaMalloc(&a[d], n * 4)); CK(cudaMemcpy(a[d], v.data(), n * 4, cudaMemcpyHostToDevice));
  }
  // Without access given: the driver copies.
  CK(cudaMemset(a[1], 0, n * 4));
  CK(cudaMemcpyPeer(a[1], 1, a[0], 0, n * 4));
  CK(cudaMemset(a[0], 0, n * 4));
  CK(cudaMemcpyPeerAsync(a[0], 0, a[1], 1, n * 4, 0));
  CK(cudaDeviceSynchronize());
  for (int d = 0; d < 2; d++) {
    CK(cudaSetDevice(d));
    CK(cudaDeviceEnablePeerAccess(1 - d, 0));
    cudaError_t again = cudaDeviceEnablePeerAccess(1 - d, 0);
    WANT(again == cudaErrorPeerAccessAlreadyEnabled, "%d", (int)again);
    (void)cudaGetLastError();
  }
  CK(cudaSetDevice(0));
  sum<<<(n + 255) / 256, 256>>>(a[1], a[0], n);
  CK(cudaDeviceSynchronize());
  CK(cudaSetDevice(1));
  sum<<<(n + 255) / 256, 256>>>(a[0], a[1], n);
  CK(cudaDeviceSynchronize());
  for (int d = 0; d < 2; d++) {
    CK(cudaMemcpy(v.data(), a[d], n * 4, cudaMemcpyDefault));
    for (int i = 0; i < n; i++) WANT(v[i] == i * (d ? 13 : 4), "device %d, element %d: %d", d, i, v[i]);
  }
  CK(cudaSetDevice(0));
  CK(cudaDeviceDisablePeerAccess(1));
  cudaError_t e = cudaDeviceDisablePeerAccess(1);
  WANT(e == cudaErrorPeerAccessNotEnabled, "%d", (int)e);
  (void)cudaGetLastError();
  sum<<<(n + 255) / 256, 256>>>(a[1], a[0], n);
  e = cudaDeviceSynchronize();
  WANT(e == cudaErrorIllegalAddress, "without access: %d", (int)e);
  std::puts("PASS peer_access");
}
