//! Parcels, output, the ends of host functions and lanes.

use gpupool_protocol::wire::layout::{CHUNK_BYTES, SLOT_PAYLOAD};

use crate::worker::args::Bulk;
use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;

/// Words before the bytes (a length, a stream), and padding.
const OVERHEAD: usize = 24;

pub fn parcel_put(cx: &mut Cx, parcel: u64, offset: u64, total: u64, bytes: Bulk<'_>) -> Result<(), Fail> {
    let session = &cx.session;
    session.parcels.put(parcel, offset, total, bytes.len(), |to| match bytes {
        Bulk::Inline(bytes) => {
            to.copy_from_slice(bytes);
            Ok(())
        }
        Bulk::Chunk { index, .. } => session.link.chunk_up_read(index, to).or(Err(Code::UNKNOWN.into())),
    })
}

pub fn parcel_get(cx: &mut Cx, parcel: u64, offset: u64, piece: &mut Vec<u8>) -> Result<(), Fail> {
    *piece = cx.session.parcels.piece(parcel, offset, room(cx))?;
    Ok(())
}

pub fn take_output(cx: &mut Cx, stream: &mut u32, text: &mut Vec<u8>) -> Result<(), Fail> {
    (*stream, *text) = cx.session.output.take(room(cx)).or(Err(Code::UNKNOWN))?;
    Ok(())
}

pub fn callback_done(cx: &mut Cx, callback: u64) -> Result<(), Fail> {
    cx.session.callbacks.done(callback)
}

pub fn lane_end(cx: &mut Cx) -> Result<(), Fail> {
    cx.session.lanes.end(&cx.session, cx.call.lane);
    Ok(())
}

/// Bytes of one value that fit the answer.
fn room(cx: &Cx) -> usize {
    let all = if cx.call.chunk_down.is_some() { CHUNK_BYTES } else { SLOT_PAYLOAD } as usize;
    all - OVERHEAD
}
