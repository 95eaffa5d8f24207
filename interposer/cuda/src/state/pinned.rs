//! Pinned host memory: pieces of the host arena, which the worker sees too; where there is none, ordinary page-aligned memory
//! of this process; and ranges of the program's own that it registered. Copies from and to the last two are staged like any
//! other.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags};

use crate::code::{
    Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY,
};

const PAGE: usize = 4096;

/// A range of host memory that CUDA knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRange {
    /// Its first byte's address.
    pub base: u64,
    /// Its length as the program asked for it.
    pub size: usize,
    /// Flags of the call that made it.
    pub flags: u32,
    /// Whether the program brought the memory itself.
    pub registered: bool,
    /// Where kernels find it, if the worker sees it too.
    pub device: Option<u64>,
    /// The context that was current.
    pub context: u64,
}

/// All of them.
#[derive(Default)]
pub struct Pinned {
    ranges: Mutex<BTreeMap<u64, HostRange>>,
    /// How many ranges there are, for callers that mostly find none.
    count: AtomicUsize,
}

impl Pinned {
    /// Allocates; the address is a multiple of the page size.
    pub fn allocate(&self, size: usize, flags: u32, context: u64) -> Answer<u64> {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let whole = size.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address that the kernel chooses.
        let memory = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), whole, prot, MapFlags::PRIVATE) };
        let base = memory.map_err(|_| OUT_OF_MEMORY)?.expose_provenance() as u64;
        self.lock().insert(base, HostRange { base, size, flags, registered: false, device: None, context });
        self.count.fetch_add(1, Relaxed);
        Ok(base)
    }

    /// Notes a piece of the host arena, which kernels find at `device`.
    pub fn add_shared(&self, base: u64, size: usize, flags: u32, context: u64, device: u64) {
        self.lock()
            .insert(base, HostRange { base, size, flags, registered: false, device: Some(device), context });
        self.count.fetch_add(1, Relaxed);
    }

    /// Takes an allocation off the table; private memory goes back to the system.
    pub fn free(&self, base: u64) -> Answer<HostRange> {
        let mut ranges = self.lock();
        let range = ranges.get(&base).copied().filter(|range| !range.registered).ok_or(INVALID_VALUE)?;
        ranges.remove(&base);
        self.count.fetch_sub(1, Relaxed);
        if range.device.is_none() {
            let whole = range.size.next_multiple_of(PAGE);
            // SAFETY: the mapping that `allocate` made; the program says that it has done with it.
            let _ = unsafe { rustix::mm::munmap(ptr::with_exposed_provenance_mut(base as usize), whole) };
        }
        Ok(range)
    }

    /// Registers the program's own memory.
    pub fn register(&self, base: u64, size: usize, flags: u32, context: u64) -> Answer {
        let end = base.checked_add(size as u64).ok_or(INVALID_VALUE)?;
        if base == 0 || size == 0 {
            return Err(INVALID_VALUE);
        }
        let mut ranges = self.lock();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(_, r)| r.base + r.size as u64 > base) {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        ranges.insert(base, HostRange { base, size, flags, registered: true, device: None, context });
        self.count.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Ends a registration.
    pub fn unregister(&self, base: u64) -> Answer {
        let mut ranges = self.lock();
        match ranges.get(&base) {
            Some(range) if range.registered => {
                ranges.remove(&base);
                self.count.fetch_sub(1, Relaxed);
                Ok(())
            }
            _ => Err(HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// The range that holds this address.
    pub fn find(&self, address: u64) -> Option<HostRange> {
        let ranges = self.lock();
        let (_, range) = ranges.range(..=address).next_back()?;
        (address - range.base < range.size as u64).then_some(*range)
    }

    /// The start and the length of the range that kernels find at this address. Rarely asked for, so all are looked at.
    pub fn range_on_device(&self, address: u64) -> Option<(u64, u64)> {
        let ranges = self.lock();
        let on_device = ranges.values().filter_map(|range| Some((range.device?, range.size as u64)));
        on_device.into_iter().find(|(start, size)| address.checked_sub(*start).is_some_and(|at| at < *size))
    }

    /// Whether `bytes` from `address` on are memory that the worker and kernels see as well.
    pub fn is_shared(&self, address: u64, bytes: u64) -> bool {
        self.any()
            && self.find(address).is_some_and(|range| {
                range.device.is_some() && bytes <= range.size as u64 - (address - range.base)
            })
    }

    /// Whether `bytes` from `address` on are pinned memory that only this process sees.
    pub fn is_private(&self, address: u64, bytes: u64) -> bool {
        self.any()
            && self.find(address).is_some_and(|range| {
                range.device.is_none() && bytes <= range.size as u64 - (address - range.base)
            })
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, HostRange>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_pages_and_are_freed_once() {
        let pinned = Pinned::default();
        assert_eq!(pinned.allocate(0, 0, 1), Err(INVALID_VALUE));
        let base = pinned.allocate(5000, 3, 1).unwrap();
        assert_eq!(base % PAGE as u64, 0);
        let found = pinned.find(base + 4999).unwrap();
        assert_eq!((found.flags, found.registered), (3, false));
        assert!(pinned.find(base + 5000).is_none() && pinned.find(base - 1).is_none());
        assert_eq!(pinned.unregister(base), Err(HOST_MEMORY_NOT_REGISTERED));
        assert_eq!((pinned.free(base), pinned.free(base)), (Ok(found), Err(INVALID_VALUE)));
        assert_eq!(pinned.allocate(usize::MAX, 0, 1), Err(OUT_OF_MEMORY));
    }

    #[test]
    fn only_pieces_of_the_arena_are_shared() {
        let pinned = Pinned::default();
        pinned.add_shared(0x10000, 0x1000, 0, 1, 0x10000);
        pinned.register(0x20000, 0x1000, 0, 1).unwrap();
        for (address, bytes, shared) in [
            (0x10000, 0x1000, true),
            (0x10fff, 1, true),
            (0x10fff, 2, false),
            (0xffff, 1, false),
            (0x20000, 1, false),
        ] {
            assert_eq!(pinned.is_shared(address, bytes), shared, "{bytes:#x} at {address:#x}");
        }
        pinned.add_shared(0x30000, 0x800, 0, 1, 0x50000);
        for (address, range) in [
            (0x10fff, Some((0x10000, 0x1000))),
            (0x507ff, Some((0x50000, 0x800))),
            (0x50800, None),
            (0x30000, None),
            (0x20000, None),
            (0, None),
        ] {
            assert_eq!(pinned.range_on_device(address), range, "{address:#x}");
        }
        assert_eq!(pinned.free(0x10000).unwrap().device, Some(0x10000));
    }

    #[test]
    fn registrations_do_not_overlap() {
        let pinned = Pinned::default();
        pinned.register(0x10000, 0x1000, 0, 1).unwrap();
        for (base, size) in [(0x10000, 1), (0x10fff, 1), (0xf000, 0x1001), (0xf000, 0x9000)] {
            assert_eq!(pinned.register(base, size, 0, 1), Err(HOST_MEMORY_ALREADY_REGISTERED));
        }
        pinned.register(0x11000, 1, 0, 1).unwrap();
        assert_eq!(pinned.free(0x10000), Err(INVALID_VALUE));
        assert_eq!(pinned.register(u64::MAX, 2, 0, 1), Err(INVALID_VALUE));
        pinned.unregister(0x10000).unwrap();
        pinned.register(0x10000, 1, 0, 1).unwrap();
    }
}
