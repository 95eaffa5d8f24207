#include "../check.h"
#include "callee.h"

__device__ int calls = 0;
__constant__ int offset;
__device__ __noinline__ int transformed(int x) { return x * 7 + 1; }
void set_offset(int value) { CK(cudaMemcpyToSymbol(offset, &value, sizeof value)); }
int counted_calls() {
  int value = -1;
  CK(cudaMemcpyFromSymbol(&value, calls, sizeof value));
  return value;
}
