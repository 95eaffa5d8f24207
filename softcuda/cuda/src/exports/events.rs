//! Events.

use super::{handle, on, out};
use crate::error::*;
use crate::event;
use cudarc::driver::sys::{CUevent, CUstream};

exports! { ($) events_names, initialised;
    cuEventCreate(event: *mut CUevent, flags: u32) { out(event)?.set(handle(event::create(flags)?)) }
    cuEventDestroy(event: CUevent) { event::destroy(event.addr()) }
    cuEventDestroy_v2(event: CUevent) { event::destroy(event.addr()) }
    cuEventRecord(event: CUevent, stream: CUstream) [cuEventRecord_ptsz, default] {
        event::record(event.addr(), on(stream, default), 0)
    }
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) [cuEventRecordWithFlags_ptsz, default] {
        event::record(event.addr(), on(stream, default), flags)
    }
    cuEventQuery(event: CUevent) { event::query(event.addr()) }
    cuEventSynchronize(event: CUevent) { event::synchronize(event.addr()) }
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) { elapsed(milliseconds, start, end) }
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) { elapsed(milliseconds, start, end) }
}

/// # Safety
/// `milliseconds` is null or may be written.
unsafe fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Result {
    // SAFETY: the caller vouches for it.
    let milliseconds = unsafe { out(milliseconds)? };
    milliseconds.set(event::elapsed(start.addr(), end.addr())?)
}
