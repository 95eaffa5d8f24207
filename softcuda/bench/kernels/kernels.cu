// The kernels of softcuda-bench. kernels.ptx is made of this file:
//   nvcc -O3 -arch=sm_75 -ptx kernels.cu -o kernels.ptx
// baseline.c holds the same algorithms for gcc, in the same loop order.
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void

KERNEL empty() {}

KERNEL vector_add(const float *a, const float *b, float *c, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

KERNEL vector_add_stride(const float *a, const float *b, float *c, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

// A block computes a tile of T x T; each thread ROWS rows of one column.
template <int T, int ROWS> __device__ void matmul(const float *a, const float *b, float *c, int n) {
  __shared__ float as[T][T], bs[T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T, column = blockIdx.x * T + x;
  float sum[ROWS] = {};
  for (int t = 0; t < n; t += T) {
    for (int r = 0; r < ROWS; r++) {
      int at = y + r * (T / ROWS);
      as[at][x] = a[(row + at) * n + t + x];
      bs[at][x] = b[(t + at) * n + column];
    }
    __syncthreads();
    for (int k = 0; k < T; k++)
      for (int r = 0; r < ROWS; r++) sum[r] += as[y + r * (T / ROWS)][k] * bs[k][x];
    __syncthreads();
  }
  for (int r = 0; r < ROWS; r++) c[(row + y + r * (T / ROWS)) * n + column] = sum[r];
}
KERNEL matmul16(const float *a, const float *b, float *c, int n) { matmul<16, 1>(a, b, c, n); }
KERNEL matmul32(const float *a, const float *b, float *c, int n) { matmul<32, 1>(a, b, c, n); }
KERNEL matmul32x4(const float *a, const float *b, float *c, int n) { matmul<32, 4>(a, b, c, n); }

// The sums of the blocks, by shuffles; the host adds them up.
__device__ void block_sum(float s, float *sums) {
  __shared__ float warps[32];
  for (int d = 16; d; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) sums[blockIdx.x] = s;
  }
}
KERNEL reduce1(const float *x, float *sums, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  block_sum(i < n ? x[i] : 0, sums);
}
KERNEL reduce8(const float *x, float *sums, unsigned n) {
  float s = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  block_sum(s, sums);
}

KERNEL mandelbrot(int *out, int w, int h, int most) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float cr = x * 3.f / w - 2, ci = y * 2.f / h - 1, zr = 0, zi = 0;
  int i = 0;
  while (i < most && zr * zr + zi * zi < 4) {
    float t = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = t;
    i++;
  }
  out[y * w + x] = i;
}

KERNEL black_scholes(const float *spot, const float *strike, const float *years, float *call, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float rate = 0.02f, sigma = 0.3f;
  float s = spot[i], x = strike[i], t = years[i], root = sqrtf(t);
  float d1 = (logf(s / x) + (rate + 0.5f * sigma * sigma) * t) / (sigma * root), d2 = d1 - sigma * root;
  float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f);
  call[i] = s * n1 - x * expf(-rate * t) * n2;
}

KERNEL nbody(const float4 *bodies, float4 *forces, int n) {
  __shared__ float4 tile[256];
  float4 me = bodies[blockIdx.x * blockDim.x + threadIdx.x];
  float fx = 0, fy = 0, fz = 0;
  for (int t = 0; t < n; t += blockDim.x) {
    tile[threadIdx.x] = bodies[t + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < blockDim.x; j++) {
      float4 other = tile[j];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float r = 1 / sqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), f = other.w * r * r * r;
      fx += dx * f;
      fy += dy * f;
      fz += dz * f;
    }
    __syncthreads();
  }
  forces[blockIdx.x * blockDim.x + threadIdx.x] = make_float4(fx, fy, fz, 0);
}
