// Driver-API clients without cudart: every function is looked up in the libcuda.so.1 that the loader finds.
#pragma once
#include <cuda.h>
#include <dlfcn.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

inline void* library() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (!handle) { std::printf("FAIL %s\n", dlerror()); std::exit(1); }
  return handle;
}
template <class F> F* need(const char* name) {
  void* f = dlsym(library(), name);
  if (!f) { std::printf("FAIL no symbol %s\n", name); std::exit(1); }
  return (F*)f;
}
// cuda.h renames many functions by macros (cuMemAlloc is cuMemAlloc_v2): the name is taken after that.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define CALL(f) (*[] { static auto* found = need<decltype(f)>(TEXT(f)); return found; }())
#define CK(x) do { CUresult r_ = (x); if (r_) { std::printf("FAIL line %d: %s -> %d\n", __LINE__, #x, (int)r_); std::exit(1); } } while (0)

inline double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The first device's primary context, current.
inline void start() {
  CUdevice device; CUcontext context;
  CK(CALL(cuInit)(0)); CK(CALL(cuDeviceGet)(&device, 0)); CK(CALL(cuDevicePrimaryCtxRetain)(&context, device)); CK(CALL(cuCtxSetCurrent)(context));
}
