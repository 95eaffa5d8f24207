//! Calls that are under way, and their answers.

use std::hint::cold_path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::client::ClientLink;
use super::client_chunks::DownChunk;
use super::codec::Reader;
use super::layout::{CHUNK_BYTES, Head, REPLY_BY_BULK, REPLY_IN_CHUNK, SLOT_PAYLOAD, down};
use super::state::{LinkError, WaitKind};
use crate::transport::Point;

/// A call whose answer was not taken yet. Dropping it waits for the answer, since its slot cannot be used before.
pub struct PendingCall<'l> {
    link: &'l ClientLink,
    slot: u32,
    position: u64,
    call: u16,
    down: Option<DownChunk<'l>>,
    answered: bool,
}

impl ClientLink {
    /// Records a call whose body is `words`, waits for its answer, which fits a slot, and copies that to `to`, as far as there is
    /// room. Returns the CUDA result and how many bytes the answer has. In one function with its caller, as the short posts:
    /// what a call is made of then goes through registers.
    #[inline(always)]
    pub fn call_small<const N: usize>(
        &self,
        call: u16,
        lane: u32,
        context: u64,
        words: [u64; N],
        to: &mut [u8],
    ) -> Result<(i32, usize), LinkError> {
        let slot = self.take_slot()?;
        let (place, head, mut body) = match self.begin(8 * N) {
            Ok(begun) => begun,
            Err(error) => {
                cold_path();
                self.slots.give(slot);
                return Err(error);
            }
        };
        body.words(words);
        let position = place.record();
        let length = place.record_len();
        let words = Head { length, call, chunk_up: None, chunk_down: None, lane, slot: Some(slot), context };
        if let Err(error) = self.end(place, head, body.finish(), words) {
            cold_path();
            self.slots.give(slot);
            return Err(error);
        }
        let pending = PendingCall::new(self, slot, position, call, None);
        self.flush()?;
        pending.wait_small(to)
    }
}

impl<'l> PendingCall<'l> {
    /// The call whose record at `position` names `slot`, and which owns both slot and chunk until it is answered.
    pub(super) fn new(
        link: &'l ClientLink,
        slot: u32,
        position: u64,
        call: u16,
        down: Option<DownChunk<'l>>,
    ) -> Self {
        Self { link, slot, position, call, down, answered: false }
    }

    /// The record's position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Waits for the answer.
    #[inline]
    pub fn wait(mut self) -> Result<Reply<'l>, LinkError> {
        let (result, len, in_chunk) = self.await_head()?;
        let mut inline = [0; SLOT_PAYLOAD as usize];
        self.link.down.copy_out(down::slot(self.slot) + 16, &mut inline);
        Ok(Reply { result, len, in_chunk, inline, chunk: self.down.take() })
    }

    /// Waits for an answer that fits its slot, and copies its bytes to `to`, as far as there is room. Returns the CUDA result
    /// and how many bytes the answer has. Only for records that name no chunk.
    #[inline]
    pub fn wait_small(mut self, to: &mut [u8]) -> Result<(i32, usize), LinkError> {
        let (result, len, _) = self.await_head()?;
        let room = len.min(to.len());
        self.link.down.copy_out(down::slot(self.slot) + 16, &mut to[..room]);
        Ok((result, len))
    }

    /// Waits for the answer: the CUDA result, the number of its bytes, which is checked, and whether they are in the chunk.
    #[inline]
    fn await_head(&mut self) -> Result<(i32, usize, bool), LinkError> {
        self.await_done()?;
        let word = self.link.down.word64(down::slot(self.slot) + 8).load(Relaxed);
        let (result, length) = (word as i32, (word >> 32) as u32);
        let in_chunk = length & REPLY_IN_CHUNK != 0;
        let len = if in_chunk { length & !(REPLY_IN_CHUNK | REPLY_BY_BULK) } else { length };
        let max = match (in_chunk, &self.down) {
            (false, _) => SLOT_PAYLOAD,
            (true, Some(_)) => CHUNK_BYTES,
            (true, None) => 0,
        };
        if len > max {
            cold_path();
            let what = format!("an answer of {len} bytes where {max} can be");
            return Err(self.link.broken_by(LinkError::protocol(what)));
        }
        Ok((result, len as usize, in_chunk))
    }

    fn await_done(&mut self) -> Result<(), LinkError> {
        let done = self.link.down.word64(down::slot(self.slot));
        let want = self.position + 1;
        let ready = || done.load(Acquire) >= want;
        if !ready() {
            let kind = WaitKind::Reply { call: self.call, position: self.position };
            self.link.wait(kind, Point::Slot(self.slot), &ready)?;
        }
        if done.load(Acquire) != want {
            self.answered = true;
            return Err(self
                .link
                .broken_by(LinkError::protocol("an answer for a record that does not exist yet")));
        }
        if let Some(chunk) = &self.down {
            self.link.await_bytes(self.slot, chunk.index(), self.call, self.position)?;
        }
        self.answered = true;
        Ok(())
    }
}

impl ClientLink {
    /// Where the bytes of the answer in `slot` come over another connection: takes them from there.
    fn await_bytes(&self, slot: u32, chunk: u32, call: u16, position: u64) -> Result<(), LinkError> {
        let word = self.down.word64(down::slot(slot) + 8).load(Relaxed);
        if (word >> 32) as u32 & (REPLY_IN_CHUNK | REPLY_BY_BULK) != REPLY_IN_CHUNK | REPLY_BY_BULK {
            return Ok(());
        }
        let delivered = self.down.word64(down::delivered(chunk));
        let ready = || delivered.load(Acquire) > position;
        let connection = chunk.checked_rem(self.transport.bulk()).unwrap_or(0);
        let pulled = self.transport.pull_bulk(connection, WaitKind::Reply { call, position }, &ready);
        pulled.map_err(|error| self.broken_by(error))
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.answered {
            // On a broken link nothing comes any more, and nothing will be written either.
            let _ = self.await_done();
        }
        self.link.slots.give(self.slot);
    }
}

/// The answer of a call.
pub struct Reply<'l> {
    /// The CUDA result.
    pub result: i32,
    len: usize,
    in_chunk: bool,
    inline: [u8; SLOT_PAYLOAD as usize],
    chunk: Option<DownChunk<'l>>,
}

impl<'l> Reply<'l> {
    /// Bytes of the answer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the answer is only a result.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hands the result and a private copy of the answer's bytes to `read`.
    pub fn read<R>(&self, read: impl FnOnce(i32, &mut Reader<'_>) -> R) -> R {
        match &self.chunk {
            Some(chunk) if self.in_chunk => {
                let mut copy = vec![0; self.len];
                chunk.read(0, &mut copy);
                read(self.result, &mut Reader::new(&copy))
            }
            _ => read(self.result, &mut Reader::new(&self.inline[..self.len])),
        }
    }

    /// Copies the answer's bytes straight to `to`; returns how many there were to copy (at most `to.len()`). Bytes that were
    /// received into their place ([`DownChunk::receive_into`]) are there already.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let len = self.len.min(to.len());
        match &self.chunk {
            Some(chunk) if self.in_chunk && chunk.direct => {}
            Some(chunk) if self.in_chunk => chunk.read(0, &mut to[..len]),
            _ => to[..len].copy_from_slice(&self.inline[..len]),
        }
        len
    }

    /// Takes the chunk back, to use it for another call.
    pub fn into_chunk(self) -> Option<DownChunk<'l>> {
        self.chunk
    }
}
