// A histogram by atomics in shared memory, and a bitonic sort whose larger steps are launches of their own.
#include "../check.h"
#include <algorithm>

__global__ void histogram(const unsigned* in, int n, unsigned* bins) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[in[i] >> 24], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], mine[i]);
}

__device__ void order(unsigned& a, unsigned& b, bool up) { if ((a > b) == up) { unsigned t = a; a = b; b = t; } }

// All steps that stay within 1,024 elements, for every size from `size` on.
__global__ void inside(unsigned* data, int first_size, int last_size) {
  __shared__ unsigned s[1024];
  int base = blockIdx.x * 1024;
  s[threadIdx.x] = data[base + threadIdx.x]; s[threadIdx.x + 512] = data[base + threadIdx.x + 512];
  for (int size = first_size; size <= last_size; size *= 2)
    for (int stride = min(size / 2, 512); stride > 0; stride /= 2) {
      __syncthreads();
      int at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      order(s[at], s[at + stride], ((base + at) & size) == 0);
    }
  __syncthreads();
  data[base + threadIdx.x] = s[threadIdx.x]; data[base + threadIdx.x + 512] = s[threadIdx.x + 512];
}
__global__ void across(unsigned* data, int size, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, at = 2 * i - (i & (stride - 1));
  order(data[at], data[at + stride], (at & size) == 0);
}

int main() {
  const int n = 1 << 15;
  std::vector<unsigned> v(n), got(n);
  unsigned seed = 1, *d, *bins;
  for (auto& x : v) x = seed = seed * 1664525u + 1013904223u;
  CK(cudaMalloc(&d, n * 4)); CK(cudaMalloc(&bins, 256 * 4));
  CK(cudaMemcpy(d, v.data(), n * 4, cudaMemcpyHostToDevice)); CK(cudaMemset(bins, 0, 256 * 4));
  histogram<<<20, 192>>>(d, n, bins);
  std::vector<unsigned> counted(256), want(256);
  CK(cudaMemcpy(counted.data(), bins, 256 * 4, cudaMemcpyDeviceToHost));
  for (auto x : v) want[x >> 24]++;
  WANT(counted == want, "the histogram differs");

  inside<<<n / 1024, 512>>>(d, 2, 1024);
  for (int size = 2048; size <= n; size *= 2) {
    for (int stride = size / 2; stride >= 1024; stride /= 2) across<<<n / 512, 256>>>(d, size, stride);
    inside<<<n / 1024, 512>>>(d, size, size);
  }
  CK(cudaGetLastError());
  CK(cudaMemcpy(got.data(), d, n * 4, cudaMemcpyDeviceToHost));
  std::sort(v.begin(), v.end());
  for (int i = 0; i < n; i++) WANT(got[i] == v[i], "element %d: %u instead of %u", i, got[i], v[i]);
  std::puts("PASS sorting");
}
