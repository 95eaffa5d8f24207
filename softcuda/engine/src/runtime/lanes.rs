//! The version of a kernel for single lanes is compiled when the first lane needs it: until then its entry point is here.

use super::block::{fail, grid_of};
use super::context::{Entry, Thread};
use crate::engine::Grid;
use crate::error::FaultKind;
use std::sync::atomic::Ordering;

/// Native stack of the thread that compiles: lanes run on small ones.
const STACK: usize = 16 << 20;

/// As the version for single lanes, which it has made.
///
/// # Safety
/// `t` is the running thread; the rest is what that version is to get.
pub unsafe extern "sysv64" fn first(t: *mut Thread, args: *const u8, rets: *mut u8, frame: u64) {
    // SAFETY: as promised; what is called is the version for which this one stood.
    unsafe {
        let address = match make(grid_of(t)) {
            Ok(address) => address,
            Err(what) => fail(t, FaultKind::Internal, 0, what),
        };
        let lanes: Entry = std::mem::transmute::<usize, Entry>(address);
        lanes(t, args, rets, frame);
    }
}

/// The entry point of the version for single lanes.
fn make(grid: &Grid) -> Result<usize, String> {
    let code = &grid.code;
    let compile = || {
        let started = std::thread::scope(|s| {
            let compile = || grid.compiler.lanes(&grid.kernel, code);
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(s, compile);
            thread.map(|t| t.join().unwrap_or_else(|_| Err("the code generator panicked".to_string())))
        });
        started.unwrap_or_else(|e| Err(format!("{}: no thread to compile in: {e}", grid.kernel.name)))
    };
    let exec = code.lanes.get_or_init(compile).as_ref().map_err(String::clone)?;
    if let Some(entry) = code.entries.last() {
        entry.store(exec.address(), Ordering::Release);
    }
    Ok(exec.address())
}
