//! What everybody passes who is about to touch the memory of any device, and what keeps them out while mappings are replaced
//! whose bytes must not be lost.
//!
//! It is one for the process: kernels reach the memory of several devices, and a copy that stood in the door of one device
//! before the closed door of another one would never get on. Threads that run blocks leave it wherever a kernel can wait, so
//! closing takes no longer than the longest piece of a block.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who is inside, and [`CLOSED`].
static DOOR: AtomicU64 = AtomicU64::new(0);
const CLOSED: u64 = 1 << 63;

/// Held by the one that has the door closed.
static CLOSING: Mutex<()> = Mutex::new(());

/// While it lives, the mappings of devices' memory stay as they are.
pub(crate) struct Inside(());

impl Inside {
    /// Comes in, when the door is open. Who is inside must not come in again, nor wait for another thread.
    pub(crate) fn new() -> Inside {
        while DOOR.fetch_add(1, Ordering::SeqCst) & CLOSED != 0 {
            DOOR.fetch_sub(1, Ordering::SeqCst);
            while is_closed() {
                // Copying a large allocation takes a while.
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DOOR.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The calling thread, which is inside, is outside for as long as something takes that touches no memory of a device.
pub(crate) fn outside(meanwhile: impl FnOnce()) {
    DOOR.fetch_sub(1, Ordering::SeqCst);
    meanwhile();
    // Whoever let the thread in lets it out.
    std::mem::forget(Inside::new());
}

/// Whether somebody wants the door closed: who runs blocks then goes out, and comes in again.
pub(crate) fn is_closed() -> bool {
    DOOR.load(Ordering::Relaxed) & CLOSED != 0
}

/// While it lives, nobody touches devices' memory.
pub(super) struct Closed(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Closed {
    /// Closes the door and waits until everybody has gone out.
    pub(super) fn new() -> Closed {
        let closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inside = DOOR.fetch_or(CLOSED, Ordering::SeqCst) & !CLOSED;
        while inside != 0 {
            std::thread::sleep(Duration::from_micros(20));
            inside = DOOR.load(Ordering::SeqCst) & !CLOSED;
        }
        Closed(closing)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        DOOR.fetch_and(!CLOSED, Ordering::SeqCst);
    }
}
