//! Events.

use gpupool_protocol::api::kinds::{Event, Stream};

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::objects::{Found, Fresh};
use crate::worker::watcher::Goal;

pub fn event_create(cx: &mut Cx, event: Fresh, flags: u32) -> Result<(), Fail> {
    let mut native = 0;
    cx.session.driver.hand.cuEventCreate(&mut native, flags).ok()?;
    cx.bind::<Event>(event, native, cx.context_life(), cx.context_native());
    Ok(())
}

pub fn event_destroy(cx: &mut Cx, event: &Found<Event>) -> Result<(), Fail> {
    if !cx.session.watcher.forget_event(event.native) {
        return Ok(());
    }
    cx.session.driver.hand.cuEventDestroy_v2(event.native).ok()
}

pub fn event_record(
    cx: &mut Cx,
    event: &Found<Event>,
    stream: &Found<Stream>,
    flags: u32,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    match flags {
        0 => hand.cuEventRecord(event.native, stream.native).ok(),
        flags => hand.cuEventRecordWithFlags(event.native, stream.native, flags).ok(),
    }
}

pub fn event_synchronize(cx: &mut Cx, event: &Found<Event>) -> Result<(), Fail> {
    cx.session.driver.hand.cuEventSynchronize(event.native).ok()
}

pub fn event_query(cx: &mut Cx, event: &Found<Event>) -> Result<(), Fail> {
    cx.session.driver.hand.cuEventQuery(event.native).ok()
}

pub fn event_watch(cx: &mut Cx, event: &Found<Event>, word: u32, value: u64) -> Result<(), Fail> {
    let goal = Goal::word(word, value)?;
    cx.session.watcher.event(&cx.session, event.parts, event.native, goal)
}
