//! Streams, and waiting for them.

use gpupool_protocol::api::kinds::Stream;

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::objects::{Found, Fresh};
use crate::worker::watcher::Goal;

pub fn stream_create(cx: &mut Cx, stream: Fresh, flags: u32, priority: i32) -> Result<(), Fail> {
    let mut native = 0;
    cx.session.driver.hand.cuStreamCreateWithPriority(&mut native, flags, priority).ok()?;
    cx.session.streams.add(cx.context_native(), native);
    cx.bind::<Stream>(stream, native, cx.context_life(), cx.context_native());
    Ok(())
}

pub fn stream_destroy(cx: &mut Cx, stream: &Found<Stream>) -> Result<(), Fail> {
    cx.session.streams.remove(stream.parts, stream.native);
    cx.session.landing.forget_stream(stream.parts, stream.native);
    // Watches stand on events of their own, so they outlive it, as its work does.
    cx.session.driver.hand.cuStreamDestroy_v2(stream.native).ok()
}

pub fn stream_synchronize(cx: &mut Cx, stream: &Found<Stream>) -> Result<(), Fail> {
    cx.session.driver.hand.cuStreamSynchronize(stream.native).ok()
}

pub fn stream_query(cx: &mut Cx, stream: &Found<Stream>) -> Result<(), Fail> {
    cx.session.driver.hand.cuStreamQuery(stream.native).ok()
}

pub fn context_synchronize(cx: &mut Cx) -> Result<(), Fail> {
    cx.session.driver.hand.cuCtxSynchronize().ok()
}

pub fn context_settle(cx: &mut Cx) -> Result<(), Fail> {
    cx.session.driver.hand.cuCtxSynchronize().ok()
}

pub fn stream_watch(cx: &mut Cx, stream: &Found<Stream>, word: u32, value: u64) -> Result<(), Fail> {
    watch(cx, stream, Goal::word(word, value)?)
}

/// Watches for the end of what is in a stream now. It need not be of the current context, but an event can only be
/// recorded in a stream of its own.
pub(super) fn watch(cx: &mut Cx, stream: &Found<Stream>, goal: Goal) -> Result<(), Fail> {
    let current = cx.context_native();
    let home = if stream.parts == 0 { current } else { stream.parts };
    if home != current {
        cx.leave();
        cx.session.driver.hand.cuCtxSetCurrent(home).ok()?;
    }
    cx.session.watcher.stream(&cx.session, home, stream.native, goal)
}
