//! The driver's functions that hand-written bodies call, with the types that they have over the C ABI.
//!
//! Handles and device addresses are `u64`: both are opaque here, and integers may go from thread to thread. Enums are
//! plain integers, since neither the peer nor a newer driver keeps to cudarc's lists. A `&mut` is a pointer that the
//! driver writes through during the call. Functions to which a host address of another form goes are `[unsafe]`.
//!
//! What makes the safe ones safe: the handles come from the session's table ([`super::objects`]), which holds what this
//! driver returned and nothing that was destroyed; device addresses are checked by the driver and are never host memory
//! of this process.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{c_char, c_void};

use super::code::Code;

/// What `cuLaunchHostFunc` calls.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// `CUlaunchAttribute`: the identifier, and 64 bytes whose meaning it gives.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub id: u32,
    /// Unused.
    pub pad: u32,
    /// `CUlaunchAttributeValue`.
    pub value: [u64; 8],
}

/// `CUmemLocation` of a device.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub kind: u32,
    /// The device.
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Properties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub kind: u32,
    /// How it can be exported.
    pub handles: u32,
    /// Where it is.
    pub location: Location,
    /// Unused outside of Windows.
    pub windows: u64,
    /// Whether it is compressed.
    pub compression: u8,
    /// Whether network cards may reach it.
    pub rdma: u8,
    /// For what it is used.
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AccessDescription {
    /// Whose access.
    pub location: Location,
    /// `CUmemAccess_flags`.
    pub flags: u32,
}

/// `CUlaunchConfig`.
#[derive(Debug)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
    /// The stream.
    pub stream: u64,
    /// The attributes.
    pub attributes: *mut LaunchAttribute,
    /// How many.
    pub count: u32,
}

macro_rules! functions {
    ($([$($unsafe:tt)?] $name:ident ($($param:ident: $t:ty),*);)*) => {
        /// Addresses by symbol; `None` where the driver has no such symbol.
        #[derive(Debug, Default, Clone)]
        pub struct Functions {
            $(#[allow(missing_docs)] pub $name: Option<unsafe extern "C" fn($($t),*) -> Code>,)*
        }

        impl Functions {
            /// Asks `find` for the address of every symbol.
            ///
            /// # Safety
            /// What `find` gives must be the function of that name of cuda.h, and stay loaded as long as this lives.
            pub unsafe fn load(mut find: impl FnMut(&'static str) -> Option<*const c_void>) -> Self {
                Self { $($name: find(stringify!($name)).map(|address|
                    // SAFETY: the caller says that this is the function of that name, whose C prototype the line in
                    // the list repeats.
                    unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($t),*) -> Code>(address) }),)* }
            }

            $(
                /// The driver's function of this name; CUDA_ERROR_NOT_SUPPORTED if it has none.
                #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
                #[inline]
                pub $($unsafe)? fn $name(&self, $($param: $t),*) -> Code {
                    match self.$name {
                        // SAFETY: references are valid by their types; raw host pointers by the contract of the unsafe
                        // ones, which is CUDA's; handles by the module's rule.
                        Some(function) => unsafe { function($($param),*) },
                        None => Code::NOT_SUPPORTED,
                    }
                }
            )*
        }
    };
}

functions! {
    [] cuInit(flags: u32);
    [] cuDriverGetVersion(version: &mut i32);
    [] cuDeviceGetCount(count: &mut i32);
    [] cuDeviceGet(device: &mut i32, ordinal: i32);
    [unsafe] cuDeviceGetName(name: *mut c_char, len: i32, device: i32);
    [] cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: i32);
    [] cuDeviceTotalMem_v2(bytes: &mut usize, device: i32);
    [] cuDeviceGetAttribute(value: &mut i32, attribute: i32, device: i32);

    [] cuDevicePrimaryCtxRetain(context: &mut u64, device: i32);
    [] cuDevicePrimaryCtxRelease_v2(device: i32);
    [] cuDevicePrimaryCtxReset_v2(device: i32);
    [] cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);
    [] cuDevicePrimaryCtxGetState(device: i32, flags: &mut u32, active: &mut i32);
    [] cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    [] cuCtxDestroy_v2(context: u64);
    [] cuCtxSetCurrent(context: u64);
    [] cuCtxSynchronize();

    [] cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    [] cuMemAddressReserve(address: &mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64);
    [] cuMemAddressFree(address: u64, bytes: usize);
    [] cuMemGetAllocationGranularity(granularity: &mut usize, properties: &Properties, option: u32);
    [] cuMemCreate(memory: &mut u64, bytes: usize, properties: &Properties, flags: u64);
    [] cuMemRelease(memory: u64);
    [] cuMemMap(address: u64, bytes: usize, offset: usize, memory: u64, flags: u64);
    [] cuMemUnmap(address: u64, bytes: usize);
    [] cuMemSetAccess(address: u64, bytes: usize, access: &AccessDescription, count: usize);
    [] cuMemAlloc_v2(address: &mut u64, bytes: usize);
    [] cuMemAllocPitch_v2(address: &mut u64, pitch: &mut usize, width: usize, height: usize, element: u32);
    [] cuMemFree_v2(address: u64);
    [] cuMemAllocAsync(address: &mut u64, bytes: usize, stream: u64);
    [] cuMemAllocFromPoolAsync(address: &mut u64, bytes: usize, pool: u64, stream: u64);
    [] cuMemFreeAsync(address: u64, stream: u64);
    [] cuDeviceGetDefaultMemPool(pool: &mut u64, device: i32);
    [] cuDeviceGetMemPool(pool: &mut u64, device: i32);
    [] cuMemPoolGetAttribute(pool: u64, attribute: u32, value: &mut u64);
    [] cuMemPoolSetAttribute(pool: u64, attribute: u32, value: &mut u64);

    [unsafe] cuMemHostRegister_v2(memory: *mut c_void, bytes: usize, flags: u32);
    [unsafe] cuMemHostUnregister(memory: *mut c_void);
    [unsafe] cuMemHostGetDevicePointer_v2(address: &mut u64, memory: *mut c_void, flags: u32);

    [unsafe] cuMemcpyHtoDAsync_v2(destination: u64, source: *const c_void, bytes: usize, stream: u64);
    [unsafe] cuMemcpyDtoHAsync_v2(destination: *mut c_void, source: u64, bytes: usize, stream: u64);

    [] cuMemcpyDtoDAsync_v2(destination: u64, source: u64, bytes: usize, stream: u64);
    [] cuMemsetD8Async(destination: u64, value: u8, count: usize, stream: u64);
    [] cuMemsetD16Async(destination: u64, value: u16, count: usize, stream: u64);
    [] cuMemsetD32Async(destination: u64, value: u32, count: usize, stream: u64);
    [] cuMemsetD2D8Async(destination: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64);
    [] cuMemsetD2D16Async(destination: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64);
    [] cuMemsetD2D32Async(destination: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64);

    [unsafe] cuModuleLoadDataEx(module: &mut u64, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void);
    [] cuModuleUnload(module: u64);
    [] cuModuleGetFunctionCount(count: &mut u32, module: u64);
    [unsafe] cuModuleEnumerateFunctions(functions: *mut u64, count: u32, module: u64);
    [unsafe] cuModuleGetGlobal_v2(address: &mut u64, bytes: &mut usize, module: u64, name: *const c_char);
    [] cuFuncGetName(name: &mut *const c_char, function: u64);
    [] cuFuncGetParamInfo(function: u64, index: usize, offset: &mut usize, size: &mut usize);
    [] cuFuncGetAttribute(value: &mut i32, attribute: u32, function: u64);
    [] cuFuncSetAttribute(function: u64, attribute: u32, value: i32);
    [] cuFuncSetCacheConfig(function: u64, config: u32);
    [unsafe] cuLibraryLoadData(library: &mut u64, image: *const c_void, options: *mut u32, values: *mut *mut c_void, count: u32, library_options: *mut u32, library_values: *mut *mut c_void, library_count: u32);
    [] cuLibraryUnload(library: u64);
    [] cuLibraryGetKernelCount(count: &mut u32, library: u64);
    [unsafe] cuLibraryEnumerateKernels(kernels: *mut u64, count: u32, library: u64);
    [] cuLibraryGetModule(module: &mut u64, library: u64);
    [unsafe] cuLibraryGetGlobal(address: &mut u64, bytes: &mut usize, library: u64, name: *const c_char);
    [] cuKernelGetName(name: &mut *const c_char, kernel: u64);
    [] cuKernelGetFunction(function: &mut u64, kernel: u64);
    [] cuKernelGetParamInfo(kernel: u64, index: usize, offset: &mut usize, size: &mut usize);
    [] cuKernelGetAttribute(value: &mut i32, attribute: u32, kernel: u64, device: i32);
    [] cuKernelSetAttribute(attribute: u32, value: i32, kernel: u64, device: i32);
    [] cuKernelSetCacheConfig(kernel: u64, config: u32, device: i32);
    [unsafe] cuLinkCreate_v2(count: u32, options: *mut u32, values: *mut *mut c_void, state: &mut u64);
    [unsafe] cuLinkAddData_v2(state: u64, kind: u32, data: *mut c_void, size: usize, name: *const c_char, count: u32, options: *mut u32, values: *mut *mut c_void);
    [] cuLinkComplete(state: u64, image: &mut *mut c_void, size: &mut usize);
    [] cuLinkDestroy(state: u64);

    [unsafe] cuLaunchKernel(function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, dynamic_shared: u32, stream: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    [unsafe] cuLaunchCooperativeKernel(function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, dynamic_shared: u32, stream: u64, parameters: *mut *mut c_void);
    [unsafe] cuLaunchKernelEx(config: &LaunchConfig, function: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    [unsafe] cuLaunchHostFunc(stream: u64, function: HostFunction, data: *mut c_void);

    [] cuStreamCreateWithPriority(stream: &mut u64, flags: u32, priority: i32);
    [] cuStreamDestroy_v2(stream: u64);
    [] cuStreamSynchronize(stream: u64);
    [] cuStreamQuery(stream: u64);
    [] cuEventCreate(event: &mut u64, flags: u32);
    [] cuEventDestroy_v2(event: u64);
    [] cuEventRecord(event: u64, stream: u64);
    [] cuEventRecordWithFlags(event: u64, stream: u64, flags: u32);
    [] cuEventSynchronize(event: u64);
    [] cuEventQuery(event: u64);
}
