//! "I sleep" and "is there work": the handshake that lets a waker skip the system call when nobody sleeps, and never
//! lets a sleeper miss its news.
//!
//! The sleeper announces itself, *then* looks once more; the waker stores its news, *then* looks for sleepers. Each
//! has a sequentially consistent fence in between, so at least one of them sees the other.
//!
//! Where many threads may sleep, they are counted ([`sleep_unless`], [`someone_sleeps`]). Where only one ever does, its
//! word is a number that is odd while it sleeps and never the same twice ([`nap_unless`], [`ring_once`]): a waker then
//! knows that a sleep was ended already, and a burst of news costs one system call.

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

/// As [`sleep_unless`], where only this thread ever sleeps; `nap` is its word. Its next nap looks once more before it
/// sleeps, so what a waker told it at the end of this one is not missed.
pub fn nap_unless<A: Atomics>(
    nap: &A::U32,
    bell: impl FnOnce() -> u32,
    ready: &dyn Fn() -> bool,
    sleep: impl FnOnce(u32),
) -> bool {
    let seen = bell();
    nap.fetch_add(1, Relaxed);
    A::fence();
    let early = ready();
    if !early {
        sleep(seen);
    }
    nap.fetch_add(1, Relaxed);
    early || ready()
}

/// Whether a thread that sleeps by [`nap_unless`] is asleep.
#[inline]
pub fn naps(nap: u32) -> bool {
    nap & 1 == 1
}

/// Calls `ring` if a thread is in a nap for which nobody has rung. `rung` belongs to the wakers. There must be a
/// sequentially consistent fence between the news and this call.
#[inline(always)]
pub fn ring_once<A: Atomics>(nap: &A::U32, rung: &A::U32, ring: impl FnOnce()) {
    let nap = nap.load(Relaxed);
    if naps(nap) && rung.load(Relaxed) != nap {
        ring();
        // Only now: another waker that finds this may rely on it.
        rung.store(nap, Relaxed);
    }
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
pub(in crate::wire) mod tests {
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

    /// A word of news, and sleepers on a bell.
    pub(in crate::wire) struct Line {
        news: AtomicU64,
        sleepers: AtomicU32,
        bell: AtomicU32,
        futex: Futex,
    }

    impl Line {
        pub(in crate::wire) fn new() -> Arc<Self> {
            Arc::new(Self {
                news: AtomicU64::new(0),
                sleepers: AtomicU32::new(0),
                bell: AtomicU32::new(0),
                futex: Futex::default(),
            })
        }

        fn tell(&self, news: u64) {
            self.news.store(news, Ordering::Release);
            self.wake_sleepers();
        }

        /// Wakes who sleeps, after news.
        pub(in crate::wire) fn wake_sleepers(&self) {
            if someone_sleeps::<Model>(&self.sleepers) {
                change_bell::<Model>(&self.bell);
                self.futex.wake();
            }
        }

        fn await_news(&self, at_least: u64) {
            self.sleep_until(&|| self.news.load(Ordering::Acquire) >= at_least);
        }

        /// Sleeps until `ready` holds.
        pub(in crate::wire) fn sleep_until(&self, ready: &dyn Fn() -> bool) {
            while !sleep_unless::<Model>(
                &self.sleepers,
                || self.bell.load(Ordering::Acquire),
                ready,
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
    fn one_ring_a_nap_is_enough_for_two_wakers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (line, rung) = (Line::new(), Arc::new(AtomicU32::new(0)));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (line, rung) = (line.clone(), rung.clone());
                    loom::thread::spawn(move || {
                        line.news.fetch_add(1, Ordering::Release);
                        Model::fence();
                        ring_once::<Model>(&line.sleepers, &rung, || {
                            change_bell::<Model>(&line.bell);
                            line.futex.wake();
                        });
                    })
                })
                .collect();
            let ready = || line.news.load(Ordering::Acquire) == 2;
            while !nap_unless::<Model>(
                &line.sleepers,
                || line.bell.load(Ordering::Acquire),
                &ready,
                |seen| line.futex.wait(&line.bell, seen),
            ) {}
            wakers.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    /// As the worker's end breaks a link: it may not change the bell on which its own thread sleeps, which is the client's
    /// to write. So it wakes until the sleeper has noticed.
    #[test]
    fn a_break_reaches_a_sleeper_whose_bell_stays_as_it_is() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let line = Line::new();
            let breaker = {
                let line = line.clone();
                loom::thread::spawn(move || {
                    line.news.store(1, Ordering::Release);
                    Model::fence();
                    while naps(line.sleepers.load(Ordering::Acquire)) {
                        line.futex.wake();
                        loom::thread::yield_now();
                    }
                })
            };
            let broken = || line.news.load(Ordering::Acquire) == 1;
            while !nap_unless::<Model>(
                &line.sleepers,
                || line.bell.load(Ordering::Acquire),
                &broken,
                |seen| line.futex.wait(&line.bell, seen),
            ) {}
            breaker.join().unwrap();
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
