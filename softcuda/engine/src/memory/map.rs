//! The system calls and raw copies under [`super::Memory`].

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Where the device range is asked for: far above the heap and far below the stack of a usual process.
const HINT: usize = 0x0200_0000_0000;

/// What huge pages come in.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// An anonymous mapping, unmapped when dropped.
pub(super) struct Mapping {
    addr: usize,
    len: usize,
}

impl Mapping {
    /// Addresses only, at the hint if it is free and elsewhere (aligned to 2 MiB) if not.
    pub(super) fn reserve(len: usize) -> io::Result<Mapping> {
        for i in 0..16 {
            if let Ok(mapping) = Mapping::reserve_at(HINT + i * len, len) {
                return Ok(mapping);
            }
        }
        Mapping::reserve_anywhere(len, 2 << 20)
    }

    /// Addresses only, at this place or not at all.
    pub(super) fn reserve_at(at: usize, len: usize) -> io::Result<Mapping> {
        let addr = map(at, len, libc::PROT_NONE, libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE)?;
        let mapping = Mapping { addr, len };
        // A kernel before 4.17 takes the flag for a hint.
        if addr == at { Ok(mapping) } else { Err(io::ErrorKind::AddrInUse.into()) }
    }

    /// Addresses only, wherever the system has room, aligned to a power of two.
    pub(super) fn reserve_anywhere(len: usize, align: usize) -> io::Result<Mapping> {
        let all = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let addr = map(0, all, libc::PROT_NONE, libc::MAP_NORESERVE)?;
        let aligned = addr.next_multiple_of(align);
        drop(Mapping { addr, len: aligned - addr });
        drop(Mapping { addr: aligned + len, len: addr + align - aligned });
        Ok(Mapping { addr: aligned, len })
    }

    /// Zeros that can be read, and take no memory.
    pub(super) fn read_only(len: usize) -> io::Result<Mapping> {
        let addr = map(0, len, libc::PROT_READ, libc::MAP_NORESERVE)?;
        Ok(Mapping { addr, len })
    }

    pub(super) fn address(&self) -> u64 {
        self.addr as u64
    }

    pub(super) fn length(&self) -> u64 {
        self.len as u64
    }

    /// Makes a part of a reserved mapping usable. Large parts are advised to use huge pages.
    pub(super) fn commit(&self, addr: u64, len: u64) -> io::Result<()> {
        self.commit_small(addr, len)?;
        self.advise_huge(addr, len);
        Ok(())
    }

    fn advise_huge(&self, addr: u64, len: u64) {
        self.assert_inside(addr, len);
        if len >= HUGE_PAGE as u64 {
            // SAFETY: a part of this mapping; advice only, a refusal is harmless.
            unsafe { libc::madvise(addr as *mut _, len as usize, libc::MADV_HUGEPAGE) };
        }
    }

    /// As [`Mapping::commit`], with usual pages.
    pub(super) fn commit_small(&self, addr: u64, len: u64) -> io::Result<()> {
        self.assert_inside(addr, len);
        // SAFETY: the part lies inside this mapping, which nothing but this crate uses.
        let rc = unsafe { libc::mprotect(addr as *mut _, len as usize, libc::PROT_READ | libc::PROT_WRITE) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Puts a part of a file in the place of a part of this mapping.
    pub(super) fn map_file(&self, addr: u64, file: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
        self.replace(addr, len, libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    /// Puts zeros in the place of a part of this mapping.
    pub(super) fn map_zeros(&self, addr: u64, len: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.replace(addr, len, flags, -1, 0)
    }

    /// As [`Mapping::map_zeros`], advised to use huge pages.
    pub(super) fn map_zeros_huge(&self, addr: u64, len: u64) -> io::Result<()> {
        self.map_zeros(addr, len)?;
        self.advise_huge(addr, len);
        Ok(())
    }

    /// Moves the pages of anonymous memory of this crate at `from` to `addr`, in the place of a part of this mapping. Zeros are
    /// left at `from`.
    pub(super) fn move_here(&self, addr: u64, from: u64, len: u64) -> io::Result<()> {
        self.assert_inside(addr, len);
        let (flags, len) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP, len as usize);
        // SAFETY: only a part of this mapping is replaced, as in `replace`; `from` stays mapped, so that kernels which run do
        // not crash.
        let p = unsafe { libc::mremap(from as *mut _, len, len, flags, addr as *mut libc::c_void) };
        if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn replace(&self, addr: u64, len: u64, flags: i32, file: i32, offset: u64) -> io::Result<()> {
        self.assert_inside(addr, len);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: only a part of this mapping is replaced, which nothing but this crate and kernels use; both the old and
        // the new can be read and written, so that kernels which run do not crash.
        let p = unsafe {
            libc::mmap(addr as *mut _, len as usize, protection, flags | libc::MAP_FIXED, file, offset as i64)
        };
        if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives the pages of a part back to the system; it stays mapped and reads as zero.
    pub(super) fn discard(&self, addr: u64, len: u64) {
        self.assert_inside(addr, len);
        // SAFETY: the part lies inside this mapping and is anonymous memory; a refusal only keeps the pages.
        unsafe { libc::madvise(addr as *mut _, len as usize, libc::MADV_DONTNEED) };
    }

    fn assert_inside(&self, addr: u64, len: u64) {
        let at = (addr as usize).wrapping_sub(self.addr);
        assert!(
            at <= self.len && len as usize <= self.len - at,
            "{addr:#x}+{len:#x} is outside of the mapping"
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this value owns the mapping.
            unsafe { libc::munmap(self.addr as *mut _, self.len) };
        }
    }
}

fn map(addr: usize, len: usize, prot: i32, flags: i32) -> io::Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping at an address that the system chooses or that is free (MAP_FIXED_NOREPLACE).
    let p = unsafe { libc::mmap(addr as *mut _, len, prot, flags, -1, 0) };
    if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(p as usize) }
}

/// A new file in memory of a size that nobody can change.
pub(super) fn memory_file(name: &str, size: u64) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: a C call with a text that ends with a zero.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = i64::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: C calls on our own descriptor.
    let done = unsafe { libc::ftruncate(fd, size) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) == 0 };
    if done { Ok(file) } else { Err(io::Error::last_os_error()) }
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The name and size of a file that may be one of [`memory_file`]: it can at least not be cut short.
pub(super) fn check_memory_file(file: &OwnedFd) -> io::Result<(String, u64)> {
    // SAFETY: a C call on a descriptor that lives as long as `file`.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals & SEALS != SEALS || seals < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = std::fs::read_link(&path)?.to_string_lossy().into_owned();
    Ok((name, std::fs::metadata(&path)?.len()))
}

// The callers below have checked that the ranges are mapped. Kernels may write to them at the same time, as on a card: so
// they are reached by the C library's copies and never as Rust references.

pub(super) fn copy_out(addr: u64, to: &mut [u8]) {
    // SAFETY: see above; `to` is a Rust buffer of that length.
    unsafe { libc::memmove(to.as_mut_ptr().cast(), addr as *const _, to.len()) };
}

pub(super) fn copy_in(addr: u64, from: &[u8]) {
    // SAFETY: see above; `from` is a Rust buffer of that length.
    unsafe { libc::memmove(addr as *mut _, from.as_ptr().cast(), from.len()) };
}

pub(super) fn copy(to: u64, from: u64, len: u64) {
    // SAFETY: see above; memmove allows the ranges to overlap.
    unsafe { libc::memmove(to as *mut _, from as *const _, len as usize) };
}

pub(super) fn fill(addr: u64, pattern: &[u8], len: u64) {
    if pattern.iter().all(|b| *b == pattern[0]) {
        // SAFETY: see above.
        unsafe { libc::memset(addr as *mut _, i32::from(pattern[0]), len as usize) };
        return;
    }
    // No more than is set: most sets are small, and the block would cost more than they do.
    let repeats = (len / pattern.len() as u64).min(1024) as usize;
    let block = pattern.repeat(repeats);
    let mut done = 0;
    while done < len {
        let n = (len - done).min(block.len() as u64);
        copy_in(addr + done, &block[..n as usize]);
        done += n;
    }
}
