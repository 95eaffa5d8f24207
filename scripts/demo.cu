// The demo: a CUDA program like any other. It knows nothing of gpupool. Prints "name: value" lines, which scripts/demo
// puts side by side, and with an argument the picture that it computed.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                        \
  do {                                                                                     \
    cudaError_t status = (call);                                                           \
    if (status != cudaSuccess) {                                                           \
      std::printf("error: %s: %s\n", #call, cudaGetErrorString(status));                   \
      return 1;                                                                            \
    }                                                                                      \
  } while (0)

// Sums x[i] * y[i] over all blocks: shared memory, barriers, one atomic a block.
__global__ void dot(const float* x, const float* y, int n, double* sum) {
  __shared__ double part[128];
  double own = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += (double)x[i] * y[i];
  part[threadIdx.x] = own;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(sum, part[0]);
}

// How soon z = z*z + c leaves the circle of radius 2: the Mandelbrot set.
__global__ void mandelbrot(unsigned char* steps, int width, int height) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= width || row >= height) return;
  float real = -2.2f + 3.2f * column / width, imaginary = -1.2f + 2.4f * row / height, a = 0, b = 0;
  int step = 0;
  while (step < 200 && a * a + b * b < 4) {
    float next = a * a - b * b + real;
    b = 2 * a * b + imaginary;
    a = next;
    step++;
  }
  steps[row * width + column] = step;
}

int main(int argc, char**) {
  auto start = std::chrono::steady_clock::now();
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("device: %s\n", device.name);

  const int n = 1 << 20;
  std::vector<float> x(n), y(n);
  double want = 0, got = 0;
  for (int i = 0; i < n; i++) {
    x[i] = (i % 1000) * 0.25f;
    y[i] = 2.0f - i % 5;
    want += (double)x[i] * y[i];
  }
  float *device_x, *device_y;
  double* device_sum;
  CHECK(cudaMalloc(&device_x, n * sizeof(float)));
  CHECK(cudaMalloc(&device_y, n * sizeof(float)));
  CHECK(cudaMalloc(&device_sum, sizeof(double)));
  CHECK(cudaMemcpy(device_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_y, y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(device_sum, 0, sizeof(double)));
  dot<<<64, 128>>>(device_x, device_y, n, device_sum);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&got, device_sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("dot product: %.2f (%s)\n", got, got == want ? "right" : "WRONG");

  const int width = 640, height = 480;
  std::vector<unsigned char> steps(width * height);
  unsigned char* device_steps;
  CHECK(cudaMalloc(&device_steps, steps.size()));
  mandelbrot<<<dim3(width / 32, height / 8), dim3(32, 8)>>>(device_steps, width, height);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(steps.data(), device_steps, steps.size(), cudaMemcpyDeviceToHost));
  unsigned hash = 2166136261u;
  for (unsigned char step : steps) hash = (hash ^ step) * 16777619u;
  std::printf("picture: %08x\n", hash);

  CHECK(cudaDeviceReset());
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("whole program: %.0f ms\n", seconds * 1e3);
  if (argc > 1)
    for (int row = 0; row < height; row += 20) {
      for (int column = 0; column < width; column += 8) {
        int step = steps[row * width + column];
        std::putchar(step == 200 ? '@' : step > 20 ? 'o' : step > 6 ? '.' : ' ');
      }
      std::putchar('\n');
    }
  return got == want ? 0 : 1;
}
