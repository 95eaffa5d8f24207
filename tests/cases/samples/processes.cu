// Memory and events of one process, used by its children, who learn of them through a pipe each.
#include "../check.h"
#include <sys/wait.h>
#include <unistd.h>

struct Letter { cudaIpcMemHandle_t memory; cudaIpcEventHandle_t event; };

__global__ void fill(int* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = i; }
__global__ void add(int* a, int n, int by) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += by; }

static const int n = 100000, children = 3;

static int child(int number, int from) {
  Letter letter;
  WANT(read(from, &letter, sizeof letter) == sizeof letter, "child %d hears nothing", number);
  int* a;
  cudaEvent_t event;
  CK(cudaIpcOpenMemHandle((void**)&a, letter.memory, cudaIpcMemLazyEnablePeerAccess));
  CK(cudaIpcOpenEventHandle(&event, letter.event));
  CK(cudaStreamWaitEvent(0, event, 0));
  // The part of this child.
  int part = n / children, first = number * part;
  add<<<(part + 255) / 256, 256>>>(a + first, part, number + 1);
  CK(cudaDeviceSynchronize());
  CK(cudaEventDestroy(event));
  CK(cudaIpcCloseMemHandle(a));
  return 0;
}

int main() {
  // Before this process's first CUDA call: a driver does not survive a fork.
  int to[children];
  pid_t pid[children];
  for (int i = 0; i < children; i++) {
    int ends[2];
    WANT(pipe(ends) == 0, "no pipe");
    pid[i] = fork();
    WANT(pid[i] >= 0, "no process");
    if (pid[i] == 0) { close(ends[1]); std::exit(child(i, ends[0])); }
    close(ends[0]);
    to[i] = ends[1];
  }
  int* a;
  Letter letter;
  cudaEvent_t event;
  CK(cudaMalloc(&a, n * 4));
  CK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  fill<<<(n + 255) / 256, 256>>>(a, n);
  CK(cudaEventRecord(event));
  CK(cudaIpcGetMemHandle(&letter.memory, a));
  CK(cudaIpcGetEventHandle(&letter.event, event));
  for (int end : to) WANT(write(end, &letter, sizeof letter) == sizeof letter, "a child is not there");
  for (pid_t p : pid) {
    int status = -1;
    WANT(waitpid(p, &status, 0) == p && status == 0, "a child ended with %d", status);
  }
  std::vector<int> v(n);
  CK(cudaMemcpy(v.data(), a, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0, part = n / children; i < n; i++) {
    int want = i + (i / part < children ? i / part + 1 : 0);
    WANT(v[i] == want, "element %d: %d instead of %d", i, v[i], want);
  }
  std::puts("PASS processes");
}
