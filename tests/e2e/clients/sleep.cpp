// Works a little, also by a host function, prints "READY", and then does nothing at all for SECONDS.
#include "driver.h"
#include <unistd.h>
static void host_function(void* done) { *static_cast<int*>(done) = 1; }
int main(int argc, char** argv) {
  const size_t bytes = 1 << 20; CUdeviceptr p; unsigned word = 0; CUstream stream; CUevent event;
  start(); CK(CALL(cuMemAlloc)(&p, bytes)); CK(CALL(cuStreamCreate)(&stream, 0)); CK(CALL(cuEventCreate)(&event, 0));
  CK(CALL(cuMemsetD32Async)(p, 7, bytes / 4, stream)); CK(CALL(cuEventRecord)(event, stream)); CK(CALL(cuEventSynchronize)(event));
  CK(CALL(cuMemcpyDtoH)(&word, p, sizeof word));
  if (word != 7) return std::printf("FAIL read %x\n", word), 1;
  int done = 0;
  CK(CALL(cuLaunchHostFunc)(stream, host_function, &done)); CK(CALL(cuStreamSynchronize)(stream));
  if (!done) return std::puts("FAIL the host function did not run"), 1;
  std::puts("READY"); std::fflush(stdout);
  sleep(argc > 1 ? (unsigned)std::atoi(argv[1]) : 10);
  std::puts("PASS sleep");
}
