//! Pinned host memory.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUdeviceptr;

use super::landing;
use crate::code::{Answer, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE};
use crate::cptr::Ptr;
use crate::cx::Cx;
use crate::send;
use crate::session::supported;

/// CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP and _WRITECOMBINED.
const ALLOC_FLAGS: u32 = 7;
/// CU_MEMHOSTALLOC_DEVICEMAP, which all memory is that kernels see (unified addressing).
const DEVICE_MAP: u32 = 2;
/// CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP, _IOMEMORY and _READ_ONLY.
const REGISTER_FLAGS: u32 = 15;
const IO_MEMORY: u32 = 4;
/// Pieces of the arena are whole pages.
const PAGE: u64 = 4096;

pub fn cuMemAllocHost_v2(cx: Cx, memory: Ptr<*mut c_void>, bytes: usize) -> Answer {
    cuMemHostAlloc(cx, memory, bytes, 0)
}

pub fn cuMemHostAlloc(cx: Cx, memory: Ptr<*mut c_void>, bytes: usize, flags: u32) -> Answer {
    memory.not_null()?;
    cx.current()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let at = match allocate_shared(cx, bytes, flags)? {
        Some(at) => at,
        None => cx.session.pinned.allocate(bytes, flags, cx.context)?,
    };
    memory.set(ptr::with_exposed_provenance_mut(at as usize))
}

/// Memory of the host arena; `None` where there is none.
fn allocate_shared(cx: Cx, bytes: usize, flags: u32) -> Answer<Option<u64>> {
    let arena = &cx.session.arena;
    let Some(at) = arena.take(bytes as u64, |base| send::arena_place(cx, base))? else { return Ok(None) };
    let mut device = 0;
    let whole = (bytes as u64).next_multiple_of(PAGE);
    send::host_lock(cx, at, whole, flags, &mut device).inspect_err(|_| arena.give(at, whole, true))?;
    cx.session.pinned.add_shared(at, bytes, flags | DEVICE_MAP, cx.context, device);
    Ok(Some(at))
}

pub fn cuMemFreeHost(cx: Cx, memory: Ptr<c_void>) -> Answer {
    cx.current()?;
    if memory.is_null() {
        return Ok(());
    }
    if let Some(range) =
        cx.session.pinned.find(memory.addr()).filter(|range| !range.registered && range.base == memory.addr())
    {
        landing::settle(cx, range.base, range.size);
    }
    let range = cx.session.pinned.free(memory.addr())?;
    if range.device.is_none() {
        return Ok(());
    }
    // What the driver has forgotten with its context is unlocked as well.
    let unlocked = send::host_unlock(cx, range.base);
    let free = matches!(unlocked, Ok(()) | Err(HOST_MEMORY_NOT_REGISTERED));
    cx.session.arena.give(range.base, range.size as u64, free);
    if free { Ok(()) } else { unlocked }
}

/// Where kernels find pinned memory. Over a network they cannot reach it.
pub fn cuMemHostGetDevicePointer_v2(
    cx: Cx,
    device: Ptr<CUdeviceptr>,
    memory: Ptr<c_void>,
    flags: u32,
) -> Answer {
    device.not_null()?;
    cx.current()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let range = cx.session.pinned.find(memory.addr()).ok_or(INVALID_VALUE)?;
    supported(range.device.is_some())?;
    device.set(range.device.unwrap_or_default() + (memory.addr() - range.base))
}

pub fn cuMemHostRegister_v2(cx: Cx, memory: Ptr<c_void>, bytes: usize, flags: u32) -> Answer {
    cx.current()?;
    if flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    supported(flags & IO_MEMORY == 0)?;
    cx.session.pinned.register(memory.addr(), bytes, flags, cx.context)
}

pub fn cuMemHostUnregister(cx: Cx, memory: Ptr<c_void>) -> Answer {
    cx.current()?;
    if let Some(range) =
        cx.session.pinned.find(memory.addr()).filter(|range| range.registered && range.base == memory.addr())
    {
        landing::settle(cx, range.base, range.size);
    }
    cx.session.pinned.unregister(memory.addr())
}

pub fn cuMemHostGetFlags(cx: Cx, flags: Ptr<u32>, memory: Ptr<c_void>) -> Answer {
    flags.not_null()?;
    cx.current()?;
    flags.set(cx.session.pinned.find(memory.addr()).ok_or(INVALID_VALUE)?.flags)
}
