//! Streams, and waiting for them.

use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gpupool_protocol::api::kinds;

use crate::args::{StreamArg, named_stream};
use crate::code::{Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::state::objects::{Context, Stream};
use crate::state::table::Table;
use crate::state::watch::{Board, Progress};
use crate::{send, thread};

type Handle = Raw<kinds::Stream>;

/// CU_STREAM_NON_BLOCKING.
const FLAGS: u32 = 1;

pub fn cuStreamCreate(cx: Cx, out: Ptr<Handle>, flags: u32) -> Answer {
    create(cx, out, flags, 0)
}

pub fn cuStreamCreateWithPriority(cx: Cx, out: Ptr<Handle>, flags: u32, priority: i32) -> Answer {
    create(cx, out, flags, priority)
}

fn create(cx: Cx, out: Ptr<Handle>, flags: u32, priority: i32) -> Answer {
    out.not_null()?;
    let context = cx.current()?;
    if flags & !FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let priority = possible(cx, priority)?;
    let (handle, ()) = cx.session.streams.create(|handle, object| {
        // Whoever sees it sees that the stream that was in this place is gone.
        object.context.store(cx.context, Release);
        object.context_object.set(context);
        object.flags.store(flags, Relaxed);
        object.priority.store(priority, Relaxed);
        object.id.store(cx.session.new_id(), Relaxed);
        object.progress.reset();
        send::stream_create(cx, handle, flags, priority)
    })?;
    out.set(Raw::new(handle))
}

/// The nearest priority that the device has: a larger number is a lower priority, and 0 is among them.
fn possible(cx: Cx, priority: i32) -> Answer<i32> {
    if priority == 0 {
        return Ok(0);
    }
    let device = cx.session.device(cx.current()?.device.load(Relaxed))?;
    let (least, greatest) = match device.priorities.get() {
        Some(range) => *range,
        None => {
            let (mut least, mut greatest) = (0, 0);
            send::cuCtxGetStreamPriorityRange(cx, &mut least, &mut greatest)?;
            *device.priorities.get_or_init(|| (least, greatest))
        }
    };
    Ok(priority.max(greatest).min(least))
}

pub fn cuStreamDestroy_v2(cx: Cx, handle: Handle) -> Answer {
    let (streams, contexts, handle) = (&cx.session.streams, &cx.session.contexts, handle.0);
    destroy(streams, contexts, handle, |home| send::stream_destroy(cx.within(home), handle))
}

/// Ends a stream; `tell` sends the record, in the context that it is told.
pub(super) fn destroy(
    streams: &Table<Stream>,
    contexts: &Table<Context>,
    handle: u64,
    tell: impl FnOnce(u64) -> Answer,
) -> Answer {
    let stream = streams.get(handle).ok_or(INVALID_HANDLE)?;
    let home = stream.context.load(Relaxed);
    // Before the handle goes: whoever does not find the stream any more finds what it has left under way.
    if !stream.progress.is_synchronised()
        && let Some(context) = contexts.get(home)
    {
        context.left.post();
    }
    streams.remove(handle, |_| tell(home)).unwrap_or(Err(INVALID_HANDLE))
}

/// The stream, and the call in the stream's own context. A default stream needs a current one.
fn located(cx: Cx, handle: Handle) -> Answer<(Cx, StreamArg)> {
    let stream = named_stream(cx, handle)?;
    match stream.object {
        Some(object) => {
            let cx = cx.within(object.context.load(Relaxed));
            cx.current()?;
            Ok((cx, stream))
        }
        None => {
            cx.current()?;
            Ok((cx, stream))
        }
    }
}

pub fn cuStreamSynchronize(cx: Cx, handle: Handle) -> Answer {
    let (cx, stream) = located(cx, handle)?;
    // What a synchronise has waited for needs no other.
    if cx.session.uses.local_sync && stream.is_synchronised() {
        return Ok(());
    }
    wait(cx, stream)
}

/// Waits until everything posted to a stream so far is done.
pub(super) fn wait(cx: Cx, stream: StreamArg) -> Answer {
    let seen = stream.posted();
    send::stream_synchronize(cx, stream.quiet())?;
    stream.synchronised(seen);
    Ok(())
}

struct OnBoard(Cx, StreamArg);

impl Board for OnBoard {
    fn ask(&self) -> Answer {
        send::stream_query(self.0, self.1.quiet())
    }
    fn watch(&self, word: u32, value: u64) -> Answer {
        send::stream_watch(self.0, self.1.quiet(), word, value)
    }
    fn read(&self, word: u32) -> Answer<u64> {
        self.0.session.link.board(word).map_err(|e| self.0.session.lost(&e))
    }
    fn waits(&self) -> u64 {
        self.0.session.waits.count()
    }
}

pub fn cuStreamQuery(cx: Cx, handle: Handle) -> Answer {
    let (cx, stream) = located(cx, handle)?;
    let board = OnBoard(cx, stream);
    let known = stream.awaited().is_some_and(Progress::is_known_done);
    let answer = match (stream.object, stream.awaited()) {
        _ if !cx.session.uses.board => board.ask(),
        (Some(object), _) => object.progress.query(&board),
        // The watch would be an event in the legacy stream, which other streams wait for.
        (None, Some(progress)) => progress.query_unwatched(&board),
        // A thread's own stream.
        (None, None) => board.ask(),
    };
    if answer.is_ok() && !known {
        // Events that were recorded in it are complete.
        cx.session.waits.over();
    }
    answer
}

pub fn cuCtxSynchronize(cx: Cx) -> Answer {
    cx.current()?;
    // What was posted before this is done after it. A count is read before it is asked whose it is: a stream of another
    // context may come into the place, and what was counted of it then is not waited for here.
    let streams = cx.session.streams.iter().filter_map(|(_, object)| {
        let posted = object.progress.posted();
        (object.context.load(Acquire) == cx.context).then_some((&object.progress, posted))
    });
    let own = cx.context_object.map(|context| [&context.shared, &context.left]);
    let own = own.into_iter().flatten().map(|progress| (progress, progress.posted()));
    let seen: Vec<_> = streams.chain(own).collect();
    send::context_synchronize(cx)?;
    for (progress, posted) in seen {
        progress.synchronised(posted);
    }
    Ok(())
}

pub fn cuCtxSynchronize_v2(cx: Cx, context: Raw<kinds::Context>) -> Answer {
    if context.is_null() {
        return cuCtxSynchronize(cx);
    }
    cx.session.contexts.get(context.0).ok_or(INVALID_CONTEXT)?;
    cuCtxSynchronize(cx.within(context.0))
}

pub fn cuStreamGetFlags(cx: Cx, handle: Handle, flags: Ptr<u32>) -> Answer {
    flags.not_null()?;
    let (_, stream) = located(cx, handle)?;
    flags.set(stream.object.map_or(0, |object| object.flags.load(Relaxed)))
}

pub fn cuStreamGetPriority(cx: Cx, handle: Handle, priority: Ptr<i32>) -> Answer {
    priority.not_null()?;
    let (_, stream) = located(cx, handle)?;
    priority.set(stream.object.map_or(0, |object| object.priority.load(Relaxed)))
}

pub fn cuStreamGetId(cx: Cx, handle: Handle, id: Ptr<u64>) -> Answer {
    id.not_null()?;
    let (cx, stream) = located(cx, handle)?;
    // Default streams get numbers beside those of created ones: by context, and (stream 2) by thread.
    let special =
        || u64::MAX / 2 + (cx.context << 32) + (stream.wire << 30) + u64::from(cx.lane) * (stream.wire / 2);
    id.set(stream.object.map_or_else(special, |object| object.id.load(Relaxed)))
}

pub fn cuStreamGetCtx(cx: Cx, handle: Handle, context: Ptr<Raw<kinds::Context>>) -> Answer {
    context.not_null()?;
    let (cx, _) = located(cx, handle)?;
    context.set(Raw::new(cx.context))
}

pub fn cuStreamGetCtx_v2(
    cx: Cx,
    handle: Handle,
    context: Ptr<Raw<kinds::Context>>,
    green: Ptr<*mut c_void>,
) -> Answer {
    green.not_null()?;
    cuStreamGetCtx(cx, handle, context)?;
    green.set(std::ptr::null_mut())
}

pub fn cuStreamGetDevice(cx: Cx, handle: Handle, device: Ptr<i32>) -> Answer {
    device.not_null()?;
    let (cx, _) = located(cx, handle)?;
    device.set(cx.current()?.device.load(Relaxed))
}

/// CU_STREAM_CAPTURE_STATUS_NONE: there are no graphs yet, so nothing captures.
const NOT_CAPTURING: u32 = 0;

pub fn cuStreamIsCapturing(cx: Cx, handle: Handle, status: Ptr<u32>) -> Answer {
    status.not_null()?;
    located(cx, handle)?;
    status.set(NOT_CAPTURING)
}

pub fn cuStreamGetCaptureInfo(cx: Cx, handle: Handle, status: Ptr<u32>, _id: Ptr<u64>) -> Answer {
    cuStreamIsCapturing(cx, handle, status)
}

pub fn cuStreamGetCaptureInfo_v2(
    cx: Cx,
    handle: Handle,
    status: Ptr<u32>,
    _id: Ptr<u64>,
    _graph: Ptr<Raw<()>>,
    _nodes: Ptr<*const Raw<()>>,
    _count: Ptr<usize>,
) -> Answer {
    cuStreamIsCapturing(cx, handle, status)
}

pub fn cuStreamGetCaptureInfo_v3(
    cx: Cx,
    handle: Handle,
    status: Ptr<u32>,
    _id: Ptr<u64>,
    _graph: Ptr<Raw<()>>,
    _nodes: Ptr<*const Raw<()>>,
    _edges: Ptr<*const c_void>,
    _count: Ptr<usize>,
) -> Answer {
    cuStreamIsCapturing(cx, handle, status)
}

pub fn cuThreadExchangeStreamCaptureMode(_: Cx, mode: Ptr<u32>) -> Answer {
    let wanted = mode.get()?;
    if wanted > 2 {
        return Err(INVALID_VALUE);
    }
    mode.set(thread::exchange_capture_mode(wanted))
}
