// More copies to the host than there is room for on their way wait for their streams, each in a thread; other calls go on meanwhile.
#include "check.h"
#include <atomic>
#include <cstring>
#include <thread>
#include <sys/syscall.h>
#include <unistd.h>
static std::atomic<bool> go{false};
static void CUDART_CB hold(void*) { while (!go) usleep(1000); }
const int THREADS = 24, BYTES = 64 * 1024;
static std::atomic<int> callers[THREADS];
static void waiter(int id) {
  cudaStream_t s; unsigned char* d; std::vector<unsigned char> h(BYTES, 0xEE);
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CK(cudaMalloc(&d, BYTES));
  CK(cudaLaunchHostFunc(s, hold, nullptr));
  CK(cudaMemsetAsync(d, id + 1, BYTES, s));
  callers[id] = (int)syscall(SYS_gettid);
  CK(cudaMemcpyAsync(h.data(), d, BYTES, cudaMemcpyDeviceToHost, s));
  CK(cudaStreamSynchronize(s));
  for (int i = 0; i < BYTES; i++) WANT(h[i] == id + 1, "thread %d byte %d: %d", id, i, h[i]);
  CK(cudaFree(d)); CK(cudaStreamDestroy(s));
}
// Whether a thread sleeps: the copies' threads have nothing else to sleep for than their copies.
static bool sleeps(int tid) {
  char name[64], line[512] = ""; std::snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
  FILE* f = std::fopen(name, "r"); if (!f) return false;
  char* got = std::fgets(line, sizeof line, f); std::fclose(f);
  const char* end = got ? std::strrchr(line, ')') : nullptr;
  return end && end[1] == ' ' && end[2] == 'S';
}
int main() {
  const int n = 1 << 20; cudaStream_t s; unsigned char* d; std::vector<unsigned char> h(n);
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CK(cudaMalloc(&d, n));
  std::vector<std::thread> all; for (int id = 0; id < THREADS; id++) all.emplace_back(waiter, id);
  for (auto& tid : callers) while (tid == 0 || !sleeps(tid)) usleep(1000);
  int round = 0;
  for (int len : {4, 4096, BYTES, n}) {
    round++; CK(cudaMemsetAsync(d, 0x30 + round, len, s));
    std::fill(h.begin(), h.end(), 0);
    CK(cudaMemcpyAsync(h.data(), d, len, cudaMemcpyDeviceToHost, s)); CK(cudaStreamSynchronize(s));
    for (int i = 0; i < n; i++) WANT(h[i] == (i < len ? 0x30 + round : 0), "%d bytes: byte %d is %d", len, i, h[i]);
  }
  size_t free_bytes, total; CK(cudaMemGetInfo(&free_bytes, &total));
  WANT(!go, "the copies did not wait");
  go = true;
  for (auto& t : all) t.join();
  CK(cudaFree(d)); CK(cudaStreamDestroy(s));
  std::puts("PASS waiting_copies");
}
