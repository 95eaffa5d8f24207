//! The atomics that the ring and the sleep handshake are written against, so that the same code runs on the
//! processor's and under loom's model checker (see `tests`).

use std::sync::atomic::{self, Ordering};

/// A 32-bit atomic word.
pub trait Word32 {
    /// As [`atomic::AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;
    /// As [`atomic::AtomicU32::store`].
    fn store(&self, value: u32, order: Ordering);
    /// As [`atomic::AtomicU32::fetch_add`].
    fn fetch_add(&self, by: u32, order: Ordering) -> u32;
    /// As [`atomic::AtomicU32::fetch_sub`].
    fn fetch_sub(&self, by: u32, order: Ordering) -> u32;
}

/// A 64-bit atomic word.
pub trait Word64 {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// As [`atomic::AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`atomic::AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`atomic::AtomicU64::fetch_max`].
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
    /// As [`atomic::AtomicU64::compare_exchange`].
    fn compare_exchange(&self, old: u64, new: u64, ok: Ordering, not: Ordering) -> Result<u64, u64>;
}

/// A family of atomics.
pub trait Atomics {
    /// Its 32-bit word.
    type U32: Word32;
    /// Its 64-bit word.
    type U64: Word64;
    /// `fence(SeqCst)`.
    fn fence();
}

/// The processor's own.
#[derive(Debug, Clone, Copy)]
pub struct Real;

macro_rules! words {
    ($family:ty, $u32:ty, $u64:ty, $fence:path) => {
        impl Word32 for $u32 {
            #[inline]
            fn load(&self, order: Ordering) -> u32 {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: u32, order: Ordering) {
                self.store(value, order)
            }
            #[inline]
            fn fetch_add(&self, by: u32, order: Ordering) -> u32 {
                self.fetch_add(by, order)
            }
            #[inline]
            fn fetch_sub(&self, by: u32, order: Ordering) -> u32 {
                self.fetch_sub(by, order)
            }
        }
        impl Word64 for $u64 {
            fn new(value: u64) -> Self {
                Self::new(value)
            }
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order)
            }
            #[inline]
            fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
                self.fetch_max(value, order)
            }
            #[inline]
            fn compare_exchange(&self, old: u64, new: u64, ok: Ordering, not: Ordering) -> Result<u64, u64> {
                self.compare_exchange(old, new, ok, not)
            }
        }
        impl Atomics for $family {
            type U32 = $u32;
            type U64 = $u64;
            #[inline]
            fn fence() {
                $fence()
            }
        }
    };
}

words!(Real, atomic::AtomicU32, atomic::AtomicU64, super::memory::full_fence);

/// Loom's, which explore every interleaving.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub struct Model;

#[cfg(test)]
fn model_fence() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
words!(Model, loom::sync::atomic::AtomicU32, loom::sync::atomic::AtomicU64, model_fence);
