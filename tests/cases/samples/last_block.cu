// A sum in one launch: the block that finishes last adds what the others have left behind their fences.
#include "../check.h"

__device__ unsigned finished = 0;

__global__ void sum(const int* in, int n, volatile long long* parts, long long* out) {
  __shared__ long long shared[256];
  __shared__ bool last;
  long long mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += in[i];
  shared[threadIdx.x] = mine;
  for (int width = blockDim.x / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) shared[threadIdx.x] += shared[threadIdx.x + width];
  }
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = shared[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  mine = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) mine += parts[i];
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(~0u, mine, offset);
  if (threadIdx.x % 32 == 0) atomicAdd((unsigned long long*)out, (unsigned long long)mine);
}

int main() {
  const int n = 1 << 20;
  std::vector<int> v(n);
  int* d;
  long long *parts, *out, got;
  CK(cudaMalloc(&d, n * 4)); CK(cudaMalloc(&parts, 1024 * 8)); CK(cudaMalloc(&out, 8));
  for (int blocks : {1, 7, 64, 1000}) {
    long long want = 0;
    for (int i = 0; i < n; i++) want += v[i] = (i * 2654435761u >> 8) - blocks;
    CK(cudaMemcpy(d, v.data(), n * 4, cudaMemcpyHostToDevice)); CK(cudaMemset(out, 0, 8));
    sum<<<blocks, 256>>>(d, n, parts, out);
    CK(cudaMemcpy(&got, out, 8, cudaMemcpyDeviceToHost));
    WANT(got == want, "%d blocks: %lld instead of %lld", blocks, got, want);
  }
  std::puts("PASS last_block");
}
