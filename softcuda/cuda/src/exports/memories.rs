//! Device and pinned memory, and questions about addresses.

use super::{out, set_if_wanted};
use crate::error::*;
use crate::{host, memory, pointer};
use std::ffi::c_void;

/// `CUmemLocation`, with a number that may be none of the enumeration.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Location {
    /// Its kind.
    pub kind: u32,
    /// The device or NUMA node.
    pub id: i32,
}

exports! { ($) memories_names, initialised;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (free, total, found) = (out(free)?, out(total)?, memory::info()?);
        free.set(found.0)?;
        total.set(found.1)
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) { out(address)?.set(memory::alloc(bytes)?) }
    cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) {
        let (address, pitch) = (out(address)?, out(pitch)?);
        let found = memory::alloc_pitch(width, height, element)?;
        address.set(found.0)?;
        pitch.set(found.1)
    }
    cuMemFree_v2(address: u64) { memory::free(address) }
    cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) {
        let found = memory::address_range(address)?;
        set_if_wanted(base, found.0);
        set_if_wanted(size, found.1);
        Ok(())
    }
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) {
        out(address)?.set(super::handle(host::alloc(bytes, 0)? as usize))
    }
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32) {
        out(address)?.set(super::handle(host::alloc(bytes, flags)? as usize))
    }
    cuMemFreeHost(address: *mut c_void) { host::free(address.addr() as u64) }
    cuMemHostRegister(address: *mut c_void, bytes: usize, flags: u32) {
        host::pin(address.expose_provenance() as u64, bytes, flags)
    }
    cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) {
        host::pin(address.expose_provenance() as u64, bytes, flags)
    }
    cuMemHostUnregister(address: *mut c_void) { host::unpin(address.addr() as u64) }
    cuMemHostGetDevicePointer_v2(device: *mut u64, address: *mut c_void, flags: u32) {
        out(device)?.set(host::device_pointer(address.addr() as u64, flags)?)
    }
    cuMemHostGetFlags(flags: *mut u32, address: *mut c_void) {
        out(flags)?.set(host::flags(address.addr() as u64)?)
    }
    cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: u64) {
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pointer::attribute(attribute, address)?.write(value);
        Ok(())
    }
    cuPointerGetAttributes(count: u32, attributes: *mut u32, values: *mut *mut c_void, address: u64) {
        if count == 0 || attributes.is_null() || values.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for i in 0..count as usize {
            let (attribute, value) = (*attributes.add(i), *values.add(i));
            if value.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            pointer::lenient(attribute, address)?.write(value);
        }
        Ok(())
    }
    cuPointerSetAttribute(value: *const c_void, attribute: u32, address: u64) {
        // Whether operations are synchronous is the only thing to be set.
        if value.is_null() || attribute != 6 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pointer::set_synchronous(address, value.cast::<u32>().read_unaligned() != 0)
    }
}
