// Loads an image given on the command line (a PTX text or a fatbin file) and prints "load CODE", then the JIT's error log.
#include "driver.h"
#include <vector>
int main(int argc, char** argv) {
  FILE* f = argc > 1 ? std::fopen(argv[1], "rb") : nullptr; if (!f) return std::puts("FAIL no file"), 1;
  std::vector<char> image; int c; while ((c = std::fgetc(f)) != EOF) image.push_back((char)c);
  image.push_back(0); std::fclose(f); start();
  char log[4096] = ""; CUmodule module;
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, (void*)sizeof log};
  CUresult r = CALL(cuModuleLoadDataEx)(&module, image.data(), 2, options, values);
  std::printf("load %d\n%s\n", (int)r, log);
  // A failed load is no sticky error.
  CUdeviceptr p; CK(CALL(cuMemAlloc)(&p, 64)); CK(CALL(cuCtxSynchronize)());
  std::puts("PASS jit");
}
