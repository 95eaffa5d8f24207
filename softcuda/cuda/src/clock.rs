//! The device's clock: when the calling thread's last piece of device work ended.
//!
//! A kernel ends before its stream's thread comes to the next piece of work, and that thread may wait for a processor in
//! between. What an event tells is the former.
#![forbid(unsafe_code)]

use std::cell::Cell;

thread_local! {
    static ENDED: Cell<u64> = const { Cell::new(0) };
}

/// The device has just ended something.
pub fn ended_now() {
    ended_at(softcuda_device::now());
}

/// The device ended something at a time (nanoseconds of the system's monotonic clock).
pub fn ended_at(time: u64) {
    // A thread's last destructors find no clock, and give the device no work.
    let _ = ENDED.try_with(|ended| ended.set(time));
}

/// What the thread does next comes after something that ended at a time on another thread.
pub fn not_before(time: u64) {
    ended_at(last_end().max(time));
}

/// When the thread's last piece of work ended; 0 if it did none.
pub fn last_end() -> u64 {
    ENDED.try_with(Cell::get).unwrap_or(0)
}
