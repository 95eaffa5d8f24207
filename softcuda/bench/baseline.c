// The algorithms of kernels/kernels.cu in C, in the same loop order. softcuda-bench compiles this file when it starts:
//   gcc -O3 -fPIC -shared baseline.c -lm
#include <math.h>
#include <stddef.h>

void vector_add(const float *restrict a, const float *restrict b, float *restrict c, size_t n) {
  for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

// Tiles of T x T with k innermost, and with ROWS rows at a time.
#define MATMUL(NAME, T, ROWS)                                                                        \
  void NAME(const float *a, const float *b, float *c, int n) {                                       \
    static _Thread_local float as[T][T], bs[T][T];                                                   \
    for (int by = 0; by < n; by += T)                                                                \
      for (int bx = 0; bx < n; bx += T) {                                                            \
        float sum[T][T] = {{0}};                                                                     \
        for (int t = 0; t < n; t += T) {                                                             \
          for (int y = 0; y < T; y++)                                                                \
            for (int x = 0; x < T; x++) {                                                            \
              as[y][x] = a[(by + y) * n + t + x];                                                    \
              bs[y][x] = b[(t + y) * n + bx + x];                                                    \
            }                                                                                        \
          for (int y = 0; y < T / ROWS; y++)                                                         \
            for (int x = 0; x < T; x++) {                                                            \
              float s[ROWS];                                                                         \
              for (int r = 0; r < ROWS; r++) s[r] = sum[y + r * (T / ROWS)][x];                      \
              for (int k = 0; k < T; k++)                                                            \
                for (int r = 0; r < ROWS; r++) s[r] += as[y + r * (T / ROWS)][k] * bs[k][x];         \
              for (int r = 0; r < ROWS; r++) sum[y + r * (T / ROWS)][x] = s[r];                      \
            }                                                                                        \
        }                                                                                            \
        for (int y = 0; y < T; y++)                                                                  \
          for (int x = 0; x < T; x++) c[(by + y) * n + bx + x] = sum[y][x];                          \
      }                                                                                              \
  }
MATMUL(matmul16, 16, 1)
MATMUL(matmul32, 32, 1)
MATMUL(matmul32x4, 32, 4)

// A plain product: b[column][k], as the tensor kernel has it.
void gemm(const float *a, const float *b, float *c, int n) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float s = 0;
      for (int k = 0; k < n; k++) s += a[i * n + k] * b[j * n + k];
      c[i * n + j] = s;
    }
}

float sum(const float *x, size_t n) {
  float s = 0;
  for (size_t i = 0; i < n; i++) s += x[i];
  return s;
}

void mandelbrot(int *out, int w, int h, int most) {
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
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
}

void black_scholes(const float *restrict spot, const float *restrict strike, const float *restrict years,
                   float *restrict call, int n) {
  const float rate = 0.02f, sigma = 0.3f;
  for (int i = 0; i < n; i++) {
    float s = spot[i], x = strike[i], t = years[i], root = sqrtf(t);
    float d1 = (logf(s / x) + (rate + 0.5f * sigma * sigma) * t) / (sigma * root), d2 = d1 - sigma * root;
    float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f);
    call[i] = s * n1 - x * expf(-rate * t) * n2;
  }
}

void nbody(const float *restrict bodies, float *restrict forces, int n) {
  for (int i = 0; i < n; i++) {
    const float *me = bodies + 4 * i;
    float fx = 0, fy = 0, fz = 0;
    for (int j = 0; j < n; j++) {
      const float *other = bodies + 4 * j;
      float dx = other[0] - me[0], dy = other[1] - me[1], dz = other[2] - me[2];
      float r = 1 / sqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), f = other[3] * r * r * r;
      fx += dx * f;
      fy += dy * f;
      fz += dz * f;
    }
    forces[4 * i] = fx;
    forces[4 * i + 1] = fy;
    forces[4 * i + 2] = fz;
    forces[4 * i + 3] = 0;
  }
}
