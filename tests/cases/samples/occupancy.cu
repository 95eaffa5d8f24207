// Occupancy: what the calculator answers, beside what follows from the device's limits.
#include "../check.h"
#include <algorithm>

__global__ void square(int* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= a[i]; }
__global__ void with_shared(int* a) {
  extern __shared__ int s[];
  s[threadIdx.x] = a[threadIdx.x]; __syncthreads(); a[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(64) small(int* a) { a[threadIdx.x] = 1; }

int main() {
  cudaDeviceProp p;
  CK(cudaGetDeviceProperties(&p, 0));
  int reserved = 0, most_blocks = 0;
  CK(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0));
  CK(cudaDeviceGetAttribute(&most_blocks, cudaDevAttrMaxBlocksPerMultiprocessor, 0));
  // 1,024 threads of a kernel that hardly needs registers: as many blocks as threads allow.
  int blocks = 0;
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, 1024, 0));
  WANT(blocks == p.maxThreadsPerMultiProcessor / 1024, "%d blocks of 1024 threads", blocks);
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, 32, 0));
  WANT(blocks == std::min(most_blocks, p.maxThreadsPerMultiProcessor / 32), "%d blocks of one warp", blocks);
  // Shared memory bounds it: a block has what it asked for and what the system reserves.
  for (int kib : {8, 16, 32, 48}) {
    CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, with_shared, 64, kib << 10));
    int want = std::min(most_blocks, (int)(p.sharedMemPerMultiprocessor / ((kib << 10) + reserved)));
    WANT(blocks == want, "%d KiB: %d blocks instead of %d", kib, blocks, want);
  }
  // A kernel's limits are in its attributes.
  cudaFuncAttributes f;
  CK(cudaFuncGetAttributes(&f, small));
  WANT(f.maxThreadsPerBlock == 64 && f.sharedSizeBytes == 0 && f.numRegs > 0, "%d threads, %zu bytes, %d registers", f.maxThreadsPerBlock,
       f.sharedSizeBytes, f.numRegs);
  // More than 48 KiB only after the program has asked for it.
  int* a;
  CK(cudaMalloc(&a, 64 * 4));
  size_t large = 64 << 10;
  WANT(p.sharedMemPerBlockOptin >= large, "%zu", p.sharedMemPerBlockOptin);
  with_shared<<<1, 64, large>>>(a);
  cudaError_t e = cudaGetLastError();
  WANT(e == cudaErrorInvalidValue, "64 KiB without asking: %d", (int)e);
  CK(cudaFuncSetAttribute(with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)large));
  with_shared<<<1, 64, large>>>(a);
  CK(cudaGetLastError());
  CK(cudaDeviceSynchronize());

  // The block that the calculator proposes, used.
  const int n = 100000;
  int least = 0, block = 0;
  CK(cudaOccupancyMaxPotentialBlockSize(&least, &block, square, 0, 0));
  WANT(block > 0 && block <= p.maxThreadsPerBlock && block % 32 == 0, "blocks of %d", block);
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, block, 0));
  WANT(blocks * block == p.maxThreadsPerMultiProcessor && least == blocks * p.multiProcessorCount, "%d blocks of %d, a grid of %d", blocks, block,
       least);
  std::vector<int> v(n);
  for (int i = 0; i < n; i++) v[i] = i % 1000;
  int* d;
  CK(cudaMalloc(&d, n * 4)); CK(cudaMemcpy(d, v.data(), n * 4, cudaMemcpyHostToDevice));
  square<<<(n + block - 1) / block, block>>>(d, n);
  CK(cudaMemcpy(v.data(), d, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) WANT(v[i] == (i % 1000) * (i % 1000), "element %d: %d", i, v[i]);
  size_t room = 0;
  CK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, with_shared, 2, 64));
  WANT(room > 0 && room <= p.sharedMemPerBlockOptin && 2 * (room + reserved) <= p.sharedMemPerMultiprocessor, "%zu bytes for two blocks", room);
  std::puts("PASS occupancy");
}
