// Shared by the CUB cases.
#pragma once
#include <algorithm>
#include <cstdint>

// Not a multiple of any tile.
constexpr int N = 100003;

// Numbers below `below`, always the same ones.
inline std::vector<int> numbers(int count, uint64_t seed, uint64_t below) {
  std::vector<int> x(count);
  for (auto &v : x) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    v = (int)((seed >> 33) % below);
  }
  return x;
}

template <class T> T *put(const std::vector<T> &x) {
  T *d;
  CK(cudaMalloc(&d, x.size() * sizeof(T)));
  CK(cudaMemcpy(d, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
  return d;
}

template <class T> void get(std::vector<T> &x, const T *d) {
  CK(cudaMemcpy(x.data(), d, x.size() * sizeof(T), cudaMemcpyDeviceToHost));
}

// CUB's two calls: how much temporary storage, and the work.
template <class F> void with_storage(F call) {
  void *storage = nullptr;
  size_t bytes = 0;
  CK(call(storage, bytes));
  CK(cudaMalloc(&storage, bytes));
  CK(call(storage, bytes));
  CK(cudaDeviceSynchronize());
  CK(cudaFree(storage));
}
