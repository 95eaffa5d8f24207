//! The granule table: one byte for each 64 KiB of all addresses that a process can have, not 0 where kernels may read and
//! write. Its bits are the reasons ([`Why`]) for which they may: what ends for one reason goes on for another.
//!
//! It covers the whole space, not the device's own range, so that memory which a program places at an address of its own
//! choice is checked as quickly as any other. The table's pages are read-only until something is marked in them: untouched,
//! they cost the system nothing, not even where it counts every writable page.

use super::map::Mapping;
use super::{GRANULE, GRANULE_BITS, SPACE_BITS};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Bytes of the table that become writable at once: 128 GiB of addresses.
const SECTION: u64 = 2 << 20;
const BYTES: u64 = 1 << (SPACE_BITS - GRANULE_BITS);

/// Why kernels may touch a granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Why {
    /// An allocation of the device.
    Own = 1,
    /// A window.
    Window = 2,
    /// An allocation of a device that is open to this view.
    Peer = 4,
}

/// See the module.
pub(super) struct Table {
    bytes: Mapping,
    writable: Box<[AtomicBool]>,
}

impl Table {
    /// A table in which nothing is marked.
    ///
    /// # Errors
    /// When the system refuses 2 GiB of addresses.
    pub(super) fn new() -> io::Result<Table> {
        let writable = (0..BYTES / SECTION).map(|_| AtomicBool::new(false)).collect();
        Ok(Table { bytes: Mapping::read_only(BYTES as usize)?, writable })
    }

    /// Its address; kernels read it.
    pub(super) fn address(&self) -> u64 {
        self.bytes.address()
    }

    /// Sets the granules that lie wholly in a range. `false`: the system refused memory, or the range is no user's.
    #[must_use]
    pub(super) fn mark(&self, addr: u64, len: u64, why: Why) -> bool {
        let Some((first, end)) = inner(addr, len) else { return true };
        if end > BYTES || !self.open(first, end) {
            return false;
        }
        (first..end).for_each(|g| _ = self.granule(g).fetch_or(why as u8, Ordering::SeqCst));
        true
    }

    /// Takes the marks of [`Table::mark`] away that were made for this reason.
    pub(super) fn clear(&self, addr: u64, len: u64, why: Why) {
        let Some((first, end)) = inner(addr, len) else { return };
        // What lies in a section that was never made writable is not set.
        let open = |g: &u64| self.writable[(g / SECTION) as usize].load(Ordering::Acquire);
        for g in (first..end.min(BYTES)).filter(open) {
            if self.granule(g).load(Ordering::Relaxed) & why as u8 != 0 {
                self.granule(g).fetch_and(!(why as u8), Ordering::SeqCst);
            }
        }
    }

    /// Whether all granules that a range touches are set.
    pub(super) fn all(&self, addr: u64, len: u64) -> bool {
        let Some(last) = addr.checked_add(len.max(1) - 1) else { return false };
        if last >> SPACE_BITS != 0 {
            return false;
        }
        (addr >> GRANULE_BITS..=last >> GRANULE_BITS).all(|g| self.granule(g).load(Ordering::Relaxed) != 0)
    }

    /// The runs of granules in a range that are the device's own allocations, as addresses and lengths.
    pub(super) fn own_runs(&self, addr: u64, len: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for g in addr >> GRANULE_BITS..(addr + len) >> GRANULE_BITS {
            let open = self.writable[(g / SECTION) as usize].load(Ordering::Acquire);
            if !open || self.granule(g).load(Ordering::Relaxed) & Why::Own as u8 == 0 {
                continue;
            }
            match runs.last_mut() {
                Some((start, run)) if *start + *run == g << GRANULE_BITS => *run += GRANULE,
                _ => runs.push((g << GRANULE_BITS, GRANULE)),
            }
        }
        runs
    }

    /// Makes the table's pages for some granules writable.
    fn open(&self, first: u64, end: u64) -> bool {
        (first / SECTION..=(end - 1) / SECTION).all(|section| {
            let state = &self.writable[section as usize];
            if state.load(Ordering::Acquire) {
                return true;
            }
            // Twice at once does no harm.
            let done = self.bytes.commit_small(self.address() + section * SECTION, SECTION).is_ok();
            state.store(done, Ordering::Release);
            done
        })
    }

    fn granule(&self, index: u64) -> &AtomicU8 {
        assert!(index < BYTES);
        // SAFETY: the table has a byte for each granule, lives as long as `self` and is only ever reached as atomic
        // bytes (kernels read single bytes of it). It is written only where `open` made it writable.
        unsafe { AtomicU8::from_ptr((self.address() + index) as *mut u8) }
    }
}

/// The granules that lie wholly in a range: first, and one behind the last.
fn inner(addr: u64, len: u64) -> Option<(u64, u64)> {
    let first = addr.checked_next_multiple_of(GRANULE)? >> GRANULE_BITS;
    let end = addr.checked_add(len)? >> GRANULE_BITS;
    (first < end).then_some((first, end))
}
