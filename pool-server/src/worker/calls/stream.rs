//! Streams, and waiting for them.

use gpupool_protocol::api::kinds::Stream;

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::objects::{Found, Fresh};
use crate::worker::watcher::Goal;

pub fn stream_create(cx: &mut Cx, stream: Fresh, flags: u32, priority: i32) -> Result<(), Fail> {
    let mut native = 0;
    cx.session.driver.hand.cuStreamCreateWithPriority(&mut native, flags, priority).ok()?;
    cx.bind::<Stream>(stream, native, cx.context_life(), ());
    Ok(())
}

pub fn stream_destroy(cx: &mut Cx, stream: &Found<Stream>) -> Result<(), Fail> {
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

pub fn stream_watch(cx: &mut Cx, stream: &Found<Stream>, word: u32, value: u64) -> Result<(), Fail> {
    let goal = Goal::new(word, value)?;
    cx.session.watcher.stream(&cx.session, cx.context_native(), stream.native, goal)
}
