//! Functions of the program that a stream calls.

use crate::entry;
use std::ffi::c_void;

/// `CUhostFn`.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// A function of the program and the argument that it gets.
#[derive(Debug, Clone, Copy)]
pub struct HostCall {
    /// The function.
    pub function: HostFunction,
    /// Its argument.
    pub argument: *mut c_void,
}

// SAFETY: the program gives the pointer to be handed to its function on another thread.
unsafe impl Send for HostCall {}
// SAFETY: as above.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// Calls it. What it calls of the driver meanwhile is not permitted.
    pub fn run(&self) {
        entry::host_function(|| {
            // SAFETY: the program gave the function to be called with this argument on a thread of the driver.
            unsafe { (self.function)(self.argument) }
        });
    }
}
