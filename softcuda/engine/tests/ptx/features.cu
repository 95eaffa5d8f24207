// Compiled by: nvcc -arch=compute_75 -rdc=true -ptx -o features.ptx features.cu (CUDA 13.5; comment lines removed)
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cstdio>
#include <cassert>
namespace cg = cooperative_groups;
__global__ void gridsync(int* a, int n) { auto g = cg::this_grid(); for (int r = 0; r < n; r++) { if (g.thread_rank() == 0) a[r + 1] = a[r] + 1; g.sync(); a[100 + g.thread_rank()] += a[r + 1]; g.sync(); } }
__global__ void hello(int x) { printf("hello %d from %u %5.2f %s %lld %c|%%|%08x\n", x, threadIdx.x, x * 0.5, "str", (long long)x << 33, 'z', x); }
__global__ void asrt(int x) { assert(x != 3); }
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void recur(int* o) { o[threadIdx.x] = fib(threadIdx.x); }
typedef double (*fp)(double); __device__ double f1(double x) { return sin(x); } __device__ double f2(double x) { return exp(x); } __device__ double f3(double x) { return pow(x, 1.7); } __device__ double f4(double x) { return log(x); }
__device__ fp tab[4] = {f1, f2, f3, f4};
__global__ void ptrs(double* o, const double* x) { o[threadIdx.x] = tab[threadIdx.x % 4](x[threadIdx.x]); }
__global__ void mathf(float* o, const float* x) { int i = threadIdx.x; float v = x[i]; o[i*16] = sinf(v); o[i*16+1] = expf(v); o[i*16+2] = powf(v, 1.7f); o[i*16+3] = logf(v); o[i*16+4] = tanhf(v); o[i*16+5] = cosf(v*1000.f); o[i*16+6]=erff(v); o[i*16+7]=cbrtf(v); o[i*16+8]=rsqrtf(v); o[i*16+9]=__fdividef(v,3.f); o[i*16+10]=__expf(v); o[i*16+11]=fmodf(v,0.7f); o[i*16+12]=atan2f(v,2.f); o[i*16+13]=lgammaf(v); o[i*16+14]=roundf(v); o[i*16+15]=ldexpf(v,3); }
__global__ void halfs(__half* o, const __half* a, const __half* b, __nv_bfloat16* q) { int i = threadIdx.x; o[i] = __hfma(a[i], b[i], __hadd(a[i], b[i])); __half2 h = __halves2half2(a[i], b[i]); h = h2exp(h); o[i] = __hadd(o[i], __low2half(h)); q[i] = __float2bfloat16(__half2float(o[i])) + q[i]; atomicAdd(o + 100, o[i]); if (__hgt(a[i], b[i])) o[i] = hsqrt(a[i]); o[i] = __hmax(o[i], a[i]); }
__global__ void atoms(int* a, unsigned* u, float* f, double* d, unsigned long long* l) { atomicAdd(a, 1); atomicMin(a + 1, threadIdx.x); atomicMax(a + 2, threadIdx.x); atomicCAS(a + 3, 0, 5); atomicInc(u, 10); atomicDec(u + 1, 10); atomicExch(u + 2, 7); atomicAnd(u + 3, 0xff); atomicOr(u + 4, 1 << threadIdx.x); atomicXor(u + 5, threadIdx.x); atomicAdd(f, 1.5f); atomicAdd(d, 2.5); atomicAdd(l, 3ull); atomicMax(l + 1, (unsigned long long)threadIdx.x); 
#if __CUDA_ARCH__ >= 800
 u[6] = __reduce_add_sync(0xffffffff, 3);
#endif
 }
__global__ void warpy(int* o) { int t = threadIdx.x; auto w = cg::tiled_partition<8>(cg::this_thread_block()); int s = cg::reduce(w, t, cg::plus<int>()); auto c = cg::coalesced_threads(); int v = c.size(); if (t % 3 == 0) { auto c2 = cg::coalesced_threads(); v = c2.size() * 100 + c2.thread_rank(); } o[t] = s * 10000 + v + __match_any_sync(~0u, t % 5) % 7; }
__global__ void lock(int* m, int* c) { bool done = false; while (!done) { if (atomicCAS(m, 0, 1) == 0) { __threadfence(); *c += 1; __threadfence(); atomicExch(m, 0); done = true; } } }
__global__ void sw(int* o, int n) { int t = threadIdx.x; switch (t % 9) { case 0: o[t] = n; break; case 1: o[t] = n * 3; break; case 2: o[t] = n / 7; break; case 3: o[t] = n % 7; break; case 4: o[t] = __popc(n); break; case 5: o[t] = __clz(n); break; case 6: o[t] = __brev(n); break; case 7: o[t] = __ffs(n); break; default: o[t] = __byte_perm(n, t, 0x5410); } }
__global__ void i64(long long* o, long long a, unsigned long long b) { o[0] = a / (long long)b; o[1] = a % (long long)b; o[2] = __mul64hi(a, b); o[3] = __umul64hi(a, b); o[4] = (unsigned long long)a / b; o[5] = __popcll(a); o[6] = __double2ll_rd(a * 0.37); o[7] = __float2ull_ru(1.5f * b); __int128 x = (__int128)a * b; o[8] = x >> 64; o[9] = (long long)((x + a) / 1000003); }
__global__ void loc(int* o, int n) { int a[40]; for (int i = 0; i < 40; i++) a[i] = i * n; int s = 0; for (int i = 0; i < n; i++) s += a[(i * 7 + threadIdx.x) % 40]; o[threadIdx.x] = s; }
__global__ void heap(int* o) { int* p = (int*)malloc(64); p[3] = threadIdx.x; o[threadIdx.x] = p[3]; free(p); }
__global__ void bad(int* p) { p[1ll << 34] = 1; }
__global__ void tex(const float* __restrict__ x, float4* y) { y[threadIdx.x] = __ldg((const float4*)x + threadIdx.x); }
