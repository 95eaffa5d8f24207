// cub::DeviceRadixSort: keys and pairs, both directions, integers and floats.
#include "../check.h"
#include "numbers.h"
#include <cub/device/device_radix_sort.cuh>
#include <numeric>

int main() {
  std::vector<int> x = numbers(N, 2, 1u << 31);
  for (int i = 0; i < N; i += 3) x[i] = -x[i];
  std::vector<int> want = x, got(N);
  std::sort(want.begin(), want.end());
  int *in = put(x), *out = put(got);
  with_storage([&](void *s, size_t &n) { return cub::DeviceRadixSort::SortKeys(s, n, in, out, N); });
  get(got, out);
  for (int i = 0; i < N; i++) WANT(got[i] == want[i], "key %d: %d, not %d", i, got[i], want[i]);

  // Few different keys: the values show that the sort is stable.
  std::vector<unsigned> keys(N), values(N), order(N), sorted(N), moved(N);
  auto few = numbers(N, 3, 500);
  for (int i = 0; i < N; i++) keys[i] = few[i] * 0x01010101u, values[i] = i;
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return keys[a] > keys[b]; });
  unsigned *k = put(keys), *v = put(values), *k2 = put(sorted), *v2 = put(moved);
  with_storage([&](void *s, size_t &n) { return cub::DeviceRadixSort::SortPairsDescending(s, n, k, k2, v, v2, N); });
  get(sorted, k2);
  get(moved, v2);
  for (int i = 0; i < N; i++)
    WANT(moved[i] == order[i] && sorted[i] == keys[order[i]], "pair %d: (%u, %u), not (%u, %u)", i, sorted[i], moved[i], keys[order[i]], order[i]);

  std::vector<double> d(N), dw, dg(N);
  for (int i = 0; i < N; i++) d[i] = x[i] / 3.0;
  dw = d;
  std::sort(dw.begin(), dw.end());
  double *di = put(d), *dout = put(dg);
  with_storage([&](void *s, size_t &n) { return cub::DeviceRadixSort::SortKeys(s, n, di, dout, N); });
  get(dg, dout);
  for (int i = 0; i < N; i++) WANT(dg[i] == dw[i], "double %d: %f, not %f", i, dg[i], dw[i]);
  std::puts("PASS radix_sort");
}
