//! A free list over a range of addresses: first fit, neighbours are joined again.

use std::collections::BTreeMap;

/// Free pieces by address: length. Addresses and lengths need no common unit; alignment is given with each request.
pub(super) struct Heap {
    free: BTreeMap<u64, u64>,
}

impl Heap {
    pub(super) fn empty() -> Self {
        Heap { free: BTreeMap::new() }
    }

    pub(super) fn new(base: u64, len: u64) -> Self {
        Heap { free: BTreeMap::from([(base, len)]) }
    }

    /// The first piece that holds `len` bytes at an aligned address.
    pub(super) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (base, size, at) = self.free.iter().find_map(|(&base, &size)| {
            let at = base.next_multiple_of(align);
            (at - base <= size && size - (at - base) >= len).then_some((base, size, at))
        })?;
        self.free.remove(&base);
        if at > base {
            self.free.insert(base, at - base);
        }
        let end = base + size;
        if end > at + len {
            self.free.insert(at + len, end - (at + len));
        }
        Some(at)
    }

    /// Puts a piece back and joins it with its neighbours.
    pub(super) fn give(&mut self, mut addr: u64, mut len: u64) {
        if let Some((&before, &size)) = self.free.range(..addr).next_back()
            && before + size == addr
        {
            self.free.remove(&before);
            addr = before;
            len += size;
        }
        if let Some(size) = self.free.remove(&(addr + len)) {
            len += size;
        }
        self.free.insert(addr, len);
    }
}
