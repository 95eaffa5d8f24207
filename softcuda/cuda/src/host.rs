//! Pinned host memory: allocated here or registered by the program, reached by kernels under the same address.

use crate::allocations::{Allocation, What};
use crate::current;
use crate::driver::{self, TABLES};
use crate::error::*;

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`; I/O memory and read-only memory are not supported.
const REGISTER_FLAGS: u32 = 3;

/// Lets the kernels of every device reach a range.
fn register(address: u64, bytes: u64) -> bool {
    let devices = driver::devices();
    for (done, device) in devices.iter().enumerate() {
        if !device.memory.register_host(address, bytes) {
            devices[..done].iter().for_each(|d| _ = d.memory.unregister_host(address));
            return false;
        }
    }
    true
}

/// Ends what [`alloc`] or [`pin`] made; the memory itself goes if it was allocated here.
pub fn give_back(allocation: &Allocation, mapped: bool) {
    for device in driver::devices() {
        device.memory.unregister_host(allocation.base);
    }
    if mapped {
        // SAFETY: `alloc` mapped just this range, and it left the table of allocations before this call.
        unsafe { libc::munmap(allocation.base as *mut _, allocation.size as usize) };
    }
}

/// `cuMemHostAlloc`: zeroed, page-aligned memory. It is always portable and mapped.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags or no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn alloc(bytes: usize, flags: u32) -> Result<u64> {
    let context = current::healthy()?;
    if flags & !ALLOC_FLAGS != 0 || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, kind, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let address = address.expose_provenance() as u64;
    if !register(address, bytes as u64) {
        // SAFETY: the mapping made above, which nobody else knows of.
        unsafe { libc::munmap(address as *mut _, bytes) };
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    TABLES.allocations.add(address, bytes as u64, What::Host(flags), context.handle, &context.device);
    Ok(address)
}

/// `cuMemFreeHost`: waits for the context's work first.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless [`alloc`] gave the address.
pub fn free(address: u64) -> Result {
    let context = current::healthy()?;
    if address == 0 {
        return Ok(());
    }
    let ours = |a: &Allocation| a.base == address && matches!(a.what, What::Host(_));
    TABLES.allocations.find(address).filter(ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    context.synchronize()?;
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    give_back(&allocation, true);
    Ok(())
}

/// Whether every page of a range is mapped: kernels would otherwise bring the process down.
fn is_mapped(address: u64, bytes: usize) -> bool {
    const PAGE: u64 = 4096;
    const PAGES: usize = 4096;
    let (first, Some(end)) = (address / PAGE * PAGE, address.checked_add(bytes as u64)) else { return false };
    let mut residency = [0u8; PAGES];
    let mut at = first;
    while at < end {
        let part = (end - at).min(PAGE * PAGES as u64);
        // SAFETY: mincore only looks; it writes one byte a page, for at most as many pages as there is room for.
        if unsafe { libc::mincore(at as *mut _, part as usize, residency.as_mut_ptr()) } != 0 {
            return false;
        }
        at += PAGE * PAGES as u64;
    }
    true
}

/// `cuMemHostRegister`: lets kernels reach the program's own memory.
///
/// # Errors
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if part of it is; `CUDA_ERROR_INVALID_VALUE` for null, no bytes or
/// addresses where nothing is,
/// `CUDA_ERROR_NOT_SUPPORTED` for I/O or read-only memory.
pub fn pin(address: u64, bytes: usize, flags: u32) -> Result {
    let context = current::healthy()?;
    if flags & !0xf != 0 || address == 0 || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & !REGISTER_FLAGS != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if !is_mapped(address, bytes) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if !register(address, bytes as u64) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    TABLES.allocations.add(address, bytes as u64, What::Registered(flags), context.handle, &context.device);
    Ok(())
}

/// `cuMemHostUnregister`.
///
/// # Errors
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
pub fn unpin(address: u64) -> Result {
    let context = current::healthy()?;
    let ours = |a: &Allocation| a.base == address && matches!(a.what, What::Registered(_));
    TABLES.allocations.find(address).filter(ours).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    context.synchronize()?;
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    give_back(&allocation, false);
    Ok(())
}

/// `cuMemHostGetDevicePointer`: the same address.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless it is pinned memory; flags are none.
pub fn device_pointer(address: u64, flags: u32) -> Result<u64> {
    current::healthy()?;
    let pinned = TABLES.allocations.find(address).is_some_and(|a| a.what.is_host());
    if flags == 0 && pinned { Ok(address) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// `cuMemHostGetFlags`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless [`alloc`] gave the memory.
pub fn flags(address: u64) -> Result<u32> {
    current::healthy()?;
    match TABLES.allocations.find(address).map(|a| a.what) {
        // All memory is mapped, whether asked for or not, as with unified addressing.
        Some(What::Host(flags) | What::Registered(flags)) => Ok(flags | 2),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
