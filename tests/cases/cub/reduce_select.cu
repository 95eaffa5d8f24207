// cub::DeviceReduce, DeviceSelect, DeviceHistogram and DeviceRunLengthEncode.
#include "../check.h"
#include "numbers.h"
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_select.cuh>
#include <numeric>

struct Odd {
  __host__ __device__ bool operator()(int v) const { return v % 2 != 0; }
};

int main() {
  std::vector<int> x = numbers(N, 4, 1000), got(N), one(1);
  int *in = put(x), *out = put(got), *count = put(one);
  auto number = [&] { return get(one, count), one[0]; };

  with_storage([&](void *s, size_t &n) { return cub::DeviceReduce::Sum(s, n, in, count, N); });
  int sum = std::accumulate(x.begin(), x.end(), 0);
  WANT(number() == sum, "sum %d, not %d", one[0], sum);
  with_storage([&](void *s, size_t &n) { return cub::DeviceReduce::Max(s, n, in, count, N); });
  int most = *std::max_element(x.begin(), x.end());
  WANT(number() == most, "maximum %d, not %d", one[0], most);

  std::vector<int> want;
  std::copy_if(x.begin(), x.end(), std::back_inserter(want), Odd());
  with_storage([&](void *s, size_t &n) { return cub::DeviceSelect::If(s, n, in, out, count, N, Odd()); });
  get(got, out);
  WANT(number() == (int)want.size(), "selected %d, not %zu", one[0], want.size());
  for (size_t i = 0; i < want.size(); i++) WANT(got[i] == want[i], "selected %zu: %d, not %d", i, got[i], want[i]);

  std::vector<int> runs = numbers(N, 5, 3);
  int *r = put(runs);
  want.clear();
  std::unique_copy(runs.begin(), runs.end(), std::back_inserter(want));
  with_storage([&](void *s, size_t &n) { return cub::DeviceSelect::Unique(s, n, r, out, count, N); });
  get(got, out);
  WANT(number() == (int)want.size(), "unique %d, not %zu", one[0], want.size());
  for (size_t i = 0; i < want.size(); i++) WANT(got[i] == want[i], "unique %zu: %d, not %d", i, got[i], want[i]);

  std::vector<int> lengths(N);
  int *l = put(lengths);
  with_storage([&](void *s, size_t &n) { return cub::DeviceRunLengthEncode::Encode(s, n, r, out, l, count, N); });
  get(lengths, l);
  WANT(number() == (int)want.size(), "runs %d, not %zu", one[0], want.size());
  for (int run = 0, at = 0; run < one[0]; run++) {
    int n = 0;
    while (at + n < N && runs[at + n] == runs[at]) n++;
    WANT(lengths[run] == n, "run %d: %d long, not %d", run, lengths[run], n);
    at += n;
  }

  std::vector<int> bins(100), expected(100);
  for (int v : x) expected[v / 10]++;
  int *b = put(bins);
  with_storage([&](void *s, size_t &n) { return cub::DeviceHistogram::HistogramEven(s, n, in, b, 101, 0, 1000, N); });
  get(bins, b);
  for (int i = 0; i < 100; i++) WANT(bins[i] == expected[i], "bin %d: %d, not %d", i, bins[i], expected[i]);
  std::puts("PASS reduce_select");
}
