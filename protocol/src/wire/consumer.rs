//! The reading side of the command ring. Each byte of a record is fetched from shared memory exactly once; what is
//! checked is the copy that is used.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::layout::{Head, RECORD_BYTES_MAX, RING_BYTES, up};
use super::memory::Region;
use super::ring::{Ring, Step};
use super::state::LinkError;

/// A record's place and header; its body is in the consumer's buffer.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Its position in the ring: its number.
    pub position: u64,
    /// Its checked header.
    pub head: Head,
}

/// The one reader of the ring.
pub struct Consumer {
    ring: Ring,
    region: Arc<Region>,
    /// Everything below is done with.
    consumed: u64,
    /// Where the record that was taken last ends.
    taken: u64,
    /// Everything below was published when that was looked at last. The word is the client's, in a cache line that it writes
    /// for every record: it is looked at again only when all that is known of has been taken.
    known: u64,
    buffer: Box<[u8]>,
}

impl Consumer {
    /// A reader of the ring in `region`.
    pub fn new(region: Arc<Region>) -> Self {
        let buffer = vec![0; RECORD_BYTES_MAX as usize].into();
        Self {
            ring: Ring::new(RING_BYTES, RECORD_BYTES_MAX),
            region,
            consumed: 0,
            taken: 0,
            known: 0,
            buffer,
        }
    }

    /// Everything below is done with.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Says that the record taken last is done with.
    pub fn release(&mut self) -> u64 {
        self.consumed = self.taken;
        self.consumed
    }

    /// A check whether anything is published beyond what was taken.
    pub fn has_news(region: &Region, taken: u64) -> bool {
        region.word64(up::PUBLISHED).load(Acquire) != taken
    }

    /// Whether all that is known of has been taken.
    #[inline(always)]
    pub fn at_the_end(&self) -> bool {
        self.known == self.taken
    }

    /// Where the record taken last ends.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Looks how much is published by now; whether that is more than was taken.
    fn look(&mut self) -> Result<bool, LinkError> {
        let published = self.region.word64(up::PUBLISHED).load(Acquire);
        let available = self.ring.check_published(published, self.consumed).map_err(LinkError::protocol)?;
        // What lies between `consumed` and `taken` was taken already.
        let taken = self.taken.wrapping_sub(self.consumed) as u32;
        let Some(left) = available.checked_sub(taken) else {
            return Err(LinkError::protocol("the published position went backwards"));
        };
        self.known = published;
        Ok(left > 0)
    }

    /// Copies the next record into the buffer, if one is published.
    ///
    /// Inlined, as all that is between it and the loop of the ring's thread: the header's parts then stay in registers. Moved
    /// as a whole through memory just after they were written in parts, they cost more than all the rest.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Taken>, LinkError> {
        loop {
            if self.at_the_end() && !self.look()? {
                return Ok(None);
            }
            let left = self.known.wrapping_sub(self.taken) as u32;
            let position = self.taken;
            let at = up::RING + self.ring.index(position);
            let first = self.region.word64(at).load(Relaxed);
            match self.ring.step(position, left, first).map_err(LinkError::protocol)? {
                Step::Pad(bytes) => self.taken = position.wrapping_add(u64::from(bytes)),
                Step::Record { length, whole } => {
                    let buffer = &mut self.buffer[..whole as usize];
                    buffer[..8].copy_from_slice(&first.to_le_bytes());
                    self.region.copy_out(at + 8, &mut buffer[8..]);
                    self.taken = position.wrapping_add(u64::from(whole));
                    let head = buffer.first_chunk().expect("a record is as long as a header");
                    let head = Head::decode(head).map_err(LinkError::protocol)?;
                    debug_assert_eq!(head.length, length);
                    return Ok(Some(Taken { position, head }));
                }
            }
        }
    }

    /// The body of the record taken last.
    #[inline]
    pub fn body(&self, head: &Head) -> &[u8] {
        &self.buffer[Head::BYTES as usize..head.length as usize]
    }
}
