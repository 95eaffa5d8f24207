//! What the driver itself does to device memory: copies and sets, each checked exactly against allocations and windows.

use super::door::Inside;
use super::{Memory, map};

impl Memory {
    /// Whether `len` bytes at `addr` lie wholly inside one allocation.
    pub fn check(&self, addr: u64, len: u64) -> bool {
        self.find(addr).is_some_and(|(base, size)| len <= size - (addr - base))
    }

    /// Whether the driver may read, or write, `len` bytes at `addr`: inside of one allocation, or of windows.
    pub fn allows(&self, addr: u64, len: u64, write: bool) -> bool {
        self.check(addr, len) || self.window_permits(addr, len, write)
    }

    /// Copies device memory (or a window) at `addr` into `to`. `false`, with nothing copied: not wholly inside one
    /// allocation.
    #[must_use]
    pub fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        let (_inside, _use) = (Inside::new(), self.enter());
        let ok = self.allows(addr, to.len() as u64, false);
        if ok {
            map::copy_out(addr, to);
        }
        ok
    }

    /// Copies `from` into device memory (or a window) at `addr`. `false`, with nothing copied: not wholly inside one
    /// allocation.
    #[must_use]
    pub fn write(&self, addr: u64, from: &[u8]) -> bool {
        let (_inside, _use) = (Inside::new(), self.enter());
        let ok = self.allows(addr, from.len() as u64, true);
        if ok {
            map::copy_in(addr, from);
        }
        ok
    }

    /// Reads for a kernel, by its rules.
    pub(crate) fn fetch(&self, addr: u64, to: &mut [u8]) -> bool {
        let ok = self.permits(addr, to.len() as u64, false);
        if ok {
            map::copy_out(addr, to);
        }
        ok
    }

    /// Writes for a kernel, by its rules.
    pub(crate) fn put(&self, addr: u64, from: &[u8]) -> bool {
        let ok = self.permits(addr, from.len() as u64, true);
        if ok {
            map::copy_in(addr, from);
        }
        ok
    }

    /// Writes to memory from [`Memory::alloc_scratch`].
    pub(crate) fn write_scratch(&self, addr: u64, from: &[u8]) {
        let known = self.state().live.get(&addr).is_some_and(|a| a.scratch && a.room >= from.len() as u64);
        if known {
            map::copy_in(addr, from);
        }
    }

    /// Sets `count` elements at `addr` to `pattern` (1, 2 or 4 bytes in `cuMemsetD8/16/32`). `false`, with nothing set: not
    /// wholly inside one allocation, or the pattern is empty.
    #[must_use]
    pub fn fill(&self, addr: u64, pattern: &[u8], count: u64) -> bool {
        let Some(len) = count.checked_mul(pattern.len() as u64) else { return false };
        let (_inside, _use) = (Inside::new(), self.enter());
        let ok = !pattern.is_empty() && self.allows(addr, len, true);
        if ok {
            map::fill(addr, pattern, len);
        }
        ok
    }

    /// Copies `len` bytes from `from` to `to`, both on the device (or in windows); they may overlap. `false`, with nothing
    /// copied: one of them is not wholly inside one allocation.
    #[must_use]
    pub fn copy(&self, to: u64, from: u64, len: u64) -> bool {
        self.copy_from(to, self, from, len)
    }

    /// As [`Memory::copy`], from another device's memory.
    #[must_use]
    pub fn copy_from(&self, to: u64, other: &Memory, from: u64, len: u64) -> bool {
        let (_inside, _use, _other) = (Inside::new(), self.enter(), other.enter());
        let ok = self.allows(to, len, true) && other.allows(from, len, false);
        if ok {
            map::copy(to, from, len);
        }
        ok
    }
}
