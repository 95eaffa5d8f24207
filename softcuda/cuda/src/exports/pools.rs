//! Stream-ordered allocation.

use super::{handle, on, out};
use crate::error::*;
use crate::{driver, pool};
use cudarc::driver::sys::{CUmemoryPool, CUstream};
use std::ffi::c_void;

/// The beginning of `CUmemPoolProps`, with numbers that may be none of the enumerations.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Properties {
    allocation: u32,
    handles: u32,
    location: super::memories::Location,
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
        // Pinned memory (1) on a device (1), not exportable.
        match (p.allocation, p.handles, p.location.kind) {
            (1, 0, 1) => pool.set(handle(pool::create(p.location.id)?)),
            (1, 1..=15, _) | (1, 0, 2..=6) => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    cuMemPoolDestroy(pool: CUmemoryPool) { pool::destroy(pool.addr()) }
    cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) { pool::trim(pool.addr()) }
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
