// Thrust on top of CUB: sort, scan, reduce, and what builds on them.
#include "../check.h"
#include "numbers.h"
#include <numeric>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

struct Square {
  __host__ __device__ long long operator()(int v) const { return (long long)v * v; }
};
struct ByTens {
  __host__ __device__ bool operator()(int a, int b) const { return a / 10 < b / 10; }
};

template <class T> void same(const char *what, const thrust::device_vector<T> &got, const std::vector<T> &want) {
  thrust::host_vector<T> h = got;
  WANT(h.size() == want.size(), "%s: %zu elements, not %zu", what, h.size(), want.size());
  for (size_t i = 0; i < want.size(); i++) WANT(h[i] == want[i], "%s: element %zu differs", what, i);
}

int main() {
  std::vector<int> x = numbers(N, 7, 100000), want = x;
  thrust::device_vector<int> d(x.begin(), x.end()), out(N);

  long long squares = thrust::transform_reduce(d.begin(), d.end(), Square(), 0ll, thrust::plus<long long>());
  long long expected = 0;
  for (int v : x) expected += Square()(v);
  WANT(squares == expected, "sum of squares %lld, not %lld", squares, expected);

  std::vector<int> small = numbers(N, 8, 100), sums(N);
  thrust::device_vector<int> s(small.begin(), small.end());
  std::partial_sum(small.begin(), small.end(), sums.begin());
  thrust::inclusive_scan(s.begin(), s.end(), out.begin());
  same("scan", out, sums);
  WANT(thrust::reduce(s.begin(), s.end()) == sums.back(), "sum");

  thrust::sort(d.begin(), d.end());
  std::sort(want.begin(), want.end());
  same("sort", d, want);
  thrust::sort(d.begin(), d.end(), thrust::greater<int>());
  std::reverse(want.begin(), want.end());
  same("descending", d, want);

  // A comparison of its own, so by merging; the values show the order among equals.
  thrust::device_vector<int> keys(x.begin(), x.end()), values(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(N));
  std::vector<int> order(N);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ByTens()(x[a], x[b]); });
  thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin(), ByTens());
  same("by key", values, order);

  thrust::sort(s.begin(), s.end());
  s.erase(thrust::unique(s.begin(), s.end()), s.end());
  std::sort(small.begin(), small.end());
  small.erase(std::unique(small.begin(), small.end()), small.end());
  same("unique", s, small);
  std::puts("PASS thrust");
}
