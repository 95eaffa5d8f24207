//! The symbols: `extern "C"` functions that look for null and call the function that does the work. What is not listed
//! here is exported by [`cuda_abi::refuse_rest!`] and refuses.
#![allow(unsafe_code)]
#![allow(clippy::too_many_arguments, reason = "the prototypes are CUDA's")]

use std::ffi::{CStr, c_char, c_void};

use cuda_abi::sys::CUresult::{
    self, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
};

use crate::{Result, arena, device, host, modules, objects, vmm};

/// What `cuLaunchHostFunc` calls.
type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// Writes a result where the caller wants it.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's word.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// As [`put`], where null means that the result is not wanted.
///
/// # Safety
/// As [`put`].
unsafe fn offer<T>(place: *mut T, value: T) -> Result {
    // SAFETY: the caller's word.
    if place.is_null() { Ok(()) } else { unsafe { put(place, value) } }
}

/// The one device.
fn only(device: i32) -> Result {
    if device == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

/// The text of an image that ends with a NUL.
///
/// # Safety
/// `image` is null, a C string, or begins with a binary image's four magic bytes.
unsafe fn load(image: *const c_void) -> Result<u64> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's word; a magic number has no NUL, so a string that begins like it has four bytes.
    let bytes = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
    modules::load(bytes.to_bytes())
}

/// Runs a host function on a thread of its own, as drivers do: it may wait for the program.
fn run_later(function: HostFunction, data: *mut c_void) -> Result {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let data = data.expose_provenance();
    // SAFETY: called once with what the program gave with it, as it was promised.
    let run = move || unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
    if objects::later(run) { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
}

/// A copy to the host, when the host functions before it have returned.
///
/// # Safety
/// As of `arena::copy_out`, until the stream has come past it.
unsafe fn copy_out_later(to: *mut u8, from: u64, bytes: usize) -> Result {
    if objects::idle() {
        // SAFETY: the caller's word.
        return unsafe { arena::copy_out(to, from, bytes) };
    }
    let to = to.expose_provenance();
    let copy = move || {
        // SAFETY: the caller's word. A failure has nobody to report it to.
        let _ = unsafe { arena::copy_out(std::ptr::with_exposed_provenance_mut(to), from, bytes) };
    };
    if objects::later(copy) { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
}

/// Waits for what came before; there is never more than host functions.
fn settled() -> Result {
    objects::settle();
    Ok(())
}

fn ready() -> Result {
    if objects::idle() { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
}

fn kernel_attribute(kernel: u64, attribute: u32) -> Result<i32> {
    modules::with_kernel(kernel, |_| match attribute {
        0 => Ok(1024), // threads a block
        1..=3 | 7..=9 => Ok(0),
        4 => Ok(16),     // registers
        5 | 6 => Ok(90), // PTX and binary version
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })?
}

/// # Safety
/// `name` may be written.
unsafe fn kernel_name(name: *mut *const c_char, kernel: u64) -> Result {
    // The name lives as long as its module, as CUDA says.
    let text = modules::with_kernel(kernel, |kernel| kernel.name.as_ptr())?;
    // SAFETY: the caller's word.
    unsafe { put(name, text) }
}

/// # Safety
/// The results may be written.
unsafe fn kernel_param(kernel: u64, index: usize, offset: *mut usize, size: *mut usize) -> Result {
    let param = modules::with_kernel(kernel, |kernel| kernel.params.get(index).copied())?;
    let (at, bytes) = param.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's word.
    unsafe { put(offset, at).and(offer(size, bytes)) }
}

/// # Safety
/// There is room for `count` handles.
unsafe fn enumerate(to: *mut u64, count: u32, module: u64) -> Result {
    let all = modules::kernels(module)?.len().min(count as usize);
    // SAFETY: the caller's word.
    (0..all).try_for_each(|index| unsafe { put(to.add(index), modules::handle(module, index)) })
}

/// The number that crosses the C ABI.
fn code(result: Result) -> u32 {
    result.map_or_else(|code| code as u32, |()| 0)
}

fn refuse(_symbol: &'static str) -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! exports {
    ($($symbol:ident ($($argument:ident : $type:ty),* $(,)?) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the driver API.")]
            ///
            /// # Safety
            /// As CUDA demands of its caller.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
                // SAFETY: the body follows pointers that it found not to be null and that the caller made good.
                #[allow(unused_unsafe, reason = "not every body follows a pointer")]
                code(unsafe { $body })
            }
        )*
        cuda_abi::refuse_rest! { refuse; $($symbol)* }
    };
}

exports! {
    cuInit(_flags: u32) { Ok(()) }
    cuDriverGetVersion(version: *mut i32) { put(version, device::DRIVER_VERSION) }
    cuGetErrorName(error: u32, text: *mut *const c_char) {
        let result = cuda_abi::errors::from_code(error).ok_or(CUDA_ERROR_INVALID_VALUE);
        result.and_then(|result| put(text, cuda_abi::errors::describe(result).0.as_ptr()))
    }
    cuGetErrorString(error: u32, text: *mut *const c_char) {
        let result = cuda_abi::errors::from_code(error).ok_or(CUDA_ERROR_INVALID_VALUE);
        result.and_then(|result| put(text, cuda_abi::errors::describe(result).1.as_ptr()))
    }
    cuDeviceGetCount(count: *mut i32) { put(count, 1) }
    cuDeviceGet(to: *mut i32, ordinal: i32) { only(ordinal).and_then(|()| put(to, 0)) }
    cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        only(device).and_then(|()| {
            let text = device::NAME.to_bytes_with_nul();
            let room = usize::try_from(length).unwrap_or(0).min(text.len());
            (0..room).try_for_each(|i| put(name.add(i), if i + 1 < room { text[i] as c_char } else { 0 }))
        })
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) { only(device).and_then(|()| put(uuid, device::UUID)) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) { only(device).and_then(|()| put(bytes, arena::BYTES as usize)) }
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        only(device).and_then(|()| put(value, device::attribute(attribute)))
    }

    cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) { only(device).and_then(|()| put(context, objects::PRIMARY)) }
    cuDevicePrimaryCtxRelease_v2(device: i32) { only(device) }
    cuDevicePrimaryCtxReset_v2(device: i32) { only(device) }
    cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) { only(device) }
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        only(device).and_then(|()| put(flags, 0)).and_then(|()| put(active, 1))
    }
    cuCtxCreate_v2(context: *mut u64, _flags: u32, device: i32) {
        only(device).and_then(|()| {
            let made = objects::fresh();
            objects::set_current(made);
            put(context, made)
        })
    }
    cuCtxDestroy_v2(context: u64) {
        if objects::current() == context {
            objects::set_current(0);
        }
        Ok(())
    }
    cuCtxSetCurrent(context: u64) {
        objects::set_current(context);
        Ok(())
    }
    cuCtxGetCurrent(context: *mut u64) { put(context, objects::current()) }
    cuCtxSynchronize() { settled() }
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        offer(least, device::PRIORITIES.0).and(offer(greatest, device::PRIORITIES.1))
    }

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        arena::left().and_then(|left| put(free, left as usize)).and_then(|()| put(total, arena::BYTES as usize))
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) { arena::alloc(bytes).and_then(|found| put(address, found)) }
    cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, _element: u32) {
        let row = width.checked_next_multiple_of(device::PITCH);
        row.and_then(|row| Some((row, row.checked_mul(height)?))).ok_or(CUDA_ERROR_INVALID_VALUE).and_then(|(row, bytes)| {
            arena::alloc(bytes).and_then(|found| put(address, found)).and_then(|()| put(pitch, row))
        })
    }
    cuMemFree_v2(address: u64) { if address == 0 { Ok(()) } else { arena::free(address) } }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        arena::range_of(address).and_then(|range| {
            offer(base, range.start).and(offer(bytes, (range.end - range.start) as usize))
        })
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: u64) { arena::alloc(bytes).and_then(|found| put(address, found)) }
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, _pool: u64, _stream: u64) {
        arena::alloc(bytes).and_then(|found| put(address, found))
    }
    cuMemFreeAsync(address: u64, _stream: u64) { arena::free(address) }
    cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32) { only(device).and_then(|()| put(pool, objects::PRIMARY + 16)) }
    cuDeviceGetMemPool(pool: *mut u64, device: i32) { only(device).and_then(|()| put(pool, objects::PRIMARY + 16)) }
    cuMemPoolTrimTo(_pool: u64, _keep: usize) { Ok(()) }

    cuMemHostAlloc(memory: *mut usize, bytes: usize, _flags: u32) { host::alloc(bytes).and_then(|found| put(memory, found)) }
    cuMemAllocHost_v2(memory: *mut usize, bytes: usize) { host::alloc(bytes).and_then(|found| put(memory, found)) }
    cuMemFreeHost(memory: usize) { host::free(memory) }
    cuMemHostRegister_v2(_memory: usize, _bytes: usize, _flags: u32) { Ok(()) }
    cuMemHostUnregister(_memory: usize) { Ok(()) }
    cuMemHostGetDevicePointer_v2(address: *mut u64, memory: usize, _flags: u32) { put(address, memory as u64) }

    cuMemGetAllocationGranularity(granularity: *mut usize, _properties: *const c_void, _option: u32) {
        put(granularity, vmm::GRANULARITY)
    }
    cuMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, hint: u64, _flags: u64) {
        vmm::reserve(bytes, alignment, hint).and_then(|found| put(address, found))
    }
    cuMemAddressFree(address: u64, bytes: usize) { vmm::unreserve(address, bytes) }
    cuMemCreate(handle: *mut u64, bytes: usize, _properties: *const c_void, _flags: u64) {
        vmm::create(bytes).and_then(|made| put(handle, made))
    }
    cuMemRelease(handle: u64) { vmm::release(handle) }
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) { vmm::map(address, bytes, offset, handle) }
    cuMemUnmap(address: u64, bytes: usize) { vmm::unmap(address, bytes) }
    cuMemSetAccess(address: u64, bytes: usize, access: *const [u32; 3], count: usize) {
        // A CUmemAccessDesc: kind and number of the place, and flags, of which 3 is reading and writing.
        if count != 1 || access.is_null() {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else {
            vmm::set_access(address, bytes, access.read_unaligned()[2] == 3)
        }
    }

    cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) { arena::copy_in(to, from, bytes) }
    cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) { arena::copy_out(to, from, bytes) }
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { arena::copy(to, from, bytes) }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, _stream: u64) { arena::copy_in(to, from, bytes) }
    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, _stream: u64) { copy_out_later(to, from, bytes) }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: u64) { arena::copy(to, from, bytes) }
    cuMemsetD8Async(to: u64, value: u8, count: usize, _stream: u64) { arena::set(to, [value], count) }
    cuMemsetD16Async(to: u64, value: u16, count: usize, _stream: u64) { arena::set(to, value.to_le_bytes(), count) }
    cuMemsetD32Async(to: u64, value: u32, count: usize, _stream: u64) { arena::set(to, value.to_le_bytes(), count) }
    cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, _stream: u64) {
        arena::set_rows(to, pitch, [value], width, height)
    }
    cuMemsetD2D16Async(to: u64, pitch: usize, value: u16, width: usize, height: usize, _stream: u64) {
        arena::set_rows(to, pitch, value.to_le_bytes(), width, height)
    }
    cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, _stream: u64) {
        arena::set_rows(to, pitch, value.to_le_bytes(), width, height)
    }

    cuModuleLoadData(module: *mut u64, image: *const c_void) { load(image).and_then(|made| put(module, made)) }
    cuModuleLoadDataEx(module: *mut u64, image: *const c_void, _count: u32, _options: *mut u32, _values: *mut *mut c_void) {
        load(image).and_then(|made| put(module, made))
    }
    cuModuleUnload(module: u64) { modules::unload(module) }
    cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) {
        if name.is_null() {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else {
            modules::find(module, CStr::from_ptr(name)).and_then(|found| put(function, found))
        }
    }
    cuModuleGetFunctionCount(count: *mut u32, module: u64) {
        modules::kernels(module).and_then(|all| put(count, all.len() as u32))
    }
    cuModuleEnumerateFunctions(functions: *mut u64, count: u32, module: u64) { enumerate(functions, count, module) }
    cuFuncGetName(name: *mut *const c_char, function: u64) { kernel_name(name, function) }
    cuFuncGetParamInfo(function: u64, index: usize, offset: *mut usize, size: *mut usize) {
        kernel_param(function, index, offset, size)
    }
    cuFuncGetAttribute(value: *mut i32, attribute: u32, function: u64) {
        kernel_attribute(function, attribute).and_then(|found| put(value, found))
    }
    cuFuncSetAttribute(_function: u64, _attribute: u32, _value: i32) { Ok(()) }
    cuFuncSetCacheConfig(_function: u64, _config: u32) { Ok(()) }
    cuLibraryLoadData(
        library: *mut u64, image: *const c_void, _options: *mut u32, _values: *mut *mut c_void, _count: u32,
        _library_options: *mut u32, _library_values: *mut *mut c_void, _library_count: u32
    ) { load(image).and_then(|made| put(library, made)) }
    cuLibraryUnload(library: u64) { modules::unload(library) }
    cuLibraryGetKernelCount(count: *mut u32, library: u64) {
        modules::kernels(library).and_then(|all| put(count, all.len() as u32))
    }
    cuLibraryEnumerateKernels(kernels: *mut u64, count: u32, library: u64) { enumerate(kernels, count, library) }
    cuLibraryGetModule(module: *mut u64, library: u64) { put(module, library) }
    cuKernelGetName(name: *mut *const c_char, kernel: u64) { kernel_name(name, kernel) }
    cuKernelGetFunction(function: *mut u64, kernel: u64) { put(function, kernel) }
    cuKernelGetParamInfo(kernel: u64, index: usize, offset: *mut usize, size: *mut usize) {
        kernel_param(kernel, index, offset, size)
    }
    cuKernelGetAttribute(value: *mut i32, attribute: u32, kernel: u64, device: i32) {
        only(device).and_then(|()| kernel_attribute(kernel, attribute)).and_then(|found| put(value, found))
    }
    cuKernelSetAttribute(_attribute: u32, _value: i32, _kernel: u64, device: i32) { only(device) }
    cuKernelSetCacheConfig(_kernel: u64, _config: u32, device: i32) { only(device) }
    cuLaunchKernel(
        _function: u64, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, _stream: u64,
        _parameters: *mut *mut c_void, _extra: *mut *mut c_void
    ) { Ok(()) }
    cuLaunchKernelEx(_config: *const c_void, _function: u64, _parameters: *mut *mut c_void, _extra: *mut *mut c_void) { Ok(()) }
    cuLaunchHostFunc(_stream: u64, function: HostFunction, data: *mut c_void) { run_later(function, data) }

    cuStreamCreate(stream: *mut u64, _flags: u32) { put(stream, objects::fresh()) }
    cuStreamCreateWithPriority(stream: *mut u64, _flags: u32, _priority: i32) { put(stream, objects::fresh()) }
    cuStreamDestroy_v2(_stream: u64) { Ok(()) }
    cuStreamSynchronize(_stream: u64) { settled() }
    cuStreamQuery(_stream: u64) { ready() }
    cuStreamWaitEvent(_stream: u64, _event: u64, _flags: u32) { Ok(()) }
    cuEventCreate(event: *mut u64, _flags: u32) { put(event, objects::fresh()) }
    cuEventDestroy_v2(_event: u64) { Ok(()) }
    cuEventRecord(_event: u64, _stream: u64) { Ok(()) }
    cuEventRecordWithFlags(_event: u64, _stream: u64, _flags: u32) { Ok(()) }
    cuEventSynchronize(_event: u64) { settled() }
    cuEventQuery(_event: u64) { ready() }
    cuEventElapsedTime_v2(milliseconds: *mut f32, _start: u64, _end: u64) { put(milliseconds, 0.0) }
}
