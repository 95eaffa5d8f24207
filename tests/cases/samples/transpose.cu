// A matrix turned over through shared memory, and a convolution in two passes with its filter in constant memory.
#include "../check.h"

const int tile = 32, rows = 8, radius = 8;
__constant__ float filter[2 * radius + 1];

__global__ void transpose(const float* in, float* out, int w, int h) {
  __shared__ float block[tile][tile + 1];
  int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y * tile + threadIdx.y;
  for (int j = 0; j < tile; j += rows) if (x < w && y + j < h) block[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * tile + threadIdx.x; y = blockIdx.x * tile + threadIdx.y;
  for (int j = 0; j < tile; j += rows) if (x < h && y + j < w) out[(y + j) * h + x] = block[threadIdx.x][threadIdx.y + j];
}

__global__ void convolve_rows(const float* in, float* out, int w, int h) {
  __shared__ float line[rows][tile + 2 * radius];
  int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y * rows + threadIdx.y;
  for (int i = threadIdx.x; i < tile + 2 * radius; i += tile) {
    int at = (int)(blockIdx.x * tile) + i - radius;
    line[threadIdx.y][i] = at >= 0 && at < w && y < h ? in[y * w + at] : 0;
  }
  __syncthreads();
  if (x >= w || y >= h) return;
  float sum = 0;
#pragma unroll
  for (int k = -radius; k <= radius; k++) sum += filter[radius + k] * line[threadIdx.y][threadIdx.x + radius + k];
  out[y * w + x] = sum;
}

int main() {
  const int w = 333, h = 201, n = w * h;
  std::vector<float> image(n), turned(n), smooth(n), f(2 * radius + 1);
  for (int i = 0; i < n; i++) image[i] = (i * 31 % 64) - 32;
  // Powers of two and small integers: every sum is exact in whatever order.
  for (int k = 0; k <= 2 * radius; k++) f[k] = 1.f / (1 << (k % 5));
  float *a, *b, *c;
  for (float** p : {&a, &b, &c}) CK(cudaMalloc(p, n * 4));
  CK(cudaMemcpy(a, image.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpyToSymbol(filter, f.data(), f.size() * 4));
  dim3 block(tile, rows);
  auto grid = [&](int width, int height, int down) { return dim3((width + tile - 1) / tile, (height + down - 1) / down); };
  transpose<<<grid(w, h, tile), block>>>(a, b, w, h);
  CK(cudaMemcpy(turned.data(), b, n * 4, cudaMemcpyDeviceToHost));
  for (int y = 0; y < h; y++) for (int x = 0; x < w; x++) WANT(turned[x * h + y] == image[y * w + x], "(%d, %d): %g", x, y, turned[x * h + y]);

  // Rows, turned over, rows again, turned back: both directions.
  convolve_rows<<<grid(w, h, rows), block>>>(a, b, w, h);
  transpose<<<grid(w, h, tile), block>>>(b, c, w, h);
  convolve_rows<<<grid(h, w, rows), block>>>(c, b, h, w);
  transpose<<<grid(h, w, tile), block>>>(b, c, h, w);
  CK(cudaGetLastError());
  CK(cudaMemcpy(smooth.data(), c, n * 4, cudaMemcpyDeviceToHost));
  for (int y = 0; y < h; y += 3) for (int x = 0; x < w; x += 5) {
    double want = 0;
    for (int j = -radius; j <= radius; j++) for (int i = -radius; i <= radius; i++)
      if (x + i >= 0 && x + i < w && y + j >= 0 && y + j < h) want += (double)f[radius + i] * f[radius + j] * image[(y + j) * w + x + i];
    WANT(smooth[y * w + x] == (float)want, "(%d, %d): %g instead of %g", x, y, smooth[y * w + x], want);
  }
  std::puts("PASS transpose");
}
