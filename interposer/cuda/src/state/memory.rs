//! The device memory that the program has: which addresses a call may touch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::recent::Recent;
use crate::code::{Answer, INVALID_VALUE, NOT_FOUND};

/// What a range of device memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// cuMemAlloc and its like: ended by cuMemFree.
    Plain,
    /// Stream-ordered: ended by cuMemFreeAsync or cuMemFree.
    Pooled,
    /// A module's variable: ends with the module.
    Variable,
}

/// One range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first byte's address.
    pub base: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The context that it belongs to.
    pub context: u64,
    /// What it is.
    pub origin: Origin,
    /// CU_POINTER_ATTRIBUTE_BUFFER_ID: never used twice in a process.
    pub id: u64,
}

/// All ranges, by address.
#[derive(Default)]
pub struct Memory {
    ranges: RwLock<BTreeMap<u64, Range>>,
    recent: Recent,
    /// Nothing is noted in `recent`, which then holds nothing.
    forgetful: bool,
    ids: AtomicU64,
}

impl Memory {
    /// No ranges yet. `recent`: those that calls have touched lately are found without a lock.
    pub fn new(recent: bool) -> Self {
        Self { forgetful: !recent, ..Self::default() }
    }

    /// Notes a range.
    pub fn add(&self, base: u64, size: u64, context: u64, origin: Origin) {
        let id = self.ids.fetch_add(1, Relaxed) + 1;
        self.write().insert(base, Range { base, size, context, origin, id });
    }

    /// Takes away the range that starts exactly at `base` and was allocated. Else CUDA_ERROR_INVALID_VALUE.
    pub fn take(&self, base: u64) -> Answer<Range> {
        let mut ranges = self.write();
        match ranges.get(&base) {
            Some(range) if range.origin != Origin::Variable => {
                let range = *range;
                ranges.remove(&base);
                self.recent.forget();
                Ok(range)
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Puts a range back that could not be freed after all.
    pub fn put_back(&self, range: Range) {
        self.write().insert(range.base, range);
    }

    /// The range that holds this address.
    pub fn find(&self, address: u64) -> Option<Range> {
        let ranges = self.read();
        let (_, range) = ranges.range(..=address).next_back()?;
        (address - range.base < range.size).then_some(*range)
    }

    /// As [`Memory::find`], with CUDA_ERROR_NOT_FOUND for cuMemGetAddressRange.
    pub fn range_of(&self, address: u64) -> Answer<Range> {
        self.find(address).ok_or(NOT_FOUND)
    }

    /// Checks that `bytes` from `address` on lie in one range. Nothing is touched by no bytes.
    #[inline(always)]
    pub fn check(&self, address: u64, bytes: u64) -> Answer {
        if self.recent.holds(address, bytes) { Ok(()) } else { self.look_up(address, bytes) }
    }

    #[cold]
    fn look_up(&self, address: u64, bytes: u64) -> Answer {
        if bytes == 0 {
            return Ok(());
        }
        let ranges = self.read();
        match ranges.range(..=address).next_back() {
            // Subtractions, so that no sum can wrap.
            Some((_, r)) if address - r.base < r.size && bytes <= r.size - (address - r.base) => {
                if !self.forgetful {
                    self.recent.note(address, r.base, r.size);
                }
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Takes away everything that belongs to a context.
    pub fn context_gone(&self, context: u64) -> Vec<Range> {
        let mut ranges = self.write();
        let gone: Vec<Range> = ranges.values().filter(|range| range.context == context).copied().collect();
        gone.iter().for_each(|range| _ = ranges.remove(&range.base));
        self.recent.forget();
        gone
    }

    /// Forgets variables at these addresses.
    pub fn variables_gone(&self, addresses: impl IntoIterator<Item = u64>) {
        let mut ranges = self.write();
        for address in addresses {
            if ranges.get(&address).is_some_and(|r| r.origin == Origin::Variable) {
                ranges.remove(&address);
            }
        }
        self.recent.forget();
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Range>> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Range>> {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_recent_ranges_every_call_looks_at_the_list() {
        for recent in [true, false] {
            let memory = Memory::new(recent);
            memory.add(0x1000, 0x100, 1, Origin::Plain);
            assert_eq!(memory.check(0x1000, 0x100), Ok(()));
            assert_eq!(memory.recent.holds(0x1000, 0x100), recent);
            assert_eq!(memory.check(0x1000, 0x101), Err(INVALID_VALUE));
        }
    }

    #[test]
    fn a_call_may_touch_what_lies_in_one_range() {
        let memory = Memory::default();
        memory.add(0x1000, 0x100, 1, Origin::Plain);
        memory.add(0x1100, 0x100, 1, Origin::Plain);
        for (address, bytes, fine) in [
            (0x1000, 0x100, true),
            (0x10ff, 1, true),
            (0x10ff, 2, false),
            (0xfff, 1, false),
            (0x1200, 1, false),
            (0x1000, u64::MAX, false),
            (u64::MAX, u64::MAX, false),
            (0, 0, true),
        ] {
            assert_eq!(memory.check(address, bytes).is_ok(), fine, "{bytes:#x} at {address:#x}");
        }
    }

    #[test]
    fn only_the_start_of_an_allocation_frees_it_and_only_once() {
        let memory = Memory::default();
        memory.add(0x1000, 16, 1, Origin::Plain);
        memory.add(0x2000, 16, 1, Origin::Variable);
        assert_eq!(memory.take(0x1008), Err(INVALID_VALUE));
        assert_eq!(memory.take(0x2000), Err(INVALID_VALUE));
        assert_eq!(memory.take(0x1000).unwrap().size, 16);
        assert_eq!(memory.take(0x1000), Err(INVALID_VALUE));
        memory.variables_gone([0x1000, 0x2000]);
        assert_eq!(memory.range_of(0x2000), Err(NOT_FOUND));
    }

    #[test]
    fn ranges_go_with_their_context() {
        let memory = Memory::default();
        memory.add(0x1000, 16, 1, Origin::Plain);
        memory.add(0x2000, 16, 2, Origin::Plain);
        assert_eq!(memory.context_gone(1).iter().map(|range| range.base).collect::<Vec<_>>(), [0x1000]);
        assert!(memory.find(0x1000).is_none() && memory.find(0x200f).is_some());
    }
}
