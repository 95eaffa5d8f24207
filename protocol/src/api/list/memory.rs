//! Allocations, pools, pinned host memory, pointer attributes.

macro_rules! list_memory {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// The driver's cuMemGetInfo: what the client holds as credit is not free to it.
200 call(hand) record mem_info(free: Out<u64>, total: Out<u64>);
hand call cuMemGetInfo_v2(free: *mut usize, total: *mut usize) using mem_info;
/// Allocates; `kind` 0 is cuMemAlloc, 1 cuMemAllocPitch (then width, height and element size are used).
201 call(slow, hand) record mem_alloc(bytes: u64, kind: u32, width: u64, height: u64, element: u32, address: Out<u64>, pitch: Out<u64>);
202 call(slow, hand) record mem_free(address: u64);
/// Stream-ordered allocation from `pool`, or from the device's current pool.
203 call(hand) record mem_alloc_async(bytes: u64, pool: Maybe<MemPool>, stream: Stream, address: Out<u64>);
204 post(hand) record mem_free_async(address: u64, stream: Stream);
/// Reserves the range of addresses in which a device's memory shall lie; once a device. Answers what memory in it comes in
/// multiples of. CUDA_ERROR_ALREADY_MAPPED: it cannot be just there; try another address.
205 call(hand) record heap_place(device: i32, base: u64, bytes: u64, granularity: Out<u64>);
/// Puts memory into that range at `address`, in pieces of `piece` bytes: at least `least` bytes, or the answer is
/// CUDA_ERROR_OUT_OF_MEMORY; more, up to `most`, while the device has plenty. Answers how much, and what is left on the device.
206 call(slow, hand) record heap_grow(device: i32, address: u64, least: u64, most: u64, piece: u64, got: Out<u64>, left: Out<u64>);
/// Takes whole pieces back, when no work uses them any more.
207 call(slow, hand) record heap_shrink(device: i32, address: u64, bytes: u64);
/// Has other sessions give back what they hold unused of a device's memory, where an allocation has found none. Answered when
/// they have, or have not in time.
208 call(slow, hand) record heap_reclaim(device: i32);
hand call cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) using heap_place, heap_grow, heap_shrink, heap_reclaim, mem_alloc, context_synchronize;
hand call cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32) using mem_alloc, heap_shrink, heap_reclaim;
hand call cuMemFree_v2(address: CUdeviceptr) using mem_free, heap_shrink, context_synchronize;
hand call cuMemAllocAsync | cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) using mem_alloc_async, heap_shrink, heap_reclaim;
hand call cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) using mem_alloc_async, heap_shrink, heap_reclaim;
hand post cuMemFreeAsync | cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) using mem_free_async;
local cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);

/// The device's default pool (`current` 0) or current pool (1) under a client-made name.
210 post(hand) record pool_name(pool: New<MemPool>, device: i32, current: u32);
211 call(slow) cuMemPoolTrimTo(pool: MemPool, keep: usize);
/// Every attribute is given as 64 bits; the client narrows the 32-bit ones.
212 call(hand) record pool_get_attribute(pool: MemPool, attribute: u32, value: Out<u64>);
213 call(hand) record pool_set_attribute(pool: MemPool, attribute: u32, value: u64);
hand post cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: i32) using pool_name;
hand post cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: i32) using pool_name;
hand call cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void) using pool_get_attribute;
hand call cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void) using pool_set_attribute;

/// Maps the host arena at `base` in the worker too. CUDA_ERROR_ALREADY_MAPPED: something is there; try another address.
220 call(hand) record arena_place(base: u64);
/// Page-locks a piece of the arena for the driver and gives the address that kernels use for it. `flags` are
/// cuMemHostAlloc's.
221 call(slow, hand) record host_lock(address: u64, bytes: u64, flags: u32, device: Out<u64>);
/// Ends what `host_lock` began at this address, when no work uses it any more.
222 call(slow, hand) record host_unlock(address: u64);
hand call cuMemAllocHost_v2, cuMemAllocHost(memory: *mut *mut c_void, bytes: usize) using arena_place, host_lock;
hand call cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: u32) using arena_place, host_lock;
hand call cuMemFreeHost(memory: *mut c_void) using host_unlock;
local cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer(device: *mut CUdeviceptr, memory: *mut c_void, flags: u32);
local cuMemHostRegister_v2, cuMemHostRegister(memory: *mut c_void, bytes: usize, flags: u32);
local cuMemHostUnregister(memory: *mut c_void);
local cuMemHostGetFlags(flags: *mut u32, memory: *mut c_void);
local cuPointerGetAttribute(data: *mut c_void, attribute: u32, pointer: CUdeviceptr);
local cuPointerGetAttributes(count: u32, attributes: *mut u32, data: *mut *mut c_void, pointer: CUdeviceptr);

    }};
}
