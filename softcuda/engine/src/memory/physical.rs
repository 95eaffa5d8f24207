//! Memory apart from addresses: what `cuMemCreate` makes, and ranges of addresses that it can be mapped into.
//!
//! What other processes may get, and what is mapped at several places or in parts, is a file in memory. The file's name says
//! what it is for, and its seals that nobody can cut it short under a mapping. Everything else is pages of this process alone, which
//! move when it is mapped elsewhere: those may be huge ones, which files get only where the system's owner has allowed it, and
//! kernels that stream through memory take a twentieth longer on small ones.

use super::budget::Budget;
use super::door::Closed;
use super::map::{self, Mapping};
use super::{Memory, peers};
use crate::error::OutOfMemory;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Some memory of a device (or of another process's) without an address.
pub struct Physical {
    pages: Mutex<Pages>,
    size: u64,
    /// Goes with the file.
    label: String,
    /// Whose bytes it takes; what another process made is counted there.
    budget: Option<Arc<Budget>>,
}

/// Where the bytes are.
enum Pages {
    /// Nowhere: nobody has had the chance to write any.
    Unmade,
    /// At this address, where the memory is mapped as a whole, and nowhere else.
    At(u64),
    /// Mapped nowhere; kept here.
    Kept(Mapping),
    File(OwnedFd),
}

/// What the names of our files begin with, as the system shows them.
pub(super) const PREFIX: &str = "softcuda:";

impl Memory {
    /// Makes `size` bytes (a multiple of the page size). `label` goes with it to whoever gets its file, at most 200 bytes;
    /// only memory that is `shareable` may be given to others ([`Physical::file`]).
    ///
    /// # Errors
    /// When fewer than `size` bytes are free, or the system refuses a file.
    pub fn create(&self, size: u64, label: &str, shareable: bool) -> Result<Arc<Physical>, OutOfMemory> {
        self.budget.take(size)?;
        // From here on its end gives the bytes back.
        let memory = Physical {
            pages: Mutex::new(Pages::Unmade),
            size,
            label: label.to_owned(),
            budget: Some(self.budget.clone()),
        };
        if shareable && memory.with_file(&mut memory.lock(), |_| Ok(())).is_err() {
            drop(memory);
            return Err(OutOfMemory { wanted: size, free: self.total() - self.used(), total: self.total() });
        }
        Ok(Arc::new(memory))
    }
}

/// A file that only says its label to who gets it ([`token_label`]); it takes no memory of a device.
///
/// # Errors
/// What the system says.
pub fn token(label: &str) -> io::Result<OwnedFd> {
    map::memory_file(&format!("{PREFIX}{label}"), 0)
}

/// The label of a [`token`].
///
/// # Errors
/// A file that [`token`] did not make.
pub fn token_label(file: OwnedFd) -> io::Result<String> {
    Physical::open(file).map(|(_, label)| label)
}

impl Physical {
    /// What another process made, from its file: the memory and its label.
    ///
    /// # Errors
    /// A file that [`Memory::create`] did not make.
    pub fn open(file: OwnedFd) -> io::Result<(Arc<Physical>, String)> {
        let (name, size) = map::check_memory_file(&file)?;
        let label = name.strip_prefix("/memfd:").and_then(|n| n.strip_prefix(PREFIX));
        let label = label.map(|l| l.strip_suffix(" (deleted)").unwrap_or(l));
        let label = label.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let memory =
            Physical { pages: Mutex::new(Pages::File(file)), size, label: label.clone(), budget: None };
        Ok((Arc::new(memory), label))
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its file, if it is one: for others.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for memory that is none; else what the system says.
    pub fn file(&self) -> io::Result<OwnedFd> {
        match &*self.lock() {
            Pages::File(file) => file.try_clone(),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where it is mapped, if it has to become a file ([`Reservation::share`]) before it is mapped a second time.
    pub fn only_place(&self) -> Option<u64> {
        if let Pages::At(address) = *self.lock() { Some(address) } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it a file, with the bytes that it has.
    fn with_file<R>(&self, pages: &mut Pages, then: impl FnOnce(&OwnedFd) -> io::Result<R>) -> io::Result<R> {
        let bytes = match pages {
            Pages::File(file) => return then(file),
            Pages::Unmade => None,
            Pages::At(address) => Some(*address),
            Pages::Kept(mapping) => Some(mapping.address()),
        };
        let file = map::memory_file(&format!("{PREFIX}{}", self.label), self.size)?;
        if let Some(address) = bytes {
            peers::copy_to_file(&file, address, self.size)?;
        }
        let done = then(&file)?;
        *pages = Pages::File(file);
        Ok(done)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give(self.size);
        }
    }
}

/// Where ranges go whose place does not matter: above the devices' own.
const RANGES: u64 = 0x2000_0000_0000;
/// No range goes beyond; the granule table ends here.
const END: u64 = 1 << super::SPACE_BITS;

/// A range of addresses that is ours until dropped. Nothing may run that could still touch it then.
pub struct Reservation(Mapping);

impl Reservation {
    /// Reserves `size` bytes, aligned to `align` (a power of two of at least a page): at `hint` if that is aligned and free,
    /// else where there is room.
    ///
    /// # Errors
    /// When the system has no room.
    pub fn new(size: u64, align: u64, hint: Option<u64>) -> io::Result<Reservation> {
        static NEXT: AtomicU64 = AtomicU64::new(RANGES);
        let fits = |at: u64| at.checked_add(size).is_some_and(|end| end <= END);
        if let Some(at) = hint
            && at.is_multiple_of(align)
            && fits(at)
            && let Ok(mapping) = Mapping::reserve_at(at as usize, size as usize)
        {
            return Ok(Reservation(mapping));
        }
        for _ in 0..16 {
            let step = size.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
            let at = NEXT.fetch_add(step, Ordering::Relaxed);
            let at = at.checked_next_multiple_of(align).ok_or(io::ErrorKind::OutOfMemory)?;
            if !fits(at) {
                NEXT.store(RANGES, Ordering::Relaxed);
            } else if let Ok(mapping) = Mapping::reserve_at(at as usize, size as usize) {
                return Ok(Reservation(mapping));
            }
        }
        Mapping::reserve_anywhere(size as usize, align as usize).map(Reservation)
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.length()
    }

    /// Maps a part of `memory` at an address of the range.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::InvalidInput`] for what lies outside of either; [`io::ErrorKind::ResourceBusy`] for
    /// memory that has an [only place](Physical::only_place).
    pub fn map(&self, addr: u64, memory: &Physical, offset: u64, size: u64) -> io::Result<()> {
        if offset.checked_add(size).is_none_or(|end| end > memory.size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut pages = memory.lock();
        let whole = size == memory.size;
        match &*pages {
            Pages::At(_) => return Err(io::ErrorKind::ResourceBusy.into()),
            Pages::Unmade if whole => self.0.map_zeros_huge(addr, size)?,
            // Where the system cannot move pages, they are copied into a file.
            Pages::Kept(kept) if whole && self.0.move_here(addr, kept.address(), size).is_ok() => {}
            _ => return memory.with_file(&mut pages, |file| self.0.map_file(addr, file, offset, size)),
        }
        *pages = Pages::At(addr);
        Ok(())
    }

    /// Makes memory that is mapped in this range, at its [only place](Physical::only_place), a file, so that it can be mapped
    /// elsewhere as well. Its bytes move, for which kernels and copies of all devices stand still.
    ///
    /// # Errors
    /// What the system says.
    pub fn share(&self, memory: &Physical) -> io::Result<()> {
        let _closed = Closed::new();
        let mut pages = memory.lock();
        let Pages::At(addr) = *pages else { return Ok(()) };
        memory.with_file(&mut pages, |file| self.0.map_file(addr, file, 0, memory.size))
    }

    /// Takes away what is mapped in a part. Zeros are there instead, for a kernel that is late.
    ///
    /// # Errors
    /// What the system says.
    pub fn unmap(&self, addr: u64, size: u64) -> io::Result<()> {
        self.0.map_zeros(addr, size)
    }

    /// As [`Reservation::unmap`], for `memory` that is mapped there and may be mapped again: it keeps its bytes.
    ///
    /// # Errors
    /// What the system says; then it is still mapped.
    pub fn unmap_kept(&self, addr: u64, size: u64, memory: &Physical) -> io::Result<()> {
        let mut pages = memory.lock();
        if matches!(*pages, Pages::At(_)) {
            let kept = Mapping::reserve_anywhere(size as usize, map::HUGE_PAGE)?;
            if kept.move_here(kept.address(), addr, size).is_ok() {
                *pages = Pages::Kept(kept);
            } else {
                memory.with_file(&mut pages, |_| Ok(()))?;
            }
        }
        self.0.map_zeros(addr, size)
    }
}
