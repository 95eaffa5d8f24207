// Holds 1 MiB of device memory filled with a pattern and works for SECONDS: HOW is `small` (reads a word every few milliseconds), `bulk`
// (copies of 32 MiB there and back), `host` (waits for a host function that takes 20 ms) or `wait` (waits for an event behind such a
// function). Prints "READY ADDRESS"; on the first error "ERROR CODE", then "THEN CODE" with what one more call returns, and exits with 3.
#include "driver.h"
#include <unistd.h>
#include <string>
#include <vector>

static void nap(void*) { usleep(20000); }

int main(int argc, char** argv) {
  double end = seconds() + (argc > 1 ? std::atof(argv[1]) : 30); std::string how = argc > 2 ? argv[2] : "small";
  const size_t bytes = 1 << 20, many = 32 << 20; CUdeviceptr p, large = 0; CUstream stream; CUevent event; unsigned word = 0;
  start(); CK(CALL(cuMemAlloc)(&p, bytes)); CK(CALL(cuMemsetD32)(p, 0x5eedf00du, bytes / 4)); CK(CALL(cuCtxSynchronize)());
  CK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING)); CK(CALL(cuEventCreate)(&event, 0));
  std::vector<char> host(how == "bulk" ? many : 0);
  if (how == "bulk") CK(CALL(cuMemAlloc)(&large, many));
  auto work = [&]() -> CUresult {
    CUresult r;
    if (how == "bulk") {
      if ((r = CALL(cuMemcpyHtoD)(large, host.data(), many))) return r;
      if ((r = CALL(cuMemcpyDtoH)(host.data(), large, many))) return r;
    } else if (how != "small") {
      if ((r = CALL(cuLaunchHostFunc)(stream, nap, nullptr))) return r;
      if (how == "wait") { if ((r = CALL(cuEventRecord)(event, stream)) || (r = CALL(cuEventSynchronize)(event))) return r; }
      else if ((r = CALL(cuStreamSynchronize)(stream))) return r;
    }
    return CALL(cuMemcpyDtoH)(&word, p + 4096, sizeof word);
  };
  std::printf("READY %llx\n", (unsigned long long)p); std::fflush(stdout);
  while (seconds() < end) {
    CUresult r = work();
    if (!r && word != 0x5eedf00du) return std::printf("FAIL read %x\n", word), 1;
    if (r) {
      std::printf("ERROR %d\n", (int)r); std::fflush(stdout);
      std::printf("THEN %d\n", (int)CALL(cuMemcpyDtoH)(&word, p, sizeof word)); return 3;
    }
    usleep(5000);
  }
  std::puts("PASS hold");
}
