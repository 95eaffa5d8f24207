//! The system calls and raw copies under [`super::Memory`].

use std::io;

/// Where the device range is asked for: far above the heap and far below the stack of a usual process.
const HINT: usize = 0x0200_0000_0000;

/// An anonymous mapping, unmapped when dropped.
pub(super) struct Mapping {
    addr: usize,
    len: usize,
}

impl Mapping {
    /// Addresses only, at the hint if it is free and elsewhere (aligned to 2 MiB) if not.
    pub(super) fn reserve(len: usize) -> io::Result<Mapping> {
        let at = |addr, flags| map(addr, len, libc::PROT_NONE, libc::MAP_NORESERVE | flags);
        for i in 0..16 {
            if let Ok(addr) = at(HINT + i * len, libc::MAP_FIXED_NOREPLACE) {
                if addr == HINT + i * len {
                    return Ok(Mapping { addr, len });
                }
                drop(Mapping { addr, len }); // a kernel before 4.17 takes the flag for a hint
            }
        }
        const ALIGN: usize = 2 << 20;
        let addr = map(0, len + ALIGN, libc::PROT_NONE, libc::MAP_NORESERVE)?;
        let aligned = addr.next_multiple_of(ALIGN);
        drop(Mapping { addr, len: aligned - addr });
        drop(Mapping { addr: aligned + len, len: addr + ALIGN - aligned });
        Ok(Mapping { addr: aligned, len })
    }

    /// Readable and writable, all zero, committed when touched.
    pub(super) fn zeroed(len: usize) -> io::Result<Mapping> {
        let addr = map(0, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_NORESERVE)?;
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
        self.assert_inside(addr, len);
        // SAFETY: the part lies inside this mapping, which nothing but this crate uses.
        let rc = unsafe { libc::mprotect(addr as *mut _, len as usize, libc::PROT_READ | libc::PROT_WRITE) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        if len >= 2 << 20 {
            // SAFETY: as above; advice only, a refusal is harmless.
            unsafe { libc::madvise(addr as *mut _, len as usize, libc::MADV_HUGEPAGE) };
        }
        Ok(())
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
