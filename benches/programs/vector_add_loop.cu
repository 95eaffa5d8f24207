// A program as many are: copies in, some thousand launches with a look at one number now and then, copies out.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CK(x) do { cudaError_t e_ = (x); if (e_) { std::printf("FAIL %s: %s\n", #x, cudaGetErrorString(e_)); std::exit(1); } } while (0)

__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 1 << 20, rounds = 1000;
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; i++) { a[i] = i * 0.5f; b[i] = 3.0f - i; }
  float *da, *db, *dc;
  CK(cudaMalloc(&da, n * 4)); CK(cudaMalloc(&db, n * 4)); CK(cudaMalloc(&dc, n * 4));
  CK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice)); CK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  for (int round = 0; round < rounds; round++) {
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    CK(cudaGetLastError());
    if (round % 10 == 9) CK(cudaMemcpy(c.data(), dc + round, 4, cudaMemcpyDeviceToHost));
  }
  CK(cudaMemcpy(c.data(), dc, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) if (c[i] != a[i] + b[i]) return std::printf("FAIL at %d\n", i), 1;
  std::puts("PASS vector_add_loop");
}
