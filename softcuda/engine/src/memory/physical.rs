//! Memory apart from addresses: what `cuMemCreate` makes, and ranges of addresses that it can be mapped into.
//!
//! It is a file in memory, so that it can be mapped at several places, and by several processes. The file's name says what
//! it is for, and its seals that nobody can cut it short under a mapping.

use super::Memory;
use super::budget::Budget;
use super::map::{self, Mapping};
use crate::error::OutOfMemory;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Some memory of a device (or of another process's) without an address.
pub struct Physical {
    file: OwnedFd,
    size: u64,
    /// Whose bytes it takes; what another process made is counted there.
    budget: Option<Arc<Budget>>,
}

/// What the names of our files begin with, as the system shows them.
pub(super) const PREFIX: &str = "softcuda:";

impl Memory {
    /// Makes `size` bytes (a multiple of the page size). `label` goes with it to whoever gets its file; at most 200 bytes.
    ///
    /// # Errors
    /// When fewer than `size` bytes are free, or the system refuses a file.
    pub fn create(&self, size: u64, label: &str) -> Result<Arc<Physical>, OutOfMemory> {
        self.budget.take(size)?;
        match map::memory_file(&format!("{PREFIX}{label}"), size) {
            Ok(file) => Ok(Arc::new(Physical { file, size, budget: Some(self.budget.clone()) })),
            Err(_) => {
                self.budget.give(size);
                Err(OutOfMemory { wanted: size, free: self.total() - self.used(), total: self.total() })
            }
        }
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
        Ok((Arc::new(Physical { file, size, budget: None }), label))
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
    /// What the system says, or [`io::ErrorKind::InvalidInput`] for what lies outside of either.
    pub fn map(&self, addr: u64, memory: &Physical, offset: u64, size: u64) -> io::Result<()> {
        if offset.checked_add(size).is_none_or(|end| end > memory.size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.map_file(addr, &memory.file, offset, size)
    }

    /// Takes away what is mapped in a part. Zeros are there instead, for a kernel that is late.
    ///
    /// # Errors
    /// What the system says.
    pub fn unmap(&self, addr: u64, size: u64) -> io::Result<()> {
        self.0.map_zeros(addr, size)
    }
}
