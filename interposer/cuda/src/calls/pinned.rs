//! Pinned host memory.

use std::ffi::c_void;
use std::ptr;

use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::Ptr;
use crate::cx::Cx;
use crate::session::supported;

/// CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP and _WRITECOMBINED.
const ALLOC_FLAGS: u32 = 7;
/// CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP, _IOMEMORY and _READ_ONLY.
const REGISTER_FLAGS: u32 = 15;
const IO_MEMORY: u32 = 4;

pub fn cuMemAllocHost_v2(cx: Cx, memory: Ptr<*mut c_void>, bytes: usize) -> Answer {
    cuMemHostAlloc(cx, memory, bytes, 0)
}

pub fn cuMemHostAlloc(cx: Cx, memory: Ptr<*mut c_void>, bytes: usize, flags: u32) -> Answer {
    memory.not_null()?;
    cx.current()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let at = cx.session.pinned.allocate(bytes, flags, cx.context)?;
    memory.set(ptr::with_exposed_provenance_mut(at as usize))
}

pub fn cuMemFreeHost(cx: Cx, memory: Ptr<c_void>) -> Answer {
    cx.current()?;
    if memory.is_null() {
        return Ok(());
    }
    cx.session.pinned.free(memory.addr())
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
    cx.session.pinned.unregister(memory.addr())
}

pub fn cuMemHostGetFlags(cx: Cx, flags: Ptr<u32>, memory: Ptr<c_void>) -> Answer {
    flags.not_null()?;
    cx.current()?;
    flags.set(cx.session.pinned.find(memory.addr()).ok_or(INVALID_VALUE)?.flags)
}
