// Two devices: work on both at once, from one thread and from two; copies between them by address; what belongs to which.
#include "../check.h"
#include <thread>

__global__ void fill(int* a, int n, int first, int step) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = first + step * i; }
__global__ void add(int* a, int n, int by) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += by; }

static const int n = 1 << 18, blocks = n / 256;

static void expect(const int* device, int first, int step, const char* what) {
  std::vector<int> v(n);
  CK(cudaMemcpy(v.data(), device, n * 4, cudaMemcpyDefault));
  for (int i = 0; i < n; i++) WANT(v[i] == first + step * i, "%s, element %d: %d", what, i, v[i]);
}

int main() {
  int count = 0;
  CK(cudaGetDeviceCount(&count));
  WANT(count == 2, "%d devices: this case is run with two", count);
  cudaDeviceProp p[2];
  int* a[2];
  cudaStream_t s[2];
  cudaEvent_t filled[2];
  for (int d = 0; d < 2; d++) {
    CK(cudaGetDeviceProperties(&p[d], d));
    CK(cudaSetDevice(d));
    CK(cudaMalloc(&a[d], n * 4)); CK(cudaStreamCreate(&s[d])); CK(cudaEventCreateWithFlags(&filled[d], cudaEventDisableTiming));
    cudaPointerAttributes what;
    CK(cudaPointerGetAttributes(&what, a[d]));
    WANT(what.type == cudaMemoryTypeDevice && what.device == d, "memory of device %d is said to be of %d", d, what.device);
  }
  WANT(p[0].pciBusID != p[1].pciBusID || p[0].pciDeviceID != p[1].pciDeviceID || p[0].pciDomainID != p[1].pciDomainID, "one place for two devices");
  for (int d = 0; d < 2; d++) {
    CK(cudaSetDevice(d));
    fill<<<blocks, 256, 0, s[d]>>>(a[d], n, d * 1000, d + 1);
    CK(cudaGetLastError());
    CK(cudaEventRecord(filled[d], s[d]));
  }
  // A stream of one device waits for an event of the other.
  CK(cudaSetDevice(1));
  CK(cudaStreamWaitEvent(s[1], filled[0], 0));
  CK(cudaMemcpyAsync(a[1], a[0], n * 4, cudaMemcpyDefault, s[1]));
  add<<<blocks, 256, 0, s[1]>>>(a[1], n, 7);
  CK(cudaStreamSynchronize(s[1]));
  expect(a[1], 7, 1, "copied from the other device, and changed");
  expect(a[0], 0, 1, "the source");
  CK(cudaMemcpy(a[0], a[1], n * 4, cudaMemcpyDeviceToDevice));
  expect(a[0], 7, 1, "copied back");

  // Another device's stream is no place for this device's events.
  CK(cudaSetDevice(0));
  cudaEvent_t timer;
  CK(cudaEventCreate(&timer));
  cudaError_t e = cudaEventRecord(timer, s[1]);
  WANT(e == cudaErrorInvalidResourceHandle, "an event in the other device's stream: %d", (int)e);
  (void)cudaGetLastError();

  std::thread workers[2];
  for (int d = 0; d < 2; d++) workers[d] = std::thread([d, &a] {
    int current = -1;
    CK(cudaGetDevice(&current));
    WANT(current == 0, "a new thread begins on device %d", current);
    CK(cudaSetDevice(d));
    for (int i = 0; i < 50; i++) {
      add<<<blocks, 256>>>(a[d], n, d + 1);
      if (i % 10 == 0) CK(cudaDeviceSynchronize());
    }
    CK(cudaDeviceSynchronize());
  });
  for (auto& worker : workers) worker.join();
  expect(a[0], 57, 1, "device 0 after its thread");
  expect(a[1], 107, 1, "device 1 after its thread");
  // Resetting one leaves the other as it is.
  CK(cudaSetDevice(1)); CK(cudaDeviceReset());
  CK(cudaSetDevice(0));
  expect(a[0], 57, 1, "device 0 after the other's reset");
  std::puts("PASS several_devices");
}
