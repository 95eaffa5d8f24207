//! What CUDA keeps for each thread: the stack of current contexts; and what the wire keeps: the thread's lane.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::code::{Answer, NOT_PERMITTED, ensure};
use own::Own;

mod own;

thread_local! {
    /// The contexts below the current one. Without a destructor: it is there as long as the thread runs any code, also in
    /// the destructors of others. Cleared at the thread's end by [`End`].
    static BELOW: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// Tells the worker when the thread ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        BELOW.with(|below| *below.borrow_mut() = Vec::new());
        let lane = own::with(|t| t.lane.replace(0));
        if lane != 0 {
            crate::session::lane_ended(lane);
        }
    }
}

/// The calling thread's lane; the first question gives it one.
#[inline]
pub fn lane() -> u32 {
    own::with(|t| match t.lane.get() {
        0 => new_lane(t),
        lane => lane,
    })
}

#[cold]
fn new_lane(thread: &Own) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let lane = NEXT.fetch_add(1, Relaxed).max(1);
    thread.lane.set(lane);
    // A thread that is already ending gets a lane whose end nobody reports: the worker frees it with the session.
    let _ = END.try_with(|_| ());
    lane
}

/// The current context's handle, 0 if there is none.
#[inline]
pub fn context() -> u64 {
    own::with(|t| t.context.get())
}

/// Replaces the top of the stack. 0 takes the top away (as cuCtxSetCurrent(NULL) does).
pub fn set_context(context: u64) {
    own::with(|t| match context {
        0 => drop(pop(t)),
        _ => t.context.set(context),
    });
}

/// Puts a context on top.
pub fn push_context(context: u64) {
    own::with(|t| {
        if t.context.get() != 0 {
            BELOW.with(|below| below.borrow_mut().push(t.context.get()));
        }
        t.context.set(context);
    });
}

/// Takes the top away; `None` if the stack was empty.
pub fn pop_context() -> Option<u64> {
    own::with(pop)
}

fn pop(thread: &Own) -> Option<u64> {
    let below = BELOW.with(|below| below.borrow_mut().pop().unwrap_or(0));
    match thread.context.replace(below) {
        0 => None,
        top => Some(top),
    }
}

/// The calling thread's lane and current context, for a call that begins. CUDA_ERROR_NOT_PERMITTED inside a host
/// function.
#[inline(always)]
pub fn enter() -> Answer<(u32, u64)> {
    own::with(|t| {
        ensure(t.in_callback.get() == 0, NOT_PERMITTED)?;
        let lane = match t.lane.get() {
            0 => new_lane(t),
            lane => lane,
        };
        Ok((lane, t.context.get()))
    })
}

/// Says that the thread runs host functions, or has stopped to.
pub fn set_in_callback(inside: bool) {
    own::with(|t| t.in_callback.set(u64::from(inside)));
}

/// Sets the thread's capture mode, and gives the one before.
pub fn exchange_capture_mode(mode: u32) -> u32 {
    own::with(|t| t.capture_mode.replace(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_behaves_as_cuda_s() {
        std::thread::spawn(|| {
            assert_eq!((context(), pop_context()), (0, None));
            set_context(5);
            push_context(6);
            push_context(7);
            set_context(8);
            assert_eq!(context(), 8);
            assert_eq!(pop_context(), Some(8));
            set_context(0);
            assert_eq!(context(), 5, "setting null takes the top away");
            assert_eq!((pop_context(), pop_context(), context()), (Some(5), None, 0));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn lanes_differ_between_threads_and_stay_within_one() {
        let mine = lane();
        assert_eq!(lane(), mine);
        assert_ne!(std::thread::spawn(lane).join().unwrap(), mine);
    }
}
