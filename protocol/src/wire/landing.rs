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

use super::memory::Outside;

/// No landing has this number.
const NONE: u64 = 0;

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
    /// The landing into which bytes are being put.
    used: AtomicU64,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    by_number: HashMap<u64, Landing>,
    last: u64,
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
        drop(open);
        self.changed.notify_all();
        number
    }

    /// The landing has all its bytes, or will never get them.
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
        self.used.store(number, SeqCst);
        drop(open);
        // SAFETY: `open`'s caller has promised the bytes until the landing is over, which only this thread says, or
        // revoked, which waits for `used`.
        let result = receive(unsafe { Outside::new(landing.address + at, len) });
        self.used.store(NONE, SeqCst);
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
        let closed: Vec<u64> =
            self.lock().by_number.extract_if(|_, landing| which(landing)).map(|(n, _)| n).collect();
        // Bytes that are on their way into one of them are few, and have come.
        while closed.contains(&self.used.load(SeqCst)) {
            std::thread::yield_now();
        }
    }

    /// Whether none is open.
    pub fn none(&self) -> bool {
        self.lock().by_number.is_empty()
    }

    /// Waits until some landing is open; false when the link is broken.
    pub(crate) fn wait_for_one(&self) -> bool {
        let mut open = self.lock();
        while open.by_number.is_empty() && !open.ended {
            open = self.changed.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        !open.ended
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
            // SAFETY: the address is only looked at.
            let number = unsafe { landings.open(round * 4096, 4096, 1) };
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    landings.with(number, 0, 16, |outside| {
                        std::hint::black_box(outside.address());
                        landings.used.load(SeqCst)
                    })
                });
                landings.revoke((round * 4096) as u64, 1);
                assert_ne!(landings.used.load(SeqCst), number, "still in use after it was revoked");
                assert!(reader.join().unwrap().is_none_or(|used| used == number));
            });
        }
    }

    #[test]
    fn who_waits_for_a_landing_wakes_at_the_end_too() {
        let landings = Landings::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| landings.wait_for_one());
            landings.end();
            assert!(!waiter.join().unwrap());
        });
    }
}
