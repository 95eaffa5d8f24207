//! Device memory that this library divides up itself: credit that the worker has put into a range of addresses in advance, so
//! that most allocations and all frees are local.
//!
//! What was freed counts as free at once, as in CUDA, and is used again when all work that was posted before is known to be
//! done. What nobody uses goes back to the device beyond a limit, and before an allocation fails.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::held::Held;
use super::objects::lock;
use super::ranges::Ranges;
use crate::code::{Answer, OUT_OF_MEMORY};

/// Allocations are multiples of this, as on cards.
const UNIT: u64 = 512;
/// From here on an allocation gets a piece of its own, which goes back to the device as a whole.
const LARGE: u64 = 32 << 20;
/// What is asked for at a time for allocations below that.
const STEP: u64 = 32 << 20;
/// So much goes back to the device at a time, or one piece: it is nobody's while the driver takes it back.
const RUN: u64 = STEP;
/// Unused memory that is kept at most; less where the device has less than eight times as much left.
const KEPT_MAX: u64 = 1 << 30;
/// That part of what is left on the device.
const KEPT_PART: u64 = 8;

/// One device's.
#[derive(Default)]
pub struct Heap {
    state: Mutex<State>,
    /// Held while the worker is asked for memory, so that threads do not ask for the same need twice.
    pub growing: Mutex<()>,
    /// Rung when nothing is on its way back any more.
    back: Condvar,
    /// The server was told that nothing is unused.
    said_nothing: AtomicBool,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").finish_non_exhaustive()
    }
}

#[derive(Default)]
enum State {
    #[default]
    Fresh,
    /// The driver chooses addresses, and every allocation is a call.
    Absent,
    Placed(Box<Space>),
}

/// The range and what is in it.
struct Space {
    held: Held,
    granularity: u64,
    /// Addresses without memory.
    bare: Ranges,
    /// Memory that nobody has.
    free: Ranges,
    /// The pieces in which memory came: lengths by address.
    pieces: BTreeMap<u64, u64>,
    /// Memory that was freed and may still be used by posted work.
    waiting: Vec<Freed>,
    waiting_bytes: u64,
    /// Bytes of [`Heap::spare`] that the worker has not taken back yet.
    leaving: u64,
    /// How often something was freed.
    frees: u64,
    kept_max: u64,
}

/// A freed allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Freed {
    /// Its number.
    number: u64,
    context: u64,
    address: u64,
    bytes: u64,
}

/// What the worker is asked for, with the addresses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Where.
    pub address: u64,
    /// How much is needed.
    pub least: u64,
    /// How much is welcome.
    pub most: u64,
    /// The size of the pieces.
    pub piece: u64,
}

/// The size that an allocation has in fact.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY: nothing is so large.
pub fn size(bytes: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(UNIT).ok_or(OUT_OF_MEMORY)
}

impl Heap {
    fn space<R>(&self, work: impl FnOnce(&mut Space) -> R) -> Option<R> {
        match &mut *self.lock() {
            State::Placed(space) => Some(work(space)),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether there is one; asks for it at the first time. `place` asks the worker to reserve a range of addresses that this
    /// process holds, and answers with the granularity. Only with `growing` held.
    pub fn exists(&self, place: impl FnOnce() -> Option<(Held, u64)>) -> bool {
        match &*self.lock() {
            State::Placed(_) => return true,
            State::Absent => return false,
            State::Fresh => {}
        }
        let placed = place();
        let exists = placed.is_some();
        *self.lock() = placed.map_or(State::Absent, |(held, granularity)| {
            State::Placed(Box::new(Space::new(held, granularity)))
        });
        exists
    }

    /// Takes memory, `bytes` as [`size`] gives it.
    #[inline]
    pub fn take(&self, bytes: u64) -> Option<u64> {
        self.space(|space| space.free.take(bytes))?
    }

    /// Whether an address is in the range.
    pub fn holds(&self, address: u64) -> bool {
        self.space(|s| address.wrapping_sub(s.held.base()) < s.held.bytes()).unwrap_or(false)
    }

    /// Memory of a context was freed. Says whether more is unused now than may be kept.
    pub fn free(&self, context: u64, address: u64, bytes: u64) -> bool {
        self.space(|space| {
            space.frees += 1;
            space.waiting.push(Freed { number: space.frees, context, address, bytes });
            space.waiting_bytes += bytes;
            space.spare_bytes() > space.kept_max
        })
        .unwrap_or(false)
    }

    /// The server will be told that nothing is unused: from now on [`Heap::is_news`] says when that is not so any more.
    /// Before one looks for what is unused.
    pub fn say_nothing(&self) {
        self.said_nothing.store(true, Release);
    }

    /// Whether something unused, which has just come up, is news to the server. Once for each time that it was told.
    #[inline]
    pub fn is_news(&self) -> bool {
        self.said_nothing.load(Acquire) && self.said_nothing.swap(false, AcqRel)
    }

    /// Memory that is not the device's and that the program does not use, what is on its way back included.
    pub fn unused(&self) -> u64 {
        self.space(|space| space.unused()).unwrap_or(0)
    }

    /// Memory that was freed and cannot be used again yet.
    pub fn waiting(&self) -> u64 {
        self.space(|space| space.waiting_bytes).unwrap_or(0)
    }

    /// The contexts whose posted work may still use what was freed.
    pub fn contexts(&self) -> Vec<u64> {
        let mut contexts: Vec<u64> =
            self.space(|s| s.waiting.iter().map(|freed| freed.context).collect()).unwrap_or_default();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// How often something was freed so far. What is counted before a wait for a context's work is done after it.
    pub fn frees(&self) -> u64 {
        self.space(|space| space.frees).unwrap_or(0)
    }

    /// The work of a context is done that may have used what was freed by the first `frees` frees.
    pub fn settled(&self, context: u64, frees: u64) {
        self.space(|space| space.settled(context, frees));
    }

    /// Chooses addresses for an allocation of `bytes`. `ahead`: more memory is welcome, for later ones.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY: the range is used up.
    pub fn plan(&self, bytes: u64, ahead: bool) -> Answer<Growth> {
        self.space(|space| space.plan(bytes, ahead)).flatten().ok_or(OUT_OF_MEMORY)
    }

    /// The worker has refused.
    pub fn refused(&self, growth: Growth) {
        self.space(|space| space.bare.give(growth.address, growth.most));
    }

    /// The worker has put `got` bytes there, and the device has `left` bytes left. The first `bytes` are the caller's.
    pub fn grown(&self, growth: Growth, got: u64, left: u64, bytes: u64) {
        self.space(|space| space.grown(growth, got, left, bytes));
    }

    /// Takes out a run of whole pieces of unused memory, of those at `from` and above, if there is more than `keep` bytes (or
    /// what may be kept). [`Heap::shrunk`] must follow.
    pub fn spare(&self, keep: Option<u64>, from: u64) -> Option<(u64, u64)> {
        self.space(|space| space.spare(keep.unwrap_or(space.kept_max), from))?
    }

    /// Waits until nothing is on its way back: whatever was, is the device's then, or can be allocated again.
    pub fn wait_for_leaving(&self) {
        let leaves = |state: &mut State| matches!(state, State::Placed(space) if space.leaving > 0);
        drop(self.back.wait_while(self.lock(), leaves).unwrap_or_else(PoisonError::into_inner));
    }

    /// The worker has taken back a run of [`Heap::spare`], or (`done` false) has not.
    pub fn shrunk(&self, (address, bytes): (u64, u64), done: bool) {
        let rest = self.space(|space| {
            space.leaving -= bytes;
            if done {
                let pieces: Vec<u64> =
                    space.pieces.range(address..address + bytes).map(|(at, _)| *at).collect();
                pieces.iter().for_each(|at| _ = space.pieces.remove(at));
                space.bare.give(address, bytes);
            } else {
                space.free.give(address, bytes);
            }
            space.leaving
        });
        if rest == Some(0) {
            self.back.notify_all();
        }
    }
}

impl Space {
    fn new(held: Held, granularity: u64) -> Self {
        let mut bare = Ranges::default();
        bare.give(held.base(), held.bytes());
        Self {
            held,
            granularity,
            bare,
            free: Ranges::default(),
            pieces: BTreeMap::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            leaving: 0,
            frees: 0,
            kept_max: KEPT_MAX,
        }
    }

    /// What may go back, now or later.
    fn spare_bytes(&self) -> u64 {
        self.free.total() + self.waiting_bytes
    }

    fn unused(&self) -> u64 {
        self.spare_bytes() + self.leaving
    }

    fn settled(&mut self, context: u64, frees: u64) {
        let (free, bytes) = (&mut self.free, &mut self.waiting_bytes);
        self.waiting.retain(|freed| {
            let goes = freed.context == context && freed.number <= frees;
            if goes {
                *bytes -= freed.bytes;
                free.give(freed.address, freed.bytes);
            }
            !goes
        });
    }

    fn plan(&mut self, bytes: u64, ahead: bool) -> Option<Growth> {
        let least = bytes.checked_next_multiple_of(self.granularity)?;
        let large = bytes >= LARGE;
        let piece = if large { least } else { self.granularity };
        let most = if large || !ahead { least } else { least.max(STEP / piece * piece) };
        Some(Growth { address: self.bare.take(most)?, least, most, piece })
    }

    fn grown(&mut self, growth: Growth, got: u64, left: u64, bytes: u64) {
        let Growth { address, most, piece, .. } = growth;
        let got = got.min(most);
        for at in (address..address + got).step_by(piece as usize) {
            self.pieces.insert(at, piece);
        }
        if got < most {
            self.bare.give(address + got, most - got);
        }
        if got > bytes {
            self.free.give(address + bytes, got - bytes);
        }
        self.kept_max = KEPT_MAX.min(left / KEPT_PART);
    }

    fn spare(&mut self, keep: u64, from: u64) -> Option<(u64, u64)> {
        let mut surplus = self.spare_bytes().saturating_sub(keep);
        let mut run = None;
        for (start, length) in self.free.all_from(from) {
            for (&at, &bytes) in self.pieces.range(start.max(from)..start + length) {
                let (first, so_far) = run.unwrap_or((at, 0));
                let full = so_far > 0 && so_far + bytes > RUN;
                if at + bytes > start + length || surplus == 0 || full {
                    break;
                }
                surplus = surplus.saturating_sub(bytes);
                run = Some((first, so_far + bytes));
            }
            if run.is_some() {
                break;
            }
        }
        let (address, bytes) = run?;
        self.free.take_this(address, bytes);
        self.leaving += bytes;
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const MIB: u64 = 1 << 20;

    fn heap() -> Heap {
        let heap = Heap::default();
        assert!(heap.exists(|| Some((Held::reserve(0x4000_0000_0000, 1 << 36).unwrap(), 2 * MIB))));
        heap
    }

    /// An allocation as the library makes it, from a device that has `left` bytes.
    fn allocate(heap: &Heap, bytes: u64, left: &mut u64) -> Option<u64> {
        if let Some(at) = heap.take(bytes) {
            return Some(at);
        }
        let growth = heap.plan(bytes, true).unwrap();
        let got = growth.most.min((*left / 8 / growth.piece * growth.piece).max(growth.least));
        if got > *left {
            heap.refused(growth);
            return None;
        }
        *left -= got;
        heap.grown(growth, got, *left, bytes);
        Some(growth.address)
    }

    /// All runs that can go, as if all were asked for at once.
    fn spare(heap: &Heap, keep: Option<u64>) -> Vec<(u64, u64)> {
        let mut from = 0;
        let next = || {
            let run = heap.spare(keep, from)?;
            from = run.0 + run.1;
            Some(run)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_range_that_cannot_be_had_is_asked_for_once() {
        let heap = Heap::default();
        assert!(!heap.exists(|| None) && !heap.exists(|| unreachable!()));
        assert_eq!((heap.take(512), heap.unused(), heap.holds(0)), (None, 0, false));
    }

    #[test]
    fn freed_memory_counts_as_unused_and_comes_back_when_its_work_is_done() {
        let (heap, mut left) = (heap(), 1 << 33);
        let first = allocate(&heap, 16 * MIB, &mut left).unwrap();
        assert_eq!(heap.unused(), 16 * MIB, "the step is more than was needed");
        let second = allocate(&heap, 16 * MIB, &mut left).unwrap();
        assert_eq!((second, heap.unused()), (first + 16 * MIB, 0));
        heap.free(7, first, 16 * MIB);
        let seen = heap.frees();
        heap.free(8, second, 8 * MIB);
        heap.free(7, second + 8 * MIB, 8 * MIB);
        assert_eq!((heap.take(512), heap.unused(), heap.contexts()), (None, 32 * MIB, vec![7, 8]));
        heap.settled(7, seen);
        assert_eq!((heap.take(16 * MIB), heap.take(512)), (Some(first), None));
        heap.settled(8, u64::MAX);
        heap.settled(7, u64::MAX);
        assert_eq!((heap.waiting(), heap.take(16 * MIB)), (0, Some(second)));
    }

    #[test]
    fn what_is_not_used_goes_back_in_whole_pieces() {
        let (heap, mut left) = (heap(), 1 << 40);
        let large = allocate(&heap, 100 * MIB, &mut left).unwrap();
        let small = allocate(&heap, 512, &mut left).unwrap();
        assert!(!heap.free(1, large, 100 * MIB));
        heap.settled(1, u64::MAX);
        assert_eq!(spare(&heap, None), [], "all of it may be kept");
        let runs = spare(&heap, Some(0));
        assert_eq!(runs, [(large, 100 * MIB), (small + 2 * MIB, 30 * MIB)]);
        heap.shrunk(runs[0], true);
        heap.shrunk(runs[1], false);
        assert_eq!(heap.unused(), 32 * MIB - 512);
        assert_eq!(heap.plan(100 * MIB, true).unwrap().address, large, "its addresses are free again");
    }

    #[test]
    fn a_wait_settles_only_what_was_freed_before_it_however_often_it_is_told() {
        let (heap, mut left) = (heap(), 1 << 40);
        let [one, two, three] = [(); 3].map(|()| allocate(&heap, 2 * MIB, &mut left).unwrap());
        heap.free(1, one, 2 * MIB);
        heap.free(1, two, 2 * MIB);
        // Two threads that wait for the same work.
        let before = heap.frees();
        heap.settled(1, before);
        heap.free(1, three, 2 * MIB);
        heap.settled(1, before);
        assert_eq!((heap.waiting(), heap.take(4 * MIB)), (2 * MIB, Some(one)));
    }

    #[test]
    fn little_is_away_at_a_time_and_the_rest_can_be_allocated() {
        let (heap, mut left) = (heap(), 1 << 40);
        let mine = [(); 40].map(|()| allocate(&heap, 16 * MIB, &mut left).unwrap());
        mine.iter().for_each(|at| _ = heap.free(1, *at, 16 * MIB));
        heap.settled(1, u64::MAX);
        let (at, bytes) = heap.spare(Some(0), 0).unwrap();
        assert_eq!((at, bytes), (mine[0], RUN));
        assert_eq!(heap.unused(), 640 * MIB, "what is on its way is not the device's yet");
        let rest = heap.take(640 * MIB - RUN).unwrap();
        heap.free(1, rest, 640 * MIB - RUN);
        heap.settled(1, u64::MAX);
        let next = heap.spare(Some(0), at + bytes).unwrap();
        assert_eq!(next, (at + bytes, RUN), "a run that is refused is not tried for ever");
    }

    #[test]
    fn who_finds_no_memory_waits_for_what_is_on_its_way_back() {
        let (heap, mut left) = (heap(), 1 << 40);
        let large = allocate(&heap, 100 * MIB, &mut left).unwrap();
        heap.free(1, large, 100 * MIB);
        heap.settled(1, u64::MAX);
        heap.wait_for_leaving();
        let run = heap.spare(Some(0), 0).unwrap();
        assert_eq!((run, heap.take(100 * MIB)), ((large, 100 * MIB), None));
        let (waits, waited) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let heap = &heap;
            let owner = scope.spawn(move || {
                waits.send(()).unwrap();
                heap.wait_for_leaving();
                (heap.unused(), heap.take(100 * MIB))
            });
            waited.recv().unwrap();
            // The driver refuses to take it.
            heap.shrunk(run, false);
            assert_eq!(owner.join().unwrap(), (100 * MIB, Some(large)));
        });
    }

    #[test]
    fn what_comes_up_after_the_server_was_told_of_nothing_is_news_once() {
        let heap = Heap::default();
        assert!(!heap.is_news());
        heap.say_nothing();
        assert!(heap.is_news() && !heap.is_news());
    }

    #[test]
    fn without_credit_an_allocation_gets_no_more_than_it_needs() {
        let heap = heap();
        let growth = heap.plan(512, false).unwrap();
        assert_eq!((growth.least, growth.most), (2 * MIB, 2 * MIB));
        heap.grown(growth, 2 * MIB, 0, 512);
        assert!(heap.free(1, growth.address, 512), "nothing is kept");
        heap.settled(1, u64::MAX);
        assert_eq!(spare(&heap, None), [(growth.address, 2 * MIB)]);
    }

    #[test]
    fn more_is_kept_where_more_is_left() {
        let (heap, mut left) = (heap(), 1 << 32);
        let at = allocate(&heap, 600 * MIB, &mut left).unwrap();
        assert!(heap.free(1, at, 600 * MIB), "an eighth of what is left is less");
        heap.settled(1, u64::MAX);
        assert_eq!(spare(&heap, None), [(at, 600 * MIB)]);
    }

    proptest! {
        /// Allocations never overlap, nothing is lost, and memory runs out only when the pieces are used up.
        #[test]
        fn every_byte_has_one_owner(steps in prop::collection::vec((1u64..40 * MIB, 0..3u64, any::<prop::sample::Index>()), 1..150)) {
            let total = 1 << 30;
            let (heap, mut left) = (heap(), total);
            let mut mine: HashMap<u64, u64> = HashMap::new();
            for (bytes, what, which) in steps {
                let bytes = size(if what == 2 { bytes % 5000 + 1 } else { bytes }).unwrap();
                if what == 0 && !mine.is_empty() {
                    let at = *mine.keys().nth(which.index(mine.len())).unwrap();
                    let bytes = mine.remove(&at).unwrap();
                    heap.free(at % 2, at, bytes);
                } else if let Some(at) = allocate(&heap, bytes, &mut left) {
                    prop_assert!(mine.iter().all(|(a, b)| at + bytes <= *a || a + b <= at), "{at:#x} overlaps");
                    mine.insert(at, bytes);
                } else {
                    for context in heap.contexts() {
                        heap.settled(context, u64::MAX);
                    }
                    for (at, bytes) in spare(&heap, Some(0)) {
                        // Some cannot go.
                        let goes = !(at / MIB).is_multiple_of(3);
                        left += if goes { bytes } else { 0 };
                        heap.shrunk((at, bytes), goes);
                    }
                }
                let used: u64 = mine.values().sum();
                prop_assert_eq!(used + heap.unused() + left, total);
            }
        }
    }
}
