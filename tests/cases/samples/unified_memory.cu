// Managed memory: host and device take turns on the same addresses; lists made by the host are walked by a kernel.
#include "../check.h"
#include <string>

__managed__ int counter = 5;
struct Node { int value; Node* next; };

__global__ void twice(double* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= 2; atomicAdd(&counter, i < n); }
__global__ void walk(const Node* list, int* sum) { for (; list; list = list->next) *sum += list->value; }

int main() {
  const int n = 200000;
  double* a;
  CK(cudaMallocManaged(&a, n * sizeof(double)));
  for (int i = 0; i < n; i++) a[i] = i;
  for (int round = 1; round <= 3; round++) {
    counter = 5;
    twice<<<(n + 255) / 256, 256>>>(a, n);
    CK(cudaDeviceSynchronize());
    WANT(counter == 5 + n, "round %d: %d counted", round, counter);
    for (int i = 0; i < n; i += 97) {
      WANT(a[i] == (double)i * (1 << round), "round %d, element %d: %g", round, i, a[i]);
    }
  }
  cudaMemLocation device = {}, host = {};
  device.type = cudaMemLocationTypeDevice; device.id = 0; host.type = cudaMemLocationTypeHost;
#if CUDART_VERSION >= 13000
  CK(cudaMemAdvise(a, n * sizeof(double), cudaMemAdviseSetPreferredLocation, device));
  CK(cudaMemPrefetchAsync(a, n * sizeof(double), device, 0, 0));
#endif
  twice<<<(n + 255) / 256, 256>>>(a, n);
#if CUDART_VERSION >= 13000
  CK(cudaMemPrefetchAsync(a, n * sizeof(double), host, 0, 0));
#endif
  CK(cudaDeviceSynchronize());
  WANT(a[n - 1] == 16.0 * (n - 1), "%g", a[n - 1]);

  Node* first = nullptr;
  int *sum, want = 0;
  CK(cudaMallocManaged(&sum, sizeof *sum));
  for (int i = 1; i <= 1000; i++) {
    Node* node;
    CK(cudaMallocManaged(&node, sizeof *node));
    node->value = i * i; node->next = first;
    first = node; want += i * i;
  }
  *sum = 0;
  walk<<<1, 1>>>(first, sum);
  CK(cudaDeviceSynchronize());
  WANT(*sum == want, "%d instead of %d", *sum, want);
  // A plain copy knows where managed memory is.
  std::vector<double> back(n);
  CK(cudaMemcpy(back.data(), a, n * sizeof(double), cudaMemcpyDefault));
  WANT(back[n - 1] == a[n - 1], "%g", back[n - 1]);
  cudaPointerAttributes what;
  CK(cudaPointerGetAttributes(&what, a));
  WANT(what.type == cudaMemoryTypeManaged && what.hostPointer == a && what.devicePointer == a, "kind %d", (int)what.type);
  while (first) { Node* next = first->next; CK(cudaFree(first)); first = next; }
  CK(cudaFree(sum)); CK(cudaFree(a));
  std::puts("PASS unified_memory");
}
