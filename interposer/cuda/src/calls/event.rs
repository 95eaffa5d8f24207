//! Events.

use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::kinds;

use crate::args::stream;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::session::supported;
use crate::state::objects::Event;
use crate::state::watch::Board;

type Handle = Raw<kinds::Event>;

/// CU_EVENT_BLOCKING_SYNC, _DISABLE_TIMING and _INTERPROCESS.
const FLAGS: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
/// CU_EVENT_RECORD_EXTERNAL, which only matters in a capture.
const RECORD_FLAGS: u32 = 1;

fn find(cx: Cx, handle: Handle) -> Answer<&'static Event> {
    cx.session.events.get(handle.0).ok_or(INVALID_HANDLE)
}

pub fn cuEventCreate(cx: Cx, out: Ptr<Handle>, flags: u32) -> Answer {
    out.not_null()?;
    cx.current()?;
    if flags & !FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
        return Err(INVALID_VALUE);
    }
    supported(flags & INTERPROCESS == 0)?;
    let (handle, ()) = cx.session.events.create(|handle, object| {
        object.context.store(cx.context, Relaxed);
        object.flags.store(flags, Relaxed);
        object.progress.reset();
        send::event_create(cx, handle, flags)
    })?;
    out.set(Raw::new(handle))
}

pub fn cuEventDestroy_v2(cx: Cx, handle: Handle) -> Answer {
    let handle = handle.0;
    let destroyed = cx
        .session
        .events
        .remove(handle, |object| send::event_destroy(cx.within(object.context.load(Relaxed)), handle));
    destroyed.unwrap_or(Err(INVALID_HANDLE))
}

pub fn cuEventRecord(cx: Cx, event: Handle, hstream: Raw<kinds::Stream>) -> Answer {
    cuEventRecordWithFlags(cx, event, hstream, 0)
}

pub fn cuEventRecordWithFlags(cx: Cx, event: Handle, hstream: Raw<kinds::Stream>, flags: u32) -> Answer {
    let object = find(cx, event)?;
    let stream = stream(cx, hstream)?;
    if flags & !RECORD_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let context = object.context.load(Relaxed);
    // As the manual says: event and stream must be of one context.
    let of_stream = stream.object.map_or(cx.context, |stream| stream.context.load(Relaxed));
    if of_stream != context {
        return Err(INVALID_HANDLE);
    }
    let cx = cx.within(context);
    cx.current()?;
    let waits = cx.session.waits.count();
    send::event_record(cx, event.0, stream, flags)?;
    // Counted when it is sent: another thread's wait that covers this count then comes after the record.
    object.progress.post();
    if cx.session.uses.board {
        object.progress.watch_polled(&OnBoard(cx, event.0), waits)?;
    }
    Ok(())
}

pub fn cuEventSynchronize(cx: Cx, event: Handle) -> Answer {
    let object = find(cx, event)?;
    let cx = cx.within(object.context.load(Relaxed));
    cx.current()?;
    if cx.session.uses.local_sync && object.progress.is_synchronised() {
        return Ok(());
    }
    let seen = object.progress.posted();
    send::event_synchronize(cx, event.0)?;
    object.progress.synchronised(seen);
    Ok(())
}

struct OnBoard(Cx, u64);

impl Board for OnBoard {
    fn ask(&self) -> Answer {
        send::event_query(self.0, self.1)
    }
    fn watch(&self, word: u32, value: u64) -> Answer {
        send::event_watch(self.0, self.1, word, value)
    }
    fn read(&self, word: u32) -> Answer<u64> {
        self.0.session.link.board(word).map_err(|e| self.0.session.lost(&e))
    }
    fn waits(&self) -> u64 {
        self.0.session.waits.count()
    }
}

pub fn cuEventQuery(cx: Cx, event: Handle) -> Answer {
    let object = find(cx, event)?;
    let cx = cx.within(object.context.load(Relaxed));
    cx.current()?;
    if cx.session.uses.board {
        object.progress.query(&OnBoard(cx, event.0))
    } else {
        send::event_query(cx, event.0)
    }
}
