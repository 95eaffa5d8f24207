// A long-running program for the tests that stop or kill something: launches and checks for SECONDS (first argument, default 5).
// Prints "READY" after its first finished round.
#include "check.h"
#include <chrono>
#include <cstring>
__global__ void work(unsigned* x, int rounds) { unsigned v = *x; for (int i = 0; i < rounds; i++) v = v * 1664525u + 1013904223u; *x = v; }
int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 5; unsigned *d, want = 1, got; long done = 0;
  CK(cudaMalloc(&d, 4)); CK(cudaMemcpy(d, &want, 4, cudaMemcpyHostToDevice));
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    for (int k = 0; k < 3; k++) { work<<<1, 1>>>(d, 5000); for (int i = 0; i < 5000; i++) want = want * 1664525u + 1013904223u; }
    CK(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost)); WANT(got == want, "round %ld got %u want %u", done, got, want);
    if (!done++) { std::puts("READY"); std::fflush(stdout); }
  } while (std::chrono::steady_clock::now() < end);
  std::printf("PASS spin\n");
}
