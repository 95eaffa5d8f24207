//! The ranges of device memory that calls have touched lately, found without a lock.
//!
//! Each place holds one range under a sequence number that is odd while the place is being written. A reader that saw
//! the same even number before and after has read a whole range. Ranges are noted by those who hold the list of ranges
//! for reading, and all are forgotten by whoever takes one away, with the list held for writing: so a range that is
//! found here was still there when the call began, or goes at the same time as the call.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// Places. A range can stand in several, since the address that is asked for chooses the place.
const PLACES: usize = 128;
/// Addresses within one such stretch share a place.
const STRETCH_BITS: u32 = 9;
/// Blocks of this size are what allocators take at a time: their number is mixed in, so that the same offset in
/// different blocks finds different places.
const BLOCK_BITS: u32 = 21;

#[derive(Default)]
struct Place {
    sequence: AtomicU64,
    base: AtomicU64,
    /// 0: no range.
    size: AtomicU64,
}

/// Ranges by the addresses that were asked for.
pub struct Recent([Place; PLACES]);

impl Default for Recent {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Place::default()))
    }
}

impl Recent {
    #[inline]
    fn place(&self, address: u64) -> &Place {
        let mixed = (address >> STRETCH_BITS) ^ (address >> BLOCK_BITS);
        &self.0[mixed as usize % PLACES]
    }

    /// Whether `bytes` from `address` on are known to lie in one range. `false` says nothing.
    #[inline(always)]
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let place = self.place(address);
        let sequence = place.sequence.load(Acquire);
        let offset = address.wrapping_sub(place.base.load(Relaxed));
        let size = place.size.load(Relaxed);
        // Acquire: the number is read again after what it guards.
        fence(Acquire);
        // `offset < size` with no sum that could wrap.
        sequence & 1 == 0
            && place.sequence.load(Relaxed) == sequence
            && offset < size
            && bytes <= size - offset
    }

    /// Notes the range in which `address` was found. Only with the list of ranges held. If another thread is writing
    /// the same place, nothing is noted.
    pub fn note(&self, address: u64, base: u64, size: u64) {
        let place = self.place(address);
        let sequence = place.sequence.load(Relaxed);
        let free = sequence & 1 == 0;
        if free && place.sequence.compare_exchange(sequence, sequence + 1, Acquire, Relaxed).is_ok() {
            place.write(base, size, sequence + 2);
        }
    }

    /// Forgets all ranges. Only with the list of ranges held for writing, so that nobody notes any.
    pub fn forget(&self) {
        for place in self.0.iter().filter(|place| place.size.load(Relaxed) != 0) {
            let sequence = place.sequence.fetch_add(1, AcqRel);
            place.write(0, 0, sequence + 2);
        }
    }
}

impl Place {
    fn write(&self, base: u64, size: u64, sequence: u64) {
        // Release: the odd number is seen by whoever sees what is written after it.
        fence(Release);
        self.base.store(base, Relaxed);
        self.size.store(size, Relaxed);
        self.sequence.store(sequence, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_known_from_where_it_was_asked_for_until_it_is_forgotten() {
        let recent = Recent::default();
        assert!(!recent.holds(0x1000, 1) && !recent.holds(0, 0));
        recent.note(0x1080, 0x1000, 0x100);
        for (address, bytes, known) in [
            (0x1000, 0x100, true),
            (0x10ff, 1, true),
            (0x1000, 0x101, false),
            (0x10ff, u64::MAX, false),
            (0x1100, 1, false),
            (0xfff, 1, false),
        ] {
            assert_eq!(recent.holds(address, bytes), known, "{bytes:#x} at {address:#x}");
        }
        recent.forget();
        assert!(!recent.holds(0x1000, 1));
    }

    /// Ranges that threads note and forget all the time. Each has its own size, so half of one and half of another
    /// would be seen.
    #[test]
    fn a_reader_never_sees_half_of_two_ranges() {
        let recent = Recent::default();
        // All in the place of address 0: {base, size} with size = base + 1.
        let bases = [0u64, 16, 100, 300];
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let recent = &recent;
                scope.spawn(move || {
                    for i in 0..20_000 {
                        let base = bases[(i + thread) % bases.len()];
                        recent.note(0, base, base + 1);
                    }
                });
            }
            for i in 0..40_000u64 {
                // An address of a range that is there or not, and one byte more than the range of that base has.
                let base = bases[i as usize % bases.len()];
                assert!(!recent.holds(base, base + 2), "half of two ranges");
            }
        });
    }
}
