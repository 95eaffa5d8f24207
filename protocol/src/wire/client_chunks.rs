//! Staging chunks as the client sees them.
//!
//! An *up-chunk* is filled, goes with one record, and is free again when the worker's release word for it has reached
//! the number of times it was used. A *down-chunk* belongs to the client all the time: a call names it, the worker
//! fills it before it answers, and dropping it frees it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::client::ClientLink;
use super::layout::{CHUNK_BYTES, CHUNKS, down, up};
use super::pool::IndexPool;
use super::state::{LinkError, WaitKind};
use crate::transport::{Piece, Point, When};

/// Who has which up-chunk.
pub struct UpChunks {
    /// Never used, or given back unused.
    free: IndexPool,
    /// Bit i: chunk i went with a record; its release word says whether it is free.
    in_flight: AtomicU64,
    /// How often each has gone with a record.
    used: [AtomicU64; CHUNKS as usize],
    /// How often each was filled over a connection for long bytes.
    sent: [AtomicU64; CHUNKS as usize],
}

impl UpChunks {
    pub(super) fn new() -> Self {
        Self {
            free: IndexPool::new(CHUNKS),
            in_flight: AtomicU64::new(0),
            used: [const { AtomicU64::new(0) }; CHUNKS as usize],
            sent: [const { AtomicU64::new(0) }; CHUNKS as usize],
        }
    }
}

/// A chunk that is being filled. Dropped unused, it is free again.
pub struct UpChunk<'l> {
    link: &'l ClientLink,
    index: u32,
    len: u32,
    /// Its bytes go over a connection for long ones, for the so manieth time; 0: they do not.
    sent: u64,
    spent: std::cell::Cell<bool>,
}

impl UpChunk<'_> {
    /// Which chunk it is: a record's body names it too.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing was written so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    pub fn left(&self) -> usize {
        (CHUNK_BYTES - self.len) as usize
    }

    /// Appends `bytes`; they start on their way to the worker.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > self.left() {
            return Err(LinkError::TooLong { len: bytes.len(), max: self.left() });
        }
        let offset = up::chunk(self.index) + self.len;
        self.link.transport.push(&[Piece::Bytes { offset, bytes }], When::Later)?;
        self.len += bytes.len() as u32;
        Ok(())
    }

    /// Fills the chunk over a connection for long bytes, where there is one, and returns when they are on their way. The record
    /// that names the chunk does not go before they are there; what is short and of other threads does not wait for them.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let connections = self.link.transport.bulk();
        if connections == 0 || bytes.is_empty() || !self.is_empty() {
            return self.write(bytes);
        }
        if bytes.len() > self.left() {
            return Err(LinkError::TooLong { len: bytes.len(), max: self.left() });
        }
        self.sent = self.link.up_chunks.sent[self.index as usize].fetch_add(1, Relaxed) + 1;
        self.len = bytes.len() as u32;
        let piece = Piece::Bytes { offset: up::chunk(self.index), bytes };
        self.link.transport.push_bulk(self.index % connections, piece, (up::sent(self.index), self.sent))
    }

    /// Whether its bytes are with the worker, or on their way before the record.
    pub fn has_arrived(&self) -> bool {
        self.link.down.word64(down::arrived(self.index)).load(Acquire) >= self.sent
    }

    /// Waits until its bytes are.
    pub(super) fn arrive(&self) -> Result<(), LinkError> {
        if self.sent == 0 || self.has_arrived() {
            return Ok(());
        }
        self.link.flush()?;
        self.link.wait(WaitKind::ChunkUp, Point::Bell, &|| self.has_arrived())
    }

    /// The record that names this chunk is about to be published.
    pub(super) fn spend(&self) -> u32 {
        self.spent.set(true);
        let chunks = &self.link.up_chunks;
        chunks.used[self.index as usize].fetch_add(1, Relaxed);
        chunks.in_flight.fetch_or(1 << self.index, Release);
        self.index
    }
}

impl Drop for UpChunk<'_> {
    fn drop(&mut self) {
        if !self.spent.get() {
            // Nothing may come to it any more when it is used again. On a broken link nothing does.
            let _ = self.arrive();
            self.link.up_chunks.free.give(self.index);
        }
    }
}

/// A place for bytes that come back.
pub struct DownChunk<'l> {
    pub(super) link: &'l ClientLink,
    pub(super) index: u32,
    /// Its bytes go to a place of the program's, and not here ([`DownChunk::receive_into`]).
    pub(super) direct: bool,
}

impl DownChunk<'_> {
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Copies from the chunk's byte `from` on. Meaningful after the call that named it has been answered.
    ///
    /// # Panics
    /// When `from + to.len()` is above [`CHUNK_BYTES`].
    pub fn read(&self, from: usize, to: &mut [u8]) {
        assert!(from + to.len() <= CHUNK_BYTES as usize, "a chunk has {CHUNK_BYTES} bytes");
        self.link.down.copy_out(down::chunk(self.index) + from as u32, to);
    }
}

impl Drop for DownChunk<'_> {
    fn drop(&mut self) {
        if self.direct
            && let Some(places) = self.link.transport.places()
        {
            places.clear(self.index);
        }
        self.link.down_chunks.give(self.index);
    }
}

/// Down-chunks that bulk copies leave to other calls, whose answers need one for a moment only.
const FEW: u32 = 4;

/// The free down-chunks.
pub struct DownChunks {
    few: IndexPool,
    bulk: IndexPool,
}

impl DownChunks {
    pub(super) fn new() -> Self {
        Self { few: IndexPool::new(FEW), bulk: IndexPool::new(CHUNKS - FEW) }
    }

    fn try_few(&self) -> Option<u32> {
        self.few.try_take()
    }

    fn try_bulk(&self) -> Option<u32> {
        self.bulk.try_take().map(|index| FEW + index)
    }

    fn give(&self, index: u32) {
        match index.checked_sub(FEW) {
            Some(index) => self.bulk.give(index),
            None => self.few.give(index),
        }
    }
}

impl ClientLink {
    /// A free up-chunk; waits for one. Chunks that went with records come back by themselves, so a thread may hold
    /// several records' chunks in flight; it should not hold several *unused* ones.
    pub fn chunk_up(&self) -> Result<UpChunk<'_>, LinkError> {
        loop {
            if let Some(chunk) = self.try_chunk_up()? {
                return Ok(chunk);
            }
            self.flush()?;
            let any = || {
                let chunks = &self.up_chunks;
                let flight = chunks.in_flight.load(Acquire);
                chunks.free.any_free()
                    || (0..CHUNKS).any(|i| flight & 1 << i != 0 && self.release_of(i) != Some(false))
            };
            self.wait(WaitKind::ChunkUp, Point::Bell, &any)?;
        }
    }

    /// A free up-chunk, if there is one now.
    pub fn try_chunk_up(&self) -> Result<Option<UpChunk<'_>>, LinkError> {
        let chunk = |index| Some(UpChunk { link: self, index, len: 0, sent: 0, spent: false.into() });
        let chunks = &self.up_chunks;
        if let Some(index) = chunks.free.try_take() {
            return Ok(chunk(index));
        }
        let flight = chunks.in_flight.load(Acquire);
        for index in (0..CHUNKS).filter(|i| flight & 1 << i != 0) {
            let bit = 1 << index;
            // Again after each look in vain: who waits may have looked while the bit was not there, and hears no other bell.
            while self.is_back(index)? {
                if chunks.in_flight.fetch_and(!bit, AcqRel) & bit == 0 {
                    break;
                }
                // Ours now, but another thread may have used it once more since we looked.
                if self.is_back(index)? {
                    return Ok(chunk(index));
                }
                chunks.in_flight.fetch_or(bit, AcqRel);
            }
        }
        Ok(None)
    }

    /// Whether the worker has given chunk `index` back. An error if it says so more often than it can.
    fn is_back(&self, index: u32) -> Result<bool, LinkError> {
        self.release_of(index).ok_or_else(|| {
            self.broken_by(LinkError::protocol(format!(
                "chunk {index} was given back more often than it was used"
            )))
        })
    }

    /// Whether the worker has given chunk `index` back; `None` if it says so more often than it can.
    fn release_of(&self, index: u32) -> Option<bool> {
        let released = self.down.word64(down::release(index)).load(Acquire);
        match released.cmp(&self.up_chunks.used[index as usize].load(Acquire)) {
            std::cmp::Ordering::Less => Some(false),
            std::cmp::Ordering::Equal => Some(true),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// A down-chunk for the answer of a call that does not take long; waits until another thread frees one. A thread that
    /// holds some already must not ask for more.
    pub fn chunk_down(&self) -> Result<DownChunk<'_>, LinkError> {
        let chunks = &self.down_chunks;
        let index = match chunks.try_few().or_else(|| chunks.try_bulk()) {
            Some(index) => index,
            None => self.wait_for_index(WaitKind::ChunkDown, &chunks.few)?,
        };
        Ok(self.down(index))
    }

    /// A down-chunk for a piece of a bulk copy; waits until another thread frees one. Some are not given for that, so that
    /// copies which wait for their streams hold up no other call. A thread that holds some already must use
    /// [`ClientLink::try_bulk_down`] and finish a call of its own first, or two such threads wait for each other.
    pub fn bulk_down(&self) -> Result<DownChunk<'_>, LinkError> {
        match self.try_bulk_down() {
            Some(chunk) => Ok(chunk),
            None => Ok(self.down(FEW + self.wait_for_index(WaitKind::ChunkDown, &self.down_chunks.bulk)?)),
        }
    }

    /// A down-chunk for a piece of a bulk copy, if one is free now.
    pub fn try_bulk_down(&self) -> Option<DownChunk<'_>> {
        self.down_chunks.try_bulk().map(|index| self.down(index))
    }

    fn down(&self, index: u32) -> DownChunk<'_> {
        DownChunk { link: self, index, direct: false }
    }
}
