// Memory that is allocated and freed in the order of streams.
#include "../check.h"

__global__ void fill(int* a, int n, int first) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = first + i; }
__global__ void add(const int* a, const int* b, int* c, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }

int main() {
  const int n = 50000, rounds = 20;
  int has = 0;
  CK(cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, 0));
  WANT(has == 1, "no pools");
  cudaMemPool_t pool;
  CK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = ~0ull, reserved = 0, used = 0;
  CK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  cudaStream_t s, t;
  CK(cudaStreamCreate(&s)); CK(cudaStreamCreate(&t));
  cudaEvent_t e;
  CK(cudaEventCreate(&e));
  std::vector<int> got(n);
  for (int round = 0; round < rounds; round++) {
    int *a, *b, *c;
    CK(cudaMallocAsync(&a, n * 4, s)); CK(cudaMallocAsync(&b, n * 4, s)); CK(cudaMallocAsync(&c, n * 4, s));
    fill<<<(n + 255) / 256, 256, 0, s>>>(a, n, round);
    fill<<<(n + 255) / 256, 256, 0, s>>>(b, n, 2 * round);
    // Used and freed in another stream, which waits for the first.
    CK(cudaEventRecord(e, s)); CK(cudaStreamWaitEvent(t, e, 0));
    add<<<(n + 255) / 256, 256, 0, t>>>(a, b, c, n);
    CK(cudaMemcpyAsync(got.data(), c, n * 4, cudaMemcpyDeviceToHost, t));
    CK(cudaFreeAsync(a, t)); CK(cudaFreeAsync(b, t)); CK(cudaFreeAsync(c, t));
    CK(cudaStreamSynchronize(t));
    for (int i = 0; i < n; i++) WANT(got[i] == 3 * round + 2 * i, "round %d, element %d: %d", round, i, got[i]);
  }
  CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  WANT(used == 0, "%llu bytes used", used);
  WANT(reserved >= 3 * n * 4ull && reserved < 1ull << 28, "%llu bytes kept", reserved);
  CK(cudaMemPoolTrimTo(pool, 0));
  CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  WANT(reserved == 0, "%llu bytes kept after all were given back", reserved);
  std::puts("PASS stream_ordered");
}
