// Cooperative groups: barriers of the whole grid, tiles, threads that happen to be together, collectives.
#include "../check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

// Jacobi steps on a ring of numbers: a step reads what all other blocks wrote in the step before.
__global__ void steps(long long* a, long long* b, int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < rounds; round++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) b[i] = a[(i + n - 1) % n] + a[(i + 1) % n];
    grid.sync();
    long long* t = a; a = b; b = t;
  }
}

template <int Size> __device__ void tiles(int* sums, int* scans, int* firsts) {
  auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
  int rank = cg::this_thread_block().thread_rank();
  sums[rank] = cg::reduce(tile, rank, cg::plus<int>());
  scans[rank] = cg::inclusive_scan(tile, 1);
  firsts[rank] = tile.shfl(rank, 0) + (tile.any(rank % Size == Size - 1) ? 0 : 1000);
}
__global__ void all_tiles(int* out) {
  int n = blockDim.x;
  tiles<32>(out, out + n, out + 2 * n); tiles<16>(out + 3 * n, out + 4 * n, out + 5 * n); tiles<4>(out + 6 * n, out + 7 * n, out + 8 * n);
}

// One addition for all threads of a warp that come here together.
__global__ void aggregated(const int* values, int* kept, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || values[i] % 3) return;
  auto together = cg::coalesced_threads();
  int base = 0;
  if (together.thread_rank() == 0) base = atomicAdd(count, (int)together.size());
  kept[together.shfl(base, 0) + together.thread_rank()] = values[i];
}

int main() {
  int device = 0, cooperative = 0, per_sm = 0;
  cudaDeviceProp props;
  CK(cudaGetDeviceProperties(&props, device));
  CK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  WANT(cooperative == 1, "no cooperative launch");
  CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, steps, 128, 0));
  int most = per_sm * props.multiProcessorCount, n = 3001, rounds = 12;
  WANT(most >= 2, "%d blocks", most);

  std::vector<long long> now(n), next(n);
  for (int i = 0; i < n; i++) now[i] = i * i % 17;
  long long *a, *b;
  CK(cudaMalloc(&a, n * 8)); CK(cudaMalloc(&b, n * 8));
  CK(cudaMemcpy(a, now.data(), n * 8, cudaMemcpyHostToDevice));
  void* arguments[] = {&a, &b, &n, &rounds};
  CK(cudaLaunchCooperativeKernel((void*)steps, dim3(most < 8 ? most : 8), dim3(128), arguments, 0, 0));
  for (int round = 0; round < rounds; round++, now.swap(next))
    for (int i = 0; i < n; i++) next[i] = now[(i + n - 1) % n] + now[(i + 1) % n];
  std::vector<long long> got(n);
  CK(cudaMemcpy(got.data(), rounds % 2 ? b : a, n * 8, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) WANT(got[i] == now[i], "element %d: %lld instead of %lld", i, got[i], now[i]);
  cudaError_t large = cudaLaunchCooperativeKernel((void*)steps, dim3(most + 1), dim3(128), arguments, 0, 0);
  WANT(large == cudaErrorCooperativeLaunchTooLarge, "%d blocks give %d", most + 1, (int)large);
  (void)cudaGetLastError();

  const int threads = 128;
  int* out;
  std::vector<int> lists(9 * threads);
  CK(cudaMalloc(&out, lists.size() * 4));
  all_tiles<<<1, threads>>>(out);
  CK(cudaMemcpy(lists.data(), out, lists.size() * 4, cudaMemcpyDeviceToHost));
  int sizes[] = {32, 16, 4};
  for (int k = 0; k < 3; k++) for (int i = 0; i < threads; i++) {
    int size = sizes[k], first = i / size * size, sum = size * first + size * (size - 1) / 2;
    int* at = &lists[3 * k * threads + i];
    WANT(at[0] == sum && at[threads] == i % size + 1 && at[2 * threads] == first, "tile of %d, thread %d: %d %d %d", size, i, at[0],
         at[threads], at[2 * threads]);
  }

  const int values = 10000;
  std::vector<int> v(values), kept(values);
  std::vector<char> seen(values * 7);
  int *dv, *dk, *dc, count = 0, want = 0;
  for (int i = 0; i < values; i++) { v[i] = i * 7; want += v[i] % 3 == 0; }
  CK(cudaMalloc(&dv, values * 4)); CK(cudaMalloc(&dk, values * 4)); CK(cudaMalloc(&dc, 4));
  CK(cudaMemcpy(dv, v.data(), values * 4, cudaMemcpyHostToDevice)); CK(cudaMemset(dc, 0, 4));
  aggregated<<<(values + 255) / 256, 256>>>(dv, dk, dc, values);
  CK(cudaMemcpy(&count, dc, 4, cudaMemcpyDeviceToHost)); CK(cudaMemcpy(kept.data(), dk, values * 4, cudaMemcpyDeviceToHost));
  WANT(count == want, "%d kept instead of %d", count, want);
  for (int i = 0; i < count; i++) {
    WANT(kept[i] % 21 == 0 && kept[i] / 7 < values && !seen[kept[i]], "kept %d", kept[i]);
    seen[kept[i]] = 1;
  }
  std::puts("PASS cooperative");
}
