//! Memory that holds code: written once, then read-only and executable.

use std::io;

/// A mapping with code.
pub struct Exec {
    addr: usize,
    len: usize,
}

impl Exec {
    /// Maps a copy of `code`.
    pub fn new(code: &[u8]) -> io::Result<Exec> {
        let len = code.len().max(1).next_multiple_of(4096);
        // SAFETY: a new anonymous mapping where the system chooses.
        let p = unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0)
        };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let exec = Exec { addr: p as usize, len };
        // SAFETY: the mapping is ours, writable, and at least as long as `code`.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), p.cast(), code.len()) };
        // SAFETY: as above; nobody runs or writes it yet.
        if unsafe { libc::mprotect(p, len, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(exec)
    }

    pub fn address(&self) -> usize {
        self.addr
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and whoever runs its code holds the `Code` that it is in.
        unsafe { libc::munmap(self.addr as *mut _, self.len) };
    }
}
