// A kernel of some 500 lines of PTX in a branchy, unrolled style: what a compile is timed with. compile.ptx is made of this file:
//   nvcc -O3 -arch=sm_75 -ptx compile.cu -o compile.ptx
#define T 32
#define ROWS 4

extern "C" __global__ void lines500(const float *a, const float *b, float *c, int n, float alpha, float beta) {
  __shared__ float as[T][T + 1], bs[T][T + 1];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T, column = blockIdx.x * T + x;
  float sum[ROWS] = {};
  for (int t = 0; t < n; t += T) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      int at = y + r * (T / ROWS);
      as[at][x] = row + at < n && t + x < n ? a[(row + at) * n + t + x] : 0;
      bs[at][x] = t + at < n && column < n ? b[(t + at) * n + column] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < T; k++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) sum[r] += as[y + r * (T / ROWS)][k] * bs[k][x];
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int at = row + y + r * (T / ROWS);
    if (at < n && column < n) c[at * n + column] = alpha * tanhf(sum[r]) + beta * c[at * n + column];
  }
}
