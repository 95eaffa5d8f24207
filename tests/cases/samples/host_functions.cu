// Host functions between kernels and copies, many streams with a thread's worth of work each.
#include "../check.h"
#include <atomic>

struct Work { int number; int* host; int n; std::atomic<int>* done; bool right; };

__global__ void scale(int* a, int n, int by) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= by; }

// Checks what the device has made and prepares what it gets next: it runs while the stream waits.
static void CUDART_CB look(void* data) {
  Work* w = (Work*)data;
  for (int i = 0; i < w->n; i++) {
    w->right = w->right && w->host[i] == i * (w->number + 2);
    w->host[i] = -i;
  }
  (*w->done)++;
}
static void CUDART_CB finish(cudaStream_t, cudaError_t state, void* data) { if (state == cudaSuccess) (*((Work*)data)->done)++; }

int main() {
  const int streams = 6, n = 20000;
  std::atomic<int> done{0};
  std::vector<Work> work(streams);
  std::vector<cudaStream_t> s(streams);
  std::vector<int*> device(streams);
  for (int k = 0; k < streams; k++) {
    work[k] = {k, nullptr, n, &done, true};
    CK(cudaStreamCreate(&s[k])); CK(cudaMallocHost(&work[k].host, n * 4)); CK(cudaMalloc(&device[k], n * 4));
    for (int i = 0; i < n; i++) work[k].host[i] = i;
  }
  for (int k = 0; k < streams; k++) {
    int* host = work[k].host;
    CK(cudaMemcpyAsync(device[k], host, n * 4, cudaMemcpyHostToDevice, s[k]));
    scale<<<(n + 127) / 128, 128, 0, s[k]>>>(device[k], n, k + 2);
    CK(cudaMemcpyAsync(host, device[k], n * 4, cudaMemcpyDeviceToHost, s[k]));
    CK(cudaLaunchHostFunc(s[k], look, &work[k]));
    CK(cudaMemcpyAsync(device[k], host, n * 4, cudaMemcpyHostToDevice, s[k]));
    scale<<<(n + 127) / 128, 128, 0, s[k]>>>(device[k], n, 10);
    CK(cudaMemcpyAsync(host, device[k], n * 4, cudaMemcpyDeviceToHost, s[k]));
    CK(cudaStreamAddCallback(s[k], finish, &work[k], 0));
  }
  CK(cudaDeviceSynchronize());
  WANT(done == 2 * streams, "%d functions ran", done.load());
  for (int k = 0; k < streams; k++) {
    WANT(work[k].right, "stream %d: the function saw something else", k);
    for (int i = 0; i < n; i++) WANT(work[k].host[i] == -10 * i, "stream %d, element %d: %d", k, i, work[k].host[i]);
  }
  std::puts("PASS host_functions");
}
