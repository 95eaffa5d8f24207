// cub::DeviceMergeSort: any order, stable where asked.
#include "../check.h"
#include "numbers.h"
#include <cub/device/device_merge_sort.cuh>
#include <numeric>

struct ByLastDigits {
  __host__ __device__ bool operator()(int a, int b) const { return a % 1000 < b % 1000; }
};

int main() {
  std::vector<int> keys = numbers(N, 6, 1000000), values(N), order(N), k(N), v(N);
  std::iota(values.begin(), values.end(), 0);
  order = values;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ByLastDigits()(keys[a], keys[b]); });
  int *dk = put(keys), *dv = put(values);
  with_storage([&](void *s, size_t &n) { return cub::DeviceMergeSort::StableSortPairs(s, n, dk, dv, N, ByLastDigits()); });
  get(k, dk);
  get(v, dv);
  for (int i = 0; i < N; i++)
    WANT(v[i] == order[i] && k[i] == keys[order[i]], "pair %d: (%d, %d), not (%d, %d)", i, k[i], v[i], keys[order[i]], order[i]);
  std::puts("PASS merge_sort");
}
