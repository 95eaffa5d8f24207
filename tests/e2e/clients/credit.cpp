// Does what its arguments say, one after the other: `alloc MIB` prints "ALLOC CODE MILLISECONDS"; `until MIB` tries until it gets it, and prints
// "GOT"; `free` frees everything; `dirty` posts a memset of everything and waits for nothing; `block N` puts a host function into a stream that
// returns at the Nth SIGUSR1; `work` checks that memory can be written and read, and prints "WORKS"; `info` prints "INFO FREE TOTAL" in MiB; `wait`
// prints "WAIT" and waits for one more SIGUSR1.
#include "driver.h"
#include <signal.h>
#include <unistd.h>
#include <atomic>
#include <string>
#include <vector>

static std::atomic<int> signals{0};
static void on_signal(int) { signals++; }
static void until_signal(void* number) { while (signals < (int)(long)number) usleep(1000); }

int main(int argc, char** argv) {
  signal(SIGUSR1, on_signal); start(); CUstream stream; CK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<std::pair<CUdeviceptr, size_t>> mine; int waits = 0;
  auto allocate = [&](const char* mib) {
    CUdeviceptr p = 0; size_t bytes = (size_t)std::atoll(mib) << 20; CUresult r = CALL(cuMemAlloc)(&p, bytes);
    if (!r) mine.emplace_back(p, bytes);
    return r;
  };
  for (int i = 1; i < argc; i++) {
    std::string step = argv[i];
    if (step == "alloc") {
      double before = seconds(); CUresult r = allocate(argv[++i]);
      std::printf("ALLOC %d %d\n", (int)r, (int)((seconds() - before) * 1000));
    } else if (step == "until") {
      CUresult r; ++i;
      while ((r = allocate(argv[i])) == CUDA_ERROR_OUT_OF_MEMORY) usleep(1000);
      CK(r); std::puts("GOT");
    } else if (step == "free") {
      for (auto& [p, bytes] : mine) CK(CALL(cuMemFree)(p));
      mine.clear();
    } else if (step == "dirty") {
      for (auto& [p, bytes] : mine) CK(CALL(cuMemsetD8Async)(p, 7, bytes, stream));
    } else if (step == "block") {
      CK(CALL(cuLaunchHostFunc)(stream, until_signal, (void*)std::atol(argv[++i])));
    } else if (step == "work") {
      CUdeviceptr p; unsigned word = 0; CK(CALL(cuMemAlloc)(&p, 4 << 20)); CK(CALL(cuMemsetD32)(p, 0xabcd, 1 << 20));
      CK(CALL(cuMemcpyDtoH)(&word, p + (4 << 20) - 4, 4)); CK(CALL(cuMemFree)(p));
      if (word != 0xabcd) return std::printf("FAIL read %x\n", word), 1;
      std::puts("WORKS");
    } else if (step == "info") {
      size_t free = 0, total = 0; CK(CALL(cuMemGetInfo)(&free, &total)); std::printf("INFO %zu %zu\n", free >> 20, total >> 20);
    } else if (step == "wait") {
      std::puts("WAIT"); std::fflush(stdout);
      for (waits++; signals < waits;) usleep(1000);
    } else {
      return std::printf("FAIL no step %s\n", step.c_str()), 1;
    }
    std::fflush(stdout);
  }
  std::puts("PASS credit");
}
