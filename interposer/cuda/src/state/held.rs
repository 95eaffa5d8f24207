//! Addresses of this process that nothing else may get, since they mean device memory.

#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{MapFlags, ProtFlags};

/// What the range's first address is a multiple of: the largest granularity that devices' memory is known to have.
const ALIGNMENT: u64 = 2 << 20;

/// A range that is mapped without access.
#[derive(Debug)]
pub struct Held {
    mapping: u64,
    mapped: u64,
    base: u64,
    bytes: u64,
}

impl Held {
    /// A range of `bytes` bytes, at `wish` if that is free; `None` if the system gives no such range.
    pub fn reserve(wish: u64, bytes: u64) -> Option<Self> {
        let mapped = bytes.checked_add(ALIGNMENT)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let wish = with_exposed_provenance_mut(wish as usize);
        // SAFETY: a new mapping without access, at an address of the kernel's choice.
        let mapping = unsafe { rustix::mm::mmap_anonymous(wish, mapped as usize, ProtFlags::empty(), flags) };
        let mapping = mapping.ok()?.expose_provenance() as u64;
        Some(Self { mapping, mapped, base: mapping.next_multiple_of(ALIGNMENT), bytes })
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mapping = with_exposed_provenance_mut(self.mapping as usize);
        // SAFETY: the mapping made in `reserve`, which nobody can have used.
        let _ = unsafe { rustix::mm::munmap(mapping, self.mapped as usize) };
    }
}
