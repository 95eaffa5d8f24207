//! Copies and memory sets.
#![allow(unsafe_code)]

use gpupool_protocol::api::kinds::Stream;
use gpupool_protocol::wire::codec::BadRecord;
use gpupool_protocol::wire::layout::CHUNK_BYTES;

use crate::worker::answer::BulkTarget;
use crate::worker::args::Bulk;
use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;
use crate::worker::objects::Found;
use crate::worker::staging::Way;
use crate::worker::watcher::Goal;

/// The record's own bytes are pageable memory to the driver: it has taken them when it returns.
pub fn copy_in(cx: &mut Cx, destination: u64, bytes: Bulk<'_>, stream: &Found<Stream>) -> Result<(), Fail> {
    let (source, length) = match bytes {
        Bulk::Inline(bytes) => (bytes.as_ptr(), bytes.len()),
        Bulk::Chunk { index, length } => {
            let source = cx.session.link.chunk_up_ptr(index, length).or(Err(BadRecord::OutOfRange))?;
            let session = cx.session.clone();
            match session.staging.way(&session, || cx.context_life()) {
                Way::Pageable => (source, length),
                Way::Held => return copy_locked(cx, destination, source, length, index, stream),
                Way::Copied => {
                    cx.scratch.resize(length, 0);
                    session.link.chunk_up_read(index, &mut cx.scratch)?;
                    (cx.scratch.as_ptr(), length)
                }
            }
        }
    };
    // SAFETY: `length` bytes from `source` are in the record's private copy, in this thread's buffer or in the chunk,
    // and stay mapped. The client may change a chunk meanwhile; its bytes mean nothing to this program.
    unsafe { cx.session.driver.hand.cuMemcpyHtoDAsync_v2(destination, source.cast(), length, stream.native) }
        .ok()
}

/// A copy from a page-locked chunk, which goes back to the client when the stream has come past it.
fn copy_locked(
    cx: &mut Cx,
    destination: u64,
    source: *const u8,
    length: usize,
    chunk: u32,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    // SAFETY: as in `copy_in`; the chunk is not given back before the copy is over.
    let code = unsafe {
        cx.session.driver.hand.cuMemcpyHtoDAsync_v2(destination, source.cast(), length, stream.native)
    };
    let goal = Goal::Chunk(chunk);
    if code != Code::SUCCESS {
        cx.session.staging.let_go();
        return code.ok();
    }
    cx.call.chunk_up = None;
    if let Err(fail) = super::stream::watch(cx, stream, goal) {
        // It cannot be seen when the copy is over. Better that the client's bytes are early than never free.
        goal.reach(&cx.session, Code::UNKNOWN)?;
        return Err(fail);
    }
    Ok(())
}

pub fn copy_out(
    cx: &mut Cx,
    source: u64,
    length: u64,
    stream: &Found<Stream>,
    bytes: &mut BulkTarget,
) -> Result<(), Fail> {
    let length =
        usize::try_from(length).ok().filter(|n| *n <= CHUNK_BYTES as usize).ok_or(BadRecord::OutOfRange)?;
    let to = bytes.room(&cx.session.link, length)?;
    let hand = &cx.session.driver.hand;
    // SAFETY: `room` gives `length` bytes that stay where they are until the answer is made, and the copy is over at
    // the synchronise below, whose failure means that the context is dead.
    unsafe { hand.cuMemcpyDtoHAsync_v2(to.cast(), source, length, stream.native) }.ok()?;
    hand.cuStreamSynchronize(stream.native).ok()
}

/// To memory that only the client has; it waits for nothing.
pub fn copy_to_landing(
    cx: &mut Cx,
    landing: u64,
    source: u64,
    length: u64,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    let length = usize::try_from(length).ok().filter(|n| *n > 0).ok_or(BadRecord::OutOfRange)?;
    if !cx.session.link.lands() {
        return Err(BadRecord::OutOfRange.into());
    }
    let home = if stream.parts == 0 { cx.context_native() } else { stream.parts };
    let session = cx.session.clone();
    session.landing.copy(&session, (home, stream.native), || cx.context_life(), (landing, source, length))
}

pub fn copy_device(
    cx: &mut Cx,
    destination: u64,
    source: u64,
    length: u64,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    let length = usize::try_from(length).or(Err(BadRecord::OutOfRange))?;
    cx.session.driver.hand.cuMemcpyDtoDAsync_v2(destination, source, length, stream.native).ok()
}

#[allow(clippy::too_many_arguments)]
pub fn set(
    cx: &mut Cx,
    destination: u64,
    pitch: u64,
    element: u32,
    value: u32,
    width: u64,
    height: u64,
    stream: &Found<Stream>,
) -> Result<(), Fail> {
    let size = |n: u64| usize::try_from(n).or(Err(BadRecord::OutOfRange));
    let (pitch, width, height) = (size(pitch)?, size(width)?, size(height)?);
    let (hand, stream) = (&cx.session.driver.hand, stream.native);
    let narrow =
        |bits: u32| if value >> bits == 0 { Ok(value) } else { Err(Fail::Bad(BadRecord::OutOfRange)) };
    let code: Code = match (element, height) {
        (1, 1) => hand.cuMemsetD8Async(destination, narrow(8)? as u8, width, stream),
        (2, 1) => hand.cuMemsetD16Async(destination, narrow(16)? as u16, width, stream),
        (4, 1) => hand.cuMemsetD32Async(destination, value, width, stream),
        (1, _) => hand.cuMemsetD2D8Async(destination, pitch, narrow(8)? as u8, width, height, stream),
        (2, _) => hand.cuMemsetD2D16Async(destination, pitch, narrow(16)? as u16, width, height, stream),
        (4, _) => hand.cuMemsetD2D32Async(destination, pitch, value, width, height, stream),
        _ => return Err(BadRecord::OutOfRange.into()),
    };
    code.ok()
}
