//! The mapping of a device's file.
#![allow(unsafe_code, reason = "memory that is shared between processes")]

use crate::state::Shared;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::path::Path;

/// A file that begins with a [`Shared`], mapped for as long as the process lives.
pub(crate) struct Map(&'static Shared);

impl Map {
    /// Opens a file, makes it if it is not there, and maps it. New bytes are zero.
    ///
    /// # Errors
    /// What the system says; a file that is not this user's.
    pub fn open(path: &Path) -> io::Result<Map> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        let size = size_of::<Shared>();
        if (stat.st_size as usize) < size {
            // Growing to the same size twice, by two processes at once, is growing once.
            rustix::fs::ftruncate(&file, size as u64)?;
        }
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe {
            let (protection, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            rustix::mm::mmap(std::ptr::null_mut(), size, protection, kind, &file, 0)?
        };
        // SAFETY: the mapping has the struct's size and a page's alignment, is never unmapped, and holds nothing but
        // atomics, for which every pattern of bytes is a value.
        Ok(Map(unsafe { &*address.cast::<Shared>() }))
    }

    /// What it holds.
    pub fn get(&self) -> &'static Shared {
        self.0
    }
}
