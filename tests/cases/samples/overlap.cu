// Copies and kernels of several streams in pieces, as programs do that hide copies behind kernels; the host counts while it polls.
#include "../check.h"
#include <cstring>

__global__ void advance(int* data, int n, int by, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int v = data[i];
    for (int k = 0; k < rounds; k++) v += by;
    data[i] = v;
  }
}

int main() {
  const int streams = 4, piece = 1 << 16, n = streams * piece, repeats = 5;
  cudaStream_t s[streams];
  int low, high;
  CK(cudaDeviceGetStreamPriorityRange(&low, &high));
  for (int i = 0; i < streams; i++) CK(cudaStreamCreateWithPriority(&s[i], cudaStreamNonBlocking, i % 2 ? low : high));
  int *host, *device;
  CK(cudaMallocHost(&host, n * sizeof(int)));
  CK(cudaMalloc(&device, n * sizeof(int)));
  for (int repeat = 0; repeat < repeats; repeat++) {
    for (int i = 0; i < n; i++) host[i] = i * 3 + repeat;
    // Depth first, then breadth first: both orders of issue mean the same.
    for (int step = 0; step < 3 * streams; step++) {
      int i = repeat % 2 ? step / 3 : step % streams, what = repeat % 2 ? step % 3 : step / streams, at = i * piece;
      if (what == 0) CK(cudaMemcpyAsync(device + at, host + at, piece * sizeof(int), cudaMemcpyHostToDevice, s[i]));
      if (what == 1) advance<<<32, 128, 0, s[i]>>>(device + at, piece, i + 1, 10);
      if (what == 2) CK(cudaMemcpyAsync(host + at, device + at, piece * sizeof(int), cudaMemcpyDeviceToHost, s[i]));
    }
    CK(cudaGetLastError());
    for (int i = 0; i < streams; i++) CK(cudaStreamSynchronize(s[i]));
    for (int i = 0; i < n; i++) {
      int want = i * 3 + repeat + 10 * (i / piece + 1);
      WANT(host[i] == want, "repeat %d, element %d: %d instead of %d", repeat, i, host[i], want);
    }
  }

  // The host goes on while the device works, and sees the end by polling.
  cudaEvent_t start, stop;
  CK(cudaEventCreate(&start)); CK(cudaEventCreate(&stop));
  std::memset(host, 0, n * sizeof(int));
  CK(cudaEventRecord(start, s[0]));
  CK(cudaMemcpyAsync(device, host, n * sizeof(int), cudaMemcpyHostToDevice, s[0]));
  advance<<<32, 128, 0, s[0]>>>(device, n, 26, 200);
  CK(cudaMemcpyAsync(host, device, n * sizeof(int), cudaMemcpyDeviceToHost, s[0]));
  CK(cudaEventRecord(stop, s[0]));
  unsigned long polls = 0;
  cudaError_t state;
  while ((state = cudaEventQuery(stop)) == cudaErrorNotReady) polls++;
  CK(state);
  float ms = -1;
  CK(cudaEventElapsedTime(&ms, start, stop));
  WANT(ms > 0, "%g ms (%lu polls)", ms, polls);
  for (int i = 0; i < n; i++) WANT(host[i] == 26 * 200, "element %d: %d", i, host[i]);

  // One stream waits for the others' events.
  cudaEvent_t done[streams];
  CK(cudaMemset(device, 0, n * sizeof(int)));
  CK(cudaDeviceSynchronize());
  for (int i = 1; i < streams; i++) {
    CK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    advance<<<4, 64, 0, s[i]>>>(device + i * piece, piece, i, 50);
    CK(cudaEventRecord(done[i], s[i]));
    CK(cudaStreamWaitEvent(s[0], done[i], 0));
  }
  advance<<<32, 128, 0, s[0]>>>(device, n, 1, 1);
  CK(cudaMemcpyAsync(host, device, n * sizeof(int), cudaMemcpyDeviceToHost, s[0]));
  CK(cudaStreamSynchronize(s[0]));
  for (int i = 0; i < n; i++) WANT(host[i] == 1 + 50 * (i / piece), "element %d: %d", i, host[i]);
  for (int i = 1; i < streams; i++) CK(cudaEventDestroy(done[i]));
  for (auto stream : s) CK(cudaStreamDestroy(stream));
  CK(cudaEventDestroy(start)); CK(cudaEventDestroy(stop)); CK(cudaFreeHost(host)); CK(cudaFree(device));
  std::puts("PASS overlap");
}
