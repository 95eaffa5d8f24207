//! How threads wait for work of streams: one process-wide condition that every finished piece of work touches.
//!
//! What is waited for (a stream's position, an event's record) is an atomic of its own; this is only the sleeping. One
//! condition for all costs a few false wake-ups and spares any thought about which waiter hangs on which stream.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

static SLEEPERS: AtomicUsize = AtomicUsize::new(0);
static LOCK: Mutex<()> = Mutex::new(());
static MOVED: Condvar = Condvar::new();

/// How often a wait looks before it gives the core away: a few microseconds.
pub const LOOKS: u32 = 300;
/// How often it gives the core away before it sleeps: what it waits for may want to run on this very core.
const YIELDS: u32 = 8;

/// Says that something which another thread may wait for has changed. The change itself comes before the call.
pub fn moved() {
    // Pairs with the fence in `wait`: either this sees the sleeper or the sleeper sees the change.
    fence(Ordering::SeqCst);
    if SLEEPERS.load(Ordering::Relaxed) > 0 {
        let _held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        MOVED.notify_all();
    }
}

/// As [`wait`], for some time at most; whether `done` said so.
pub fn wait_until(deadline: Instant, done: impl Fn() -> bool) -> bool {
    let mut held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    SLEEPERS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let mut left = Some(Duration::ZERO);
    while !done() {
        left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let Some(left) = left else { break };
        held = MOVED.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    SLEEPERS.fetch_sub(1, Ordering::Relaxed);
    left.is_some()
}

/// Returns when `done` says so; it must read atomics that change before [`moved`] is called.
pub fn wait(done: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    for _ in 0..YIELDS {
        std::thread::yield_now();
        if done() {
            return;
        }
    }
    let mut held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    SLEEPERS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    while !done() {
        held = MOVED.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    SLEEPERS.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_sleeper_wakes_and_none_is_forgotten() {
        for round in 0..200u32 {
            let value = AtomicU32::new(0);
            std::thread::scope(|s| {
                let waiters: Vec<_> =
                    (0..3).map(|_| s.spawn(|| wait(|| value.load(Ordering::Acquire) == 1))).collect();
                if round % 4 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                value.store(1, Ordering::Release);
                moved();
                waiters.into_iter().for_each(|w| w.join().unwrap());
            });
        }
    }
}
