//! The worker's end of a link: one [`Receiver`], owned by the ring's thread, and a [`Replier`] for every thread.

use std::hint::cold_path;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::atomics::Real;
use super::board::raise;
use super::consumer::Consumer;
use super::layout::{
    BOARD_WORDS, CALLBACKS, CHUNK_BYTES, CHUNKS, Head, REPLY_BY_BULK, REPLY_IN_CHUNK, SLOT_PAYLOAD, SLOTS,
    down, up,
};
use super::memory::Region;
use super::state::{LinkError, LinkState};
use super::worker_bulk::{self, Answer, Sender};
use crate::transport::arena::ArenaFile;
use crate::transport::{End, Piece, Point, Side, Transport, When, shm, tcp};

/// How much may be consumed before the client is told, where telling costs something.
const REPORT_BYTES: u64 = 64 * 1024;
/// Answers with fewer bytes go over the first connection in any case.
const BULK_MIN: usize = 64 * 1024;
/// How long the receiver lets posts come together where it sees each at once. About 40 ns each.
const PAUSES: u32 = 4;

/// Makes the worker's end.
#[derive(Debug)]
pub struct WorkerLink;

impl WorkerLink {
    /// Over shared memory, which is made here and passed through `data_socket`.
    pub fn shm(data_socket: UnixStream) -> Result<(Receiver, Arc<Replier>), LinkError> {
        Self::over(shm::worker(data_socket)?)
    }

    /// Over a connected TCP socket.
    pub fn tcp(data_socket: TcpStream) -> Result<(Receiver, Arc<Replier>), LinkError> {
        Self::tcp_with(data_socket, Vec::new())
    }

    /// Over a connected TCP socket, and others for long bytes, as the client has them.
    pub fn tcp_with(
        data_socket: TcpStream,
        bulk: Vec<TcpStream>,
    ) -> Result<(Receiver, Arc<Replier>), LinkError> {
        Self::over(tcp::end(Side::Worker, data_socket, bulk)?)
    }

    fn over(end: End) -> Result<(Receiver, Arc<Replier>), LinkError> {
        let End { transport, incoming, outgoing, arena } = end;
        let bulk = worker_bulk::start(&transport, &incoming)?;
        let replier = Arc::new(Replier {
            mapped: transport.mapped(),
            state: transport.state().clone(),
            transport,
            up: incoming.clone(),
            down: outgoing,
            consumed: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            released: [const { Mutex::new(0) }; CHUNKS as usize],
            callbacks_queued: Mutex::new(0),
            raising: Mutex::new(()),
            landing: Mutex::new(()),
            bulk,
            arena,
        });
        let receiver =
            Receiver { consumer: Consumer::new(incoming), posted: false, replier: replier.clone() };
        Ok((receiver, replier))
    }
}

/// A record in the receiver's private buffer.
#[derive(Debug)]
pub struct Record<'r> {
    /// Its number: its position in the ring.
    pub position: u64,
    /// Its header; slot and chunks exist.
    pub head: Head,
    /// The bytes behind the header, not checked.
    pub body: &'r [u8],
}

/// The one reader of the command ring.
pub struct Receiver {
    consumer: Consumer,
    /// The record taken last is one for whose answer nobody waits.
    posted: bool,
    replier: Arc<Replier>,
}

impl Receiver {
    /// The next record; waits for it. Asking for it says that the one before is carried out. An error ends the
    /// session: the link is broken, or the client broke the rules.
    #[allow(clippy::should_implement_trait)]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Record<'_>, LinkError> {
        match self.next_until(None)? {
            Some((position, head)) => Ok(Record { position, head, body: self.consumer.body(&head) }),
            None => Err(LinkError::System("waiting for a record without a time limit".into())),
        }
    }

    /// As [`Receiver::next`], but gives up after `time`.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Record<'_>>, LinkError> {
        let next = self.next_until(Some(Instant::now() + time))?;
        Ok(next.map(|(position, head)| Record { position, head, body: self.consumer.body(&head) }))
    }

    /// Whether the ring is empty as far as can be seen without waiting: time for other work.
    pub fn idle_hint(&self) -> bool {
        if !self.replier.mapped {
            // Somebody must read for something to come; a failure is seen by `next`.
            let _ = self.replier.transport.look();
        }
        !Consumer::has_news(&self.replier.up, self.consumer.taken())
    }

    #[inline(always)]
    fn next_until(&mut self, until: Option<Instant>) -> Result<Option<(u64, Head)>, LinkError> {
        self.replier.note_consumed(self.consumer.release())?;
        self.replier.state.check()?;
        if self.posted && self.replier.mapped && self.consumer.at_the_end() {
            // More is on its way, most likely. Each look takes the word's cache line from the client, which needs it for
            // the next record: two records at a look cost both sides less than one.
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        loop {
            match self.consumer.take() {
                Ok(Some(taken)) => {
                    self.posted = taken.head.slot.is_none();
                    return Ok(Some((taken.position, taken.head)));
                }
                Ok(None) => cold_path(),
                Err(error) => {
                    cold_path();
                    self.replier.transport.break_with(error.clone());
                    return Err(error);
                }
            }
            if !self.wait(until)? {
                return Ok(None);
            }
        }
    }

    /// Waits until something is published; whether it is.
    #[cold]
    #[inline(never)]
    fn wait(&mut self, until: Option<Instant>) -> Result<bool, LinkError> {
        // A pad at the end may have been taken alone.
        self.replier.note_consumed(self.consumer.release())?;
        self.replier.before_idle()?;
        let taken = self.consumer.taken();
        let ready = || Consumer::has_news(&self.replier.up, taken);
        let news = self.replier.transport.wait(Point::Bell, &ready, until)?;
        self.replier.state.check()?;
        Ok(news)
    }
}

/// Answers, board words and chunks, from any thread.
pub struct Replier {
    transport: Arc<dyn Transport>,
    state: Arc<LinkState>,
    mapped: bool,
    /// What the client writes.
    up: Arc<Region>,
    /// What this side writes.
    down: Arc<Region>,
    /// What the receiver has consumed, and what of it the client was told.
    consumed: AtomicU64,
    reported: AtomicU64,
    released: [Mutex<u64>; CHUNKS as usize],
    callbacks_queued: Mutex<u64>,
    /// Held while a board word is raised.
    raising: Mutex<()>,
    /// Held while bytes are sent to a landing: the window is for one at a time.
    landing: Mutex<()>,
    /// The threads that send long bytes over connections of their own.
    bulk: Vec<Sender>,
    arena: Option<ArenaFile>,
}

impl Replier {
    /// Answers a call: the CUDA `result` and up to 48 bytes.
    pub fn reply(&self, slot: u32, position: u64, result: i32, payload: &[u8]) -> Result<(), LinkError> {
        if payload.len() > SLOT_PAYLOAD as usize {
            return Err(LinkError::TooLong { len: payload.len(), max: SLOT_PAYLOAD as usize });
        }
        if self.mapped {
            return self.answer_in_place(slot, position, result, payload);
        }
        self.answer(slot, position, result, payload.len() as u32, payload, None)
    }

    /// The answer of a call whose client sees each store at once, and waits for this one.
    #[inline(always)]
    fn answer_in_place(
        &self,
        slot: u32,
        position: u64,
        result: i32,
        payload: &[u8],
    ) -> Result<(), LinkError> {
        below(slot, SLOTS, "reply slot")?;
        // Before, since a client that has its answer may go.
        self.state.check()?;
        let (at, length) = (down::slot(slot), payload.len() as u64);
        self.down.word64(at + 8).store(u64::from(result as u32) | length << 32, Relaxed);
        // In whole words, as the client reads them.
        for (word, bytes) in (2..).zip(payload.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            self.down.word64(at + 8 * word).store(u64::from_le_bytes(padded), Relaxed);
        }
        self.down.word64(at).store(position + 1, Release);
        self.transport.ring(Point::Slot(slot));
        Ok(())
    }

    /// Answers a call with the first `len` bytes of the down-chunk that its record named. `fill` writes them there
    /// (address, `len`); pass `|_, _| ()` if they are there already.
    pub fn reply_chunk(
        &self,
        slot: u32,
        position: u64,
        result: i32,
        chunk: u32,
        len: usize,
        fill: impl FnOnce(*mut u8, usize),
    ) -> Result<(), LinkError> {
        fill(self.chunk_down_ptr(chunk, len)?, len);
        if len >= BULK_MIN && !self.bulk.is_empty() {
            let length = len as u32 | REPLY_IN_CHUNK | REPLY_BY_BULK;
            self.answer(slot, position, result, length, &[], None)?;
            let answer = Answer { chunk, len: len as u32, done: position + 1 };
            return self.bulk[chunk as usize % self.bulk.len()].send(answer);
        }
        self.answer(
            slot,
            position,
            result,
            len as u32 | REPLY_IN_CHUNK,
            &[],
            Some((down::chunk(chunk), len as u32)),
        )
    }

    /// Answers a call with `bytes`, in the slot if they fit, else in `chunk`.
    pub fn reply_bytes(
        &self,
        slot: u32,
        position: u64,
        result: i32,
        chunk: Option<u32>,
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        if bytes.len() <= SLOT_PAYLOAD as usize {
            return self.reply(slot, position, result, bytes);
        }
        let too_long = LinkError::TooLong { len: bytes.len(), max: SLOT_PAYLOAD as usize };
        let chunk = chunk.ok_or(too_long)?;
        self.chunk_down_ptr(chunk, bytes.len())?;
        self.down.copy_in(down::chunk(chunk), bytes);
        self.reply_chunk(slot, position, result, chunk, bytes.len(), |_, _| ())
    }

    fn answer(
        &self,
        slot: u32,
        position: u64,
        result: i32,
        length: u32,
        payload: &[u8],
        range: Option<(u32, u32)>,
    ) -> Result<(), LinkError> {
        below(slot, SLOTS, "reply slot")?;
        let mut bytes = [0; 8 + SLOT_PAYLOAD as usize];
        bytes[..4].copy_from_slice(&result.to_le_bytes());
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..8 + payload.len()].copy_from_slice(payload);
        let (offset, len) = range.unwrap_or((0, 0));
        self.transport.push(
            &[
                Piece::Range { offset, len },
                // Padded to whole words, so that the copy on the other side is one of words too.
                Piece::Bytes {
                    offset: down::slot(slot) + 8,
                    bytes: &bytes[..8 + payload.len().next_multiple_of(8)],
                },
                Piece::Word { offset: down::slot(slot), value: position + 1 },
            ],
            When::Now,
        )?;
        self.transport.ring(Point::Slot(slot));
        Ok(())
    }

    /// Raises a word of the completion board ([`super::board`]). Answers to watches of one word come from several threads: one
    /// that comes late, behind a higher value, is dropped.
    pub fn board_set(&self, index: u32, value: u64) -> Result<(), LinkError> {
        below(index, BOARD_WORDS, "board word")?;
        // Held until the value is on its way: elsewhere than on shared memory words arrive in the order in which they are sent.
        let _raising = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        if !raise::<Real>(self.down.word64(down::board(index)), value) {
            return Ok(());
        }
        self.publish(down::board(index), value)
    }

    /// Sets the sticky status, once: the worker cannot go on.
    pub fn set_status(&self, code: u32, call: u32, position: u64) -> Result<(), LinkError> {
        let value = u64::from(code) | u64::from(call) << 32;
        let position = Piece::Word { offset: down::STATUS_POSITION, value: position };
        self.transport.push(&[position, Piece::Word { offset: down::STATUS, value }], When::Now)?;
        self.transport.ring(Point::Bell);
        (0..SLOTS).for_each(|slot| self.transport.ring(Point::Slot(slot)));
        Ok(())
    }

    /// Says how many bytes kernels have printed since the session began. It is seen before any answer that is given
    /// afterwards.
    pub fn output_written(&self, bytes: u64) -> Result<(), LinkError> {
        self.publish(down::OUTPUT_WRITTEN, bytes)
    }

    /// Asks the client to run host callback `id`. `CallbacksFull` when it has [`CALLBACKS`] outstanding already: wait
    /// (not on the ring's thread) and try again.
    pub fn push_callback(&self, id: u64) -> Result<(), LinkError> {
        let mut queued = self.callbacks_queued.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.up.word64(up::CALLBACKS_TAKEN).load(Acquire);
        match queued.checked_sub(taken) {
            None => {
                let error = LinkError::protocol("more callbacks taken than were queued");
                self.transport.break_with(error.clone());
                return Err(error);
            }
            Some(waiting) if waiting >= u64::from(CALLBACKS) => return Err(LinkError::CallbacksFull),
            Some(_) => {}
        }
        let entry = Piece::Word { offset: down::callback(*queued), value: id };
        *queued += 1;
        self.transport
            .push(&[entry, Piece::Word { offset: down::CALLBACKS_QUEUED, value: *queued }], When::Now)?;
        drop(queued);
        self.transport.ring(Point::Bell);
        Ok(())
    }

    /// Whether there are landings: the client receives what this side sends, and does not share its memory.
    pub fn lands(&self) -> bool {
        !self.mapped
    }

    /// Sends bytes `at..` of a landing of the client's. They are there before anything that is said afterwards; few of them may
    /// wait for that, at the latest for [`Replier::land_over`].
    ///
    /// # Errors
    /// The link is broken; or client and worker share memory, where there are no landings.
    pub fn land(&self, landing: u64, at: u64, bytes: &[u8]) -> Result<(), LinkError> {
        if self.mapped {
            return Err(LinkError::protocol("a landing where memory is shared"));
        }
        let _window = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = at;
        for bytes in bytes.chunks(CHUNK_BYTES as usize) {
            let pieces = [
                Piece::Word { offset: down::LANDING, value: landing },
                Piece::Word { offset: down::LANDING_AT, value: at },
                Piece::Bytes { offset: down::LANDING_AREA, bytes },
            ];
            // Long bytes go at once, and the end of a landing with what says that it is over.
            self.transport.push(&pieces, When::Later)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// A landing of the client's is over: it has its bytes, or will not get them.
    ///
    /// # Errors
    /// The link is broken.
    pub fn land_over(&self, landing: u64) -> Result<(), LinkError> {
        self.transport.push(&[Piece::Word { offset: down::LANDING_OVER, value: landing }], When::Now)
    }

    /// Gives an up-chunk back to the client: its bytes are no longer needed.
    pub fn release_chunk_up(&self, index: u32) -> Result<(), LinkError> {
        below(index, CHUNKS, "up-chunk")?;
        let mut released = self.released[index as usize].lock().unwrap_or_else(PoisonError::into_inner);
        *released += 1;
        self.publish(down::release(index), *released)
    }

    /// Where the first `len` bytes of an up-chunk are. The client may change them at any time; read them once.
    pub fn chunk_up_ptr(&self, index: u32, len: usize) -> Result<*const u8, LinkError> {
        below(index, CHUNKS, "up-chunk")?;
        fits_chunk(len)?;
        Ok(self.up.pointer(up::chunk(index), len))
    }

    /// Copies the first bytes of an up-chunk.
    pub fn chunk_up_read(&self, index: u32, to: &mut [u8]) -> Result<(), LinkError> {
        self.chunk_up_ptr(index, to.len())?;
        self.up.copy_out(up::chunk(index), to);
        Ok(())
    }

    /// Where the first `len` bytes of a down-chunk are, to be filled before the answer that names it.
    pub fn chunk_down_ptr(&self, index: u32, len: usize) -> Result<*mut u8, LinkError> {
        below(index, CHUNKS, "down-chunk")?;
        fits_chunk(len)?;
        Ok(self.down.pointer(down::chunk(index), len))
    }

    /// The host arena's file, where client and worker share memory.
    pub fn arena(&self) -> Option<&ArenaFile> {
        self.arena.as_ref()
    }

    /// Breaks the link: the receiver wakes with `reason`, and the client sees the connection end.
    pub fn break_with(&self, reason: LinkError) {
        self.transport.break_with(reason);
    }

    /// Why the link is broken, if it is.
    pub fn broken(&self) -> Option<LinkError> {
        self.state.broken().cloned()
    }

    /// One word that client threads may wait for on the bell.
    fn publish(&self, offset: u32, value: u64) -> Result<(), LinkError> {
        self.transport.push(&[Piece::Word { offset, value }], When::Now)?;
        self.transport.ring(Point::Bell);
        Ok(())
    }

    /// The receiver has consumed up to here. Where the client does not see it at once it is told with the next answer,
    /// or when much has come together.
    #[inline(always)]
    fn note_consumed(&self, consumed: u64) -> Result<(), LinkError> {
        if self.mapped {
            self.down.word64(down::CONSUMED).store(consumed, Release);
            // A look without a fence may miss a client that is just going to sleep; `before_idle` and the next step of
            // REPORT_BYTES make it good.
            if self.up.word32(up::SPACE_WANTED).load(Relaxed) != 0 {
                cold_path();
                self.transport.ring(Point::Bell);
            }
        }
        self.consumed.store(consumed, Relaxed);
        if consumed.wrapping_sub(self.reported.load(Relaxed)) < REPORT_BYTES {
            return Ok(());
        }
        cold_path();
        self.reported.store(consumed, Relaxed);
        self.publish(down::CONSUMED, consumed)
    }

    /// The receiver is going to wait.
    fn before_idle(&self) -> Result<(), LinkError> {
        if self.mapped {
            self.transport.ring(Point::Bell);
        }
        Ok(())
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        // The threads of further connections have the transport as well, and wait for what comes.
        self.transport.break_with(LinkError::GivenUp("the session has ended".into()));
    }
}

fn below(index: u32, count: u32, what: &str) -> Result<(), LinkError> {
    if index < count { Ok(()) } else { Err(LinkError::protocol(format!("{what} {index} of {count}"))) }
}

fn fits_chunk(len: usize) -> Result<(), LinkError> {
    let max = CHUNK_BYTES as usize;
    if len <= max { Ok(()) } else { Err(LinkError::TooLong { len, max }) }
}
