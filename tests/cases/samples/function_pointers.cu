// Functions chosen at run time: pointers in device and constant memory, virtual functions of objects made on the device, lambdas.
#include "../check.h"

typedef float (*Operation)(float, float);
__device__ float sum(float a, float b) { return a + b; }
__device__ float difference(float a, float b) { return a - b; }
__device__ float product(float a, float b) { return a * b; }
__device__ Operation table[] = {sum, difference, product};
__constant__ Operation chosen;

__global__ void by_table(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = table[i % 3](a[i], b[i]);
}
__global__ void by_argument(Operation f, const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = f(a[i], b[i]) + chosen(1, i);
}

struct Shape { __device__ virtual float area() const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { float side; __device__ Square(float s) : side(s) {} __device__ float area() const override { return side * side; } };
struct Box : Shape { float w, h; __device__ Box(float w, float h) : w(w), h(h) {} __device__ float area() const override { return w * h; } };
__global__ void make(Shape** shapes, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) shapes[i] = i % 2 ? (Shape*)new Square(i) : new Box(i, 2);
}
__global__ void areas(Shape** shapes, float* out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = shapes[i]->area(); }
__global__ void remove(Shape** shapes, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) delete shapes[i]; }

template <class F> __global__ void apply(F f, float* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = f(a[i]); }
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursive(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 15); }

int main() {
  const int n = 1000;
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; i++) { a[i] = i * 0.5f; b[i] = 3 - i; }
  float *da, *db, *dc;
  for (float** p : {&da, &db, &dc}) CK(cudaMalloc(p, n * 4));
  CK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice)); CK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  auto fetch = [&] { CK(cudaMemcpy(c.data(), dc, n * 4, cudaMemcpyDeviceToHost)); };

  by_table<<<4, 256>>>(da, db, dc, n);
  fetch();
  for (int i = 0; i < n; i++) {
    float want = i % 3 == 0 ? a[i] + b[i] : i % 3 == 1 ? a[i] - b[i] : a[i] * b[i];
    WANT(c[i] == want, "table, element %d: %g instead of %g", i, c[i], want);
  }
  Operation functions[3];
  CK(cudaMemcpyFromSymbol(functions, table, sizeof functions));
  CK(cudaMemcpyToSymbol(chosen, &functions[1], sizeof functions[1]));
  by_argument<<<4, 256>>>(functions[2], da, db, dc, n);
  fetch();
  for (int i = 0; i < n; i++) WANT(c[i] == a[i] * b[i] + (1 - i), "argument, element %d: %g", i, c[i]);

  Shape** shapes;
  CK(cudaMalloc(&shapes, n * sizeof(Shape*)));
  make<<<4, 256>>>(shapes, n);
  areas<<<4, 256>>>(shapes, dc, n);
  remove<<<4, 256>>>(shapes, n);
  fetch();
  for (int i = 0; i < n; i++) WANT(c[i] == (i % 2 ? (float)i * i : 2.f * i), "area %d: %g", i, c[i]);

  float factor = 2.5f;
  apply<<<4, 256>>>([factor] __device__(float x) { return x * factor + 1; }, da, n);
  CK(cudaMemcpy(c.data(), da, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) WANT(c[i] == a[i] * factor + 1, "lambda, element %d: %g", i, c[i]);

  int *di, numbers[64], wanted[15] = {0, 1};
  CK(cudaMalloc(&di, sizeof numbers));
  recursive<<<1, 64>>>(di);
  CK(cudaMemcpy(numbers, di, sizeof numbers, cudaMemcpyDeviceToHost));
  for (int i = 2; i < 15; i++) wanted[i] = wanted[i - 1] + wanted[i - 2];
  for (int i = 0; i < 64; i++) WANT(numbers[i] == wanted[i % 15], "Fibonacci number %d: %d", i % 15, numbers[i]);
  std::puts("PASS function_pointers");
}
