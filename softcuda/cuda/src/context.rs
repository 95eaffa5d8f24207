//! Contexts: what a thread works in. A context owns streams, events, modules and memory, and dies of a kernel's fault.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use crate::event::{Event, Record};
use crate::graph::capture;
use crate::stream::{Stream, Work};
use crate::{current, per_thread, printf, progress};
use cudarc::driver::sys::CUresult;
use softcuda_engine::{Realm, View};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// One context.
pub struct Context {
    /// Its handle; that of a primary context is the same for the life of the process.
    pub handle: usize,
    /// A number that no other context has or had (`cuCtxGetId`).
    pub id: u64,
    /// Its device.
    pub device: Arc<Device>,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// What `cuCtxGetFlags` answers.
    pub flags: AtomicU32,
    /// What `cuCtxGetApiVersion` answers.
    pub api_version: u32,
    /// How often `cuCtxAttach` was called for it, beyond the one that made it.
    pub attached: AtomicU32,
    /// What `cuCtxGetLimit` answers.
    pub limits: Mutex<crate::limits::Limits>,
    /// What `cuCtxGetCacheConfig` and `cuCtxGetSharedMemConfig` answer: hints, kept and not used.
    pub cache_config: AtomicU32,
    /// See `cache_config`.
    pub shared_config: AtomicU32,
    /// What this context died of.
    pub fate: Arc<Fate>,
    gone: AtomicBool,
    /// The heap of its kernels, and what they have printed.
    pub realm: Arc<Realm>,
    /// What its kernels may touch, once it has been given access to another device's memory.
    view: OnceLock<Arc<View>>,
    legacy: Arc<Stream>,
    /// Every stream, and the lock under which work is given to any of them, so that its order is one for all.
    streams: Mutex<Vec<Weak<Stream>>>,
    /// What all later work waits for: recordings, and the green context (0: all) whose streams wait.
    awaited: Mutex<Vec<(Arc<Record>, usize)>>,
}

/// The first error that a context cannot recover from.
#[derive(Default)]
pub struct Fate {
    error: Mutex<Option<CUresult>>,
    failed: AtomicBool,
    sealed: AtomicBool,
}

impl Fate {
    /// Notes an error; the first stays.
    pub fn fail(&self, error: CUresult) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// The context ends: as [`Fate::fail`], and its streams wait for nothing any more.
    pub fn seal(&self) {
        self.fail(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        self.sealed.store(true, Ordering::Release);
        progress::moved();
    }

    /// Whether [`Fate::seal`] was called.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// The error, as a result.
    ///
    /// # Errors
    /// What was given to [`Fate::fail`] first.
    pub fn check(&self) -> Result {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.error.lock().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// For how long nothing of a context that is destroyed need get on, before its work is ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(2);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A number that no other context has or had.
pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl Context {
    /// A context under a handle from the table of contexts, and added to it.
    pub fn new(handle: usize, device: &Arc<Device>, primary: bool, flags: u32) -> Arc<Context> {
        let fate: Arc<Fate> = Arc::default();
        let context = Arc::new_cyclic(|context| {
            let legacy = Stream::of(context.clone(), fate.clone(), crate::stream::LEGACY, (0, 0), 0);
            Context {
                handle,
                id: next_id(),
                device: device.clone(),
                primary,
                flags: AtomicU32::new(flags),
                api_version: 3020,
                attached: AtomicU32::new(0),
                limits: Mutex::new(crate::limits::Limits::default()),
                cache_config: AtomicU32::new(0),
                shared_config: AtomicU32::new(1),
                fate,
                gone: AtomicBool::new(false),
                realm: Realm::new(device.memory.clone()),
                view: OnceLock::new(),
                streams: Mutex::new(vec![Arc::downgrade(&legacy)]),
                awaited: Mutex::default(),
                legacy,
            }
        });
        TABLES.contexts.add(handle, context.clone());
        context
    }

    /// The default stream that orders itself with all blocking ones.
    pub fn legacy(&self) -> &Arc<Stream> {
        &self.legacy
    }

    /// What its kernels may touch, if that is more than its device's.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.get()
    }

    /// As [`Context::view`], which exists then.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn make_view(&self) -> Result<&Arc<View>> {
        if self.view.get().is_none() {
            // That of a thread that comes second is dropped again.
            let _ = self.view.set(self.device.memory.view().map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?);
        }
        self.view.get().ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Whether it was destroyed or reset.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Adds a stream.
    pub fn adopt(&self, stream: &Arc<Stream>) {
        let mut streams = self.lock_streams();
        // A program that makes and destroys streams all the time must not make this list, and every wait, longer.
        if streams.len() == streams.capacity() {
            streams.retain(|other| other.strong_count() > 0);
        }
        streams.push(Arc::downgrade(stream));
    }

    fn lock_streams(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives work to a stream, behind everything that the default stream's rules order before it.
    ///
    /// # Errors
    /// The context's fatal error, what [`capture::take`] and [`Stream::push`] say.
    pub fn submit(&self, stream: &Arc<Stream>, work: Work) -> Result {
        self.fate.check()?;
        let Some(work) = capture::take(self, stream, work)? else { return Ok(()) };
        let mut streams = self.lock_streams();
        let waits = self.implied_waits(stream, &mut streams);
        let short = match &work {
            Work::Do(op) => op.is_short(),
            Work::Short(_) | Work::Mark(_) => true,
            _ => false,
        };
        if let Work::Mark(record) = &work {
            // What it need not wait for, having ended, ended before now.
            record.placed();
        }
        if short && waits.is_empty() && stream.is_idle() {
            // Under the lock, so that nothing can be given to the stream meanwhile.
            stream.perform(work);
            return Ok(());
        }
        for (other, position) in waits {
            stream.push(Work::Stream(other, position))?;
        }
        stream.push(work)
    }

    /// The streams, and positions in them, that new work of `stream` must wait for besides its own.
    fn implied_waits(&self, stream: &Arc<Stream>, all: &mut Vec<Weak<Stream>>) -> Vec<(Arc<Stream>, u64)> {
        if stream.is_legacy() {
            let mut waits = Vec::new();
            all.retain(|weak| {
                let Some(other) = weak.upgrade() else { return false };
                if other.is_blocking() && !other.is_legacy() {
                    waits.extend(
                        other.unseen(&other.seen_by_legacy).map(|position| (other.clone(), position)),
                    );
                }
                true
            });
            waits
        } else if stream.is_blocking() {
            let legacy = self.legacy();
            legacy
                .unseen(&stream.seen_of_legacy)
                .map(|position| (legacy.clone(), position))
                .into_iter()
                .collect()
        } else {
            Vec::new()
        }
    }

    /// What a wait for `stream` waits for: the stream's own work and what the default stream's rules would order before more
    /// of it.
    fn before(&self, stream: &Arc<Stream>) -> Vec<(Arc<Stream>, u64)> {
        let streams = self.lock_streams();
        let mut waits = vec![(stream.clone(), stream.submitted())];
        if stream.is_legacy() {
            let blocking =
                streams.iter().filter_map(Weak::upgrade).filter(|s| s.is_blocking() && !s.is_legacy());
            waits.extend(blocking.map(|s| (s.clone(), s.submitted())));
        } else if stream.is_blocking() {
            waits.push((self.legacy().clone(), self.legacy().submitted()));
        }
        waits.retain(|(stream, position)| !stream.reached(*position));
        waits
    }

    /// Does something on the calling thread as the next work of a stream, and returns when it is done. What other threads give
    /// to streams meanwhile is ordered behind it as behind any work of the stream.
    ///
    /// # Errors
    /// The context's fatal error, or that of `work`.
    pub fn run_now(&self, stream: &Arc<Stream>, work: impl FnOnce() -> Result) -> Result {
        self.fate.check()?;
        capture::permit(self, stream)?;
        let (waits, turn) = {
            let mut streams = self.lock_streams();
            let waits = self.implied_waits(stream, &mut streams);
            (waits, stream.reserve())
        };
        turn.come();
        self.wait_for(&waits)?;
        turn.perform(&waits, work)
    }

    fn wait_for(&self, waits: &[(Arc<Stream>, u64)]) -> Result {
        for (stream, position) in waits {
            progress::wait(|| stream.reached(*position));
        }
        printf::flush(&self.realm);
        self.fate.check()
    }

    /// Waits until a stream has done all it was given.
    ///
    /// # Errors
    /// The context's fatal error.
    pub fn synchronize_stream(&self, stream: &Arc<Stream>) -> Result {
        capture::permit(self, stream)?;
        self.wait_for(&self.before(stream))
    }

    /// Whether a stream has done all it was given.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` if not; the context's fatal error.
    pub fn query_stream(&self, stream: &Arc<Stream>) -> Result {
        self.fate.check()?;
        capture::permit(self, stream)?;
        if self.before(stream).is_empty() { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    /// `cuCtxWaitEvent` and `cuGreenCtxWaitEvent`: later work of all streams, of a green context or (0) of any, waits for what
    /// the event was last recorded after. So does that of streams that are made meanwhile.
    ///
    /// # Errors
    /// 900 for an event of a capture, and while one of the streams captures.
    pub fn wait_event(&self, event: &Event, green: usize) -> Result {
        self.fate.check()?;
        if let Some(tail) = event.captured() {
            tail.capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        capture::permit_all(self)?;
        let Some(record) = event.last_record().filter(|record| !record.is_done()) else { return Ok(()) };
        {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.retain(|(record, _)| !record.is_done());
            awaited.push((record.clone(), green));
        }
        let mut streams = self.streams().into_iter().filter(|stream| green == 0 || stream.green == green);
        streams.try_for_each(|stream| self.submit(&stream, Work::Event(record.clone())))
    }

    /// A new stream waits for what all streams wait for.
    ///
    /// # Errors
    /// The context's fatal error.
    pub fn await_what_all_await(&self, stream: &Arc<Stream>) -> Result {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let concerns = |(record, green): &(Arc<Record>, usize)| {
            !record.is_done() && (*green == 0 || *green == stream.green)
        };
        let mut records = awaited.into_iter().filter(concerns);
        records.try_for_each(|(record, _)| self.submit(stream, Work::Event(record)))
    }

    /// A stream that does nothing but wait for the work that others have now; it is in no list.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn gathering(self: &Arc<Self>, which: impl Fn(&Stream) -> bool) -> Result<Arc<Stream>> {
        let all = self.lock_streams();
        let gather = Stream::new(self, 0, crate::stream::NON_BLOCKING, 0);
        for stream in all.iter().filter_map(Weak::upgrade).filter(|stream| which(stream)) {
            gather.push(Work::Stream(stream.clone(), stream.submitted()))?;
        }
        Ok(gather)
    }

    /// Its streams, as far as somebody still holds them.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.lock_streams().iter().filter_map(Weak::upgrade).collect()
    }

    /// `cuCtxSynchronize`: as [`Context::drain`], which no capture may see.
    ///
    /// # Errors
    /// As [`Context::drain`], and [`capture::permit_all`].
    pub fn synchronize(&self) -> Result {
        capture::permit_all(self)?;
        self.drain()
    }

    /// Waits until all streams have done what they were given.
    ///
    /// # Errors
    /// The context's fatal error.
    pub fn drain(&self) -> Result {
        let waits: Vec<_> = self
            .lock_streams()
            .iter()
            .filter_map(Weak::upgrade)
            .map(|s| (s.clone(), s.submitted()))
            .collect();
        self.wait_for(&waits)
    }

    /// Waits for the context's work as long as some of it gets on, and then ends it: a kernel that never ends does not keep
    /// its context, as on a card.
    fn end_work(&self) {
        let waits: Vec<_> = self.streams().into_iter().map(|s| (s.submitted(), s)).collect();
        let over = || waits.iter().all(|(position, stream)| stream.reached(*position));
        let engine = &self.device.engine;
        let moves = || {
            let done: u64 = waits.iter().map(|(_, stream)| stream.completed()).sum();
            (done, engine.blocks_done(self.id))
        };
        let (mut seen, mut since) = (moves(), Instant::now());
        while !progress::wait_until(Instant::now() + LOOK, over) {
            if self.fate.is_sealed() {
                // Again and again, as a stream may just have been about to start a kernel.
                engine.cancel_of(self.id);
                continue;
            }
            let now = moves();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                self.fate.seal();
            }
        }
        printf::flush(&self.realm);
    }

    /// Ends the context: its work ([`Context::end_work`]), then everything that it owns goes.
    pub fn destroy(&self) {
        if self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        self.end_work();
        self.realm.empty_heap();
        cuda_abi::export_tables::context_destroyed(std::ptr::with_exposed_provenance_mut(self.handle));
        TABLES.contexts.remove(self.handle);
        for module in TABLES.modules.all().iter().filter(|m| m.context == self.handle) {
            module.unload();
        }
        for library in TABLES.libraries.all() {
            library.forget_context(self.handle);
        }
        for stream in self.lock_streams().iter().filter_map(Weak::upgrade) {
            TABLES.streams.remove(stream.handle);
            stream.close();
        }
        for event in TABLES.events.all().iter().filter(|e| e.context == self.handle) {
            TABLES.events.remove(event.handle);
        }
        crate::peer::forget(self.handle);
        crate::ipc::close_all_of(self.handle);
        crate::texture::forget_all_of(self.handle);
        crate::reference::forget_all_of(self.handle);
        crate::array::free_all_of(self.handle);
        TABLES.allocations.free_all_of(self.handle);
    }
}

/// `cuCtxCreate`: a new context, made current on top of the thread's stack.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags.
pub fn create(device: &Arc<Device>, flags: u32) -> Result<usize> {
    check_flags(flags)?;
    let handle = TABLES.contexts.reserve();
    Context::new(handle, device, false, flags);
    current::push(handle)?;
    Ok(handle)
}

/// Flags that a context may have: one way of waiting, and the bits of `CUctx_flags`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn check_flags(flags: u32) -> Result {
    if flags & !0xff == 0 && matches!(flags & 7, 0 | 1 | 2 | 4) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// `cuCtxDestroy`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a handle that is none, or a primary context's.
pub fn destroy(handle: usize) -> Result {
    let context = TABLES.contexts.get(handle).filter(|c| !c.primary).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    context.destroy();
    current::forget_top(handle);
    Ok(())
}

/// `cuCtxDetach`: takes back one `cuCtxAttach`, or destroys the context.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a context that is not current; as [`destroy`].
pub fn detach(handle: usize) -> Result {
    let context = current::context()?;
    if context.handle != handle {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let less = context.attached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    if less.is_ok() { Ok(()) } else { destroy(handle) }
}

/// The stream that a handle means in the current context. 0 is the legacy stream, or the thread's own when the caller
/// was compiled so; 1 and 2 are always these two.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for a handle that is no stream; no current context.
pub fn stream(handle: usize) -> Result<(Arc<Context>, Arc<Stream>)> {
    match handle {
        0 | 1 => {
            let context = current::context()?;
            let legacy = context.legacy().clone();
            Ok((context, legacy))
        }
        2 => {
            let context = current::context()?;
            let own = per_thread::stream(&context);
            Ok((context, own))
        }
        _ => {
            let stream = TABLES.streams.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let context = stream.context.upgrade().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
            Ok((context, stream))
        }
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
