//! "I sleep" and "is there work": the handshake that lets a waker skip the system call when nobody sleeps, and never
//! lets a sleeper miss its news.
//!
//! The sleeper announces itself, *then* looks once more; the waker stores its news, *then* looks for sleepers. Each
//! has a sequentially consistent fence in between, so at least one of them sees the other.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::atomics::{Atomics, Word32};

/// Sleeps by `sleep` unless `ready`. `bell` reads (with Acquire) the word whose value at that moment `sleep` is given;
/// `sleep` must not sleep if the word has changed since, as a futex does. Returns whether `ready` held at the end.
pub fn sleep_unless<A: Atomics>(
    sleepers: &A::U32,
    bell: impl FnOnce() -> u32,
    ready: &dyn Fn() -> bool,
    sleep: impl FnOnce(u32),
) -> bool {
    let seen = bell();
    sleepers.fetch_add(1, Relaxed);
    A::fence();
    let early = ready();
    if !early {
        sleep(seen);
    }
    sleepers.fetch_sub(1, Relaxed);
    early || ready()
}

/// Whether somebody sleeps who may not have seen what this thread stored before. With `true`, wake them.
#[inline]
pub fn someone_sleeps<A: Atomics>(sleepers: &A::U32) -> bool {
    A::fence();
    sleepers.load(Relaxed) != 0
}

/// Changes the bell's word, so that a sleeper that is just going to sleep does not.
pub fn change_bell<A: Atomics>(bell: &A::U32) {
    bell.fetch_add(1, Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::atomics::Model;
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    /// A futex as the kernel has it: compare and sleep are one step, and waking is another.
    #[derive(Default)]
    struct Futex {
        lock: Mutex<()>,
        wakes: Condvar,
    }

    impl Futex {
        fn wait(&self, word: &AtomicU32, seen: u32) {
            let guard = self.lock.lock().unwrap();
            if word.load(Ordering::Relaxed) == seen {
                drop(self.wakes.wait(guard).unwrap());
            }
        }

        fn wake(&self) {
            let _guard = self.lock.lock().unwrap();
            self.wakes.notify_all();
        }
    }

    struct Line {
        news: AtomicU64,
        sleepers: AtomicU32,
        bell: AtomicU32,
        futex: Futex,
    }

    impl Line {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                news: AtomicU64::new(0),
                sleepers: AtomicU32::new(0),
                bell: AtomicU32::new(0),
                futex: Futex::default(),
            })
        }

        fn tell(&self, news: u64) {
            self.news.store(news, Ordering::Release);
            if someone_sleeps::<Model>(&self.sleepers) {
                change_bell::<Model>(&self.bell);
                self.futex.wake();
            }
        }

        fn await_news(&self, at_least: u64) {
            let ready = || self.news.load(Ordering::Acquire) >= at_least;
            while !sleep_unless::<Model>(
                &self.sleepers,
                || self.bell.load(Ordering::Acquire),
                &ready,
                |seen| self.futex.wait(&self.bell, seen),
            ) {}
        }
    }

    #[test]
    fn a_sleeper_never_misses_its_news() {
        // A missed wake-up is a deadlock, which loom reports.
        loom::model(|| {
            let line = Line::new();
            let waker = {
                let line = line.clone();
                loom::thread::spawn(move || {
                    line.tell(1);
                    line.tell(2);
                })
            };
            line.await_news(2);
            waker.join().unwrap();
        });
    }

    #[test]
    fn two_sleepers_on_one_bell_both_wake() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let line = Line::new();
            let sleepers: Vec<_> = (1..3)
                .map(|at_least| {
                    let line = line.clone();
                    loom::thread::spawn(move || line.await_news(at_least))
                })
                .collect();
            line.tell(1);
            line.tell(2);
            sleepers.into_iter().for_each(|s| s.join().unwrap());
        });
    }
}
