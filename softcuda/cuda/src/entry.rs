//! The gate that every exported call passes: is the driver there, and nothing may unwind into C.

use crate::error::{
    CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_UNKNOWN,
    CUDA_SUCCESS, Result,
};
use crate::launch;
use cuda_abi::errors::INVALID_CONFIGURATION;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

const BEFORE: u8 = 0;
const READY: u8 = 1;
const EXITING: u8 = 2;
const FORKED: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(BEFORE);

/// Runs a call that needs no `cuInit`.
pub fn always(body: impl FnOnce() -> Result) -> u32 {
    if PHASE.load(Ordering::Relaxed) == EXITING {
        return CUDA_ERROR_DEINITIALIZED as u32;
    }
    caught(|| body().err().unwrap_or(CUDA_SUCCESS) as u32)
}

/// Runs a call that needs `cuInit` to have succeeded in this very process.
pub fn initialised(body: impl FnOnce() -> Result) -> u32 {
    if_ready(|| body().err().unwrap_or(CUDA_SUCCESS) as u32)
}

/// Runs a launch: as [`initialised`], with one more answer.
pub fn launched(body: impl FnOnce() -> std::result::Result<(), launch::Refusal>) -> u32 {
    if_ready(|| match body() {
        Ok(()) => CUDA_SUCCESS as u32,
        Err(launch::Refusal::Code(error)) => error as u32,
        Err(launch::Refusal::Configuration) => INVALID_CONFIGURATION,
    })
}

thread_local! {
    /// Whether this thread is in a function of the program that a stream has come to.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the program on a stream's thread. Calls from within it that need the driver are not permitted, as
/// in CUDA: most would wait for the very stream that waits for them.
pub fn host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

fn if_ready(body: impl FnOnce() -> u32) -> u32 {
    match PHASE.load(Ordering::Acquire) {
        READY if IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false) => CUDA_ERROR_NOT_PERMITTED as u32,
        READY => caught(body),
        EXITING => CUDA_ERROR_DEINITIALIZED as u32,
        // The child of a fork has neither the stream threads nor a device of its own; NVIDIA's driver says the same.
        _ => CUDA_ERROR_NOT_INITIALIZED as u32,
    }
}

fn caught(body: impl FnOnce() -> u32) -> u32 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(CUDA_ERROR_UNKNOWN as u32)
}

/// Whether this process is the child of one that had initialised the driver.
pub fn is_forked_child() -> bool {
    PHASE.load(Ordering::Acquire) == FORKED
}

/// Opens the gate. Called once the devices exist; hooks exit and fork the first time.
pub fn open() {
    if PHASE.compare_exchange(BEFORE, READY, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // SAFETY: both take functions that live as long as the library, which is never unloaded (`-z nodelete`).
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
}

extern "C" fn at_exit() {
    let _ = PHASE.compare_exchange(READY, EXITING, Ordering::AcqRel, Ordering::Acquire);
}

extern "C" fn in_child() {
    let _ = PHASE.compare_exchange(READY, FORKED, Ordering::AcqRel, Ordering::Acquire);
}
