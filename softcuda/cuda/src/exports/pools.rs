//! Stream-ordered allocation.

use super::memories::Location;
use super::virtual_memories::{Description, FILE, number_of};
use super::{handle, on, out};
use crate::device::Device;
use crate::error::*;
use crate::ipc::Handle;
use crate::{driver, pool, pool_share};
use cudarc::driver::sys::{CUmemoryPool, CUstream};
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

/// `CUmemPoolProps`, with numbers that may be none of the enumerations.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Properties {
    allocation: u32,
    handles: u32,
    location: Location,
    security: *mut c_void,
    most: usize,
    rest: [u8; 56],
}

/// The pools of a place that is not a device are not there.
///
/// # Safety
/// `location` is null or good.
unsafe fn device_of(location: *const Location, kind: u32) -> Result<&'static Arc<Device>> {
    // SAFETY: the caller vouches for it.
    let location = unsafe { location.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match (kind, location.kind) {
        (1, 1) => driver::device(location.id),
        (1 | 2, 1..=4) => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

exports! { ($) pools_names, initialised;
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: i32) {
        out(pool)?.set(handle(pool::default_of(driver::device(device)?)))
    }
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: i32) {
        out(pool)?.set(handle(pool::current_of(driver::device(device)?)))
    }
    cuDeviceSetMemPool(device: i32, pool: CUmemoryPool) { pool::set_current(driver::device(device)?, pool.addr()) }
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const Properties) {
        let pool = out(pool)?;
        let p = properties.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Pinned memory (1) on a device (1), for this process or to be exported as a file descriptor.
        match (p.allocation, p.handles, p.location.kind) {
            (1, 0 | FILE, 1) => pool.set(handle(pool::create(p.location.id, p.most as u64, p.handles == FILE)?)),
            (1, 2..=15, _) | (1, 0 | FILE, 2..=6) => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    cuMemPoolDestroy(pool: CUmemoryPool) { pool::destroy(pool.addr()) }
    cuMemPoolExportToShareableHandle(file: *mut c_void, pool: CUmemoryPool, kind: u32, flags: u64) {
        let file = out(file.cast::<i32>())?;
        if kind != FILE || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        file.set(pool_share::export(pool.addr())?.into_raw_fd())
    }
    cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, file: *mut c_void, kind: u32, flags: u64) {
        let pool = out(pool)?;
        let file = i32::try_from(file.addr()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if kind != FILE || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pool.set(handle(pool_share::import(BorrowedFd::borrow_raw(file))?))
    }
    cuMemPoolExportPointer(to: *mut Handle, address: u64) { out(to)?.set(pool_share::export_pointer(address)?) }
    cuMemPoolImportPointer(address: *mut u64, pool: CUmemoryPool, from: *const Handle) {
        let address = out(address)?;
        let from = from.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        address.set(pool_share::import_pointer(pool.addr(), from)?)
    }
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) { pool::trim(pool.addr(), keep as u64) }
    cuMemPoolSetAccess(pool: CUmemoryPool, descriptions: *const Description, count: usize) {
        if descriptions.is_null() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for description in std::slice::from_raw_parts(descriptions, count) {
            let (device, access) = description.on_device()?;
            pool::set_access(pool.addr(), device, access)?;
        }
        Ok(())
    }
    cuMemPoolGetAccess(flags: *mut u32, pool: CUmemoryPool, location: *const Location) {
        let flags = out(flags)?;
        let location = location.as_ref().filter(|l| l.kind == 1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        flags.set(number_of(pool::access(pool.addr(), location.id)?) as u32)
    }
    cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: u32) {
        out(pool)?.set(handle(pool::default_of(device_of(location, kind)?)))
    }
    cuMemGetMemPool(pool: *mut CUmemoryPool, location: *const Location, kind: u32) {
        out(pool)?.set(handle(pool::current_of(device_of(location, kind)?)))
    }
    cuMemSetMemPool(location: *const Location, kind: u32, pool: CUmemoryPool) {
        pool::set_current(device_of(location, kind)?, pool.addr())
    }
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void) {
        let (found, wide) = pool::attribute(pool.addr(), attribute)?;
        if wide { out(value.cast::<u64>())?.set(found) } else { out(value.cast::<i32>())?.set(found as i32) }
    }
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void) {
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pool::set_attribute(pool.addr(), attribute, |wide| {
            if wide { value.cast::<u64>().read_unaligned() } else { u64::from(value.cast::<u32>().read_unaligned()) }
        })
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: CUstream) [cuMemAllocAsync_ptsz, default] {
        out(address)?.set(pool::alloc(bytes, 0, on(stream, default))?)
    }
    cuMemAllocFromPoolAsync(
        address: *mut u64, bytes: usize, pool: CUmemoryPool, stream: CUstream
    ) [cuMemAllocFromPoolAsync_ptsz, default] {
        let address = out(address)?;
        if pool.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        address.set(pool::alloc(bytes, pool.addr(), on(stream, default))?)
    }
    cuMemFreeAsync(address: u64, stream: CUstream) [cuMemFreeAsync_ptsz, default] {
        pool::free(address, on(stream, default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUmemPoolProps, CUmemPoolPtrExportData};
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Properties>(), size_of::<CUmemPoolProps>());
        assert_eq!(size_of::<Handle>(), size_of::<CUmemPoolPtrExportData>());
        assert_eq!(offset_of!(Properties, most), offset_of!(CUmemPoolProps, maxSize));
    }
}
