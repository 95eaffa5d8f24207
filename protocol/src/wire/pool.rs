//! A small set of free indices that many threads take from and give back to, without a lock while some are free.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Free indices below a fixed count. The lowest free one is given first, so that few cache lines are used.
#[derive(Debug)]
pub struct IndexPool {
    free: Box<[AtomicU64]>,
    waiters: AtomicU64,
    lock: Mutex<()>,
    freed: Condvar,
}

impl IndexPool {
    /// All of `0..count` free.
    pub fn new(count: u32) -> Self {
        let word = |at: u32| {
            let bits = count.saturating_sub(at * 64).min(64);
            AtomicU64::new(if bits == 64 { u64::MAX } else { (1 << bits) - 1 })
        };
        Self {
            free: (0..count.div_ceil(64)).map(word).collect(),
            waiters: AtomicU64::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Takes an index, if one is free.
    pub fn try_take(&self) -> Option<u32> {
        for (at, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let lowest = bits & bits.wrapping_neg();
                match word.compare_exchange_weak(bits, bits & !lowest, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(at as u32 * 64 + lowest.trailing_zeros()),
                    Err(now) => bits = now,
                }
            }
        }
        None
    }

    /// Takes this index, if it is free.
    pub fn try_take_this(&self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.free[index as usize / 64].fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Gives an index back.
    pub fn give(&self, index: u32) {
        // SeqCst here and in `wait`: either the waiter sees the bit or we see the waiter.
        self.free[index as usize / 64].fetch_or(1 << (index % 64), Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.freed.notify_one();
        }
    }

    /// Whether any index is free.
    pub fn any_free(&self) -> bool {
        self.free.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Waits until an index may be free, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if !self.any_free() {
            let _ = self.freed.wait_timeout(guard, timeout);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_is_out_once() {
        let pool = IndexPool::new(70);
        let mut out: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        out.sort();
        assert_eq!(out, (0..70).collect::<Vec<_>>());
        pool.give(69);
        assert!(!pool.try_take_this(3) && pool.try_take_this(69) && !pool.any_free());
    }

    #[test]
    fn threads_never_share_an_index_and_waiters_are_woken() {
        let pool = IndexPool::new(2);
        let owners = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let index = loop {
                            match pool.try_take() {
                                Some(index) => break index,
                                None => pool.wait(Duration::from_secs(60)),
                            }
                        };
                        assert_eq!(owners[index as usize].swap(1, Ordering::SeqCst), 0);
                        owners[index as usize].store(0, Ordering::SeqCst);
                        pool.give(index);
                    }
                });
            }
        });
    }
}
