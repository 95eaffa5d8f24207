//! Two words in memory that two processes share, each on a cache line of its own.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const BYTES: usize = 4096;
/// Two lines apart: processors fetch cache lines in pairs.
const DISTANCE: usize = 128;

/// A shared page. The file descriptor is inherited by children.
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

    /// The word that its peer writes.
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
