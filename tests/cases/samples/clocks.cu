// The device's clocks: every thread's moments are in order, and time passes.
#include "../check.h"
#include <set>

__global__ void measure(long long* cycles, unsigned long long* nanoseconds, unsigned* sm, const float* in, float* out) {
  __shared__ float shared[256];
  long long start = clock64();
  unsigned short_start = clock();
  unsigned long long began;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  shared[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int width = blockDim.x / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) shared[threadIdx.x] = fminf(shared[threadIdx.x], shared[threadIdx.x + width]);
  }
  __syncthreads();
  unsigned long long ended;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ended));
  unsigned short_time = clock() - short_start;
  long long time = clock64() - start;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cycles[i] = time < (long long)short_time ? -1 : time;
  nanoseconds[2 * i] = began; nanoseconds[2 * i + 1] = ended;
  if (threadIdx.x == 0) {
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm[blockIdx.x]));
    out[blockIdx.x] = shared[0];
  }
}

__global__ void pause(unsigned nanoseconds, unsigned long long* took) {
  unsigned long long a, b;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(a));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(b));
  } while (b - a < nanoseconds);
  *took = b - a;
}

int main() {
  const int blocks = 40, threads = 256, n = blocks * threads;
  std::vector<float> in(n);
  for (int i = 0; i < n; i++) in[i] = (i * 7919 % n) + i / threads;
  float *din, *dout;
  long long* cycles;
  unsigned long long* ns;
  unsigned* sm;
  CK(cudaMalloc(&din, n * 4)); CK(cudaMalloc(&dout, blocks * 4)); CK(cudaMalloc(&cycles, n * 8)); CK(cudaMalloc(&ns, n * 16));
  CK(cudaMalloc(&sm, blocks * 4));
  CK(cudaMemcpy(din, in.data(), n * 4, cudaMemcpyHostToDevice));
  measure<<<blocks, threads>>>(cycles, ns, sm, din, dout);
  std::vector<float> out(blocks);
  std::vector<long long> c(n);
  std::vector<unsigned long long> t(2 * n);
  std::vector<unsigned> where(blocks);
  CK(cudaMemcpy(out.data(), dout, blocks * 4, cudaMemcpyDeviceToHost)); CK(cudaMemcpy(c.data(), cycles, n * 8, cudaMemcpyDeviceToHost));
  CK(cudaMemcpy(t.data(), ns, n * 16, cudaMemcpyDeviceToHost)); CK(cudaMemcpy(where.data(), sm, blocks * 4, cudaMemcpyDeviceToHost));
  cudaDeviceProp props;
  CK(cudaGetDeviceProperties(&props, 0));
  for (int b = 0; b < blocks; b++) {
    float least = in[b * threads];
    for (int i = 0; i < threads; i++) least = std::fmin(least, in[b * threads + i]);
    WANT(out[b] == least, "block %d: %g instead of %g", b, out[b], least);
    WANT(where[b] < (unsigned)props.multiProcessorCount, "block %d on multiprocessor %u", b, where[b]);
    unsigned long long last_begin = 0, first_end = ~0ull;
    for (int i = b * threads; i < (b + 1) * threads; i++) {
      WANT(c[i] > 0, "thread %d: %lld cycles", i, c[i]);
      WANT(t[2 * i + 1] >= t[2 * i], "thread %d: the timer went back", i);
      if (t[2 * i] > last_begin) last_begin = t[2 * i];
      if (t[2 * i + 1] < first_end) first_end = t[2 * i + 1];
    }
    // Barriers lie between: no thread ends before every thread has begun.
    WANT(first_end >= last_begin, "block %d: ended at %llu, began at %llu", b, first_end, last_begin);
  }
  cudaEvent_t start, stop;
  CK(cudaEventCreate(&start)); CK(cudaEventCreate(&stop));
  CK(cudaEventRecord(start));
  pause<<<1, 1>>>(3000000, ns);
  CK(cudaEventRecord(stop));
  CK(cudaEventSynchronize(stop));
  unsigned long long took;
  float ms;
  CK(cudaMemcpy(&took, ns, 8, cudaMemcpyDeviceToHost));
  CK(cudaEventElapsedTime(&ms, start, stop));
  WANT(took >= 3000000, "%llu ns", took);
  WANT(ms >= 2.99f, "the events say %g ms, the kernel %llu ns", ms, took);
  std::puts("PASS clocks");
}
