//! Handles, the current context, and host functions that are under way.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// The primary context.
pub const PRIMARY: u64 = 0x1000;

/// A handle that nothing else has.
pub fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x2000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's context.
pub fn current() -> u64 {
    CURRENT.get()
}

/// Makes a context current to the calling thread.
pub fn set_current(context: u64) {
    CURRENT.set(context);
}

/// Host functions, and copies behind them, that are not over. Streams wait for all of them: this driver has one order of work.
static HOST_FUNCTIONS: AtomicU64 = AtomicU64::new(0);
static BELL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Has `work` done by a thread of its own, after all that was given to it before. False if there is no such thread.
pub fn later(work: impl FnOnce() + Send + 'static) -> bool {
    type Work = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Option<Sender<Work>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel::<Work>();
        let serve = move || {
            receiver.iter().for_each(|work| {
                work();
                host_ends();
            })
        };
        std::thread::Builder::new().name("host-functions".into()).spawn(serve).ok().map(|_| sender)
    };
    let Some(thread) = THREAD.get_or_init(start) else { return false };
    HOST_FUNCTIONS.fetch_add(1, Ordering::AcqRel);
    // The thread never ends.
    thread.send(Box::new(work)).is_ok()
}

fn host_ends() {
    HOST_FUNCTIONS.fetch_sub(1, Ordering::AcqRel);
    drop(BELL.0.lock().unwrap_or_else(PoisonError::into_inner));
    BELL.1.notify_all();
}

/// Whether nothing is under way.
#[inline]
pub fn idle() -> bool {
    HOST_FUNCTIONS.load(Ordering::Acquire) == 0
}

/// Waits until nothing is under way.
#[inline]
pub fn settle() {
    if !idle() {
        let mut guard = BELL.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !idle() {
            guard = BELL.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
