//! The writing side of the command ring, for many threads.
//!
//! `reserve` takes the next bytes with one compare-and-swap; its owner fills them without a lock; `finish` publishes
//! them. The right to move `published` over a record belongs to one thread: the record's owner if it finishes while
//! the record is the next in line; else the owner leaves a mark, and whoever *claims* that mark, the owner or the
//! thread that published the record before, goes on. The marks are in private memory, so nothing that the peer could
//! change is ever read back. A single posting thread needs one compare-and-swap and one fence a record.

use std::hint::cold_path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use super::atomics::{Atomics, Real, Word64};
use super::layout::Head;
use super::ring::{BadRing, Place, Ring};

/// One mark for this many bytes of the ring. Two reservations never start so close to each other.
const MARK_BYTES: u32 = 16;
const _: () = assert!(Head::BYTES >= MARK_BYTES);
/// Bit of a mark: some thread publishes this record. Positions are multiples of 8.
const CLAIMED: u64 = 1;

/// The positions of the writing side of a ring of `CAPACITY` bytes.
pub struct Producer<const CAPACITY: u32, A: Atomics = Real> {
    /// Everything below is taken by some thread.
    reserved: CachePadded<A::U64>,
    /// Everything below is finished.
    published: CachePadded<A::U64>,
    /// The newest reader's position that was looked at.
    consumed: CachePadded<A::U64>,
    /// For each possible start of a reservation, the end of the newest one that was finished there out of turn. An
    /// entry of an earlier lap is not above this lap's start, so nothing need be reset.
    marks: Box<[A::U64]>,
}

impl<const CAPACITY: u32, A: Atomics> Producer<CAPACITY, A> {
    /// A constant, so that its masks are parts of instructions. Records have at most half of it, or less by the caller's
    /// rule.
    const RING: Ring = Ring::new(CAPACITY, CAPACITY / 2);

    /// An empty ring.
    #[allow(clippy::new_without_default)] // an empty ring is no value that somebody has in mind
    pub fn new() -> Self {
        let word = || CachePadded::new(A::U64::new(0));
        let marks = (0..CAPACITY / MARK_BYTES).map(|_| A::U64::new(0)).collect();
        Self { reserved: word(), published: word(), consumed: word(), marks }
    }

    /// Takes room for a record of `size` bytes (a multiple of 8), or `None` when the ring is full as far as is known:
    /// then look at the reader's position ([`Producer::note_consumed`]) and try again.
    #[inline(always)]
    pub fn try_reserve(&self, size: u32) -> Option<Place> {
        let mut reserved = self.reserved.load(Relaxed);
        loop {
            let place = Self::RING.place(reserved, size);
            // Acquire: what the reader did before it gave the space back comes before we write there.
            if !Self::RING.fits(place, self.consumed.load(Acquire)) {
                return None;
            }
            match self.reserved.compare_exchange(reserved, place.end, AcqRel, Relaxed) {
                Ok(_) => return Some(place),
                Err(now) => reserved = now,
            }
        }
    }

    /// Whether [`Producer::try_reserve`] would find room now.
    pub fn has_room(&self, size: u32) -> bool {
        let place = Self::RING.place(self.reserved.load(Relaxed), size);
        Self::RING.fits(place, self.consumed.load(Acquire))
    }

    /// Takes the reader's position as the peer gives it. It must have been loaded with Acquire.
    pub fn note_consumed(&self, consumed: u64) -> Result<(), BadRing> {
        // Acquire, and before the comparison: whoever reserved up to here had noted a position at most a ring's length
        // behind, and we see that. A position that we were slow to bring along is then an old one, and not a lie.
        let reserved = self.reserved.load(Acquire);
        let published = self.published.load(Acquire);
        if consumed > self.consumed.load(Relaxed) {
            // The reader may be a step ahead of `published`, which is stored after the word that it reads. More than
            // is published is not believed in any case, and more than is reserved is a lie.
            Self::RING.check_consumed(consumed, reserved.max(published))?;
            self.consumed.fetch_max(consumed.min(published), AcqRel);
        }
        Ok(())
    }

    /// Publishes a filled reservation, and finished records behind it, or leaves it to the owner of an unfinished
    /// record before it. `shown` is the word that the peer reads. Returns whether this call moved it: then this thread
    /// must also wake a sleeping peer, for which the fence has been made.
    #[inline(always)]
    pub fn finish(&self, place: Place, shown: &A::U64) -> bool {
        // Next in line, and without a mark: nobody else can move `published` from here.
        if self.published.load(Acquire) == place.start {
            self.publish(place.end, shown);
            return true;
        }
        self.finish_out_of_turn(place, shown)
    }

    #[cold]
    fn finish_out_of_turn(&self, place: Place, shown: &A::U64) -> bool {
        self.mark(place.start).store(place.end, Release);
        // Pairs with the fence in `publish`: either we see the moved position, or the thread that moved it sees our
        // mark. Without it both could leave this record unpublished for ever.
        A::fence();
        let mine = self.published.load(Acquire) == place.start && self.claim(place.start, place.end);
        if mine {
            self.publish(place.end, shown);
        }
        mine
    }

    /// Moves the published position to `end`, and on over finished records. Only with the right to move it.
    #[inline(always)]
    fn publish(&self, mut end: u64, shown: &A::U64) {
        loop {
            // `shown` first: whoever takes over sees `published`, and then stores `shown` after us.
            shown.store(end, Release);
            self.published.store(end, Release);
            A::fence();
            // Nothing is reserved behind it: whoever reserves later sees `published`, in turn or (by its fence) not.
            if self.reserved.load(Relaxed) == end {
                return;
            }
            let next = self.mark(end).load(Acquire);
            let fresh = (1..=u64::from(CAPACITY)).contains(&next.wrapping_sub(end));
            if !fresh || next & CLAIMED != 0 || !self.claim(end, next) {
                return;
            }
            cold_path();
            end = next;
        }
    }

    /// Takes the right to publish the record at `start`, which is marked as finished up to `end`.
    #[inline]
    fn claim(&self, start: u64, end: u64) -> bool {
        self.mark(start).compare_exchange(end, end | CLAIMED, AcqRel, Relaxed).is_ok()
    }

    /// Everything below is finished.
    #[inline]
    pub fn published(&self) -> u64 {
        self.published.load(Acquire)
    }

    #[inline(always)]
    fn mark(&self, start: u64) -> &A::U64 {
        &self.marks[(Self::RING.index(start) / MARK_BYTES) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::atomics::Model;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};

    const CAPACITY: u32 = 128;
    const RING: Ring = Ring::new(CAPACITY, 64);

    /// A ring whose memory is one word a record, enough to see whether a record was whole when it was shown.
    struct Tiny {
        producer: Producer<CAPACITY, Model>,
        shown: AtomicU64,
        data: Vec<AtomicU64>,
    }

    impl Tiny {
        fn new() -> Self {
            let data = (0..RING.capacity() / 8).map(|_| AtomicU64::new(0)).collect();
            Self { producer: Producer::new(), shown: AtomicU64::new(0), data }
        }

        fn word(&self, position: u64) -> &AtomicU64 {
            &self.data[RING.index(position) as usize / 8]
        }

        fn post(&self, size: u32, value: u64) {
            let place = self.producer.try_reserve(size).expect("room");
            self.word(place.record()).store(value, Ordering::Relaxed);
            self.producer.finish(place, &self.shown);
        }

        /// What the reader would see: every record below the shown position must be whole.
        fn check(&self) -> u64 {
            let shown = self.shown.load(Ordering::Acquire);
            for position in (0..shown).step_by(32) {
                assert_ne!(
                    self.word(position).load(Ordering::Relaxed),
                    0,
                    "a record was shown before it was whole"
                );
            }
            shown
        }
    }

    #[test]
    fn records_are_shown_whole_and_none_is_left_behind() {
        loom::model(|| {
            let tiny = Arc::new(Tiny::new());
            let other = {
                let tiny = tiny.clone();
                loom::thread::spawn(move || tiny.post(32, 7))
            };
            tiny.post(32, 9);
            tiny.check();
            other.join().unwrap();
            assert_eq!(tiny.check(), 64, "a finished record was never published");
        });
    }

    #[test]
    fn three_records_of_two_writers_are_all_shown() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let tiny = Arc::new(Tiny::new());
            let other = {
                let tiny = tiny.clone();
                loom::thread::spawn(move || tiny.post(32, 7))
            };
            tiny.post(32, 8);
            tiny.post(32, 9);
            other.join().unwrap();
            assert_eq!(tiny.check(), 96, "a finished record was never published");
        });
    }

    #[test]
    fn a_reader_beside_two_writers_sees_only_whole_records() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let tiny = Arc::new(Tiny::new());
            let writers: Vec<_> = (1..3)
                .map(|value| {
                    let tiny = tiny.clone();
                    loom::thread::spawn(move || tiny.post(32, value))
                })
                .collect();
            tiny.check();
            writers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(tiny.check(), 64);
        });
    }

    #[test]
    fn a_position_that_another_thread_has_overtaken_is_no_lie() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (tiny, reader) = (Arc::new(Tiny::new()), Arc::new(AtomicU64::new(64)));
            tiny.post(64, 1);
            tiny.post(64, 2);
            let slow = {
                let (tiny, reader) = (tiny.clone(), reader.clone());
                loom::thread::spawn(move || {
                    let consumed = reader.load(Ordering::Acquire);
                    tiny.producer.note_consumed(consumed).expect("the reader is honest");
                })
            };
            reader.store(128, Ordering::Release);
            tiny.producer.note_consumed(128).expect("the reader is honest");
            tiny.post(64, 3);
            tiny.post(64, 4);
            slow.join().unwrap();
        });
    }

    #[test]
    fn a_full_ring_gives_no_room_until_the_reader_moves_and_a_lying_reader_is_seen() {
        let producer = Producer::<CAPACITY>::new();
        let shown = std::sync::atomic::AtomicU64::new(0);
        for _ in 0..2 {
            let place = producer.try_reserve(64).unwrap();
            assert!(producer.finish(place, &shown));
        }
        assert_eq!(producer.try_reserve(24), None);
        assert_eq!(producer.note_consumed(136), Err(BadRing::Consumed { consumed: 136, published: 128 }));
        assert!(producer.note_consumed(u64::MAX).is_err());
        producer.note_consumed(64).unwrap();
        producer.note_consumed(0).unwrap();
        assert_eq!(producer.try_reserve(64), Some(Place { start: 128, pad: 0, end: 192 }));
        assert_eq!(producer.try_reserve(24), None);
    }

    #[test]
    fn unfinished_records_hold_back_later_ones_over_many_laps() {
        let producer = Producer::<CAPACITY>::new();
        let shown = std::sync::atomic::AtomicU64::new(0);
        for lap in 0..1000u64 {
            let before = producer.published();
            let first = producer.try_reserve(24 + 8 * (lap % 3) as u32).unwrap();
            let second = producer.try_reserve(24).unwrap();
            assert!(!producer.finish(second, &shown));
            assert_eq!(shown.load(Ordering::Relaxed), before);
            assert!(producer.finish(first, &shown));
            assert_eq!(shown.load(Ordering::Relaxed), second.end);
            producer.note_consumed(second.end).unwrap();
        }
    }
}
