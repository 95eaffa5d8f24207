//! The mappings of files that processes share.
#![allow(unsafe_code, reason = "memory that is shared between processes")]

use crate::signal::Words;
use crate::state::Shared;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;

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
        // With its pages: one that a full file system cannot give would be a SIGBUS at the first access. Growing to the
        // same size twice, by two processes at once, is growing once.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size as u64) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if (stat.st_size as usize) < size => {
                rustix::fs::ftruncate(&file, size as u64)?;
            }
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
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

/// A struct of nothing but atomics, for which every pattern of bytes is a value.
///
/// # Safety
/// As said, and aligned to no more than a page.
pub(crate) unsafe trait Atomics: Sync {}

// SAFETY: nothing but atomics.
unsafe impl Atomics for Words {}

/// The beginning of a file, mapped until dropped.
pub(crate) struct Page<T: Atomics>(NonNull<T>);

// SAFETY: it only gives out shared references to atomics, which live as long as it does.
unsafe impl<T: Atomics> Send for Page<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Page<T> {}

impl<T: Atomics> Page<T> {
    /// Maps a file that is at least as long as a `T` and that nobody can cut short.
    ///
    /// # Errors
    /// What the system says.
    pub fn map(file: &OwnedFd) -> io::Result<Page<T>> {
        let (protection, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size_of::<T>(), protection, kind, file, 0)? };
        NonNull::new(address.cast()).map(Page).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// What it holds.
    pub fn get(&self) -> &T {
        // SAFETY: the mapping has the struct's size, a page's alignment, and lives as long as this value.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Atomics> Drop for Page<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; references to it cannot outlive it. A refusal only keeps it.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_has_its_pages_before_it_is_used() {
        let directory = std::env::temp_dir().join(format!("softcuda-map-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("state");
        let size = size_of::<Shared>() as u64;
        // One that is there, but has no page, gets its pages too.
        for sparse in [false, true] {
            if sparse {
                std::fs::File::create(&path).unwrap().set_len(size).unwrap();
            }
            Map::open(&path).unwrap();
            let meta = std::fs::metadata(&path).unwrap();
            assert!(meta.len() >= size && meta.blocks() * 512 >= size, "{} blocks", meta.blocks());
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_dir(&directory).unwrap();
    }
}
