//! Tables of the objects that the program names by handle.
//!
//! Looking one up takes no lock: slots never move and are never freed, and their objects are made of atomics and small
//! locks, so that a thread that races with the object's end sees stale values and nothing worse. A slot is used again
//! under the next generation.

use std::hint::cold_path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, OnceLock, PoisonError};

use gpupool_protocol::handle::Kind;

use crate::code::{Answer, OUT_OF_MEMORY};

/// Slots of the first chunk; each further one has twice as many.
const FIRST: u32 = 64;
const CHUNKS: usize = 20;
/// What a slot without a live object holds. No handle: its index is beyond all chunks.
const NONE: u64 = u64::MAX;

/// An object with the handle that means it, or that meant it last.
pub struct Slot<T> {
    /// The handle while the object lives, else [`NONE`].
    handle: AtomicU64,
    object: T,
}

impl<T: Default> Slot<T> {
    /// One that holds no object.
    fn fresh() -> Self {
        Self { handle: AtomicU64::new(NONE), object: T::default() }
    }
}

/// All objects of one kind.
pub struct Table<T: 'static> {
    /// Chunk 0, which is enough for most programs, and so is there from the start.
    first: Box<[Slot<T>; FIRST as usize]>,
    /// The others.
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS - 1],
    /// Of a slot that has never been used.
    first_generation: u32,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Indices above have never been used.
    next: u32,
    /// (index, generation to be used next)
    again: Vec<(u32, u32)>,
}

/// The 64-bit form of a handle: never 0, 1 or 2, since generations start at 1.
const fn handle_of(index: u32, generation: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

/// Index of a handle.
pub const fn index_of(handle: u64) -> u32 {
    handle as u32
}

/// Chunk, and place within it.
const fn place(index: u32) -> (usize, usize) {
    let scaled = index / FIRST + 1;
    let chunk = scaled.ilog2();
    let start = ((1u32 << chunk) - 1) * FIRST;
    (chunk as usize, (index - start) as usize)
}

impl<T: Default + 'static> Table<T> {
    /// No object yet. Handles of different kinds are never equal.
    pub fn of(kind: Kind) -> Self {
        Self {
            first: Box::new(std::array::from_fn(|_| Slot::fresh())),
            chunks: [const { OnceLock::new() }; CHUNKS - 1],
            first_generation: kind.first_generation(),
            free: Mutex::default(),
        }
    }

    /// The object that a handle means.
    #[inline(always)]
    pub fn get(&self, handle: u64) -> Option<&T> {
        let slot = self.slot(index_of(handle))?;
        // Acquire: what `create` filled in before it set the handle.
        if slot.handle.load(Acquire) == handle {
            Some(&slot.object)
        } else {
            cold_path();
            None
        }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        if index < FIRST { self.first.get(index as usize) } else { self.far_slot(index) }
    }

    #[cold]
    fn far_slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk.checked_sub(1)?)?.get()?.get(at)
    }

    /// The slots of a chunk, which are made if they are not there; `None` if there is no such chunk.
    fn made(&self, chunk: usize) -> Option<&[Slot<T>]> {
        Some(match chunk.checked_sub(1) {
            None => self.first.as_slice(),
            Some(far) => {
                self.chunks.get(far)?.get_or_init(|| (0..FIRST << chunk).map(|_| Slot::fresh()).collect())
            }
        })
    }

    /// Makes an object: `begin` fills it in and sends the record that creates it. Records that create objects of one kind
    /// go out in the order of their handles, so `begin` runs under the table's lock and must not wait for an answer.
    /// The object is there for other threads when this returns.
    ///
    /// # Errors
    /// Those of `begin`; then the handle was not used.
    pub fn create<R>(&self, begin: impl FnOnce(u64, &T) -> Answer<R>) -> Answer<(u64, R)> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, generation) = free.again.last().copied().unwrap_or((free.next, self.first_generation));
        let (chunk, at) = place(index);
        let slots = self.made(chunk).ok_or(OUT_OF_MEMORY)?;
        let handle = handle_of(index, generation);
        let result = begin(handle, &slots[at].object)?;
        if free.again.pop().is_none() {
            free.next += 1;
        }
        slots[at].handle.store(handle, Release);
        Ok((handle, result))
    }

    /// Ends a handle; `None` if it means nothing (any more). `end` sends the record that deletes the object, before its
    /// place can be used again.
    pub fn remove<R>(&self, handle: u64, end: impl FnOnce(&T) -> R) -> Option<R> {
        let object = self.forget(handle)?;
        let result = end(object);
        let generation = (handle >> 32) as u32;
        // A slot whose generations are used up stays unused.
        if let Some(next) = Kind::next_generation(generation) {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.again.push((index_of(handle), next));
        }
        Some(result)
    }

    /// Ends a handle whose object has gone by other means than a record of its own. Its place is not used again, since
    /// the worker still counts it. Whoever finds the handle gone sees what its owner did before this.
    pub fn forget(&self, handle: u64) -> Option<&T> {
        let slot = self.slot(index_of(handle))?;
        if slot.handle.compare_exchange(handle, NONE, AcqRel, Relaxed).is_err() {
            return None;
        }
        Some(&slot.object)
    }

    /// All that live now.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let slots = self
            .first
            .iter()
            .chain(self.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| chunk.iter()));
        slots.filter_map(|slot| match slot.handle.load(Acquire) {
            NONE => None,
            handle => Some((handle, &slot.object)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Thing(AtomicU64);

    fn make(table: &Table<Thing>, value: u64) -> u64 {
        let fill = |_, thing: &Thing| {
            thing.0.store(value, Relaxed);
            Ok(())
        };
        table.create(fill).unwrap().0
    }

    #[test]
    fn places_follow_each_other_without_gaps() {
        let mut expected =
            (0..4usize).flat_map(|chunk| (0..(FIRST as usize) << chunk).map(move |at| (chunk, at)));
        for index in 0..FIRST * 15 {
            assert_eq!(Some(place(index)), expected.next(), "{index}");
        }
        assert!(place(u32::MAX).0 >= CHUNKS);
    }

    #[test]
    fn a_handle_means_one_object_once() {
        let table = Table::of(Kind::Context);
        let a = make(&table, 1);
        let b = make(&table, 2);
        assert_eq!((index_of(a), index_of(b)), (0, 1));
        assert_eq!(table.get(b).unwrap().0.load(Relaxed), 2);
        assert_eq!(table.remove(a, |thing| thing.0.load(Relaxed)), Some(1));
        assert!(table.get(a).is_none() && table.remove(a, |_| ()).is_none());
        let c = make(&table, 3);
        assert_eq!((index_of(c), c >> 32), (0, 2), "the place again, under the next generation");
        assert!(table.get(a).is_none());
        for garbage in [0, 1, 2, u64::MAX, 0xdead_beef, c ^ (1 << 32), 1 << 32 | 99] {
            assert!(table.get(garbage).is_none(), "{garbage:#x}");
        }
        assert_eq!(table.iter().map(|(h, _)| h).collect::<Vec<_>>(), [c, b]);
    }

    #[test]
    fn a_handle_of_one_kind_means_nothing_for_another() {
        let (streams, events) = (Table::of(Kind::Stream), Table::of(Kind::Event));
        let (stream, event) = (make(&streams, 1), make(&events, 2));
        assert_eq!(index_of(stream), index_of(event));
        assert!(streams.get(event).is_none() && events.get(stream).is_none());
        assert!(events.remove(stream, |_| ()).is_none() && events.get(event).is_some());
    }

    #[test]
    fn a_failed_creation_uses_nothing_and_a_forgotten_place_stays_unused() {
        let table = Table::<Thing>::of(Kind::Context);
        assert_eq!(table.create(|_, _| Err::<(), _>(OUT_OF_MEMORY)), Err(OUT_OF_MEMORY));
        let a = make(&table, 1);
        assert_eq!(index_of(a), 0);
        assert!(table.forget(a).is_some() && table.forget(a).is_none());
        assert_eq!(index_of(make(&table, 2)), 1);
    }

    #[test]
    fn threads_create_and_look_up_at_the_same_time() {
        let table = Table::<Thing>::of(Kind::Context);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..500 {
                        let handle = make(table, thread * 1000 + i);
                        assert_eq!(table.get(handle).unwrap().0.load(Relaxed), thread * 1000 + i);
                        if i % 2 == 0 {
                            table.remove(handle, |_| ()).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(table.iter().count(), 1000);
    }
}
