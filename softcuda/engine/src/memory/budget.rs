//! How much of a device's memory is taken.

use crate::error::OutOfMemory;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of one device: taken exactly or not at all.
pub(super) struct Budget {
    total: u64,
    used: AtomicU64,
}

impl Budget {
    pub(super) fn new(total: u64) -> Budget {
        Budget { total, used: AtomicU64::new(0) }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes some bytes.
    pub(super) fn take(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|used| {
            OutOfMemory { wanted: bytes, free: self.total - used.min(self.total), total: self.total }
        })
    }

    /// Gives back what [`Budget::take`] took.
    pub(super) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
