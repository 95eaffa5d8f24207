//! Events: marks in streams, with the time at which they were passed.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::driver::TABLES;
use crate::error::*;
use crate::graph::capture::{self, Tail};
use crate::stream::{Stream, Work};
use crate::{clock, current, printf, progress};
use softcuda_device::signal::{Name, Signal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// One recording of an event: a wait is for the recording that was last when the wait was asked for.
pub struct Record {
    /// When it was asked for, by the clock of [`softcuda_device::now`].
    asked: AtomicU64,
    /// When the device came past it, by the same clock.
    passed: OnceLock<u64>,
    /// That of an interprocess event is a recording there.
    shared: Option<(Arc<Signal>, u32)>,
}

impl Default for Record {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Record {
    fn new(shared: Option<(Arc<Signal>, u32)>) -> Self {
        Self { asked: AtomicU64::new(softcuda_device::now()), passed: OnceLock::new(), shared }
    }

    /// It takes its place behind other work now. Until a moment ago a stream may have come past events that it is ordered
    /// behind, so the time at which it was made can be earlier than theirs.
    pub fn placed(&self) {
        self.asked.fetch_max(softcuda_device::now(), Ordering::Relaxed);
    }

    /// Whether the stream has come past it.
    pub fn is_done(&self) -> bool {
        match &self.shared {
            Some((signal, recording)) => signal.is_passed(*recording),
            None => self.passed.get().is_some(),
        }
    }

    /// The stream comes past it; who waits goes on. Its time is when the work before it ended, on the calling thread, or
    /// when it was asked for, if there was none by then.
    pub fn pass(&self) {
        let _ = self.passed.set(self.asked.load(Ordering::Relaxed).max(clock::last_end()));
        if let Some((signal, recording)) = &self.shared {
            signal.pass(*recording);
        }
        progress::moved();
    }

    /// When the device came past it; 0 where that is not known here.
    pub fn time(&self) -> u64 {
        self.passed.get().copied().unwrap_or(0)
    }

    /// Returns when the stream has come past it.
    pub fn wait(&self) {
        self.wait_unless(|| false);
    }

    /// Returns when the stream has come past it, or `over` says so, which [`progress::moved`] follows.
    pub fn wait_unless(&self, over: impl Fn() -> bool) {
        match &self.shared {
            Some((signal, recording)) => signal.wait(*recording, over),
            None => progress::wait(|| self.is_done() || over()),
        }
    }
}

/// One event.
pub struct Event {
    /// Its handle.
    pub handle: usize,
    /// Its context's handle.
    pub context: usize,
    flags: u32,
    last: Mutex<Last>,
    /// What other processes see of an interprocess event, and whether they see it because of this process.
    shared: Option<(Arc<Signal>, Origin)>,
}

/// Where an interprocess event is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `cuEventCreate` here.
    Here,
    /// `cuIpcOpenEventHandle`.
    Elsewhere,
}

/// What an event was last recorded in.
#[derive(Default, Clone)]
enum Last {
    /// Nothing.
    #[default]
    Never,
    /// A stream's work.
    Recorded(Arc<Record>),
    /// A capture, after these nodes.
    Captured(Tail),
}

impl Event {
    fn last(&self) -> Last {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_last(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// The newest recording, if it was ever recorded in work that is done.
    pub fn last_record(&self) -> Option<Arc<Record>> {
        match (self.last(), &self.shared) {
            (Last::Captured(_), _) => None,
            // Another process may have recorded it since.
            (_, Some((signal, _))) => {
                let recording = signal.newest()?;
                Some(Arc::new(Record::new(Some((signal.clone(), recording)))))
            }
            (Last::Recorded(record), None) => Some(record),
            (Last::Never, None) => None,
        }
    }

    fn new_record(&self) -> Arc<Record> {
        let shared = self.shared.as_ref().map(|(signal, _)| (signal.clone(), signal.record()));
        Arc::new(Record::new(shared))
    }

    /// Where in a capture it was last recorded.
    pub fn captured(&self) -> Option<Tail> {
        match self.last() {
            Last::Captured(tail) => Some(tail),
            _ => None,
        }
    }

    /// A new recording that somebody will pass.
    pub fn start_record(&self) -> Arc<Record> {
        let record = self.new_record();
        self.set_last(Last::Recorded(record.clone()));
        record
    }

    /// An event that a capture recorded says nothing about work that is done.
    fn check_not_captured(&self) -> Result {
        let Some(tail) = self.captured() else { return Ok(()) };
        tail.capture.invalidate();
        Err(CUDA_ERROR_CAPTURED_EVENT)
    }

    /// The time of a passed event that keeps times, in nanoseconds.
    fn time(&self) -> Result<u64> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let record = self.last_record().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        record.passed.get().copied().ok_or(CUDA_ERROR_NOT_READY)
    }

    /// The fatal error of the event's context.
    fn check_context(&self) -> Result {
        TABLES.contexts.get(self.context).map_or(Ok(()), |c| c.fate.check())
    }
}

/// The event of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find(handle: usize) -> Result<Arc<Event>> {
    TABLES.events.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuEventCreate`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags, and for an interprocess event with times; `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn create(flags: u32) -> Result<usize> {
    let context = current::healthy()?;
    if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let shared = if flags & INTERPROCESS != 0 {
        let signal = Signal::new().map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        Some((Arc::new(signal), Origin::Here))
    } else {
        None
    };
    Ok(add(&context, flags, shared))
}

fn add(context: &Context, flags: u32, shared: Option<(Arc<Signal>, Origin)>) -> usize {
    let handle = TABLES.events.reserve();
    let event = Event { handle, context: context.handle, flags, last: Mutex::default(), shared };
    TABLES.events.add(handle, Arc::new(event));
    handle
}

/// `cuIpcGetEventHandle`: how other processes find an event.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for an event that was not made here as an interprocess event.
pub fn export(handle: usize) -> Result<Name> {
    current::healthy()?;
    match &find(handle)?.shared {
        Some((signal, Origin::Here)) => Ok(signal.name()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

/// `cuIpcOpenEventHandle`: an event of the current context that is another process's as well.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` in the process that exported it, `CUDA_ERROR_INVALID_HANDLE` for a name of nothing.
pub fn import(name: Name) -> Result<usize> {
    let context = current::healthy()?;
    if name.process == std::process::id() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let signal = Signal::open(name).map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
    Ok(add(&context, DISABLE_TIMING | INTERPROCESS, Some((Arc::new(signal), Origin::Elsewhere))))
}

/// `cuEventDestroy`: recordings that streams still wait for stay.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn destroy(handle: usize) -> Result {
    TABLES.events.remove(handle).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuEventRecordWithFlags`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` if event and stream are of different contexts, or one is none.
pub fn record(handle: usize, stream: usize, flags: u32) -> Result {
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let event = find(handle)?;
    let (context, stream) = crate::context::stream(stream)?;
    record_in(&event, &context, &stream, flags)
}

/// As [`record`], with the objects.
///
/// # Errors
/// As [`record`].
pub fn record_in(event: &Arc<Event>, context: &Context, stream: &Arc<Stream>, flags: u32) -> Result {
    if context.handle != event.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if capture::record(context, stream, event, flags)? {
        return Ok(());
    }
    let record = event.new_record();
    // Another process may wait for it already.
    context.submit(stream, Work::Mark(record.clone())).inspect_err(|_| record.pass())?;
    event.set_last(Last::Recorded(record));
    Ok(())
}

/// `cuCtxRecordEvent` and `cuGreenCtxRecordEvent`: an event that is passed when the streams of a context, or those of
/// them that are `meant`, have done what they were given.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for an event of another context, 900 while one of the context's streams captures; the
/// context's fatal error.
pub fn record_all(event: &Arc<Event>, context: &Arc<Context>, meant: impl Fn(&Stream) -> bool) -> Result {
    if context.handle != event.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    context.fate.check()?;
    capture::permit_all(context)?;
    let record = event.new_record();
    let gather = context.gathering(meant).inspect_err(|_| record.pass())?;
    gather.push(Work::Mark(record.clone())).inspect_err(|_| record.pass())?;
    gather.close();
    event.set_last(Last::Recorded(record));
    Ok(())
}

impl Event {
    /// It was recorded in a capture, after these nodes.
    pub fn set_captured(&self, tail: Tail) {
        self.set_last(Last::Captured(tail));
    }
}

/// `cuEventQuery`.
///
/// # Errors
/// `CUDA_ERROR_NOT_READY` while the newest recording is not passed, `CUDA_ERROR_CAPTURED_EVENT`.
pub fn query(handle: usize) -> Result {
    capture::permit_unsafe()?;
    let event = find(handle)?;
    event.check_not_captured()?;
    event.check_context()?;
    match event.last_record() {
        Some(record) if !record.is_done() => Err(CUDA_ERROR_NOT_READY),
        _ => Ok(()),
    }
}

/// `cuEventSynchronize`.
///
/// # Errors
/// The context's fatal error, `CUDA_ERROR_CAPTURED_EVENT`.
pub fn synchronize(handle: usize) -> Result {
    capture::permit_unsafe()?;
    let event = find(handle)?;
    event.check_not_captured()?;
    if let Some(record) = event.last_record() {
        record.wait();
    }
    if let Some(context) = TABLES.contexts.get(event.context) {
        printf::flush(&context.realm);
    }
    event.check_context()
}

/// `cuEventElapsedTime`: milliseconds from one event to another, of the device's time.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for an event without times or never recorded, `CUDA_ERROR_NOT_READY` for one that is not
/// passed yet.
pub fn elapsed(start: usize, end: usize) -> Result<f32> {
    let (start, end) = (find(start)?, find(end)?);
    start.check_not_captured()?;
    end.check_not_captured()?;
    if start.context != end.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    start.check_context()?;
    let (from, to) = (start.time()?, end.time()?);
    Ok((i128::from(to) - i128::from(from)) as f32 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that records an event may be held up before the event has its place behind other streams' work.
    #[test]
    fn an_event_is_not_earlier_than_what_the_default_stream_orders_before_it() {
        let device = crate::device::for_tests(1).remove(0);
        let context = Context::new(TABLES.contexts.reserve(), &device, false, 0);
        let blocking = Stream::new(&context, TABLES.streams.reserve(), 0, 0);
        context.adopt(&blocking);
        let (before, after) = (Arc::new(Record::default()), Arc::new(Record::default()));
        context.submit(&blocking, Work::Run(Box::new(|| Ok(())))).unwrap();
        context.submit(&blocking, Work::Mark(before.clone())).unwrap();
        before.wait();
        assert!(before.time() > after.asked.load(Ordering::Relaxed));
        context.submit(context.legacy(), Work::Mark(after.clone())).unwrap();
        after.wait();
        assert!(after.time() >= before.time());
        context.destroy();
    }
}
