//! The answer of one call, while it is put together.

use gpupool_protocol::wire::codec::{Wire, Writer};
use gpupool_protocol::wire::layout::SLOT_PAYLOAD;
use gpupool_protocol::wire::{LinkError, Replier};

use super::code::{Code, Fail};

/// What goes back besides the result code.
#[derive(Debug, Default)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Bytes that stand in a down-chunk already: which, and how many.
    placed: Option<(u32, usize)>,
}

impl Answer {
    /// Forgets everything, for the next call.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.placed = None;
    }

    /// Adds one 64-bit word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// Adds a value by its own encoding.
    pub fn value<T: Wire>(&mut self, value: &T) {
        let at = self.bytes.len();
        self.bytes.resize(at + value.wire_len(), 0);
        value.put(&mut Writer::over(&mut self.bytes[at..]));
    }

    /// Sends it.
    ///
    /// # Errors
    /// The link is broken, or the answer does not fit what the record gave room for.
    pub fn send(
        &self,
        link: &Replier,
        slot: u32,
        position: u64,
        code: Code,
        chunk: Option<u32>,
    ) -> Result<(), LinkError> {
        if code != Code::SUCCESS {
            return link.reply(slot, position, code.0, &[]);
        }
        match self.placed {
            Some((chunk, length)) => link.reply_chunk(slot, position, code.0, chunk, length, |_, _| ()),
            None => link.reply_bytes(slot, position, code.0, chunk, &self.bytes),
        }
    }
}

/// Where bytes for the client are put: into the reply slot if they fit, else into the down-chunk that the record named.
#[derive(Debug)]
pub struct BulkTarget {
    chunk: Option<u32>,
    inline: [u8; SLOT_PAYLOAD as usize],
    length: usize,
}

impl BulkTarget {
    /// A target for a record that named `chunk`.
    pub fn new(chunk: Option<u32>) -> Self {
        Self { chunk, inline: [0; SLOT_PAYLOAD as usize], length: 0 }
    }

    /// Where `length` bytes go. The address is good until the target is moved or dropped.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE when the record gave no room for so many.
    pub fn room(&mut self, link: &Replier, length: usize) -> Result<*mut u8, Fail> {
        self.length = length;
        if length <= self.inline.len() {
            return Ok(self.inline.as_mut_ptr());
        }
        let chunk = self.chunk.ok_or(Code::INVALID_VALUE)?;
        link.chunk_down_ptr(chunk, length).map_err(|_| Code::INVALID_VALUE.into())
    }

    /// Makes what was put there the answer.
    pub fn answer(&self, to: &mut Answer) {
        match self.chunk {
            Some(chunk) if self.length > self.inline.len() => to.placed = Some((chunk, self.length)),
            _ => to.bytes.extend_from_slice(&self.inline[..self.length]),
        }
    }
}
