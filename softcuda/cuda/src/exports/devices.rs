//! Devices and primary contexts.

use super::{handle, out, text};
use crate::device;
use crate::driver::{self, TABLES};
use crate::error::*;
use cudarc::driver::sys::{CUcontext, CUdevprop, CUuuid};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

exports! { ($) devices_names, initialised;
    cuDeviceGet(device: *mut i32, ordinal: i32) { out(device)?.set(driver::device(ordinal)?.ordinal) }
    cuDeviceGetCount(count: *mut i32) { out(count)?.set(driver::devices().len() as i32) }
    cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        copy_text(&driver::device(device)?.name, name, length)
    }
    cuDeviceGetPCIBusId(id: *mut c_char, length: i32, device: i32) {
        copy_text(&driver::device(device)?.pci_bus_id(), id, length)
    }
    cuDeviceGetByPCIBusId(device: *mut i32, id: *const c_char) {
        out(device)?.set(device::by_pci_bus_id(text(id)?, driver::devices())?)
    }
    cuDeviceGetUuid(uuid: *mut CUuuid, device: i32) { give_uuid(uuid, device) }
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: i32) { give_uuid(uuid, device) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        out(bytes)?.set(driver::device(device)?.memory.total() as usize)
    }
    cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) {
        out(value)?.set(driver::device(device)?.attribute(attribute)?)
    }
    cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) {
        let (major, minor, device) = (out(major)?, out(minor)?, driver::device(device)?);
        major.set(device.attribute(75)?)?;
        minor.set(device.attribute(76)?)
    }
    cuDeviceGetProperties(properties: *mut CUdevprop, device: i32) {
        let (properties, device) = (out(properties)?, driver::device(device)?);
        let a = |id| device.attribute(id);
        properties.set(CUdevprop {
            maxThreadsPerBlock: a(1)?,
            maxThreadsDim: [a(2)?, a(3)?, a(4)?],
            maxGridSize: [a(5)?, a(6)?, a(7)?],
            sharedMemPerBlock: a(8)?,
            totalConstantMemory: a(9)?,
            SIMDWidth: a(10)?,
            memPitch: a(11)?,
            regsPerBlock: a(12)?,
            clockRate: a(13)?,
            textureAlign: a(14)?,
        })
    }
    cuDeviceGetExecAffinitySupport(supported: *mut i32, kind: u32, device: i32) {
        driver::device(device)?;
        if kind == 0 { out(supported)?.set(0) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
    cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        out(can)?.set(i32::from(crate::peer::is_possible(device, peer)?))
    }
    cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, from: i32, to: i32) {
        out(value)?.set(crate::peer::attribute(attribute, from, to)?)
    }
    cuDeviceGetHostAtomicCapabilities(capabilities: *mut u32, operations: *const u32, count: u32, device: i32) {
        driver::device(device)?;
        atomics(capabilities, operations, count, true)
    }
    cuDeviceGetP2PAtomicCapabilities(
        capabilities: *mut u32, operations: *const u32, count: u32, from: i32, to: i32
    ) { atomics(capabilities, operations, count, crate::peer::is_possible(from, to)?) }
    cuDeviceGetTexture1DLinearMaxWidth(texels: *mut usize, format: u32, channels: u32, device: i32) {
        let (texels, device) = (out(texels)?, driver::device(device)?);
        crate::array::format(format, channels)?;
        texels.set(device.attribute(69)? as usize)
    }
    cuDeviceRegisterAsyncNotification(
        device: i32, callback: *const c_void, _argument: *mut c_void, registration: *mut usize
    ) {
        let (registration, device) = (out(registration)?, driver::device(device)?);
        if callback.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // The one thing that is notified is memory beyond a budget, which no process ever gets here.
        let made = TABLES.notifications.reserve();
        TABLES.notifications.add(made, Arc::new(device.ordinal));
        registration.set(made)
    }
    cuDeviceUnregisterAsyncNotification(device: i32, registration: usize) {
        let device = driver::device(device)?;
        TABLES.notifications.get(registration).filter(|d| **d == device.ordinal).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        TABLES.notifications.remove(registration).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: i32) {
        let (context, device) = (out(context)?, driver::device(device)?);
        context.set(handle(device.primary.retain(device)))
    }
    cuDevicePrimaryCtxRelease(device: i32) { driver::device(device)?.primary.release() }
    cuDevicePrimaryCtxRelease_v2(device: i32) { driver::device(device)?.primary.release() }
    cuDevicePrimaryCtxReset(device: i32) { reset(device) }
    cuDevicePrimaryCtxReset_v2(device: i32) { reset(device) }
    cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) { driver::device(device)?.primary.set_flags(flags) }
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) { driver::device(device)?.primary.set_flags(flags) }
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let (flags, active) = (out(flags)?, out(active)?);
        let state = driver::device(device)?.primary.state();
        flags.set(state.0)?;
        active.set(i32::from(state.1))
    }
}

/// What can be done by one atomic operation (`CUatomicOperationCapability`), for each of some operations
/// (`CUatomicOperation`). Host and other devices have the memory that a device has, so it is the same for all.
///
/// # Safety
/// Both places are null or have `count` elements.
unsafe fn atomics(capabilities: *mut u32, operations: *const u32, count: u32, possible: bool) -> Result {
    if capabilities.is_null() || operations.is_null() || count == 0 || count > 64 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    const SIGNED: u32 = 1;
    const UNSIGNED: u32 = 2;
    const REDUCTION: u32 = 4;
    const BITS_32: u32 = 8;
    const BITS_64: u32 = 16;
    const BITS_128: u32 = 32;
    for i in 0..count as usize {
        // SAFETY: the caller vouches for the places.
        let found = match unsafe { operations.add(i).read_unaligned() } {
            // Addition, minimum, maximum; and, or, exclusive or.
            0..=2 | 5..=7 => SIGNED | UNSIGNED | REDUCTION | BITS_32 | BITS_64,
            // Increment and decrement.
            3 | 4 => UNSIGNED | REDUCTION | BITS_32,
            // Exchange, compare and swap.
            8 | 9 => SIGNED | UNSIGNED | BITS_32 | BITS_64 | BITS_128,
            // Addition of floats.
            10 => SIGNED | REDUCTION | BITS_32 | BITS_64,
            // Minimum and maximum of floats: PTX has none.
            11 | 12 => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: as above.
        unsafe { capabilities.add(i).write_unaligned(if possible { found } else { 0 }) };
    }
    Ok(())
}

fn reset(device: i32) -> Result {
    driver::device(device)?.primary.reset();
    Ok(())
}

/// # Safety
/// `uuid` is null or may be written.
unsafe fn give_uuid(uuid: *mut CUuuid, device: i32) -> Result {
    // SAFETY: the caller vouches for it.
    let uuid = unsafe { out(uuid)? };
    uuid.set(CUuuid { bytes: driver::device(device)?.identity.uuid.map(|b| b as c_char) })
}

/// Copies a text and its zero, cut to the room there is.
///
/// # Safety
/// `to` is null or has `length` bytes.
unsafe fn copy_text(text: &str, to: *mut c_char, length: i32) -> Result {
    let room = usize::try_from(length).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = text.len().min(room - 1);
    // SAFETY: `bytes` and the zero fit in the room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, bytes);
        to.add(bytes).write(0);
    }
    Ok(())
}
