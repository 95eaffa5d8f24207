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
}

impl UpChunks {
    pub(super) fn new() -> Self {
        Self {
            free: IndexPool::new(CHUNKS),
            in_flight: AtomicU64::new(0),
            used: [const { AtomicU64::new(0) }; 16],
        }
    }
}

/// A chunk that is being filled. Dropped unused, it is free again.
pub struct UpChunk<'l> {
    link: &'l ClientLink,
    index: u32,
    len: u32,
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
            self.link.up_chunks.free.give(self.index);
        }
    }
}

/// A place for bytes that come back.
pub struct DownChunk<'l> {
    link: &'l ClientLink,
    index: u32,
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
        self.link.down_chunks.give(self.index);
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
        let chunk = |index| Some(UpChunk { link: self, index, len: 0, spent: false.into() });
        let chunks = &self.up_chunks;
        if let Some(index) = chunks.free.try_take() {
            return Ok(chunk(index));
        }
        let flight = chunks.in_flight.load(Acquire);
        for index in (0..CHUNKS).filter(|i| flight & 1 << i != 0) {
            match self.release_of(index) {
                Some(false) => continue,
                Some(true) => {}
                None => {
                    let what = format!("chunk {index} was given back more often than it was used");
                    return Err(self.broken_by(LinkError::protocol(what)));
                }
            }
            let bit = 1 << index;
            if chunks.in_flight.fetch_and(!bit, AcqRel) & bit == 0 {
                continue;
            }
            // Ours now, but another thread may have used it once more since we looked.
            if self.release_of(index) == Some(true) {
                return Ok(chunk(index));
            }
            chunks.in_flight.fetch_or(bit, Release);
        }
        Ok(None)
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

    /// A down-chunk; waits until another thread frees one. A thread that holds some already must use
    /// [`ClientLink::try_chunk_down`] and finish a call of its own first, or two such threads wait for each other.
    pub fn chunk_down(&self) -> Result<DownChunk<'_>, LinkError> {
        if let Some(chunk) = self.try_chunk_down() {
            return Ok(chunk);
        }
        let index = self.wait_for_index(WaitKind::ChunkDown, &self.down_chunks)?;
        Ok(DownChunk { link: self, index })
    }

    /// A down-chunk, if one is free now.
    pub fn try_chunk_down(&self) -> Option<DownChunk<'_>> {
        self.down_chunks.try_take().map(|index| DownChunk { link: self, index })
    }
}
