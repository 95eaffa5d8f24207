// Functions of the headers for 16-, 8-, 6- and 4-bit floats: what the device computes is what the same functions compute on the host.
#include "check.h"
#include <cstring>
#include <memory>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int kThreads = 256;

// A number of any narrow type that is none, whose bits may differ.
template <class T> bool none(T) { return false; }
template <> bool none(float x) { return x != x; }
template <> bool none(__half x) { return __hisnan(x); }
template <> bool none(__nv_bfloat16 x) { return __hisnan(x); }
template <class T> bool same(T a, T b) { return (none(a) && none(b)) || !std::memcmp(&a, &b, sizeof a); }
template <> bool same(__half2 a, __half2 b) { return same(a.x, b.x) && same(a.y, b.y); }
template <> bool same(__nv_bfloat162 a, __nv_bfloat162 b) { return same(a.x, b.x) && same(a.y, b.y); }
template <> bool same(float2 a, float2 b) { return same(a.x, b.x) && same(a.y, b.y); }

// One operand of any type: 16 random bytes.
struct Bits {
  unsigned words[4];
  template <class T> __host__ __device__ T as() const { T v; memcpy(&v, words, sizeof v); return v; }
};
struct Operands { Bits a, b; };

template <class F> __global__ void compute(const Operands* in, decltype(F::of(Operands{}))* out) {
  out[threadIdx.x] = F::of(in[threadIdx.x]);
}

template <class F> void check(const std::vector<Operands>& host, const Operands* device) {
  using R = decltype(F::of(Operands{}));
  R* out;
  CK(cudaMalloc(&out, kThreads * sizeof(R)));
  compute<F><<<1, kThreads>>>(device, out);
  CK(cudaGetLastError());
  std::unique_ptr<R[]> got(new R[kThreads]);
  CK(cudaMemcpy(got.get(), out, kThreads * sizeof(R), cudaMemcpyDeviceToHost));
  CK(cudaFree(out));
  for (int i = 0; i < kThreads; i++)
    WANT(same(got[i], F::of(host[i])), "%s of %x and %x", F::name(), host[i].a.words[0], host[i].b.words[0]);
}

// Random bits; small, ordinary and special numbers are frequent among their 16-bit parts.
std::vector<Operands> operands() {
  std::vector<Operands> all(kThreads);
  unsigned seed = 12345;
  auto next = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
  auto part = [&]() -> unsigned {
    unsigned sign = next() % 2 << 15;
    switch (next() % 6) {
      case 0: return sign | next() % 64;
      case 1: return sign | (0x3a00 + next() % 1024);
      case 2: return sign | (0x4000 + next() % 2048);
      case 3: { const unsigned special[] = {0, 0x7c00, 0x7bff, 0x7e00, 0x7f80, 0x0400, 0x3c00, 0x3f80}; return sign | special[next() % 8]; }
      default: return next() & 0xffff;
    }
  };
  for (Operands& o : all)
    for (Bits* b : {&o.a, &o.b})
      for (unsigned& w : b->words) { w = part() << 16; w |= part(); }
  return all;
}

#define A(T) o.a.as<T>()
#define B(T) o.b.as<T>()
// A function by its number; those from 0 on without a gap are checked.
template <int N> struct Function;
#define FUNCTION(n, expression) \
  template <> struct Function<n> { \
    static __host__ __device__ auto of(const Operands& o) { return expression; } \
    static const char* name() { return #expression; } \
  };
FUNCTION(0, __hadd(A(__half), B(__half)))
FUNCTION(1, __hsub(A(__half), B(__half)))
FUNCTION(2, __hmul(A(__half), B(__half)))
FUNCTION(3, __hdiv(A(__half), B(__half)))
FUNCTION(4, __hadd_sat(A(__half), B(__half)))
FUNCTION(5, __hadd2(A(__half2), B(__half2)))
FUNCTION(6, __hmul2(A(__half2), B(__half2)))
FUNCTION(7, __hmax(A(__half), B(__half)))
FUNCTION(8, __hmin_nan(A(__half), B(__half)))
FUNCTION(9, __hlt(A(__half), B(__half)))
FUNCTION(10, __hgeu(A(__half), B(__half)))
FUNCTION(11, __heq2(A(__half2), B(__half2)))
FUNCTION(12, __hltu2(A(__half2), B(__half2)))
FUNCTION(13, __half2float(A(__half)))
FUNCTION(14, __float2half_rn(A(float)))
FUNCTION(15, __float2half_rd(A(float)))
FUNCTION(16, __float2half_ru(A(float)))
FUNCTION(17, __float2half_rz(A(float)))
FUNCTION(18, __half2uint_rz(A(__half)))
FUNCTION(19, __int2half_rz(A(int)))
FUNCTION(20, __ull2half_ru(A(unsigned long long)))
FUNCTION(21, __double2half(A(double)))
FUNCTION(22, __hadd(A(__nv_bfloat16), B(__nv_bfloat16)))
FUNCTION(23, __hmul(A(__nv_bfloat16), B(__nv_bfloat16)))
FUNCTION(24, __hdiv(A(__nv_bfloat16), B(__nv_bfloat16)))
FUNCTION(25, __hmax_nan(A(__nv_bfloat16), B(__nv_bfloat16)))
FUNCTION(26, __hleu(A(__nv_bfloat16), B(__nv_bfloat16)))
FUNCTION(27, __float2bfloat16_rn(A(float)))
FUNCTION(28, __float2bfloat16_rd(A(float)))
FUNCTION(29, __nv_cvt_float_to_fp8(A(float), __NV_SATFINITE, __NV_E4M3))
FUNCTION(30, __nv_cvt_float_to_fp8(A(float), __NV_NOSAT, __NV_E5M2))
FUNCTION(31, __nv_cvt_double_to_fp8(A(double), __NV_SATFINITE, __NV_E5M2))
FUNCTION(32, __nv_cvt_halfraw2_to_fp8x2(A(__half2_raw), __NV_SATFINITE, __NV_E4M3))
FUNCTION(33, __half(__nv_cvt_fp8_to_halfraw(A(__nv_fp8_storage_t), __NV_E4M3)))
FUNCTION(34, __half2(__nv_cvt_fp8x2_to_halfraw2(A(__nv_fp8x2_storage_t), __NV_E5M2)))

template <int N> void check_all(const std::vector<Operands>& host, const Operands* device) {
  if constexpr (N > 0) {
    check_all<N - 1>(host, device);
    check<Function<N - 1>>(host, device);
  }
}

int main() {
  const std::vector<Operands> host = operands();
  Operands* device;
  CK(cudaMalloc(&device, kThreads * sizeof(Operands)));
  CK(cudaMemcpy(device, host.data(), kThreads * sizeof(Operands), cudaMemcpyHostToDevice));
  check_all<35>(host, device);
  CK(cudaFree(device));
  std::puts("PASS narrow_floats");
}
