//! Events: marks in streams, with the time at which they were passed.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::driver::TABLES;
use crate::error::*;
use crate::graph::capture::{self, Tail};
use crate::stream::{Stream, Work};
use crate::{current, printf, progress};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// One recording of an event: a wait is for the recording that was last when the wait was asked for.
#[derive(Default)]
pub struct Record(OnceLock<Instant>);

impl Record {
    /// Whether the stream has come past it.
    pub fn is_done(&self) -> bool {
        self.0.get().is_some()
    }

    /// The stream comes past it now.
    pub fn pass(&self) {
        let _ = self.0.set(Instant::now());
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
        match self.last() {
            Last::Recorded(record) => Some(record),
            _ => None,
        }
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
        let record = Arc::new(Record::default());
        self.set_last(Last::Recorded(record.clone()));
        record
    }

    /// An event that a capture recorded says nothing about work that is done.
    fn check_not_captured(&self) -> Result {
        let Some(tail) = self.captured() else { return Ok(()) };
        tail.capture.invalidate();
        Err(CUDA_ERROR_CAPTURED_EVENT)
    }

    /// The time of a passed event that keeps times.
    fn time(&self) -> Result<Instant> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let record = self.last_record().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        record.0.get().copied().ok_or(CUDA_ERROR_NOT_READY)
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
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags; interprocess events are not supported.
pub fn create(flags: u32) -> Result<usize> {
    let context = current::healthy()?;
    if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let handle = TABLES.events.reserve();
    let event = Event { handle, context: context.handle, flags, last: Mutex::default() };
    TABLES.events.add(handle, Arc::new(event));
    Ok(handle)
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
    let record = Arc::new(Record::default());
    context.submit(stream, Work::Mark(record.clone()))?;
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
        progress::wait(|| record.is_done());
    }
    if let Some(context) = TABLES.contexts.get(event.context) {
        printf::flush(&context.device);
    }
    event.check_context()
}

/// `cuEventElapsedTime`: milliseconds from one event to another.
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
    let milliseconds = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    let signed = to.checked_duration_since(from).map_or_else(|| -milliseconds(from - to), milliseconds);
    Ok(signed as f32)
}
