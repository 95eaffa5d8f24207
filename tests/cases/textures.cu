// Textures, surfaces, arrays and mipmapped arrays, beside the formulas of the programming guide in plain C++.
#include "check.h"
#include <algorithm>
#include <functional>

static float quantised(float w) { return std::floor(w * 256 + 0.5f) / 256; }

// Which texel an index means, or -1 for the border.
static int wrapped(cudaTextureAddressMode mode, bool normalized, int i, int n) {
  if (!normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror)) mode = cudaAddressModeClamp;
  if (mode == cudaAddressModeClamp) return std::min(std::max(i, 0), n - 1);
  if (mode == cudaAddressModeBorder) return i < 0 || i >= n ? -1 : i;
  if (mode == cudaAddressModeWrap) return ((i % n) + n) % n;
  int j = ((i % (2 * n)) + 2 * n) % (2 * n);
  return j < n ? j : 2 * n - 1 - j;
}

struct Reference {
  cudaTextureAddressMode mode; bool normalized, linear; int w, h, d;
  std::function<float(int, int, int)> texel;
  float at(int x, int y, int z) const {
    x = wrapped(mode, normalized, x, w); y = wrapped(mode, normalized, y, h); z = wrapped(mode, normalized, z, d);
    return x < 0 || y < 0 || z < 0 ? 0.f : texel(x, y, z);
  }
  float operator()(float x, float y, float z) const {
    if (normalized) { x *= w; y *= h; z *= d; }
    if (!linear) return at((int)std::floor(x), (int)std::floor(y), (int)std::floor(z));
    float xb = x - .5f, yb = y - .5f, zb = z - .5f;
    int i = (int)std::floor(xb), j = (int)std::floor(yb), k = (int)std::floor(zb);
    float a = quantised(xb - i), b = quantised(yb - j), c = quantised(zb - k), sum = 0;
    for (int corner = 0; corner < 8; corner++) {
      int dx = corner & 1, dy = corner >> 1 & 1, dz = corner >> 2;
      float weight = (dx ? a : 1 - a) * (dy ? b : 1 - b) * (dz ? c : 1 - c);
      if (weight > 0) sum += weight * at(i + dx, j + dy, k + dz);
    }
    return sum;
  }
};

__global__ void read2(cudaTextureObject_t t, const float2* at, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = tex2D<float>(t, at[i].x, at[i].y);
}
__global__ void read3(cudaTextureObject_t t, const float3* at, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = tex3D<float>(t, at[i].x, at[i].y, at[i].z);
}

template <class T> T* device(const std::vector<T>& v) {
  T* p; CK(cudaMalloc(&p, v.size() * sizeof(T))); CK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); return p;
}
template <class T> std::vector<T> host(const T* p, size_t n) {
  std::vector<T> v(n); CK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost)); return v;
}
static cudaTextureObject_t texture(const cudaResourceDesc& r, const cudaTextureDesc& d) {
  cudaTextureObject_t t; CK(cudaCreateTextureObject(&t, &r, &d, nullptr)); return t;
}
static cudaResourceDesc of(cudaArray_t a) { cudaResourceDesc r = {}; r.resType = cudaResourceTypeArray; r.res.array.array = a; return r; }
static unsigned seed = 12345;
static float random(float low, float high) { seed = seed * 1664525u + 1013904223u; return low + (high - low) * (seed >> 8) / 16777216.f; }

// Every address mode, both filters, both kinds of coordinates, on a plane: from an array and from pitched memory.
static void planes() {
  const int w = 13, h = 7, n = 4000; std::vector<float> image(w * h); for (auto& v : image) v = random(-10, 10);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); cudaArray_t array; CK(cudaMallocArray(&array, &format, w, h));
  CK(cudaMemcpy2DToArray(array, 0, 0, image.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
  std::vector<float> back(w * h); CK(cudaMemcpy2DFromArray(back.data(), w * 4, array, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
  WANT(back == image, "an array does not hold what was copied into it");
  float* pitched; size_t pitch; CK(cudaMallocPitch(&pitched, &pitch, w * 4, h));
  CK(cudaMemcpy2D(pitched, pitch, image.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
  cudaResourceDesc rows = {}; rows.resType = cudaResourceTypePitch2D;
  rows.res.pitch2D = {pitched, format, (size_t)w, (size_t)h, pitch};
  float* out; CK(cudaMalloc(&out, n * 4));
  for (auto mode : {cudaAddressModeClamp, cudaAddressModeBorder, cudaAddressModeWrap, cudaAddressModeMirror})
    for (int normalized = 0; normalized < 2; normalized++) for (int linear = 0; linear < 2; linear++) for (int from = 0; from < 2; from++) {
      cudaTextureDesc d = {}; for (auto& m : d.addressMode) m = mode;
      d.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint; d.normalizedCoords = normalized;
      cudaTextureObject_t t = texture(from ? rows : of(array), d);
      std::vector<float2> at(n); for (auto& p : at) p = {random(-2, 3) * (normalized ? 1 : w), random(-2, 3) * (normalized ? 1 : h)};
      float2* where = device(at); read2<<<(n + 127) / 128, 128>>>(t, where, out, n); auto got = host(out, n);
      Reference right = {mode, (bool)normalized, (bool)linear, w, h, 1, [&](int x, int y, int) { return image[y * w + x]; }};
      for (int i = 0; i < n; i++) {
        float want = right(at[i].x, at[i].y, 0.5f);
        WANT(std::fabs(got[i] - want) <= 1e-4f, "mode %d normalized %d linear %d from %d at (%g, %g): %g, not %g", mode, normalized,
             linear, from, at[i].x, at[i].y, got[i], want);
      }
      CK(cudaDestroyTextureObject(t)); CK(cudaFree(where));
    }
  CK(cudaFreeArray(array)); CK(cudaFree(pitched)); CK(cudaFree(out));
}

static void volumes() {
  const int w = 5, h = 4, d = 3, n = 2000; std::vector<float> image(w * h * d); for (auto& v : image) v = random(-1, 1);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); cudaArray_t array; CK(cudaMalloc3DArray(&array, &format, {w, h, d}));
  cudaMemcpy3DParms c = {}; c.srcPtr = make_cudaPitchedPtr(image.data(), w * 4, w, h); c.dstArray = array; c.extent = {w, h, d};
  c.kind = cudaMemcpyHostToDevice; CK(cudaMemcpy3D(&c));
  cudaTextureDesc t = {}; for (auto& m : t.addressMode) m = cudaAddressModeClamp; t.filterMode = cudaFilterModeLinear;
  cudaTextureObject_t object = texture(of(array), t);
  std::vector<float3> at(n); for (auto& p : at) p = {random(-1, w + 1), random(-1, h + 1), random(-1, d + 1)};
  float3* where = device(at); float* out; CK(cudaMalloc(&out, n * 4)); read3<<<(n + 127) / 128, 128>>>(object, where, out, n);
  auto got = host(out, n);
  Reference right = {cudaAddressModeClamp, false, true, w, h, d, [&](int x, int y, int z) { return image[(z * h + y) * w + x]; }};
  for (int i = 0; i < n; i++) {
    float want = right(at[i].x, at[i].y, at[i].z);
    WANT(std::fabs(got[i] - want) <= 1e-5f, "volume at (%g, %g, %g): %g, not %g", at[i].x, at[i].y, at[i].z, got[i], want);
  }
  CK(cudaDestroyTextureObject(object)); CK(cudaFreeArray(array)); CK(cudaFree(where)); CK(cudaFree(out));
}

// tex1Dfetch; integers; fractions; gather; a residency flag.
__global__ void formats(cudaTextureObject_t plain, cudaTextureObject_t bytes, cudaTextureObject_t fractions, cudaTextureObject_t gathered,
                        float4* f, int4* i) {
  f[0] = tex1Dfetch<float4>(plain, 2); f[1] = tex1Dfetch<float4>(plain, 4); f[2] = tex1Dfetch<float4>(plain, -1);
  uchar4 b = tex2D<uchar4>(bytes, 1, 1); i[0] = make_int4(b.x, b.y, b.z, b.w);
  f[3] = tex2D<float4>(fractions, 1, 1);
  f[4] = tex2Dgather<float4>(gathered, 1.f, 1.f, 0);
  bool there; f[5].x = tex2D<float>(gathered, 1.5f, 0.5f, &there); f[5].y = there; f[5].z = 0; f[5].w = 0;
}
static void kinds() {
  std::vector<float4> values(4); for (int i = 0; i < 4; i++) values[i] = make_float4(i, i + .5f, -i, 100 + i);
  float4* memory = device(values); cudaResourceDesc r = {}; r.resType = cudaResourceTypeLinear;
  r.res.linear = {memory, cudaCreateChannelDesc<float4>(), sizeof(float4) * 4}; cudaTextureDesc d = {}; auto plain = texture(r, d);
  uchar4 image[4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {0, 51, 102, 255}};
  cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>(); cudaArray_t array; CK(cudaMallocArray(&array, &format, 2, 2));
  CK(cudaMemcpy2DToArray(array, 0, 0, image, 8, 8, 2, cudaMemcpyHostToDevice)); auto bytes = texture(of(array), d);
  cudaTextureDesc n = {}; n.readMode = cudaReadModeNormalizedFloat; auto fractions = texture(of(array), n);
  cudaTextureDesc wrong = {}; wrong.filterMode = cudaFilterModeLinear; cudaTextureObject_t none; auto resource = of(array);
  WANT(cudaCreateTextureObject(&none, &resource, &wrong, nullptr) != cudaSuccess, "integers cannot be filtered"); (void)cudaGetLastError();
  float square[4] = {1, 2, 3, 4}; cudaChannelFormatDesc one = cudaCreateChannelDesc<float>(); cudaArray_t gather;
  CK(cudaMallocArray(&gather, &one, 2, 2, cudaArrayTextureGather));
  CK(cudaMemcpy2DToArray(gather, 0, 0, square, 8, 8, 2, cudaMemcpyHostToDevice)); auto gathered = texture(of(gather), d);
  float4* f; int4* i; CK(cudaMalloc(&f, 6 * sizeof *f)); CK(cudaMalloc(&i, sizeof *i));
  formats<<<1, 1>>>(plain, bytes, fractions, gathered, f, i); auto got = host(f, 6); auto whole = host(i, 1);
  auto same = [](float4 a, float x, float y, float z, float w) { return a.x == x && a.y == y && a.z == z && a.w == w; };
  WANT(same(got[0], 2, 2.5f, -2, 102), "tex1Dfetch"); WANT(same(got[1], 0, 0, 0, 0) && same(got[2], 0, 0, 0, 0), "outside of linear memory");
  WANT(whole[0].x == 0 && whole[0].y == 51 && whole[0].z == 102 && whole[0].w == 255, "bytes as integers");
  WANT(same(got[3], 0, 51 / 255.f, 102 / 255.f, 1), "bytes as fractions");
  WANT(same(got[4], 3, 4, 2, 1), "gather: %g %g %g %g", got[4].x, got[4].y, got[4].z, got[4].w);
  WANT(got[5].x == 2 && got[5].y == 1, "all of a texture is there");
  cudaArray_t again; CK(cudaMallocArray(&again, &format, 2, 2)); CK(cudaMemcpy2DArrayToArray(again, 0, 0, array, 0, 0, 8, 2));
  uchar4 copy[4]; CK(cudaMemcpy2DFromArray(copy, 8, again, 0, 0, 8, 2, cudaMemcpyDeviceToHost));
  WANT(copy[3].z == 102 && copy[0].x == 1, "array to array");
  for (auto t : {plain, bytes, fractions, gathered}) CK(cudaDestroyTextureObject(t));
  for (auto a : {array, gather, again}) CK(cudaFreeArray(a));
  CK(cudaFree(memory)); CK(cudaFree(f)); CK(cudaFree(i));
}

// Layers, cube faces, levels.
__global__ void more(cudaTextureObject_t layers, cudaTextureObject_t cube, cudaTextureObject_t levels, float* out) {
  out[0] = tex2DLayered<float>(layers, 1.f, 0.f, 2); out[1] = tex2DLayered<float>(layers, 1.f, 0.f, 9);
  float3 to[6] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
  for (int i = 0; i < 6; i++) out[2 + i] = texCubemap<float>(cube, to[i].x, to[i].y, to[i].z);
  out[8] = texCubemap<float>(cube, 1.f, .9f, .9f);
  out[9] = tex2DLod<float>(levels, .5f, .5f, 0); out[10] = tex2DLod<float>(levels, .5f, .5f, 1); out[11] = tex2DLod<float>(levels, .5f, .5f, 1.5f);
  out[12] = tex2DLod<float>(levels, .5f, .5f, 99); out[13] = tex2D<float>(levels, .5f, .5f);
  // One step is a quarter of the image: 2 texels of the largest level, which is level 1.
  out[14] = tex2DGrad<float>(levels, .5f, .5f, make_float2(.25f, 0), make_float2(0, .1f));
}
static void shapes() {
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); cudaArray_t layers, cube; std::vector<float> image(6 * 4);
  for (size_t i = 0; i < image.size(); i++) image[i] = i;
  CK(cudaMalloc3DArray(&layers, &format, {2, 2, 6}, cudaArrayLayered)); CK(cudaMalloc3DArray(&cube, &format, {2, 2, 6}, cudaArrayCubemap));
  for (auto a : {layers, cube}) {
    cudaMemcpy3DParms c = {}; c.srcPtr = make_cudaPitchedPtr(image.data(), 8, 2, 2); c.dstArray = a; c.extent = {2, 2, 6};
    c.kind = cudaMemcpyHostToDevice; CK(cudaMemcpy3D(&c));
  }
  cudaMipmappedArray_t levels; CK(cudaMallocMipmappedArray(&levels, &format, {8, 8, 0}, 3)); float value[3] = {10, 20, 40};
  for (int i = 0; i < 3; i++) {
    cudaArray_t level; CK(cudaGetMipmappedArrayLevel(&level, levels, i)); int n = 8 >> i; std::vector<float> v(n * n, value[i]);
    cudaExtent size; unsigned flags; cudaChannelFormatDesc f; CK(cudaArrayGetInfo(&f, &size, &flags, level));
    WANT(size.width == (size_t)n && size.height == (size_t)n, "level %d is %zu wide", i, size.width);
    CK(cudaMemcpy2DToArray(level, 0, 0, v.data(), n * 4, n * 4, n, cudaMemcpyHostToDevice));
  }
  cudaArray_t none; WANT(cudaGetMipmappedArrayLevel(&none, levels, 3) == cudaErrorInvalidValue, "there is no level 3"); (void)cudaGetLastError();
  cudaTextureDesc d = {}; for (auto& m : d.addressMode) m = cudaAddressModeClamp; auto l = texture(of(layers), d), c = texture(of(cube), d);
  d.normalizedCoords = 1; d.filterMode = cudaFilterModeLinear; d.mipmapFilterMode = cudaFilterModeLinear; d.maxMipmapLevelClamp = 99;
  cudaResourceDesc r = {}; r.resType = cudaResourceTypeMipmappedArray; r.res.mipmap.mipmap = levels; auto m = texture(r, d);
  float* out; CK(cudaMalloc(&out, 15 * 4)); more<<<1, 1>>>(l, c, m, out); auto got = host(out, 15);
  WANT(got[0] == 9 && got[1] == 21, "layers: %g %g", got[0], got[1]);
  // The middle of a face is where its four texels meet: (s, t) = (1/2, 1/2) belongs to the last of them.
  for (int i = 0; i < 6; i++) WANT(got[2 + i] == 4 * i + 3, "face %d: %g", i, got[2 + i]);
  WANT(got[8] == 0, "+x, up and forward is the first texel, not %g", got[8]);
  float want[] = {10, 20, 30, 40, 10, 20};
  for (int i = 0; i < 6; i++) WANT(got[9 + i] == want[i], "level of detail %d: %g, not %g", i, got[9 + i], want[i]);
  for (auto t : {l, c, m}) CK(cudaDestroyTextureObject(t));
  CK(cudaFreeArray(layers)); CK(cudaFreeArray(cube)); CK(cudaFreeMipmappedArray(levels)); CK(cudaFree(out));
}

__global__ void paint(cudaSurfaceObject_t flat, cudaSurfaceObject_t deep, cudaSurfaceObject_t layered) {
  int x = threadIdx.x, y = threadIdx.y;
  surf2Dwrite(make_float2(x, y), flat, x * 8, y); surf3Dwrite(x + 10 * y, deep, x * 4, y, 1); surf2DLayeredwrite((short)(x - y), layered, x * 2, y, 2);
}
__global__ void look(cudaSurfaceObject_t flat, float2* out) {
  out[0] = surf2Dread<float2>(flat, 3 * 8, 2); out[1] = surf2Dread<float2>(flat, 100 * 8, -5, cudaBoundaryModeClamp);
  out[2] = surf2Dread<float2>(flat, -8, 0, cudaBoundaryModeZero); surf2Dwrite(make_float2(7, 7), flat, 9999, 0, cudaBoundaryModeZero);
}
__global__ void fall(cudaSurfaceObject_t flat) { surf2Dwrite(make_float2(7, 7), flat, 9999, 0); }
static void surfaces() {
  cudaChannelFormatDesc two = cudaCreateChannelDesc<float2>(), one = cudaCreateChannelDesc<int>(), half = cudaCreateChannelDesc<short>();
  cudaArray_t flat, deep, layered, no; CK(cudaMallocArray(&flat, &two, 8, 4, cudaArraySurfaceLoadStore)); CK(cudaMallocArray(&no, &two, 8, 4));
  CK(cudaMalloc3DArray(&deep, &one, {8, 4, 2}, cudaArraySurfaceLoadStore));
  CK(cudaMalloc3DArray(&layered, &half, {8, 4, 3}, cudaArraySurfaceLoadStore | cudaArrayLayered));
  cudaSurfaceObject_t s[3], none; cudaArray_t arrays[3] = {flat, deep, layered};
  for (int i = 0; i < 3; i++) { auto r = of(arrays[i]); CK(cudaCreateSurfaceObject(&s[i], &r)); }
  auto r = of(no); WANT(cudaCreateSurfaceObject(&none, &r) == cudaErrorInvalidValue, "an array that is no surface"); (void)cudaGetLastError();
  paint<<<1, dim3(8, 4)>>>(s[0], s[1], s[2]); float2* out; CK(cudaMalloc(&out, 24)); look<<<1, 1>>>(s[0], out); auto got = host(out, 3);
  WANT(got[0].x == 3 && got[0].y == 2, "what was written"); WANT(got[1].x == 7 && got[1].y == 0, "clamped: %g %g", got[1].x, got[1].y);
  WANT(got[2].x == 0 && got[2].y == 0, "zero outside");
  std::vector<int> v(64); cudaMemcpy3DParms c = {}; c.srcArray = deep; c.dstPtr = make_cudaPitchedPtr(v.data(), 32, 8, 4); c.extent = {8, 4, 2};
  c.kind = cudaMemcpyDeviceToHost; CK(cudaMemcpy3D(&c)); for (int i = 0; i < 32; i++) WANT(v[32 + i] == i % 8 + 10 * (i / 8), "volume %d: %d", i, v[32 + i]);
  std::vector<short> l(96); c = {}; c.srcArray = layered; c.dstPtr = make_cudaPitchedPtr(l.data(), 16, 8, 4); c.extent = {8, 4, 3};
  c.kind = cudaMemcpyDeviceToHost; CK(cudaMemcpy3D(&c)); for (int i = 0; i < 32; i++) WANT(l[64 + i] == i % 8 - i / 8, "layer %d: %d", i, l[64 + i]);
  for (auto o : s) if (o != s[0]) CK(cudaDestroySurfaceObject(o));
  fall<<<1, 1>>>(s[0]); WANT(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "a trap outside");
}

int main() {
  planes(); volumes(); kinds(); shapes(); surfaces(); std::puts("PASS textures");
}
