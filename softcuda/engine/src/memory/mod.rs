//! The device memory: one reserved address range that allocations, module variables and the workers' shared and local
//! memory lie in, with a table that says which parts of it a kernel may touch.
//!
//! Addresses are the process's own, so that generic addressing costs nothing. The range starts at a fixed, high hint so
//! that device addresses do not meet the heap of the application. Kernels check each access against the range and
//! against one byte per 64 KiB of it (the *granule table*); like on a card, that catches wild addresses and not each
//! small overrun. The driver's own copies are checked exactly, against allocations.
//!
//! A part of the range that was once handed out stays mapped: freeing gives the pages back to the system and clears
//! the granules, so that a kernel that races with a free reads zeros or faults cleanly, and never crashes the process.

mod heap;
mod map;

use crate::error::OutOfMemory;
use heap::Heap;
use map::Mapping;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// log2 of the size of the reserved range: 1 TiB of addresses.
pub(crate) const RANGE_BITS: u32 = 40;
/// log2 of the size of a granule: 64 KiB.
pub(crate) const GRANULE_BITS: u32 = 16;
const GRANULE: u64 = 1 << GRANULE_BITS;
const RANGE: u64 = 1 << RANGE_BITS;
/// Allocations from here up get their own granules.
const LARGE: u64 = 256 << 10;
/// Small allocations are cut from chunks of this size.
const CHUNK: u64 = 2 << 20;
/// The least alignment of an allocation.
const MIN_ALIGN: u64 = 256;

/// The memory of one device.
pub struct Memory {
    range: Mapping,
    table: Mapping,
    total: u64,
    state: Mutex<State>,
}

struct State {
    /// Free parts of the range, in granules.
    range: Heap,
    /// Free parts of the chunks of small allocations.
    small: Heap,
    /// Live allocations by address.
    live: BTreeMap<u64, Allocation>,
    /// Host ranges that kernels may touch, by address: length.
    host: BTreeMap<u64, u64>,
    used: u64,
}

#[derive(Clone, Copy)]
struct Allocation {
    /// What was asked for.
    size: u64,
    /// What it takes in its heap.
    room: u64,
    large: bool,
    /// Workers' scratch: not counted, not found by the driver.
    scratch: bool,
}

impl Memory {
    /// Reserves the addresses of a device with `total` bytes of memory. Nothing is committed yet.
    ///
    /// # Errors
    /// When the system refuses to reserve the range (an address-space limit such as `ulimit -v`).
    pub fn new(total: u64) -> io::Result<Arc<Memory>> {
        // Where address space is limited, less will do: what is beyond has no granules.
        let sizes = [RANGE, RANGE >> 2, RANGE >> 4, RANGE >> 6];
        let mut range = Err(io::ErrorKind::OutOfMemory.into());
        for size in sizes.into_iter().filter(|s| *s == RANGE || *s / 2 >= total) {
            range = Mapping::reserve(size as usize);
            if range.is_ok() {
                break;
            }
        }
        let range: Mapping = range?;
        let table = Mapping::zeroed((RANGE >> GRANULE_BITS) as usize)?;
        let base = range.address();
        let state = State {
            // The first granule is never given out, so that the range's base is not an allocation.
            range: Heap::new(base + GRANULE, range.length() - GRANULE),
            small: Heap::empty(),
            live: BTreeMap::new(),
            host: BTreeMap::new(),
            used: 0,
        };
        Ok(Arc::new(Memory { range, table, total: total.min(RANGE / 2), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First address of the reserved range.
    pub fn base(&self) -> u64 {
        self.range.address()
    }

    /// Whether an address is among those that device memory gets, allocated or not.
    pub fn reserves(&self, addr: u64) -> bool {
        addr.checked_sub(self.base()).is_some_and(|offset| offset < self.range.length())
    }

    /// Address of the granule table; kernels read it.
    pub(crate) fn table(&self) -> u64 {
        self.table.address()
    }

    /// Bytes of device memory in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes taken by allocations and module variables.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Takes `size` bytes, aligned to `align` (a power of two) and to 256. The contents are undefined. A size of 0
    /// takes one byte.
    ///
    /// # Errors
    /// [`OutOfMemory`] when fewer than `size` bytes are free.
    pub fn alloc(&self, size: u64, align: u64) -> Result<u64, OutOfMemory> {
        self.take(size, align, false)
    }

    /// Takes memory for the workers' own use: kernels may touch it, the driver's calls do not find it, and it is not
    /// counted. It always has granules of its own.
    pub(crate) fn alloc_scratch(&self, size: u64) -> Result<u64, OutOfMemory> {
        self.take(size, GRANULE, true)
    }

    fn take(&self, size: u64, align: u64, scratch: bool) -> Result<u64, OutOfMemory> {
        let mut s = self.state();
        let size = size.max(1);
        let free = self.total - s.used.min(self.total);
        let none = OutOfMemory { wanted: size, free, total: self.total };
        if (!scratch && size > free) || size > RANGE / 2 || align > RANGE / 2 {
            return Err(none);
        }
        let align = align.max(MIN_ALIGN).next_power_of_two();
        let large = scratch || size >= LARGE || align > GRANULE;
        let (room, addr) = if large {
            let room = size.next_multiple_of(GRANULE);
            let align = if size >= CHUNK && !scratch { align.max(CHUNK) } else { align.max(GRANULE) };
            (room, self.take_granules(&mut s, room, align).ok_or(none)?)
        } else {
            let room = size.next_multiple_of(MIN_ALIGN);
            let mut got = s.small.take(room, align);
            if got.is_none() {
                let chunk = self.take_granules(&mut s, CHUNK, CHUNK).ok_or(none)?;
                s.small.give(chunk, CHUNK);
                got = s.small.take(room, align);
            }
            (room, got.ok_or(none)?)
        };
        s.live.insert(addr, Allocation { size, room, large, scratch });
        if !scratch {
            s.used += size;
        }
        Ok(addr)
    }

    fn take_granules(&self, s: &mut State, room: u64, align: u64) -> Option<u64> {
        let addr = s.range.take(room, align)?;
        if self.range.commit(addr, room).is_err() {
            s.range.give(addr, room);
            return None;
        }
        self.mark(addr, room, 1);
        Some(addr)
    }

    fn mark(&self, addr: u64, room: u64, value: u8) {
        let first = (addr - self.base()) >> GRANULE_BITS;
        for g in first..first + (room >> GRANULE_BITS) {
            self.granule(g).store(value, Ordering::SeqCst);
        }
    }

    fn granule(&self, index: u64) -> &AtomicU8 {
        debug_assert!(index < RANGE >> GRANULE_BITS);
        // SAFETY: the table has a byte for each granule of the range, lives as long as `self` and is only ever
        // reached as atomic bytes (kernels read single bytes of it).
        unsafe { AtomicU8::from_ptr((self.table.address() + index) as *mut u8) }
    }

    /// Gives an allocation back. `false`: `addr` is not the base of a live one.
    pub fn free(&self, addr: u64) -> bool {
        self.give(addr, false)
    }

    /// Gives memory from [`Memory::alloc_scratch`] back.
    pub(crate) fn free_scratch(&self, addr: u64) {
        self.give(addr, true);
    }

    fn give(&self, addr: u64, scratch: bool) -> bool {
        let mut s = self.state();
        if s.live.get(&addr).is_none_or(|a| a.scratch != scratch) {
            return false;
        }
        let Some(a) = s.live.remove(&addr) else { return false };
        if !a.scratch {
            s.used -= a.size;
        }
        if a.large {
            self.mark(addr, a.room, 0);
            self.range.discard(addr, a.room);
            s.range.give(addr, a.room);
        } else {
            s.small.give(addr, a.room);
        }
        true
    }

    /// The allocation that holds `addr`: base and size.
    pub fn find(&self, addr: u64) -> Option<(u64, u64)> {
        let s = self.state();
        let (base, a) = s.live.range(..=addr).next_back()?;
        (!a.scratch && addr - base < a.size).then_some((*base, a.size))
    }

    /// Whether `len` bytes at `addr` lie wholly inside one allocation.
    pub fn check(&self, addr: u64, len: u64) -> bool {
        self.find(addr).is_some_and(|(base, size)| len <= size - (addr - base))
    }

    /// Lets kernels touch `len` bytes of host memory at `ptr` under their own address (pinned or mapped memory). The
    /// caller keeps that memory mapped until [`Memory::unregister_host`]. `false`: it overlaps a registered range, or is empty.
    pub fn register_host(&self, ptr: u64, len: u64) -> bool {
        let mut s = self.state();
        let Some(end) = ptr.checked_add(len) else { return false };
        let clash = s.host.range(..end).next_back().is_some_and(|(b, l)| b + l > ptr);
        if len == 0 || clash {
            return false;
        }
        s.host.insert(ptr, len);
        true
    }

    /// Ends [`Memory::register_host`]. `false`: nothing is registered at `ptr`.
    pub fn unregister_host(&self, ptr: u64) -> bool {
        self.state().host.remove(&ptr).is_some()
    }

    /// Whether `len` bytes at `addr` lie in one registered host range.
    pub fn check_host(&self, addr: u64, len: u64) -> bool {
        let s = self.state();
        s.host.range(..=addr).next_back().is_some_and(|(b, l)| addr - b < *l && len <= l - (addr - b))
    }

    /// Whether a kernel may touch `len` bytes at `addr`: the rule of the generated code, by granules, or host memory.
    pub(crate) fn reachable(&self, addr: u64, len: u64) -> bool {
        let offset = addr.wrapping_sub(self.base());
        if offset >= RANGE || len > RANGE - offset {
            return self.check_host(addr, len);
        }
        let last = (offset + len.max(1) - 1) >> GRANULE_BITS;
        (offset >> GRANULE_BITS..=last).all(|g| self.granule(g).load(Ordering::Relaxed) != 0)
    }

    fn allowed(&self, addr: u64, len: u64) -> bool {
        self.check(addr, len) || self.check_host(addr, len)
    }

    /// Copies device memory (or registered host memory) at `addr` into `to`. `false`, with nothing copied: not wholly
    /// inside one allocation.
    #[must_use]
    pub fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        let ok = self.allowed(addr, to.len() as u64);
        if ok {
            map::copy_out(addr, to);
        }
        ok
    }

    /// Copies `from` into device memory (or registered host memory) at `addr`. `false`, with nothing copied: not
    /// wholly inside one allocation.
    #[must_use]
    pub fn write(&self, addr: u64, from: &[u8]) -> bool {
        let ok = self.allowed(addr, from.len() as u64);
        if ok {
            map::copy_in(addr, from);
        }
        ok
    }

    /// Writes to memory from [`Memory::alloc_scratch`].
    pub(crate) fn write_scratch(&self, addr: u64, from: &[u8]) {
        let known = self.state().live.get(&addr).is_some_and(|a| a.scratch && a.room >= from.len() as u64);
        if known {
            map::copy_in(addr, from);
        }
    }

    /// Sets `count` elements at `addr` to `pattern` (1, 2 or 4 bytes in `cuMemsetD8/16/32`). `false`, with nothing set: not
    /// wholly inside one allocation, or the pattern is empty.
    #[must_use]
    pub fn fill(&self, addr: u64, pattern: &[u8], count: u64) -> bool {
        let Some(len) = count.checked_mul(pattern.len() as u64) else { return false };
        let ok = !pattern.is_empty() && self.allowed(addr, len);
        if ok {
            map::fill(addr, pattern, len);
        }
        ok
    }

    /// Copies `len` bytes from `from` to `to`, both on the device (or registered host memory); they may overlap.
    /// `false`, with nothing copied: one of them is not wholly inside one allocation.
    #[must_use]
    pub fn copy(&self, to: u64, from: u64, len: u64) -> bool {
        let ok = self.allowed(to, len) && self.allowed(from, len);
        if ok {
            map::copy(to, from, len);
        }
        ok
    }
}

#[cfg(test)]
mod tests;
