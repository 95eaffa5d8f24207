//! The reading side of the command ring. Each byte of a record is fetched from shared memory exactly once; what is
//! checked is the copy that is used.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::layout::{Head, LINE, RECORD_BYTES_MAX, RING_BYTES, up};
use super::memory::Region;
use super::ring::{Ring, Step};
use super::state::LinkError;

/// A constant, so that its masks are parts of instructions.
const RING: Ring = Ring::new(RING_BYTES, RECORD_BYTES_MAX);
/// How far ahead of the record that is carried out the lines of published ones are fetched. Each comes from the writer's
/// cache, which takes longer than a short record; several are on their way at a time.
const AHEAD: u64 = 8 * LINE as u64;

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
    region: Arc<Region>,
    /// Everything below is done with.
    consumed: u64,
    /// Where the record that was taken last ends.
    taken: u64,
    /// Everything below was published when that was looked at last. The word is the client's, in a cache line that it writes
    /// for every record: it is looked at again only when all that is known of has been taken.
    known: u64,
    /// Up to here the ring's lines were asked for.
    prefetched: u64,
    buffer: Box<[u8]>,
}

impl Consumer {
    /// A reader of the ring in `region`.
    pub fn new(region: Arc<Region>) -> Self {
        let buffer = vec![0; RECORD_BYTES_MAX as usize].into();
        Self { region, consumed: 0, taken: 0, known: 0, prefetched: 0, buffer }
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

    /// A check whether anything is published beyond what was taken. Who looks again and again has the place of the next
    /// record with it, and does not wait for that line after this one.
    #[inline]
    pub fn has_news(region: &Region, taken: u64) -> bool {
        region.prefetch(up::RING + RING.index(taken));
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
        let available = RING.check_published(published, self.consumed).map_err(LinkError::protocol)?;
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
            self.prefetch();
            let left = self.known.wrapping_sub(self.taken) as u32;
            let position = self.taken;
            let at = up::RING + RING.index(position);
            let first = self.region.word64(at).load(Relaxed);
            match RING.step(position, left, first).map_err(LinkError::protocol)? {
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

    /// Has lines fetched that will be read soon.
    #[inline(always)]
    fn prefetch(&mut self) {
        let until = self.known.min(self.taken + AHEAD);
        self.prefetched = self.prefetched.max(self.taken);
        while self.prefetched < until {
            self.region.prefetch(up::RING + RING.index(self.prefetched));
            self.prefetched += u64::from(LINE);
        }
    }

    /// The body of the record taken last.
    #[inline]
    pub fn body(&self, head: &Head) -> &[u8] {
        &self.buffer[Head::BYTES as usize..head.length as usize]
    }
}
