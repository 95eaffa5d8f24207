//! What everybody passes who is about to touch the memory of any device, and what keeps them out while mappings are replaced
//! whose bytes must not be lost.
//!
//! It is one for the process: kernels reach the memory of several devices, and a copy that stood in the door of one device
//! before the closed door of another one would never get on. Threads that run blocks go out wherever a kernel can wait and, when
//! the bell rings, on the way back of any loop: closing waits for no kernel to end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Who is inside, and [`CLOSED`].
static DOOR: AtomicU64 = AtomicU64::new(0);
const CLOSED: u64 = 1 << 63;

/// Held by the one that has the door closed.
static CLOSING: Mutex<()> = Mutex::new(());

/// What the threads of a pool hear that run blocks.
pub(crate) trait Bell: Send + Sync {
    /// From now on, whoever runs a block comes to [`outside`] before long.
    fn ring(&self);
    /// Ends one [`Bell::ring`].
    fn rest(&self);
}

static BELLS: Mutex<Vec<Weak<dyn Bell>>> = Mutex::new(Vec::new());

/// Has a bell rung whenever the door is to be closed.
pub(crate) fn register(bell: Weak<dyn Bell>) {
    let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
    bells.retain(|bell| bell.strong_count() > 0);
    bells.push(bell);
}

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
pub(super) struct Closed {
    _closing: MutexGuard<'static, ()>,
}

impl Closed {
    /// Closes the door and waits until everybody has gone out.
    pub(super) fn new() -> Closed {
        let closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inside = DOOR.fetch_or(CLOSED, Ordering::SeqCst) & !CLOSED;
        if inside != 0 {
            let bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
            let bells: Vec<Arc<dyn Bell>> = bells.iter().filter_map(Weak::upgrade).collect();
            bells.iter().for_each(|bell| bell.ring());
            while inside != 0 {
                std::thread::sleep(Duration::from_micros(20));
                inside = DOOR.load(Ordering::SeqCst) & !CLOSED;
            }
            bells.iter().for_each(|bell| bell.rest());
        }
        Closed { _closing: closing }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        DOOR.fetch_and(!CLOSED, Ordering::SeqCst);
    }
}
