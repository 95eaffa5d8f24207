//! The host arena: one shared file that client and worker map at the same address, so that pinned memory is the same
//! bytes for the program, for the driver and for kernels.
//!
//! The worker makes and seals the file; it is as long as the machine has memory and holds pages only where pinned
//! memory was allocated. The client keeps the whole range mapped without access, and opens and closes pieces of it; no
//! descriptor is kept on its side, since programs may close what they do not know.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::with_exposed_provenance_mut;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use crate::wire::layout::GRAIN;
use crate::wire::state::LinkError;

/// An arena is never longer than this, whatever a peer says: a part of the 47 bits that programs have.
const BYTES_MAX: u64 = 1 << 44;
const PAGE: u64 = 4096;

/// The file, as the worker makes it and the client receives it.
#[derive(Debug)]
pub struct ArenaFile {
    fd: OwnedFd,
    len: u64,
}

impl ArenaFile {
    /// As long as this machine has memory. It takes none of it yet.
    pub fn create() -> io::Result<Self> {
        let info = rustix::system::sysinfo();
        let memory = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
        let len = memory.clamp(u64::from(GRAIN), BYTES_MAX).next_multiple_of(u64::from(GRAIN));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("gpupool-host", flags)?;
        rustix::fs::ftruncate(&fd, len)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, len })
    }

    /// A file that a peer has sent and says to have `len` bytes.
    ///
    /// # Errors
    /// It has not, or could shrink, which would let the peer end this process with SIGBUS.
    pub fn received(fd: OwnedFd, len: u64) -> Result<Self, LinkError> {
        if len == 0 || len > BYTES_MAX || !len.is_multiple_of(u64::from(GRAIN)) {
            return Err(LinkError::protocol(format!("a host arena of {len} bytes")));
        }
        super::shm::check_memfd(&fd, len)?;
        Ok(Self { fd, len })
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Maps all of it, readable and writable, at exactly `base`.
    ///
    /// # Errors
    /// `EEXIST`: something is there already. `EINVAL`: nothing can be there.
    pub fn map_at(&self, base: u64) -> io::Result<ArenaMap> {
        let end = base.checked_add(self.len).filter(|end| *end < 1 << 47);
        if base == 0 || !base.is_multiple_of(PAGE) || end.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let map = self.map(base, prot, flags)?;
        // A kernel before 4.17 takes the address for a wish.
        if map.base == base { Ok(map) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    /// Maps all of it without access, at `wish` if that is free and else wherever the kernel likes.
    pub fn reserve(&self, wish: u64) -> io::Result<ArenaMap> {
        self.map(wish, ProtFlags::empty(), MapFlags::SHARED | MapFlags::NORESERVE)
    }

    fn map(&self, base: u64, prot: ProtFlags, flags: MapFlags) -> io::Result<ArenaMap> {
        let at = with_exposed_provenance_mut(base as usize);
        // SAFETY: a new mapping, and none of the flags replaces another one.
        let base = unsafe { rustix::mm::mmap(at, self.len as usize, prot, flags, &self.fd, 0)? };
        Ok(ArenaMap { base: base.expose_provenance() as u64, len: self.len })
    }
}

/// A mapping of the whole file.
#[derive(Debug)]
pub struct ArenaMap {
    base: u64,
    len: u64,
}

impl ArenaMap {
    /// Its first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `bytes` from `address` on lie in it.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|from| from <= self.len && bytes <= self.len - from)
    }

    /// Moves a mapping of which nothing is open to where the kernel finds room, at best to `wish`.
    pub fn relocate(&mut self, wish: u64) -> io::Result<()> {
        let (len, wish) = (self.len as usize, with_exposed_provenance_mut(wish as usize));
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping without access, whose only use is to be replaced in the next step.
        let room = unsafe { rustix::mm::mmap_anonymous(wish, len, ProtFlags::empty(), flags)? };
        // SAFETY: our own mapping, into which nobody has a pointer, is moved over the one made above.
        let moved =
            unsafe { rustix::mm::mremap_fixed(self.pointer(0), len, len, MremapFlags::MAYMOVE, room) };
        match moved {
            Ok(base) => self.base = base.expose_provenance() as u64,
            // SAFETY: the mapping made above, unused.
            Err(_) => drop(unsafe { rustix::mm::munmap(room, len) }),
        }
        moved.map(drop).map_err(io::Error::from)
    }

    /// Makes a piece readable and writable, and its pages be there. They are zero.
    ///
    /// # Errors
    /// There is no memory for the pages.
    pub fn open(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.protect(offset, bytes, MprotectFlags::READ | MprotectFlags::WRITE)?;
        self.populate(offset, bytes).inspect_err(|_| self.close(offset, bytes))
    }

    /// Has the pages of a piece mapped here, so that no first access pays for it.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn populate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(offset, bytes);
        // SAFETY: adds pages to a mapping of ours and changes none of their bytes.
        let done =
            unsafe { rustix::mm::madvise(self.pointer(offset), bytes as usize, Advice::LinuxPopulateWrite) };
        match done {
            // A kernel before 5.14 maps them at the first access.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes away access to a piece, and gives its pages back to the system.
    pub fn close(&self, offset: u64, bytes: u64) {
        self.check(offset, bytes);
        // SAFETY: a piece that `open` gave and whose user says that nobody uses it any more. A failure leaves pages
        // where they are, until the session ends.
        let _ = unsafe { rustix::mm::madvise(self.pointer(offset), bytes as usize, Advice::LinuxRemove) };
        let _ = self.protect(offset, bytes, MprotectFlags::empty());
    }

    fn protect(&self, offset: u64, bytes: u64, access: MprotectFlags) -> io::Result<()> {
        self.check(offset, bytes);
        // SAFETY: a piece of our own mapping, to which this program has no references.
        unsafe { rustix::mm::mprotect(self.pointer(offset), bytes as usize, access)? };
        Ok(())
    }

    fn check(&self, offset: u64, bytes: u64) {
        assert!(offset <= self.len && bytes <= self.len - offset, "{bytes} bytes at {offset} of the arena");
    }

    fn pointer(&self, offset: u64) -> *mut core::ffi::c_void {
        with_exposed_provenance_mut((self.base + offset) as usize)
    }
}

impl Drop for ArenaMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the owner drops it when nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.pointer(0), self.len as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(address: u64) -> *mut u8 {
        with_exposed_provenance_mut(address as usize)
    }

    #[test]
    fn both_mappings_show_the_same_bytes_and_closed_pieces_come_back_as_zero() {
        let file = ArenaFile::create().unwrap();
        let mut ours = file.reserve(0x2100_0000_0000).unwrap();
        let before = ours.base();
        assert!(file.map_at(before).is_err(), "taken");
        ours.relocate(before + ours.len()).unwrap();
        let theirs = file.map_at(before).expect("free again");
        assert_ne!(ours.base(), before);
        ours.open(0x10000, 0x2000).unwrap();
        // SAFETY: a piece that is open here and mapped there.
        unsafe {
            byte(ours.base() + 0x11fff).write_volatile(7);
            assert_eq!(byte(theirs.base() + 0x11fff).read_volatile(), 7);
        }
        ours.close(0x10000, 0x2000);
        ours.open(0x10000, 0x2000).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { byte(ours.base() + 0x11fff).read_volatile() }, 0);
        assert!(ours.holds(ours.base(), ours.len()) && !ours.holds(ours.base() + 1, ours.len()));
        assert!(!ours.holds(ours.base() - 1, 1) && !ours.holds(u64::MAX, u64::MAX));
    }

    #[test]
    fn only_places_that_programs_have_are_mapped() {
        let file = ArenaFile::create().unwrap();
        for base in [0, 1, 0x800, 1 << 47, u64::MAX - 0xffff, (1 << 47) - 0x10000] {
            assert!(file.map_at(base).is_err(), "{base:#x}");
        }
    }

    #[test]
    fn a_file_that_could_shrink_or_has_another_length_is_refused() {
        let loose =
            rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, 0x10000).unwrap();
        assert!(ArenaFile::received(loose, 0x10000).is_err());
        let file = ArenaFile::create().unwrap();
        let len = file.len();
        assert!(ArenaFile::received(file.fd.try_clone().unwrap(), len + 0x10000).is_err());
        assert!(ArenaFile::received(file.fd, len).is_ok());
    }
}
