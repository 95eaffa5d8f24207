// Holds 1 MiB of device memory filled with a pattern and reads from it every few milliseconds, for SECONDS. Prints "READY ADDRESS"; on
// the first error "ERROR CODE", then "THEN CODE" with what one more call returns, and exits with 3.
#include "driver.h"
#include <unistd.h>
int main(int argc, char** argv) {
  double end = seconds() + (argc > 1 ? std::atof(argv[1]) : 30); const size_t bytes = 1 << 20; CUdeviceptr p; unsigned word = 0;
  start(); CK(CALL(cuMemAlloc)(&p, bytes)); CK(CALL(cuMemsetD32)(p, 0x5eedf00du, bytes / 4)); CK(CALL(cuCtxSynchronize)());
  std::printf("READY %llx\n", (unsigned long long)p); std::fflush(stdout);
  while (seconds() < end) {
    CUresult r = CALL(cuMemcpyDtoH)(&word, p + 4096, sizeof word);
    if (!r && word != 0x5eedf00du) return std::printf("FAIL read %x\n", word), 1;
    if (r) {
      std::printf("ERROR %d\n", (int)r); std::fflush(stdout);
      std::printf("THEN %d\n", (int)CALL(cuMemcpyDtoH)(&word, p, sizeof word)); return 3;
    }
    usleep(5000);
  }
  std::puts("PASS hold");
}
