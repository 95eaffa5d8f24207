// cub::DeviceScan: look-back between blocks.
#include "../check.h"
#include "numbers.h"
#include <cub/device/device_scan.cuh>

struct Max {
  __host__ __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

int main() {
  std::vector<int> x = numbers(N, 1, 1000), got(N);
  int *in = put(x), *out = put(got);
  with_storage([&](void *s, size_t &n) { return cub::DeviceScan::InclusiveSum(s, n, in, out, N); });
  get(got, out);
  for (int i = 0, sum = 0; i < N; i++) WANT(got[i] == (sum += x[i]), "inclusive sum %d: %d, not %d", i, got[i], sum);

  with_storage([&](void *s, size_t &n) { return cub::DeviceScan::ExclusiveSum(s, n, in, out, N); });
  get(got, out);
  for (int i = 0, sum = 0; i < N; sum += x[i++]) WANT(got[i] == sum, "exclusive sum %d: %d, not %d", i, got[i], sum);

  // In place, another operator.
  with_storage([&](void *s, size_t &n) { return cub::DeviceScan::ExclusiveScan(s, n, in, in, Max(), -1, N); });
  get(got, in);
  for (int i = 0, most = -1; i < N; most = std::max(most, x[i++])) WANT(got[i] == most, "maximum %d: %d, not %d", i, got[i], most);
  std::puts("PASS scan");
}
