//! Streams: queues of work, each run in order by a thread of its own, beside the host and each other.
#![forbid(unsafe_code)]

use crate::context::{Context, Fate};
use crate::driver::TABLES;
use crate::error::*;
use crate::event::{self, Record};
use crate::graph::capture::{self, Slot};
use crate::host_call::HostCall;
use crate::launch::{Attributes, PRIORITY, Value};
use crate::op::{self, Op};
use crate::{clock, current, entry, green, progress, threads};
use cudarc::driver::sys::CUresult;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Handle of the legacy default stream.
pub const LEGACY: usize = 1;
/// Handle of a thread's own default stream.
pub const PER_THREAD: usize = 2;
/// `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: u32 = 1;
/// The priorities that `cuCtxGetStreamPriorityRange` names: lowest, highest. Blocks of kernels in streams of a higher one
/// are started first.
pub const PRIORITIES: (i32, i32) = (0, -5);

/// How long a stream's thread waits for more before it ends.
const LINGER: Duration = Duration::from_secs(2);

/// One piece of work.
pub enum Work {
    /// An operation; a dead context skips it, and its error ends the context. The only work that a stream which captures
    /// takes.
    Do(Op),
    /// As `Do`, for what no graph can hold.
    Run(Box<dyn FnOnce() -> Result + Send>),
    /// As `Run`, so short that starting a thread's turn costs more: where nothing is before it, the calling thread
    /// does it at once.
    Short(Box<dyn FnOnce() -> Result + Send>),
    /// Something that is done in any case, told how the context is.
    Always(Box<dyn FnOnce(CUresult) + Send>),
    /// Wait until another stream has come to a position.
    Stream(Arc<Stream>, u64),
    /// Wait for an event.
    Event(Arc<Record>),
    /// Pass an event, also when the context has died: nothing may wait for ever.
    Mark(Arc<Record>),
}

impl Work {
    /// Work that touches so many bytes.
    pub fn of_size(bytes: usize, job: impl FnOnce() -> Result + Send + 'static) -> Work {
        if op::is_short(bytes) { Work::Short(Box::new(job)) } else { Work::Run(Box::new(job)) }
    }
}

/// One stream.
pub struct Stream {
    /// Its handle.
    pub handle: usize,
    /// Its context.
    pub context: Weak<Context>,
    /// `cuStreamGetFlags`.
    pub flags: u32,
    /// `cuStreamGetPriority`.
    pub priority: i32,
    /// `cuStreamGetId`.
    pub id: u64,
    /// How much of this stream the legacy stream has waited for; changed under the context's lock.
    pub seen_by_legacy: AtomicU64,
    /// How much of the legacy stream this one has waited for; changed under the context's lock.
    pub seen_of_legacy: AtomicU64,
    /// The handle of the green context that it was made for, or 0.
    pub green: usize,
    /// What it captures.
    pub capture: Slot,
    /// `cuStreamSetAttribute`: kept, without effect.
    pub attributes: Mutex<Attributes>,
    fate: Arc<Fate>,
    queue: Mutex<Queue>,
    bell: Condvar,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// When the last piece of its work ended, on whatever thread ([`clock`]).
    ended: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// None is the place of work that another thread does ([`Turn`]).
    work: VecDeque<Option<Work>>,
    running: bool,
    /// The stream's thread has come to another thread's place, and waits for the bell.
    held: bool,
    closed: bool,
}

/// A place in the order of a stream's work, for what the thread that holds it does itself: a synchronous copy needs no other
/// thread. What the stream is given later waits until this is dropped.
pub struct Turn {
    stream: Arc<Stream>,
    /// How much work is before it.
    before: u64,
}

impl Turn {
    /// Waits until the stream has done everything before.
    pub fn come(&self) {
        progress::wait(|| self.stream.reached(self.before));
    }

    /// Does the work, which comes after what these other streams have done.
    ///
    /// # Errors
    /// That of `work`.
    pub fn perform(self, after: &[(Arc<Stream>, u64)], work: impl FnOnce() -> Result) -> Result {
        self.come();
        for stream in after.iter().map(|(stream, _)| stream).chain([&self.stream]) {
            clock::not_before(stream.ended.load(Ordering::Acquire));
        }
        let done = work();
        clock::ended_now();
        self.stream.ended.fetch_max(clock::last_end(), Ordering::AcqRel);
        done
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Only then is this place the first in the queue.
        self.come();
        let mut queue = self.stream.lock();
        queue.work.pop_front();
        self.stream.completed.fetch_add(1, Ordering::AcqRel);
        let held = std::mem::take(&mut queue.held);
        drop(queue);
        if held {
            self.stream.bell.notify_one();
        }
        progress::moved();
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    /// A stream of a context without a thread yet; the caller adds it to its context.
    pub fn new(context: &Arc<Context>, handle: usize, flags: u32, priority: i32) -> Arc<Stream> {
        Self::of(Arc::downgrade(context), context.fate.clone(), handle, (flags, priority), 0)
    }

    /// As [`Stream::new`], for a context that is being made, or in a green one.
    pub fn of(
        context: Weak<Context>,
        fate: Arc<Fate>,
        handle: usize,
        (flags, priority): (u32, i32),
        green: usize,
    ) -> Arc<Stream> {
        Arc::new(Stream {
            handle,
            context,
            flags,
            priority,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            seen_by_legacy: AtomicU64::new(0),
            seen_of_legacy: AtomicU64::new(0),
            green,
            capture: Slot::default(),
            attributes: Mutex::default(),
            fate,
            queue: Mutex::default(),
            bell: Condvar::new(),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Whether this is the legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.handle == LEGACY
    }

    /// The green context that it is of; a default stream is of the one by whose handle the context is current.
    pub fn green(&self) -> usize {
        if self.handle > PER_THREAD {
            self.green
        } else {
            green::of_context(current::handle()).map_or(0, |g| g.handle)
        }
    }

    /// Whether it orders itself with the legacy stream.
    pub fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }

    /// Whether what it is given goes into a graph.
    pub fn is_capturing(&self) -> bool {
        self.capture.is_active()
    }

    /// How much work it was given.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// How much it has done.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Whether it has done its first `position` pieces of work.
    pub fn reached(&self, position: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= position
    }

    /// The position that somebody must wait for who has seen this stream up to `seen`, which is moved on.
    pub fn unseen(&self, seen: &AtomicU64) -> Option<u64> {
        let position = self.submitted();
        if seen.swap(position, Ordering::Relaxed) >= position || self.reached(position) {
            None
        } else {
            Some(position)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work at the end. Only a context does this, under its lock.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the stream's thread cannot be started.
    pub fn push(self: &Arc<Self>, work: Work) -> Result {
        let mut queue = self.lock();
        if queue.running {
            self.bell.notify_one();
        } else {
            let me = self.clone();
            threads::spawn("softcuda-stream", move || me.run()).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
            queue.running = true;
        }
        queue.work.push_back(Some(work));
        self.submitted.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Adds a place at the end for work that the calling thread does. Only a context does this, under its lock.
    pub fn reserve(self: &Arc<Self>) -> Turn {
        let mut queue = self.lock();
        queue.work.push_back(None);
        Turn { stream: self.clone(), before: self.submitted.fetch_add(1, Ordering::AcqRel) }
    }

    /// Whether it has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.reached(self.submitted())
    }

    /// Lets the thread end as soon as the queue is empty.
    pub fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_one();
    }

    /// The thread: does the work in order, ends when there is none for a while. The next push starts another.
    fn run(self: Arc<Self>) {
        threads::become_device();
        while let Some(work) = self.next() {
            let done = catch_unwind(AssertUnwindSafe(|| self.perform(work)));
            if done.is_err() {
                self.fate.fail(CUDA_ERROR_UNKNOWN);
            }
            self.completed.fetch_add(1, Ordering::AcqRel);
            progress::moved();
        }
    }

    /// Looks for more work a little while before sleeping: often it comes at once, and waking takes longer than this.
    fn look_for_more(&self) {
        let done = self.completed.load(Ordering::Acquire);
        for _ in 0..progress::LOOKS {
            if self.submitted() > done {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn next(&self) -> Option<Work> {
        self.look_for_more();
        let mut queue = self.lock();
        loop {
            if let Some(work) = queue.work.pop_front_if(|work| work.is_some()) {
                return work;
            }
            if !queue.work.is_empty() {
                queue.held = true;
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let timed_out = if queue.closed {
                true
            } else {
                let (held, result) =
                    self.bell.wait_timeout(queue, LINGER).unwrap_or_else(PoisonError::into_inner);
                queue = held;
                result.timed_out()
            };
            if timed_out && queue.work.is_empty() {
                queue.running = false;
                return None;
            }
        }
    }

    /// Does a piece of work on the calling thread. Another one may have done what came before it, so that thread's clock
    /// counts here: a mark is never earlier than one before it.
    pub fn perform(&self, work: Work) {
        clock::not_before(self.ended.load(Ordering::Acquire));
        self.work(work);
        self.ended.fetch_max(clock::last_end(), Ordering::AcqRel);
    }

    fn work(&self, work: Work) {
        match work {
            Work::Do(op) => {
                if self.fate.check().is_ok()
                    && let Err(error) = op.run()
                {
                    self.fate.fail(error);
                }
            }
            Work::Run(job) | Work::Short(job) => {
                if self.fate.check().is_ok()
                    && let Err(error) = job()
                {
                    self.fate.fail(error);
                }
                clock::ended_now();
            }
            Work::Always(job) => job(self.fate.check().err().unwrap_or(CUDA_SUCCESS)),
            Work::Stream(stream, position) => {
                progress::wait(|| stream.reached(position) || self.fate.is_sealed());
                clock::not_before(stream.ended.load(Ordering::Acquire));
            }
            Work::Event(record) => wait_for(&record, &self.fate),
            Work::Mark(record) => {
                record.pass();
                clock::not_before(record.time());
            }
        }
    }
}

/// Waits for an event on a stream's thread, as long as its context is there. The wait ends when the event was passed, not
/// when this thread woke up.
pub fn wait_for(record: &Record, fate: &Fate) {
    if !record.is_done() {
        record.wait_unless(|| fate.is_sealed());
        if record.time() == 0 {
            clock::ended_now();
        }
    }
    clock::not_before(record.time());
}

/// `cuStreamCreateWithPriority`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags.
pub fn create(flags: u32, priority: i32) -> Result<usize> {
    let context = current::healthy()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let green = green::of_context(current::handle()).map_or(0, |green| green.handle);
    // CUDA clamps a priority to its range and does not complain.
    add(&context, flags, priority.clamp(PRIORITIES.1, PRIORITIES.0), green)
}

/// A new stream of a context, in a green one or (0) not.
///
/// # Errors
/// The context's fatal error.
pub fn add(context: &Arc<Context>, flags: u32, priority: i32, green: usize) -> Result<usize> {
    let handle = TABLES.streams.reserve();
    let of = Arc::downgrade(context);
    let stream = Stream::of(of, context.fate.clone(), handle, (flags, priority), green);
    context.adopt(&stream);
    TABLES.streams.add(handle, stream.clone());
    context.await_what_all_await(&stream)?;
    Ok(handle)
}

/// `cuStreamDestroy`: returns at once; what the stream was given is still done.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for a handle that is no created stream.
pub fn destroy(handle: usize) -> Result {
    let stream = TABLES.streams.remove(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    stream.capture.abandon();
    stream.close();
    Ok(())
}

/// `cuStreamAddCallback`: a function of (stream, status, argument), called on a driver thread in stream order, also
/// when the context has died.
///
/// # Errors
/// No such stream; the context's fatal error.
pub fn add_callback(handle: usize, callback: impl FnOnce(CUresult) + Send + 'static) -> Result {
    let (context, stream) = crate::context::stream(handle)?;
    let call = |status| {
        entry::host_function(|| callback(status));
        clock::ended_now();
    };
    context.submit(&stream, Work::Always(Box::new(call)))
}

/// `cuLaunchHostFunc`: as [`add_callback`], but skipped when the context has died.
///
/// # Errors
/// No such stream; the context's fatal error.
pub fn launch_host(handle: usize, call: HostCall) -> Result {
    let (context, stream) = crate::context::stream(handle)?;
    context.submit(&stream, Work::Do(Op::Host(call)))
}

/// `cuStreamWaitEvent`: later work of the stream waits for what the event was last recorded after. An event of a stream
/// that captures draws this one into the capture.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for flags other than 0 and (in a capture) 1, no such stream or event; what
/// [`capture::wait`] says.
pub fn wait_event(handle: usize, event: usize, flags: u32) -> Result {
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let event = event::find(event)?;
    let (context, stream) = crate::context::stream(handle)?;
    if capture::wait(&context, &stream, &event, flags)? {
        return Ok(());
    }
    match event.last_record() {
        Some(record) if !record.is_done() => context.submit(&stream, Work::Event(record)),
        _ => context.fate.check(),
    }
}

/// Attributes that streams have (`CUstreamAttrID`): access window, synchronisation policy, priority, memory domains.
fn is_attribute(id: u32) -> bool {
    matches!(id, 1 | 3 | 8 | 9 | 10)
}

/// `cuStreamGetAttribute`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute of streams; no such stream.
pub fn attribute(handle: usize, id: u32) -> Result<Value> {
    let (_, stream) = crate::context::stream(handle)?;
    if !is_attribute(id) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if id == PRIORITY {
        return Ok([u64::from(stream.priority as u32), 0, 0, 0, 0, 0, 0, 0]);
    }
    stream.attributes.lock().unwrap_or_else(PoisonError::into_inner).get(id)
}

/// `cuStreamSetAttribute`: hints that are kept. A stream's priority is what it was made with.
///
/// # Errors
/// As [`attribute`], and for a value out of range.
pub fn set_attribute(handle: usize, id: u32, value: Value) -> Result {
    let (_, stream) = crate::context::stream(handle)?;
    if !is_attribute(id) || id == PRIORITY {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    stream.attributes.lock().unwrap_or_else(PoisonError::into_inner).set(id, value)
}

/// `cuStreamCopyAttributes`.
///
/// # Errors
/// No such stream, or streams of two contexts.
pub fn copy_attributes(to: usize, from: usize) -> Result {
    let ((context, to), (other, from)) = (crate::context::stream(to)?, crate::context::stream(from)?);
    if context.handle != other.handle {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let copy = from.attributes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    *to.attributes.lock().unwrap_or_else(PoisonError::into_inner) = copy;
    Ok(())
}
