// Kernel parameters of every shape: none, small types with padding, structs by value, alignment of 16, 3.9 KB and 16 KB at once.
#include "check.h"
#include <cstdint>
struct Mixed { char a; double b; short c; float4 d; unsigned char e[3]; };
template <int N> struct Big { int v[N]; };
__device__ int touched;
__global__ void none() { touched = 77; }
__global__ void small_types(bool a, char b, short c, int d, long long e, float f, double g, unsigned char h, double* out) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = (double)e; out[5] = f; out[6] = g; out[7] = h;
}
__global__ void mixed(char lead, Mixed m, uint16_t tail, double* out) {
  out[0] = lead; out[1] = m.a; out[2] = m.b; out[3] = m.c; out[4] = m.d.x + m.d.y * 10 + m.d.z * 100 + m.d.w * 1000; out[5] = m.e[2]; out[6] = tail;
}
template <int N> __global__ void big(Big<N> b, int* out) { for (int i = threadIdx.x; i < N; i += blockDim.x) out[i] = b.v[i] + 1; }
template <int N> static void try_big(int* d) {
  Big<N> b; std::vector<int> h(N); for (int i = 0; i < N; i++) b.v[i] = i * 31 - 7;
  CK(cudaMemset(d, 0, N * sizeof(int))); big<N><<<1, 64>>>(b, d);
  for (int i = 0; i < N; i++) b.v[i] = -1;  // a launch has taken its parameters when it returns
  CK(cudaGetLastError()); CK(cudaMemcpy(h.data(), d, N * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < N; i++) WANT(h[i] == i * 31 - 6, "big<%d> i=%d got %d", N, i, h[i]);
}
int main() {
  int got = 0; none<<<1, 1>>>(); CK(cudaMemcpyFromSymbol(&got, touched, sizeof got)); WANT(got == 77, "touched %d", got);
  double *d, h[8]; CK(cudaMalloc(&d, sizeof h));
  small_types<<<1, 1>>>(true, -3, -300, 70000, -(1LL << 40), 0.25f, 1e100, 200, d); CK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
  WANT(h[0] == 1 && h[1] == -3 && h[2] == -300 && h[3] == 70000 && h[4] == -(double)(1LL << 40) && h[5] == 0.25 && h[6] == 1e100 && h[7] == 200,
       "small types %g %g %g %g %g %g %g %g", h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]);
  Mixed m{5, 2.5, -9, make_float4(1, 2, 3, 4), {0, 0, 250}}; mixed<<<1, 1>>>('A', m, 65535, d); CK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
  WANT(h[0] == 65 && h[1] == 5 && h[2] == 2.5 && h[3] == -9 && h[4] == 4321 && h[5] == 250 && h[6] == 65535, "mixed %g %g %g %g %g %g %g", h[0], h[1], h[2], h[3], h[4], h[5], h[6]);
  int* o; CK(cudaMalloc(&o, 8192 * sizeof(int))); try_big<1>(o); try_big<1000>(o); try_big<4096>(o);
  std::puts("PASS launch_params");
}
