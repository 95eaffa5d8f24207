//! Asynchronous copies from the device to pinned memory that the worker does not see: they are posted, and their bytes
//! land when the worker has sent them ([`gpupool_protocol::wire::landing`]).

use gpupool_protocol::api::numbers;
use gpupool_protocol::wire::landing::Landings;

use super::copy::{Copy, Side};
use super::stream::cuCtxSynchronize;
use crate::args::StreamArg;
use crate::code::Answer;
use crate::cx::Cx;
use crate::{host, send};

fn landings(cx: Cx) -> Option<&'static Landings> {
    let usable = cx.session.uses.landings && cx.session.answers(numbers::copy_to_landing);
    if usable { cx.session.link.use_landings() } else { None }
}

/// Whether a copy to these bytes can be posted, if it comes from the device.
pub fn fits(cx: Cx, destination: u64, bytes: usize) -> bool {
    cx.session.pinned.is_private(destination, bytes as u64) && landings(cx).is_some()
}

/// Posts an asynchronous copy, if it is one to pinned memory of the client's own. Says whether it has.
pub fn post(cx: Cx, copy: Copy, stream: StreamArg) -> Answer<bool> {
    let Copy { destination, source, len, .. } = copy;
    if (copy.to, copy.from) != (Side::Host, Side::Device) || !fits(cx, destination, len) {
        return Ok(false);
    }
    let Some(landings) = landings(cx) else { return Ok(false) };
    let number = host::open_landing(landings, destination, len, cx.context);
    send::copy_to_landing(cx, number, source, len as u64, stream).inspect_err(|_| landings.cancel(number))?;
    Ok(true)
}

/// Waits for the copies to pinned memory that are under way.
pub fn wait(cx: Cx, base: u64, bytes: usize) {
    let Some(landings) = cx.session.link.landings() else { return };
    for context in landings.contexts(base, bytes) {
        // Where the work has failed, nothing more comes; that is told elsewhere.
        let _ = cuCtxSynchronize(cx.within(context));
    }
}

/// Pinned memory is about to end: as a driver does, waits for the copies to it that are under way. Nothing is written there
/// afterwards.
pub fn settle(cx: Cx, base: u64, bytes: usize) {
    wait(cx, base, bytes);
    if let Some(landings) = cx.session.link.landings() {
        landings.revoke(base, bytes);
    }
}

/// A context is gone, with the work in it.
pub fn context_gone(cx: Cx, context: u64) {
    if let Some(landings) = cx.session.link.landings() {
        landings.revoke_context(context);
    }
}
