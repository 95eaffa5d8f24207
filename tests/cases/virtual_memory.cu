// Virtual memory management by the driver API beside the runtime: a vector that grows in place, and kernels that see it.
#include "check.h"
#include <cuda.h>
#define DR(x) do { CUresult r_ = (x); WANT(r_ == CUDA_SUCCESS, "error %d", (int)r_); } while (0)
#define GET(name) name##_t name; { void* p_ = nullptr; cudaDriverEntryPointQueryResult q_; \
  CK(cudaGetDriverEntryPointByVersion(#name, &p_, 12000, cudaEnableDefault, &q_)); WANT(p_, "no %s", #name); name = (name##_t)p_; }
using cuMemAddressReserve_t = decltype(&cuMemAddressReserve); using cuMemCreate_t = decltype(&cuMemCreate);
using cuMemMap_t = decltype(&cuMemMap); using cuMemSetAccess_t = decltype(&cuMemSetAccess); using cuMemUnmap_t = decltype(&cuMemUnmap);
using cuMemRelease_t = decltype(&cuMemRelease); using cuMemAddressFree_t = decltype(&cuMemAddressFree);
using cuMemGetAllocationGranularity_t = decltype(&cuMemGetAllocationGranularity);
__global__ void count(int* p, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] += i; }
int main() {
  CK(cudaFree(nullptr));
  GET(cuMemAddressReserve) GET(cuMemCreate) GET(cuMemMap) GET(cuMemSetAccess) GET(cuMemUnmap) GET(cuMemRelease) GET(cuMemAddressFree)
  GET(cuMemGetAllocationGranularity)
  CUmemAllocationProp prop = {}; prop.type = CU_MEM_ALLOCATION_TYPE_PINNED; prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t unit = 0; DR(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr range; DR(cuMemAddressReserve(&range, 4 * unit, 0, 0, 0)); int* p = (int*)range; std::vector<int> want;
  for (int step = 1; step <= 4; step++) {
    CUmemGenericAllocationHandle memory; DR(cuMemCreate(&memory, unit, &prop, 0));
    DR(cuMemMap(range + (step - 1) * unit, unit, 0, memory, 0)); DR(cuMemRelease(memory));
    DR(cuMemSetAccess(range + (step - 1) * unit, unit, &access, 1));
    CK(cudaMemset((char*)p + (step - 1) * unit, 0, unit));
    int n = step * unit / 4; count<<<16, 256>>>(p, n); want.resize(n);
    for (int i = 0; i < n; i++) want[i] += i;
  }
  // One copy over the borders of all four.
  std::vector<int> got(want.size()); CK(cudaMemcpy(got.data(), p, got.size() * 4, cudaMemcpyDeviceToHost));
  WANT(got == want, "what kernels counted is not what was copied back");
  DR(cuMemUnmap(range, 4 * unit)); DR(cuMemAddressFree(range, 4 * unit));
  count<<<1, 1>>>(p, 1); WANT(cudaDeviceSynchronize() == cudaErrorIllegalAddress, "a kernel reached what was unmapped");
  std::puts("PASS virtual_memory");
}
