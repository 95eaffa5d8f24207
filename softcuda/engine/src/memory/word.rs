//! Single words of memory that kernels or the host may be writing at the same time.

use super::Memory;
use super::door::Inside;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

impl Memory {
    /// Reads the 4 bytes (`wide`: 8) at an address of device memory or registered host memory in one access, after which
    /// whatever was written before them is seen. `None`: not wholly inside one allocation, or not aligned.
    #[must_use]
    pub fn load_word(&self, addr: u64, wide: bool) -> Option<u64> {
        let _use = self.enter();
        self.word_is_there(addr, wide, false).then(|| {
            // SAFETY: the word is aligned and inside of memory that stays mapped while it is allocated, or that the
            // program promised to keep while it is registered; everybody else reaches it by plain or atomic accesses of
            // machine code, never through a Rust reference.
            unsafe {
                if wide {
                    AtomicU64::from_ptr(addr as *mut u64).load(Ordering::SeqCst)
                } else {
                    u64::from(AtomicU32::from_ptr(addr as *mut u32).load(Ordering::SeqCst))
                }
            }
        })
    }

    /// Writes such a word in one access, after everything that was written before. `false`, with nothing written: as for
    /// [`Memory::load_word`].
    #[must_use]
    pub fn store_word(&self, addr: u64, wide: bool, value: u64) -> bool {
        let (_inside, _use) = (Inside::new(), self.enter());
        let there = self.word_is_there(addr, wide, true);
        if there {
            // SAFETY: as in `load_word`.
            unsafe {
                if wide {
                    AtomicU64::from_ptr(addr as *mut u64).store(value, Ordering::SeqCst);
                } else {
                    AtomicU32::from_ptr(addr as *mut u32).store(value as u32, Ordering::SeqCst);
                }
            }
        }
        there
    }

    fn word_is_there(&self, addr: u64, wide: bool, write: bool) -> bool {
        let bytes = if wide { 8 } else { 4 };
        addr.is_multiple_of(bytes) && self.allows(addr, bytes, write)
    }
}
