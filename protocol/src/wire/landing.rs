//! Copies to the program's memory that nobody waits for: their bytes come when the worker has them, and whoever reads from
//! the link puts them where they belong.
//!
//! The client opens a *landing* for the bytes before it posts the copy, and the record names it. The worker sends
//! {landing, offset} and then bytes for the landing window; when the landing has all of them it says that it is over. All
//! of it goes over one connection in order, before any word of the copy's completion. Only memory of open landings is
//! ever written, whatever the peer sends.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::memory::Outside;

/// So long the bytes of a landing are left to those who wait for an answer and read what comes before it: mostly the
/// program waits for its copy at once, and a second thread that wakes for it costs more than the copy.
const GRACE: Duration = Duration::from_micros(200);
/// After so many times [`GRACE`] without a landing its thread sleeps until it is woken, which costs whoever opens one.
const LINGER: u32 = 20;

/// Where bytes may land.
#[derive(Debug, Clone, Copy)]
struct Landing {
    address: usize,
    len: usize,
    context: u64,
}

impl Landing {
    fn meets(&self, address: usize, len: usize) -> bool {
        self.address < address.saturating_add(len) && address < self.address + self.len
    }
}

/// The open landings of a client.
#[derive(Debug, Default)]
pub struct Landings {
    open: Mutex<Open>,
    /// How often the reader has begun or ended to put bytes into a landing: odd while it does.
    turns: AtomicU64,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    by_number: HashMap<u64, Landing>,
    last: u64,
    /// The thread that looks for landings must be woken for the next one.
    asleep: bool,
    /// The link is broken; nobody needs to read any more.
    ended: bool,
}

impl Landings {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a landing for `len` bytes at `address`, of work in `context` (a handle, for [`Landings::contexts`]).
    ///
    /// # Safety
    /// The bytes can be written until the landing is over or [`Landings::revoke`] has returned.
    pub unsafe fn open(&self, address: usize, len: usize, context: u64) -> u64 {
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        open.by_number.insert(number, Landing { address, len, context });
        let asleep = open.asleep;
        drop(open);
        if asleep {
            self.changed.notify_all();
        }
        number
    }

    /// The landing has all its bytes, or will never get them. Only from the one thread that reads.
    pub fn over(&self, number: u64) {
        self.lock().by_number.remove(&number);
    }

    /// Lets `receive` have the place for bytes `at..at + len` of a landing; `None` if there is no such place. Only from the
    /// one thread that reads.
    pub fn with<R>(&self, number: u64, at: u64, len: usize, receive: impl FnOnce(Outside) -> R) -> Option<R> {
        let open = self.lock();
        let landing = *open.by_number.get(&number)?;
        let at = usize::try_from(at).ok()?;
        if at.checked_add(len).is_none_or(|end| end > landing.len) {
            return None;
        }
        // Said under the lock: whoever takes the landing off the table afterwards sees it.
        self.turns.fetch_add(1, SeqCst);
        drop(open);
        // SAFETY: `open`'s caller has promised the bytes until the landing is over, which only this thread says, or
        // revoked, which waits for the end of this turn.
        let result = receive(unsafe { Outside::new(landing.address + at, len) });
        self.turns.fetch_add(1, SeqCst);
        Some(result)
    }

    /// The contexts of the open landings that meet `len` bytes at `address`.
    pub fn contexts(&self, address: u64, len: usize) -> Vec<u64> {
        let open = self.lock();
        let meeting = open.by_number.values().filter(|landing| landing.meets(address as usize, len));
        let mut contexts: Vec<_> = meeting.map(|landing| landing.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts
    }

    /// Closes the landings that meet `len` bytes at `address`: nothing is written there when it returns.
    pub fn revoke(&self, address: u64, len: usize) {
        self.close(|landing| landing.meets(address as usize, len));
    }

    /// Closes all landings of a context that is gone.
    pub fn revoke_context(&self, context: u64) {
        self.close(|landing| landing.context == context);
    }

    fn close(&self, which: impl Fn(&Landing) -> bool) {
        self.lock().by_number.retain(|_, landing| !which(landing));
        self.end_of_turn();
    }

    /// Waits until the reader has left what it is in, which may be a landing that was closed meanwhile (by another thread as
    /// well). At most as long as the reader waits for the rest of a frame.
    fn end_of_turn(&self) {
        let turn = self.turns.load(SeqCst);
        while turn % 2 == 1 && self.turns.load(SeqCst) == turn {
            std::thread::yield_now();
        }
    }

    /// Closes one landing, whose copy was not posted after all.
    pub fn cancel(&self, number: u64) {
        self.lock().by_number.remove(&number);
        self.end_of_turn();
    }

    /// Whether none is open.
    pub fn none(&self) -> bool {
        self.lock().by_number.is_empty()
    }

    /// Waits until a landing has been open for [`GRACE`]: nobody who waits for an answer has read its bytes on the way.
    /// False when the link is broken. For one thread.
    pub(crate) fn wait_for_overdue(&self) -> bool {
        let (mut seen, mut quiet) = (0, 0);
        let mut open = self.lock();
        while !open.ended {
            if open.by_number.keys().any(|number| *number <= seen) {
                return true;
            }
            quiet = if open.by_number.is_empty() && open.last == seen { quiet + 1 } else { 0 };
            seen = open.last;
            open = if quiet > LINGER {
                quiet = 0;
                open.asleep = true;
                let mut woken = self.changed.wait(open).unwrap_or_else(PoisonError::into_inner);
                woken.asleep = false;
                woken
            } else {
                self.changed.wait_timeout(open, GRACE).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        false
    }

    /// The link is broken.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn place(landings: &Landings, number: u64, at: u64, len: usize) -> Option<usize> {
        landings.with(number, at, len, |outside| outside.address())
    }

    #[test]
    fn bytes_land_only_inside_of_open_landings() {
        let (landings, mut memory) = (Landings::default(), [0u8; 100]);
        let address = memory.as_mut_ptr().expose_provenance();
        // SAFETY: nothing is written in this test.
        let (one, two) = unsafe { (landings.open(address, 60, 7), landings.open(address + 60, 40, 8)) };
        assert_eq!(place(&landings, one, 0, 60), Some(address));
        assert_eq!(place(&landings, two, 39, 1), Some(address + 99));
        for (number, at, len) in [(one, 0, 61), (one, 60, 1), (one, u64::MAX, 2), (two + 1, 0, 1), (0, 0, 1)]
        {
            assert_eq!(place(&landings, number, at, len), None, "{len} at {at} of {number}");
        }
        assert_eq!(landings.contexts(address as u64 + 59, 1), [7]);
        assert_eq!(landings.contexts(address as u64 + 59, 2), [7, 8]);
        landings.over(one);
        assert_eq!(place(&landings, one, 0, 1), None, "a landing that is over");
        landings.revoke_context(8);
        assert!(landings.none());
    }

    #[test]
    fn nothing_is_written_after_a_revocation() {
        let landings = Landings::default();
        for round in 1..=2000usize {
            let (written, gone) = (AtomicBool::new(false), AtomicBool::new(false));
            // SAFETY: the address is only looked at.
            let number = unsafe { landings.open(round * 4096, 4096, 1) };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    landings.with(number, 0, 16, |_| {
                        std::thread::yield_now();
                        written.store(gone.load(SeqCst), SeqCst);
                    })
                });
                // Two that close it: the second finds nothing in the table and must wait all the same.
                scope.spawn(|| landings.revoke_context(1));
                landings.revoke((round * 4096) as u64, 1);
                gone.store(true, SeqCst);
            });
            assert!(!written.load(SeqCst), "written after it was revoked");
        }
    }

    #[test]
    fn who_waits_for_a_landing_wakes_at_the_end_too() {
        let landings = Landings::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| landings.wait_for_overdue());
            landings.end();
            assert!(!waiter.join().unwrap());
        });
    }

    #[test]
    fn a_landing_that_stays_open_is_told_of_also_to_a_thread_that_sleeps() {
        let landings = Landings::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| landings.wait_for_overdue());
            while !landings.lock().asleep {
                std::thread::yield_now();
            }
            // SAFETY: nothing is written in this test.
            let first = unsafe { landings.open(4096, 1, 1) };
            assert!(waiter.join().unwrap());
            landings.over(first);
        });
        assert!(landings.none());
    }
}
