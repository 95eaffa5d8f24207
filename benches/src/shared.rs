//! Memory that two processes share, laid out as the pool's: a ring of records, the word that publishes them, and a reply slot,
//! each on cache lines of its own.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::Context;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Two lines apart: processors fetch cache lines in pairs.
const DISTANCE: usize = 128;
/// Where the ring begins, and its records, a cache line each.
const RING: usize = 4096;
const RECORD: usize = 64;
const RECORDS: usize = 1024;
const BYTES: usize = RING + RECORD * RECORDS;

/// The shared memory. The file descriptor is inherited by children.
pub struct Page {
    address: *mut u8,
    /// The memory's file, when this process made it.
    pub file: Option<OwnedFd>,
}

impl Page {
    /// Makes shared memory.
    pub fn create() -> anyhow::Result<Page> {
        let file = memfd_create("pool-bench", MemfdFlags::empty()).context("cannot make shared memory")?;
        ftruncate(&file, BYTES as u64).context("cannot size shared memory")?;
        let mut page = Page::map(&file)?;
        page.file = Some(file);
        Ok(page)
    }

    /// Maps the shared memory that the parent made.
    pub fn inherited(fd: i32) -> anyhow::Result<Page> {
        anyhow::ensure!(fd >= 0, "no file descriptor");
        // SAFETY: the descriptor was inherited for this purpose and is borrowed for the length of the call only; were
        // it closed, mmap would say so.
        Page::map(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn map(file: impl std::os::fd::AsFd) -> anyhow::Result<Page> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        };
        Ok(Page { address: address.context("cannot map shared memory")?.cast(), file: None })
    }

    /// The word that the measuring process writes.
    pub fn ping(&self) -> &AtomicU64 {
        // SAFETY: aligned and inside the page, which is mapped as long as self lives; only accessed as atomics.
        unsafe { AtomicU64::from_ptr(self.address.cast()) }
    }

    /// A word of the record of this turn, which the measuring process writes; at most 8 words.
    pub fn record(&self, turn: u64, word: usize) -> &AtomicU64 {
        let place = RING + turn as usize % RECORDS * RECORD + word % 8 * 8;
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.address.add(place).cast()) }
    }

    /// A word of the answer, beside the word that says that it is there; at most 7 words.
    pub fn answer(&self, word: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.address.add(DISTANCE + 8 + word % 7 * 8).cast()) }
    }

    /// How many sleep, on a line that nobody writes while all spin.
    pub fn sleepers(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.address.add(2 * DISTANCE).cast()) }
    }

    /// Whether the measuring process (0) or its peer (1) sleeps: not 0 while it does.
    pub fn sleeps(&self, side: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.address.add((3 + side % 2) * DISTANCE).cast()) }
    }

    /// The half of the ping word (0) or of the pong word (1) that changes with every value: a futex.
    pub fn futex(&self, word: usize) -> &AtomicU32 {
        // SAFETY: as above; the first half on a little-endian machine.
        unsafe { AtomicU32::from_ptr(self.address.add(word % 2 * DISTANCE).cast()) }
    }

    /// The word that its peer writes when its answer is there.
    pub fn pong(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.address.add(DISTANCE).cast()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no reference outlives self.
        let _ = unsafe { munmap(self.address.cast(), BYTES) };
    }
}
