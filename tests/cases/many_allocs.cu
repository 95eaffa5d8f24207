// Thousands of allocations of mixed size, freed in another order: no overlap, nothing lost, reuse works.
#include "check.h"
#include <map>
int main() {
  const int n = 3000; std::vector<char*> p(n); std::vector<size_t> size(n); std::map<char*, size_t> seen; size_t free0, free1, total;
  CK(cudaFree(nullptr)); CK(cudaMemGetInfo(&free0, &total));
  for (int i = 0; i < n; i++) {
    size[i] = 1 + (size_t)(i * 7919) % 60000; CK(cudaMalloc(&p[i], size[i]));
    WANT((size_t)p[i] % 256 == 0, "allocation %d at %p is not aligned to 256 bytes", i, (void*)p[i]);
    CK(cudaMemset(p[i], i & 0xff, size[i])); seen[p[i]] = size[i];
  }
  WANT(seen.size() == (size_t)n, "only %zu distinct addresses", seen.size());
  char* end = nullptr; for (auto& e : seen) { WANT(e.first >= end, "%p overlaps the one before", (void*)e.first); end = e.first + e.second; }
  for (int i = 0; i < n; i += 97) {
    std::vector<unsigned char> h(size[i]); CK(cudaMemcpy(h.data(), p[i], size[i], cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < h.size(); k++) WANT(h[k] == (i & 0xff), "allocation %d byte %zu is %d", i, k, h[k]);
  }
  for (int i = 0; i < n; i++) CK(cudaFree(p[(i * 1999) % n]));
  CK(cudaMemGetInfo(&free1, &total));
  // A driver may keep some for later, but not all that was ever asked for.
  WANT(free0 - free1 < (64u << 20) || free1 > free0, "%zu free before, %zu after", free0, free1);
  void* big; CK(cudaMalloc(&big, free1 / 2)); CK(cudaMemset(big, 1, 4096)); CK(cudaFree(big));
  WANT(cudaFree(big) == cudaErrorInvalidValue, "freed twice"); (void)cudaGetLastError();
  std::puts("PASS many_allocs");
}
