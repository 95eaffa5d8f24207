// A matrix product by mma.sync. tensor.ptx is made of this file:
//   nvcc -O3 -arch=sm_80 -ptx tensor.cu -o tensor.ptx
#include <cuda_fp16.h>

// c = a * b for n x n matrices: a in rows, b in columns (b[column][k]), c in f32. A warp computes a tile of 16 x 8.
extern "C" __global__ void gemm(const __half *a, const __half *b, float *c, int n) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  int row = warp / (n / 8) * 16, column = warp % (n / 8) * 8;
  float d[4] = {};
  for (int k = 0; k < n; k += 16) {
    const __half *p = a + (row + group) * n + k + pair, *q = b + (column + group) * n + k + pair;
    unsigned a0 = *(const unsigned *)p, a1 = *(const unsigned *)(p + 8 * n), a2 = *(const unsigned *)(p + 8);
    unsigned a3 = *(const unsigned *)(p + 8 * n + 8), b0 = *(const unsigned *)q, b1 = *(const unsigned *)(q + 8);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  float *out = c + (row + group) * n + column + pair;
  out[0] = d[0];
  out[1] = d[1];
  out[8 * n] = d[2];
  out[8 * n + 1] = d[3];
}
