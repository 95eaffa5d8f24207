//! The command ring's arithmetic, and nothing else: no memory, no atomics, no waiting.
//!
//! Positions are free-running 64-bit counts of bytes; only [`Ring::index`] masks them. Records start and end on
//! multiples of 8 and never wrap. What the peer says about positions and lengths is checked here.

use super::layout::{Head, PAD};

/// Something about the ring that an honest peer cannot say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRing {
    /// The reader claims to have read what was not written.
    #[error("the peer says it has consumed up to {consumed}, but only {published} is published")]
    Consumed {
        /// What the peer said.
        consumed: u64,
        /// What this side has published.
        published: u64,
    },
    /// The writer claims to have written more than the ring holds, or less than before, or half a word.
    #[error("the peer says it has published up to {published}, but {consumed} is consumed")]
    Published {
        /// What the peer said.
        published: u64,
        /// What this side has consumed.
        consumed: u64,
    },
    /// A record that is too short, too long, or runs over the ring's end or the published position.
    #[error("the record at {position} says that it is {length} bytes long")]
    Length {
        /// Where the record starts.
        position: u64,
        /// What its header says.
        length: u32,
    },
}

/// Where a record goes: `pad` bytes to skip from `start`, then the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte of the reservation.
    pub start: u64,
    /// Bytes of the `PAD` record that fills the ring's end, or 0.
    pub pad: u32,
    /// Position just behind the record.
    pub end: u64,
}

impl Place {
    /// Where the record itself starts: its number.
    #[inline]
    pub fn record(&self) -> u64 {
        self.start.wrapping_add(u64::from(self.pad))
    }

    /// Bytes of the record.
    #[inline]
    pub fn record_len(&self) -> u32 {
        self.end.wrapping_sub(self.record()) as u32
    }
}

/// What comes next in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Skip this many bytes.
    Pad(u32),
    /// A record whose header says `length`, and that takes `whole` bytes of the ring.
    Record {
        /// Bytes of header and body.
        length: u32,
        /// `length` rounded up to 8.
        whole: u32,
    },
}

/// A ring of a power of two bytes.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    capacity: u32,
    record_max: u32,
}

impl Ring {
    /// A ring of `capacity` bytes whose records have at most `record_max`. Both are the program's own numbers.
    pub const fn new(capacity: u32, record_max: u32) -> Self {
        assert!(capacity.is_power_of_two() && capacity >= 64);
        assert!(record_max.is_multiple_of(8) && record_max >= Head::BYTES && record_max <= capacity / 2);
        Self { capacity, record_max }
    }

    /// Bytes that the ring holds.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Where `position` lies in the ring's memory.
    #[inline]
    pub const fn index(&self, position: u64) -> u32 {
        (position & (self.capacity as u64 - 1)) as u32
    }

    /// Bytes from `position` to the ring's end, at least 8 for any position of ours.
    #[inline]
    const fn before_end(&self, position: u64) -> u32 {
        self.capacity - self.index(position)
    }

    /// Where a record of `size` bytes (a multiple of 8, at most the longest record) goes when everything below
    /// `reserved` is taken.
    #[inline(always)]
    pub fn place(&self, reserved: u64, size: u32) -> Place {
        debug_assert!(size.is_multiple_of(8) && (Head::BYTES..=self.record_max).contains(&size));
        let left = self.before_end(reserved);
        let pad = if left < size { left } else { 0 };
        let end = reserved.wrapping_add(u64::from(pad)).wrapping_add(u64::from(size));
        Place { start: reserved, pad, end }
    }

    /// Whether `place` is free once everything below `consumed` is.
    #[inline(always)]
    pub fn fits(&self, place: Place, consumed: u64) -> bool {
        place.end.wrapping_sub(consumed) <= u64::from(self.capacity)
    }

    /// Checks the reader's position against what this side has published.
    pub fn check_consumed(&self, consumed: u64, published: u64) -> Result<u64, BadRing> {
        let behind = published.wrapping_sub(consumed);
        if behind <= u64::from(self.capacity) {
            Ok(consumed)
        } else {
            Err(BadRing::Consumed { consumed, published })
        }
    }

    /// Checks the writer's position against what this side has consumed; returns the bytes in between.
    pub fn check_published(&self, published: u64, consumed: u64) -> Result<u32, BadRing> {
        let ahead = published.wrapping_sub(consumed);
        if ahead <= u64::from(self.capacity) && ahead.is_multiple_of(8) {
            Ok(ahead as u32)
        } else {
            Err(BadRing::Published { published, consumed })
        }
    }

    /// Judges the first eight bytes of what lies at `position`, of which `available` bytes are published.
    pub fn step(&self, position: u64, available: u32, first: u64) -> Result<Step, BadRing> {
        let length = first as u32;
        let bad = Err(BadRing::Length { position, length });
        let room = available.min(self.before_end(position));
        if (first >> 32) as u16 == PAD {
            let whole = length >= 8 && length.is_multiple_of(8) && length <= room;
            return if whole { Ok(Step::Pad(length)) } else { bad };
        }
        if length < Head::BYTES || length > self.record_max {
            return bad;
        }
        let whole = length.next_multiple_of(8);
        if whole <= room { Ok(Step::Record { length, whole }) } else { bad }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: Ring = Ring::new(1024, 256);

    fn sizes() -> impl Strategy<Value = u32> {
        (3u32..=32).prop_map(|words| words * 8)
    }

    proptest! {
        #[test]
        fn a_placed_record_does_not_wrap(start in any::<u64>().prop_map(|p| p & !7), size in sizes()) {
            let place = RING.place(start, size);
            prop_assert_eq!(place.record_len(), size);
            prop_assert!(RING.index(place.record()) + size <= RING.capacity());
            prop_assert!(place.pad == 0 || RING.index(place.record()) == 0);
        }

        #[test]
        fn a_hostile_first_word_never_leads_outside(
            position in any::<u64>().prop_map(|p| p & !7), available in (1u32..=128).prop_map(|w| w * 8), first: u64,
        ) {
            if let Ok(step) = RING.step(position, available, first) {
                let whole = match step { Step::Pad(n) => n, Step::Record { whole, .. } => whole };
                prop_assert!(whole >= 8 && whole <= available && whole.is_multiple_of(8));
                prop_assert!(RING.index(position) + whole <= RING.capacity());
            }
        }

        #[test]
        fn hostile_positions_are_bounded(ours: u64, theirs: u64) {
            if let Ok(ahead) = RING.check_published(theirs, ours) {
                prop_assert!(ahead <= RING.capacity() && ours.wrapping_add(u64::from(ahead)) == theirs);
            }
            if RING.check_consumed(theirs, ours).is_ok() {
                prop_assert!(ours.wrapping_sub(theirs) <= u64::from(RING.capacity()));
            }
        }

        /// A writer and a reader that follow the rules, from any starting position: every record arrives, in order,
        /// and the writer never overwrites what is unread.
        #[test]
        fn honest_sequences_agree(
            start in any::<u64>().prop_map(|p| p & !7), ops in proptest::collection::vec((any::<bool>(), sizes()), 1..200),
        ) {
            let mut memory = vec![0u64; RING.capacity() as usize / 8];
            let (mut reserved, mut consumed) = (start, start);
            let mut expected = std::collections::VecDeque::new();
            let mut number = 0u64;
            for (write, size) in ops {
                if write {
                    let place = RING.place(reserved, size);
                    if !RING.fits(place, consumed) {
                        continue;
                    }
                    if place.pad > 0 {
                        memory[RING.index(place.start) as usize / 8] = Head::pad_word(place.pad);
                    }
                    let at = RING.index(place.record()) as usize / 8;
                    memory[at] = u64::from(size);
                    memory[at + 1..at + size as usize / 8].fill(number);
                    expected.push_back((size, number));
                    number += 1;
                    reserved = place.end;
                } else {
                    let available = RING.check_published(reserved, consumed).unwrap();
                    if available == 0 {
                        prop_assert!(expected.is_empty());
                        continue;
                    }
                    let at = RING.index(consumed) as usize / 8;
                    match RING.step(consumed, available, memory[at]).unwrap() {
                        Step::Pad(n) => consumed = consumed.wrapping_add(u64::from(n)),
                        Step::Record { length, whole } => {
                            let (size, number) = expected.pop_front().unwrap();
                            prop_assert_eq!(length, size);
                            prop_assert!(memory[at + 1..at + whole as usize / 8].iter().all(|&w| w == number));
                            consumed = consumed.wrapping_add(u64::from(whole));
                        }
                    }
                    prop_assert!(RING.check_consumed(consumed, reserved).is_ok());
                }
            }
        }
    }
}
