//! The device memory: one reserved address range that allocations, module variables and the workers' shared and local
//! memory lie in; *windows* to memory elsewhere (`windows`); and a table that says what a kernel may touch (`table`).
//!
//! Addresses are the process's own, so that generic addressing costs nothing. The range starts at a fixed, high hint so
//! that device addresses do not meet the heap of the application. Kernels check each access against one byte per 64 KiB of
//! address space (the *granule table*); like on a card, that catches wild addresses and not each small overrun. The
//! driver's own copies (`transfer`) are checked exactly, against allocations and windows.
//!
//! A part of the range that was once handed out stays mapped: freeing gives the pages back to the system and clears
//! the granules, so that a kernel that races with a free reads zeros or faults cleanly, and never crashes the process.

mod budget;
pub(crate) mod door;
mod heap;
mod map;
mod peers;
mod physical;
mod table;
mod transfer;
mod windows;
mod word;

pub use budget::Ledger;
pub use peers::{SharedMemory, View};
pub use physical::{Physical, Reservation, token, token_label};
pub use windows::Access;

use crate::error::OutOfMemory;
use budget::Budget;
use heap::Heap;
use map::Mapping;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use table::{Table, Why};
use windows::Windows;

/// log2 of the size of the reserved range: 1 TiB of addresses.
const RANGE_BITS: u32 = 40;
/// log2 of the addresses that the granule table covers: all that a process can have.
pub(crate) const SPACE_BITS: u32 = 47;
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

/// Which addresses a device's memory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// The same in every process, if they are free there.
    Usual,
    /// Where the system finds room: others, and (as systems randomise) others in each process.
    Others,
}

/// The memory of one device.
pub struct Memory {
    range: Mapping,
    table: Table,
    windows: Windows,
    budget: Arc<Budget>,
    /// Views of this device's own kernels.
    views: peers::Views,
    /// Views of other devices that this one's memory is open to.
    peers: peers::Views,
    pub(crate) objects: crate::texture::Objects,
    /// Grids and copies that run now.
    users: AtomicU64,
    state: Mutex<State>,
}

/// While it lives, [`Memory::is_idle`] is false.
pub struct InUse<'a>(&'a AtomicU64);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct State {
    /// Free parts of the range, in granules.
    range: Heap,
    /// Free parts of the chunks of small allocations.
    small: Heap,
    /// Live allocations by address.
    live: BTreeMap<u64, Allocation>,
    /// Parts of the range that other processes may have mapped, by address.
    shared: BTreeMap<u64, peers::SharedPart>,
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
        Memory::counted(total, None, Addresses::Usual)
    }

    /// As [`Memory::new`], with the bytes counted elsewhere, and addresses as is said.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn counted(
        total: u64,
        ledger: Option<Arc<dyn Ledger>>,
        addresses: Addresses,
    ) -> io::Result<Arc<Memory>> {
        // Where address space is limited, less will do: what is beyond has no granules.
        let sizes = [RANGE, RANGE >> 2, RANGE >> 4, RANGE >> 6];
        let mut range = Err(io::ErrorKind::OutOfMemory.into());
        for size in sizes.into_iter().filter(|s| *s == RANGE || *s / 2 >= total) {
            range = match addresses {
                Addresses::Usual => Mapping::reserve(size as usize),
                Addresses::Others => Mapping::reserve_anywhere(size as usize, CHUNK as usize),
            };
            if range.is_ok() {
                break;
            }
        }
        let range: Mapping = range?;
        let table = Table::new()?;
        let base = range.address();
        let state = State {
            // The first granule is never given out, so that the range's base is not an allocation.
            range: Heap::new(base + GRANULE, range.length() - GRANULE),
            small: Heap::empty(),
            live: BTreeMap::new(),
            shared: BTreeMap::new(),
        };
        Ok(Arc::new(Memory {
            range,
            table,
            windows: Windows::default(),
            budget: Arc::new(Budget::new(total.min(RANGE / 2), ledger)),
            objects: crate::texture::Objects::default(),
            views: peers::Views::default(),
            peers: peers::Views::default(),
            users: AtomicU64::new(0),
            state: Mutex::new(state),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that somebody is about to check addresses and to touch them: memory that is given back from now on stays mapped.
    pub fn enter(&self) -> InUse<'_> {
        self.users.fetch_add(1, Ordering::SeqCst);
        InUse(&self.users)
    }

    /// Whether no grid and no copy runs. What was taken from kernels before is then touched by none of them any more.
    pub fn is_idle(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 0
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
        self.budget.total()
    }

    /// Bytes taken by allocations, module variables and [`Memory::create`].
    pub fn used(&self) -> u64 {
        self.budget.used()
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
        let size = size.max(1);
        let total = self.total();
        let none = OutOfMemory { wanted: size, free: total - self.used().min(total), total };
        if size > RANGE / 2 || align > RANGE / 2 {
            return Err(none);
        }
        if !scratch {
            self.budget.take(size)?;
        }
        let addr = self.place(size, align, scratch);
        if addr.is_none() && !scratch {
            self.budget.give(size);
        }
        addr.ok_or(none)
    }

    /// Finds room, whatever the budget says.
    fn place(&self, size: u64, align: u64, scratch: bool) -> Option<u64> {
        let mut s = self.state();
        let align = align.max(MIN_ALIGN).next_power_of_two();
        let large = scratch || size >= LARGE || align > GRANULE;
        let (room, addr) = if large {
            let room = size.next_multiple_of(GRANULE);
            let align = if size >= CHUNK && !scratch { align.max(CHUNK) } else { align.max(GRANULE) };
            (room, self.take_granules(&mut s, room, align)?)
        } else {
            let room = size.next_multiple_of(MIN_ALIGN);
            let mut got = s.small.take(room, align);
            if got.is_none() {
                let chunk = self.take_granules(&mut s, CHUNK, CHUNK)?;
                s.small.give(chunk, CHUNK);
                got = s.small.take(room, align);
            }
            (room, got?)
        };
        s.live.insert(addr, Allocation { size, room, large, scratch });
        Some(addr)
    }

    fn take_granules(&self, s: &mut State, room: u64, align: u64) -> Option<u64> {
        let addr = s.range.take(room, align)?;
        if self.range.commit(addr, room).is_err() || !self.table.mark(addr, room, Why::Own) {
            s.range.give(addr, room);
            return None;
        }
        self.views.mark(addr, room, Why::Own);
        self.peers.mark(addr, room, Why::Peer);
        Some(addr)
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
            self.budget.give(a.size);
        }
        if a.large {
            self.table.clear(addr, a.room, Why::Own);
            self.views.clear(addr, a.room, Why::Own);
            self.peers.clear(addr, a.room, Why::Peer);
            match s.shared.remove(&addr) {
                // Another process may go on with the file; here zeros take its place. If the system refuses, the pages stay.
                Some(part) => _ = self.range.map_zeros(addr, part.len),
                None => self.range.discard(addr, a.room),
            }
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
}

#[cfg(test)]
mod tests;
