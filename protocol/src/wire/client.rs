//! The client's end of a link, used by every thread of the program.

use std::hint::cold_path;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::atomics::Real;
use super::client_calls::PendingCall;
use super::client_chunks::{DownChunk, DownChunks, UpChunk, UpChunks};
use super::codec::{Reader, Writer, padded};
use super::flusher::Flusher;
use super::landing::Landings;
use super::layout::{BOARD_WORDS, BODY_BYTES_MAX, Head, RECORD_BYTES_MAX, RING_BYTES, SLOTS, down, up};
use super::memory::{Kept, Region};
use super::pool::IndexPool;
use super::producer::Producer;
use super::ring::{Place, Ring};
use super::sleep::ring_once;
use super::state::{LONG_WAIT, LinkError, LinkState, LongWait, LongWaitHook, WaitKind};
use super::threads::spawn_quiet;
use crate::transport::arena::ArenaMap;
use crate::transport::{End, Piece, Point, Side, Transport, When, shm, tcp};

const RING: Ring = Ring::new(RING_BYTES, RECORD_BYTES_MAX);
/// How long the flusher gathers posts.
pub(super) const GATHER_TIME: Duration = Duration::from_micros(20);
/// How long a thread leaves a full ring alone, which is some 20,000 records of work for the worker, before it asks to be told of
/// room: else it would be woken at each record that is taken, to post one and sleep again.
const FULL_NAP: Duration = Duration::from_micros(50);
/// Where records are not seen at once, this much is pushed without waiting for more.
const BATCH_BYTES: u64 = 16 * 1024;

/// What a record's header says besides its length and slot, with the chunks that go with it.
pub struct CallHead<'l> {
    /// The call's number.
    pub call: u16,
    /// The calling thread.
    pub lane: u32,
    /// The thread's current context.
    pub context: u64,
    /// Bytes for the device that this record uses.
    pub up: Option<UpChunk<'l>>,
    /// Where the answer's bytes may go. Only for calls.
    pub down: Option<DownChunk<'l>>,
}

impl<'l> CallHead<'l> {
    /// A header without chunks.
    #[inline]
    pub fn new(call: u16, lane: u32, context: u64) -> Self {
        Self { call, lane, context, up: None, down: None }
    }

    /// With bytes for the device.
    pub fn with_up(mut self, chunk: UpChunk<'l>) -> Self {
        self.up = Some(chunk);
        self
    }

    /// With a place for the answer's bytes.
    pub fn with_down(mut self, chunk: DownChunk<'l>) -> Self {
        self.down = Some(chunk);
        self
    }
}

/// The client's end.
pub struct ClientLink {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) state: Arc<LinkState>,
    /// What this side writes.
    pub(super) up: Arc<Region>,
    /// What the worker writes.
    pub(super) down: Arc<Region>,
    /// Whether the worker sees stores at once.
    mapped: bool,
    producer: Producer<RING_BYTES>,
    /// The word that publishes records, and the worker's sleep: what every post touches.
    published: Kept<AtomicU64>,
    worker_sleep: Kept<AtomicU32>,
    /// The sleep of the worker for which somebody has rung last.
    rung: CachePadded<AtomicU32>,
    pub(super) slots: IndexPool,
    pub(super) up_chunks: UpChunks,
    pub(super) down_chunks: DownChunks,
    /// The ring position up to which records have been pushed; the lock is held while they are.
    pushing: Mutex<()>,
    pushed: AtomicU64,
    flusher: OnceLock<Option<Flusher>>,
    pub(super) callbacks_taken: Mutex<u64>,
    /// The thread that takes what comes for landings, or that there is none.
    attending: OnceLock<bool>,
    arena: Mutex<Option<ArenaMap>>,
    this: std::sync::Weak<ClientLink>,
}

impl ClientLink {
    /// Over shared memory that the worker passes through `data_socket`. Waits for it up to 3 s.
    pub fn shm(data_socket: UnixStream) -> Result<Arc<Self>, LinkError> {
        Ok(Self::over(shm::client(data_socket)?))
    }

    /// Over a connected TCP socket.
    pub fn tcp(data_socket: TcpStream) -> Result<Arc<Self>, LinkError> {
        Self::tcp_with(data_socket, Vec::new())
    }

    /// Over a connected TCP socket, and others (fewer than [`crate::control::CONNECTIONS_MAX`]) for long bytes.
    pub fn tcp_with(data_socket: TcpStream, bulk: Vec<TcpStream>) -> Result<Arc<Self>, LinkError> {
        Ok(Self::over(tcp::end(Side::Client, data_socket, bulk)?))
    }

    /// Whether there are connections for long bytes alone.
    pub fn has_bulk(&self) -> bool {
        self.transport.bulk() > 0
    }

    fn over(end: End) -> Arc<Self> {
        let End { transport, incoming, outgoing, arena } = end;
        // Without it pinned memory is staged like other memory.
        let arena = arena.and_then(|file| file.reserve(arena_wish()).ok());
        Arc::new_cyclic(|this| Self {
            state: transport.state().clone(),
            mapped: transport.mapped(),
            transport,
            published: Kept::word64(&outgoing, up::PUBLISHED),
            worker_sleep: Kept::word32(&incoming, down::WORKER_SLEEP),
            up: outgoing,
            down: incoming,
            producer: Producer::new(),
            rung: CachePadded::new(AtomicU32::new(0)),
            slots: IndexPool::new(SLOTS),
            up_chunks: UpChunks::new(),
            down_chunks: DownChunks::new(),
            pushing: Mutex::new(()),
            pushed: AtomicU64::new(0),
            flusher: OnceLock::new(),
            callbacks_taken: Mutex::new(0),
            attending: OnceLock::new(),
            arena: Mutex::new(arena),
            this: this.clone(),
        })
    }

    /// Records a call that has no answer. `fill` writes the body, `body_len` bytes (rounded up to 8). Returns the
    /// record's position. Waits only when the ring is full.
    pub fn post(
        &self,
        head: CallHead<'_>,
        body_len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, LinkError> {
        let position = self.record(&head, None, body_len, fill)?;
        self.posted()?;
        Ok(position)
    }

    /// On shared memory a post is seen at once; elsewhere it is pushed soon.
    #[inline(always)]
    pub(super) fn posted(&self) -> Result<(), LinkError> {
        if self.mapped {
            return Ok(());
        }
        cold_path();
        self.push_soon()
    }

    /// Records a call, waits for its answer and hands it to `read`: the CUDA result and the answer's bytes, a private
    /// copy (from the down-chunk if they are there).
    pub fn call<R>(
        &self,
        head: CallHead<'_>,
        body_len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(i32, &mut Reader<'_>) -> R,
    ) -> Result<R, LinkError> {
        Ok(self.begin_call(head, body_len, fill)?.wait()?.read(read))
    }

    /// Records a call and returns without waiting, so that one thread can have several calls under way.
    pub fn begin_call<'l>(
        &'l self,
        mut head: CallHead<'l>,
        body_len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<PendingCall<'l>, LinkError> {
        let slot = self.take_slot()?;
        let position = match self.record(&head, Some(slot), body_len, fill) {
            Ok(position) => position,
            Err(error) => {
                self.slots.give(slot);
                return Err(error);
            }
        };
        let pending = PendingCall::new(self, slot, position, head.call, head.down.take());
        self.flush()?;
        Ok(pending)
    }

    /// Writes one record and publishes it.
    fn record(
        &self,
        head: &CallHead<'_>,
        slot: Option<u32>,
        body_len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, LinkError> {
        if let Some(chunk) = &head.up {
            chunk.arrive()?;
        }
        let (place, first, mut body) = self.begin(body_len)?;
        let unfinished = Unfinished { link: self, place };
        fill(&mut body);
        std::mem::forget(unfinished);
        let whole = body.finish();
        let head = Head {
            length: place.record_len(),
            call: head.call,
            chunk_up: head.up.as_ref().map(UpChunk::spend),
            chunk_down: head.down.as_ref().map(DownChunk::index),
            lane: head.lane,
            slot,
            context: head.context,
        };
        self.end(place, first, whole, head)?;
        Ok(place.record())
    }

    /// Reserves a record with a body of `body_len` bytes; gives what writes its header and its body. It must come to
    /// [`ClientLink::end`], or no later record is seen.
    #[inline(always)]
    pub(super) fn begin(&self, body_len: usize) -> Result<(Place, Writer<'_>, Writer<'_>), LinkError> {
        self.state.check()?;
        if body_len > BODY_BYTES_MAX {
            cold_path();
            return Err(LinkError::TooLong { len: body_len, max: BODY_BYTES_MAX });
        }
        let length = Head::BYTES + padded(body_len) as u32;
        let place = self.reserve(length)?;
        let whole = self.up.writer(up::RING + RING.index(place.record()), length as usize);
        let (head, body) = whole.split(Head::BYTES as usize);
        Ok((place, head, body))
    }

    /// Writes the header and publishes the record. One whose body did not fit is skipped by the worker.
    #[inline(always)]
    pub(super) fn end(
        &self,
        place: Place,
        mut first: Writer<'_>,
        whole: bool,
        head: Head,
    ) -> Result<(), LinkError> {
        first.words(head.words());
        if !whole {
            cold_path();
            return Err(self.overrun(place.start, place.pad, place.end));
        }
        self.publish(place);
        Ok(())
    }

    /// Takes the parts of a [`Place`], which would have to be in memory to be given whole.
    #[cold]
    #[inline(never)]
    fn overrun(&self, start: u64, pad: u32, end: u64) -> LinkError {
        let place = Place { start, pad, end };
        self.skip(place.record(), place.record_len());
        self.publish(place);
        let max = (place.record_len() - Head::BYTES) as usize;
        LinkError::TooLong { len: max + 1, max }
    }

    /// Publishes a filled reservation, and wakes the worker if it sleeps.
    #[inline(always)]
    fn publish(&self, place: Place) {
        if place.pad > 0 {
            cold_path();
            self.skip(place.start, place.pad);
        }
        let moved = self.producer.finish(place, &self.published);
        // The fence between the position and this look is in `finish`.
        if moved && self.mapped {
            ring_once::<Real>(&self.worker_sleep, &self.rung, || self.wake_worker());
        }
    }

    #[cold]
    fn wake_worker(&self) {
        self.transport.ring(Point::Bell);
    }

    /// Makes `len` bytes of the ring a record that the worker skips.
    #[cold]
    fn skip(&self, at: u64, len: u32) {
        self.up.word64(up::RING + RING.index(at)).store(Head::pad_word(len), Relaxed);
    }

    #[inline(always)]
    fn reserve(&self, size: u32) -> Result<Place, LinkError> {
        loop {
            if let Some(place) = self.producer.try_reserve(size) {
                return Ok(place);
            }
            cold_path();
            self.wait_for_room(size)?;
        }
    }

    /// Waits until a record of `size` bytes may fit. (It does not reserve it: that place would come back in memory.)
    #[cold]
    #[inline(never)]
    fn wait_for_room(&self, size: u32) -> Result<(), LinkError> {
        let note = || self.producer.note_consumed(self.down.word64(down::CONSUMED).load(Acquire));
        let noted = || match note() {
            Ok(()) => self.producer.has_room(size),
            Err(_) => true,
        };
        loop {
            if let Err(bad) = note() {
                return Err(self.broken_by(LinkError::protocol(bad)));
            }
            if self.producer.has_room(size) {
                return Ok(());
            }
            self.flush()?;
            std::thread::sleep(FULL_NAP);
            if noted() {
                continue;
            }
            self.up.word32(up::SPACE_WANTED).fetch_add(1, Relaxed);
            std::sync::atomic::fence(Ordering::SeqCst);
            let waited = self.wait(WaitKind::RingSpace, Point::Bell, &noted);
            self.up.word32(up::SPACE_WANTED).fetch_sub(1, Relaxed);
            waited?;
        }
    }

    /// Where records are not seen at once: pushes them when there are many, else has it done very soon.
    fn push_soon(&self) -> Result<(), LinkError> {
        let waiting = self.producer.published().wrapping_sub(self.pushed.load(Relaxed));
        if waiting >= BATCH_BYTES {
            return self.flush();
        }
        let flusher = self.flusher.get_or_init(|| Flusher::start(self.this.clone()).ok());
        match flusher {
            Some(flusher) => flusher.arm(),
            // No thread could be had: then every post goes at once.
            None => return self.flush(),
        }
        Ok(())
    }

    /// Makes everything that was posted before visible to the worker. Every wait and query does it.
    #[inline(always)]
    pub fn flush(&self) -> Result<(), LinkError> {
        if self.mapped {
            return self.state.check();
        }
        cold_path();
        self.push()
    }

    /// The same where it takes a push.
    fn push(&self) -> Result<(), LinkError> {
        let wanted = self.producer.published();
        let _pushing = self.pushing.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.pushed.load(Relaxed);
        if from >= wanted {
            return self.state.check();
        }
        let to = self.producer.published();
        let (at, len) = (RING.index(from), (to - from) as u32);
        let straight = len.min(RING_BYTES - at);
        self.transport.push(
            &[
                Piece::Range { offset: up::RING + at, len: straight },
                Piece::Range { offset: up::RING, len: len - straight },
                Piece::Word { offset: up::PUBLISHED, value: to },
            ],
            When::Now,
        )?;
        self.pushed.store(to, Relaxed);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn take_slot(&self) -> Result<u32, LinkError> {
        if let Some(slot) = self.slots.try_take() {
            return Ok(slot);
        }
        cold_path();
        self.wait_for_index(WaitKind::Slot, &self.slots)
    }

    /// Waits until some other thread gives an index back.
    pub(super) fn wait_for_index(&self, kind: WaitKind, pool: &IndexPool) -> Result<u32, LinkError> {
        let since = Instant::now();
        let index = loop {
            if let Err(error) = self.check() {
                break Err(error);
            }
            if let Some(index) = pool.try_take() {
                break Ok(index);
            }
            pool.wait(LONG_WAIT);
            if since.elapsed() >= LONG_WAIT {
                self.state.still_waiting(LongWait { kind, since });
            }
        };
        self.state.waited();
        index
    }

    /// Waits until `ready` (which looks at what the worker writes) holds.
    pub(super) fn wait(
        &self,
        kind: WaitKind,
        point: Point,
        ready: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        let stop = || ready() || self.status_word() != 0;
        let since = Instant::now();
        let mut listed = false;
        let result = loop {
            match self.transport.wait(point, &stop, Some(Instant::now() + LONG_WAIT)) {
                Err(error) => break Err(error),
                Ok(true) if ready() => break Ok(()),
                Ok(true) => break self.check(),
                Ok(false) => {
                    listed = true;
                    self.state.still_waiting(LongWait { kind, since });
                }
            }
        };
        if listed {
            self.state.waited();
        }
        result
    }

    pub(super) fn status_word(&self) -> u64 {
        self.down.word64(down::STATUS).load(Acquire)
    }

    /// `Err` once the link is broken or the worker has said that it stopped.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        self.state.check()?;
        match self.status_word() {
            0 => Ok(()),
            word => {
                let position = self.down.word64(down::STATUS_POSITION).load(Acquire);
                let (code, call) = (word as u32, (word >> 32) as u32);
                Err(self.broken_by(LinkError::Worker { code, call, position }))
            }
        }
    }

    /// Breaks the link; returns the reason that counts, which is the first.
    pub(super) fn broken_by(&self, reason: LinkError) -> LinkError {
        self.transport.break_with(reason.clone());
        self.state.broken().cloned().unwrap_or(reason)
    }

    /// Gives the link up: every later call fails with `reason`, and everybody who waits is woken.
    pub fn break_with(&self, reason: LinkError) {
        self.transport.break_with(reason);
    }

    /// Why the link is broken, if it is.
    pub fn broken(&self) -> Option<LinkError> {
        self.check().err()
    }

    /// The host arena, mapped without access; whoever asks first gets it. `None` where client and worker share no memory.
    pub fn take_arena(&self) -> Option<ArenaMap> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sets what a thread does that has waited for 300 ms, and again after each further 300 ms. Only the first hook
    /// counts.
    pub fn on_long_wait(&self, hook: LongWaitHook) {
        self.state.on_long_wait(hook);
    }

    /// The waits that have lasted longer than 300 ms, for a hang report.
    pub fn long_waits(&self) -> Vec<LongWait> {
        self.state.long_waits()
    }

    /// A word of the completion board. Everything posted before is on its way to the worker, so asking again and
    /// again ends.
    ///
    /// # Panics
    /// When `index` is not below [`BOARD_WORDS`].
    pub fn board(&self, index: u32) -> Result<u64, LinkError> {
        self.flush()?;
        self.transport.look()?;
        self.check()?;
        Ok(self.down.word64(down::board(index)).load(Acquire))
    }

    /// Waits until a board word is at least `at_least`.
    ///
    /// # Panics
    /// When `index` is not below [`BOARD_WORDS`].
    pub fn wait_board(&self, index: u32, at_least: u64) -> Result<(), LinkError> {
        assert!(index < BOARD_WORDS);
        let word = self.down.word64(down::board(index));
        let ready = || word.load(Acquire) >= at_least;
        if ready() {
            return Ok(());
        }
        self.flush()?;
        self.wait(WaitKind::Board { index, at_least }, Point::Bell, &ready)
    }

    /// How many bytes kernels have printed. As of the last answer: what was printed before a synchronise is counted
    /// when it returns.
    pub fn output_written(&self) -> u64 {
        self.down.word64(down::OUTPUT_WRITTEN).load(Acquire)
    }

    /// The ring position below which the worker has carried out all posts. As of the last answer.
    pub fn consumed(&self) -> u64 {
        self.down.word64(down::CONSUMED).load(Acquire)
    }

    /// Where bytes that nobody waits for can land; `None` where memory is shared, and where no thread can be had to read
    /// them. That thread starts with the first use.
    pub fn use_landings(&self) -> Option<&Landings> {
        let landings = self.transport.landings()?;
        let start = || {
            let transport = self.transport.clone();
            spawn_quiet("gpupool-land", move || transport.attend()).is_ok()
        };
        self.attending.get_or_init(start).then_some(landings)
    }

    /// The landings, if there have been any.
    pub fn landings(&self) -> Option<&Landings> {
        self.transport.landings().filter(|_| self.attending.get() == Some(&true))
    }

    /// Pushes what the flusher's wake-up was for, if nobody did before.
    pub(super) fn flush_quietly(&self) {
        // A failure breaks the link, and the next call says so.
        let _ = self.flush();
    }

    /// For tests that play a hostile worker or look beside the link: the two regions, up and down.
    #[cfg(test)]
    pub(super) fn regions(&self) -> (&Region, &Region) {
        (&self.up, &self.down)
    }
}

impl Drop for ClientLink {
    fn drop(&mut self) {
        if let Some(Some(flusher)) = self.flusher.get() {
            flusher.stop();
        }
        self.transport.break_with(LinkError::GivenUp("the session has ended".into()));
    }
}

/// Where the host arena might lie in both processes: among addresses that the kernel gives to no mapping by itself, at a
/// place that depends on the process, since one program may be served by another.
fn arena_wish() -> u64 {
    const FIRST: u64 = 0x2000_0000_0000;
    const STEP: u64 = 1 << 36;
    FIRST + STEP * u64::from(std::process::id() % 251)
}

/// A record that is being filled by code that may panic. Dropped only when it does: then it becomes one that is
/// skipped, so that the records behind it are not held back.
struct Unfinished<'l> {
    link: &'l ClientLink,
    place: Place,
}

impl Drop for Unfinished<'_> {
    #[cold]
    fn drop(&mut self) {
        self.link.overrun(self.place.start, self.place.pad, self.place.end);
    }
}
