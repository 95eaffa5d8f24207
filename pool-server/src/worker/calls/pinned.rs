//! Pinned memory in the host arena, and copies from and to it: one driver call each, on the client's own bytes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use gpupool_protocol::api::kinds::Stream;
use gpupool_protocol::wire::codec::BadRecord;

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::objects::Found;

/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`: with unified addresses all pinned memory is both.
const FLAGS: u32 = 3;

fn pointer(address: u64) -> *mut c_void {
    with_exposed_provenance_mut(address as usize)
}

pub fn arena_place(cx: &mut Cx, base: u64) -> Result<(), Fail> {
    cx.session.arena.place(&cx.session.link, base)
}

/// Write-combining is a hint about the processor's caches, which a shared mapping does not have.
pub fn host_lock(cx: &mut Cx, address: u64, bytes: u64, _flags: u32, device: &mut u64) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    let length = usize::try_from(bytes).or(Err(BadRecord::OutOfRange))?;
    // SAFETY: the arena calls it for a piece of its own mapping, which lasts as long as the session.
    let register = || unsafe { hand.cuMemHostRegister_v2(pointer(address), length, FLAGS) };
    cx.session.arena.add(address, bytes, register)?;
    // SAFETY: only a question about a range that is page-locked.
    let code = unsafe { hand.cuMemHostGetDevicePointer_v2(device, pointer(address), 0) };
    if code.ok().is_err() {
        // Then kernels use the address itself, as all unified addresses.
        *device = address;
    }
    Ok(())
}

pub fn host_unlock(cx: &mut Cx, address: u64) -> Result<(), Fail> {
    cx.session.arena.take(address)?;
    // SAFETY: the driver waits for work that uses it, and the mapping stays.
    unsafe { cx.session.driver.hand.cuMemHostUnregister(pointer(address)) }.ok()
}

pub fn copy_from_host(
    cx: &mut Cx,
    destination: u64,
    source: u64,
    length: u64,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    let bytes = usize::try_from(length).or(Err(BadRecord::OutOfRange))?;
    cx.session.arena.check(source, length)?;
    let hand = &cx.session.driver.hand;
    // SAFETY: the bytes are in the arena's mapping, which lasts as long as the session. The client may change them at any
    // time; they mean nothing to this program.
    unsafe { hand.cuMemcpyHtoDAsync_v2(destination, pointer(source), bytes, stream.native) }.ok()
}

pub fn copy_to_host(
    cx: &mut Cx,
    destination: u64,
    source: u64,
    length: u64,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    let bytes = usize::try_from(length).or(Err(BadRecord::OutOfRange))?;
    cx.session.arena.check(destination, length)?;
    let hand = &cx.session.driver.hand;
    // SAFETY: as in `copy_from_host`; nothing of this program is there.
    unsafe { hand.cuMemcpyDtoHAsync_v2(pointer(destination), source, bytes, stream.native) }.ok()
}
