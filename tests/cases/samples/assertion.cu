// assert() in device code: the text on stderr, the error, and that it stays.
#include "../check.h"
#include <cassert>
#include <cstring>
#include <string>
#include <unistd.h>

__global__ void holds(int n) { assert(threadIdx.x < n); }

int main() {
  // What is written to stderr goes into a file.
  char name[] = "/tmp/assertion-XXXXXX";
  int file = mkstemp(name), was = dup(2);
  WANT(file >= 0 && was >= 0 && dup2(file, 2) == 2, "cannot redirect stderr");
  unlink(name);
  holds<<<1, 32>>>(32);
  cudaError_t fine = cudaDeviceSynchronize();
  holds<<<2, 32>>>(31);
  cudaError_t launched = cudaGetLastError(), failed = cudaDeviceSynchronize();
  int* memory = nullptr;
  cudaError_t later = cudaMalloc(&memory, 4);
  dup2(was, 2);
  std::string text(1 << 16, '\0');
  ssize_t length = pread(file, &text[0], text.size(), 0);
  text.resize(length > 0 ? length : 0);
  WANT(fine == cudaSuccess && launched == cudaSuccess, "%d %d", (int)fine, (int)launched);
  WANT(failed == cudaErrorAssert, "%d %s", (int)failed, cudaGetErrorString(failed));
  WANT(later == cudaErrorAssert, "the error does not stay: %d", (int)later);
  // The programming guide: "filename:line number:function:block … thread … Assertion `condition` failed".
  WANT(text.find("assertion.cu:") != text.npos && text.find("thread: [31,0,0] Assertion `threadIdx.x < n` failed.") != text.npos, "'%s'",
       text.c_str());
  std::puts("PASS assertion");
}
