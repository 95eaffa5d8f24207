//! How much of a device's memory is taken.

use crate::error::OutOfMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the bytes of a device are counted: taken exactly or not at all. Of a device that several processes use, outside
/// of this one.
pub trait Ledger: Send + Sync {
    /// Takes some bytes.
    ///
    /// # Errors
    /// The bytes that are free, if they are fewer.
    fn take(&self, bytes: u64) -> Result<(), u64>;
    /// Gives back what [`Ledger::take`] took.
    fn give(&self, bytes: u64);
    /// Bytes that are taken.
    fn used(&self) -> u64;
}

/// The bytes of a device that only this process uses.
struct Own {
    total: u64,
    used: AtomicU64,
}

impl Ledger for Own {
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|used| self.total - used.min(self.total))
    }
    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The bytes of one device.
pub(super) struct Budget {
    total: u64,
    ledger: Arc<dyn Ledger>,
}

impl Budget {
    /// Counted by a ledger; without one in this process.
    pub(super) fn new(total: u64, ledger: Option<Arc<dyn Ledger>>) -> Budget {
        let own = || Arc::new(Own { total, used: AtomicU64::new(0) }) as Arc<dyn Ledger>;
        Budget { total, ledger: ledger.unwrap_or_else(own) }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn used(&self) -> u64 {
        self.ledger.used()
    }

    /// Takes some bytes.
    pub(super) fn take(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let refused = |free| OutOfMemory { wanted: bytes, free, total: self.total };
        self.ledger.take(bytes).map_err(refused)
    }

    /// Gives back what [`Budget::take`] took.
    pub(super) fn give(&self, bytes: u64) {
        self.ledger.give(bytes);
    }
}
