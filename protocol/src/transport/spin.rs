//! How long a waiting thread looks before it sleeps.
//!
//! Looking is faster than sleeping when the other side runs at the same time on another core, and wasted when it is
//! waiting for this one or far from done. Nothing tells which, so each end learns it: what was found while looking
//! makes it look longer next time, what was not makes it look half as long, and now and then it looks for the
//! longest time to see whether things have changed.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One wait in so many looks for the longest time.
const PROBE_EVERY: u32 = 64;
/// Looks between two glances at the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// The learned time of one end.
#[derive(Debug)]
pub struct Spin {
    min_ns: u32,
    max_ns: u32,
    now_ns: AtomicU32,
    waits: AtomicU32,
}

impl Spin {
    /// `min`: as long as a look is sure to be worth it.
    pub fn new(min: Duration) -> Self {
        static MAX_NS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let max_ns = *MAX_NS.get_or_init(|| match cores() {
            1 => 0,
            2 | 3 => 20_000,
            _ => 50_000,
        });
        Self::between((min.as_nanos() as u32).min(max_ns), max_ns)
    }

    fn between(min_ns: u32, max_ns: u32) -> Self {
        Self { min_ns, max_ns, now_ns: AtomicU32::new(max_ns), waits: AtomicU32::new(1) }
    }

    /// Calls `look` until it finds something or the time is over. Returns whether it found something. Where looking is
    /// not worth it at present, it is not called at all.
    pub fn spin(&self, look: &mut dyn FnMut() -> bool) -> bool {
        // Threads that count at the same time may count as one, which is good enough.
        let waits = self.waits.load(Relaxed);
        self.waits.store(waits.wrapping_add(1), Relaxed);
        let probe = waits.is_multiple_of(PROBE_EVERY);
        let limit = if probe { self.max_ns } else { self.now_ns.load(Relaxed) };
        if limit == 0 {
            return false;
        }
        let start = Instant::now();
        let mut elapsed = Duration::ZERO;
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if look() {
                    // The time of the last glance: another one would keep what was found waiting.
                    self.found(elapsed);
                    return true;
                }
                std::hint::spin_loop();
            }
            elapsed = start.elapsed();
            if elapsed.as_nanos() >= u128::from(limit) {
                self.missed();
                return false;
            }
        }
    }

    /// `after`: a lower bound of the time, a few looks less than it was.
    fn found(&self, after: Duration) {
        let enough = (2 * after.as_nanos() + 2000).min(u128::from(self.max_ns)) as u32;
        if enough > self.now_ns.load(Relaxed) {
            self.now_ns.store(enough, Relaxed);
        }
    }

    fn missed(&self) {
        self.now_ns.store((self.now_ns.load(Relaxed) / 2).max(self.min_ns), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_from_what_it_finds_and_misses() {
        let spin = Spin::between(1000, 40_000);
        for _ in 0..10 {
            assert!(!spin.spin(&mut || false));
        }
        assert_eq!(spin.now_ns.load(Relaxed), 1000);
        spin.found(Duration::from_micros(5));
        assert_eq!(spin.now_ns.load(Relaxed), 12_000);
        spin.found(Duration::from_nanos(300));
        assert_eq!(spin.now_ns.load(Relaxed), 12_000, "a quick find takes nothing away");
        spin.found(Duration::from_secs(5));
        assert_eq!(spin.now_ns.load(Relaxed), 40_000);
    }

    #[test]
    fn it_looks_long_now_and_then() {
        let spin = Spin::between(0, 2_000_000);
        spin.now_ns.store(0, Relaxed);
        let longest = (0..PROBE_EVERY).map(|_| {
            let mut looks = 0;
            spin.spin(&mut || {
                looks += 1;
                false
            });
            looks
        });
        assert!(longest.max().unwrap() > 16);
    }
}
