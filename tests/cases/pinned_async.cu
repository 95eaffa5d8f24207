// Asynchronous copies to pinned memory return at once, and their bytes are there when the stream is seen to have come past them.
#include "check.h"
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>
#include <sys/syscall.h>
#include <unistd.h>
static std::atomic<bool> go{false};
static void CUDART_CB hold(void*) { while (!go) usleep(1000); }
static bool all(const unsigned char* p, size_t n, int value) {
  for (size_t i = 0; i < n; i++) if (p[i] != value) { std::printf("byte %zu is %d, not %d\n", i, p[i], value); return false; }
  return true;
}
static bool sleeps(int tid) {
  char name[64], line[512] = ""; std::snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
  FILE* f = std::fopen(name, "r"); if (!f) return false;
  char* got = std::fgets(line, sizeof line, f); std::fclose(f);
  const char* end = got ? std::strrchr(line, ')') : nullptr;
  return end && end[1] == ' ' && end[2] == 'S';
}
const size_t N = 5 * 1024 * 1024 + 13;

// A host function waits for what its caller does after the next copy: the copy must not wait for the host function.
static void behind_a_host_function(cudaStream_t s, unsigned char* d, unsigned char* h) {
  for (size_t n : {size_t(1), size_t(4096), N}) {
    go = false; std::memset(h, 0xEE, N);
    CK(cudaLaunchHostFunc(s, hold, nullptr));
    CK(cudaMemsetAsync(d, 7, n, s));
    CK(cudaMemcpyAsync(h, d, n, cudaMemcpyDeviceToHost, s));
    CK(cudaMemsetAsync(d, 8, n, s));
    WANT(cudaStreamQuery(s) == cudaErrorNotReady, "the stream is past its host function");
    WANT(all(h, N, 0xEE), "bytes came before their turn");
    go = true;
    CK(cudaStreamSynchronize(s));
    WANT(all(h, n, 7) && all(h + n, N - n, 0xEE), "%zu bytes", n);
  }
}

// Sizes and offsets; the copy is seen to be over by a synchronise, an event, a query, another stream.
static void sizes(cudaStream_t s, unsigned char* d, unsigned char* h) {
  cudaStream_t other; cudaEvent_t e; int round = 0;
  CK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)); CK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  for (size_t n : {size_t(1), size_t(7), size_t(8), size_t(4095), size_t(16385), size_t(512 * 1024), size_t(512 * 1024 + 1), N - 9})
    for (size_t at : {size_t(0), size_t(3), size_t(8)})
      for (int how = 0; how < 4; how++) {
        int value = ++round % 250 + 1; std::memset(h, 0, N);
        CK(cudaMemsetAsync(d + at, value, n, s));
        CK(cudaMemcpyAsync(h + at, d + at, n, cudaMemcpyDeviceToHost, s));
        CK(cudaEventRecord(e, s));
        CK(cudaMemsetAsync(d + at, 255, n, s));
        switch (how) {
          case 0: CK(cudaStreamSynchronize(s)); break;
          case 1: CK(cudaEventSynchronize(e)); break;
          case 2: while (cudaEventQuery(e) == cudaErrorNotReady) {} CK(cudaEventQuery(e)); break;
          default: CK(cudaStreamWaitEvent(other, e, 0)); CK(cudaStreamSynchronize(other));
        }
        WANT(all(h, at, 0) && all(h + at, n, value) && all(h + at + n, N - at - n, 0), "%zu bytes at %zu, way %d", n, at, how);
        CK(cudaStreamSynchronize(s));
      }
  CK(cudaStreamDestroy(other)); CK(cudaEventDestroy(e));
}

// Rows, which lie apart on both sides.
static void rows(cudaStream_t s, unsigned char* d, unsigned char* h) {
  for (int height : {3, 200}) {
    std::memset(h, 0, 512 * height); CK(cudaMemsetAsync(d, 9, 1024 * height, s));
    CK(cudaMemcpy2DAsync(h, 512, d + 5, 1024, 100, height, cudaMemcpyDeviceToHost, s));
    CK(cudaMemsetAsync(d, 10, 1024 * height, s));
    CK(cudaStreamSynchronize(s));
    for (int y = 0; y < height; y++) WANT(all(h + 512 * y, 100, 9) && all(h + 512 * y + 100, 412, 0), "row %d of %d", y, height);
  }
}

// Many streams at a time, each with copies in a row to places of their own.
static void many(unsigned char* h) {
  const int STREAMS = 24, EACH = 8; const size_t n = 20011;
  cudaStream_t s[STREAMS]; unsigned char* d[STREAMS];
  for (int i = 0; i < STREAMS; i++) { CK(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking)); CK(cudaMalloc(&d[i], n)); }
  std::memset(h, 0, STREAMS * EACH * n);
  for (int k = 0; k < EACH; k++) for (int i = 0; i < STREAMS; i++) {
    CK(cudaMemsetAsync(d[i], i * EACH + k + 1, n, s[i]));
    CK(cudaMemcpyAsync(h + (i * EACH + k) * n, d[i], n, cudaMemcpyDeviceToHost, s[i]));
  }
  // Destroyed with work under way, which is done all the same.
  for (int i = 0; i < STREAMS; i += 2) CK(cudaStreamDestroy(s[i]));
  CK(cudaDeviceSynchronize());
  for (int i = 0; i < STREAMS * EACH; i++) WANT(all(h + i * n, n, i + 1), "copy %d", i);
  for (int i = 1; i < STREAMS; i += 2) CK(cudaStreamDestroy(s[i]));
  for (auto p : d) CK(cudaFree(p));
}

// Memory that is freed while a copy to it is under way: the copy is over first.
static void freed_under_way(cudaStream_t s, unsigned char* d) {
  unsigned char* h; CK(cudaMallocHost(&h, N)); go = false;
  CK(cudaLaunchHostFunc(s, hold, nullptr));
  CK(cudaMemcpyAsync(h, d, N, cudaMemcpyDeviceToHost, s));
  std::atomic<int> caller{0}; std::atomic<bool> freed{false};
  std::thread t([&] { caller = (int)syscall(SYS_gettid); CK(cudaFreeHost(h)); freed = true; });
  while (!freed && (caller == 0 || !sleeps(caller))) usleep(1000);
  WANT(!freed, "the memory went while a copy to it was under way");
  go = true; t.join();
  CK(cudaStreamSynchronize(s));
}

// What came to pinned memory goes on to the device, without anybody having waited for it: in one stream, and in one that waits
// for the other.
static void there_and_back(cudaStream_t s, unsigned char* d, unsigned char* h) {
  cudaStream_t other; cudaEvent_t e; unsigned char* back; std::vector<unsigned char> seen(N); int round = 0;
  CK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)); CK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); CK(cudaMalloc(&back, N));
  for (size_t n : {size_t(1), size_t(48), size_t(20000), N})
    for (bool apart : {false, true}) {
      int value = ++round; std::memset(h, 0, N); cudaStream_t then = apart ? other : s;
      CK(cudaMemsetAsync(d, value, n, s));
      CK(cudaMemcpyAsync(h, d, n, cudaMemcpyDeviceToHost, s));
      if (apart) { CK(cudaEventRecord(e, s)); CK(cudaStreamWaitEvent(other, e, 0)); }
      CK(cudaMemcpyAsync(back, h, n, cudaMemcpyHostToDevice, then));
      CK(cudaStreamSynchronize(then));
      CK(cudaMemcpy(seen.data(), back, n, cudaMemcpyDeviceToHost));
      WANT(all(seen.data(), n, value), "%zu bytes there and back, apart %d", n, apart);
    }
  CK(cudaFree(back)); CK(cudaStreamDestroy(other)); CK(cudaEventDestroy(e));
}

int main() {
  cudaStream_t s; unsigned char *d, *h; const size_t most = 24 * 8 * 20011 > N ? 24 * 8 * 20011 : N;
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CK(cudaMalloc(&d, N)); CK(cudaMallocHost(&h, most));
  // With these switched off a copy to pinned memory may wait for its bytes, and then it cannot stand behind such a function.
  const char* off = std::getenv("GPUPOOL_DISABLE");
  bool posted = !off || (!std::strstr(off, "landings") && !std::strstr(off, "host_arena"));
  if (posted) behind_a_host_function(s, d, h);
  sizes(s, d, h);
  there_and_back(s, d, h);
  rows(s, d, h);
  many(h);
  if (posted) freed_under_way(s, d);
  CK(cudaFreeHost(h));
  h = (unsigned char*)std::malloc(most); CK(cudaHostRegister(h, most, 0));
  sizes(s, d, h);
  there_and_back(s, d, h);
  rows(s, d, h);
  many(h);
  CK(cudaHostUnregister(h)); std::free(h);
  CK(cudaFree(d)); CK(cudaStreamDestroy(s));
  std::puts("PASS pinned_async");
}
