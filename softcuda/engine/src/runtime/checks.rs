//! The slow side of the address checks: what the quick test of generated code did not pass is looked at here, and either may be
//! accessed after all (host memory that is registered, the launch's own parameters) or ends the grid.

use super::block::{fail, grid_of};
use super::context::Thread;
use super::quiet::quiet;
use crate::error::FaultKind;

quiet!(quiet_address, slow_address);
quiet!(quiet_shared, bad_shared);
quiet!(quiet_span, slow_span);
quiet!(quiet_cover, slow_cover);

/// Set in the size that the checks get: the access only reads.
pub const READ_ONLY: u32 = 1 << 31;
/// Set in the size that [`slow_span`] gets: the address is an offset in shared memory.
pub const IN_SHARED: u32 = 1 << 30;

/// An address that the quick check did not pass: host memory that is registered, the launch's own parameters, or a fault.
///
/// # Safety
/// `t` is the running thread; this holds for all functions here that take one.
unsafe extern "C" fn slow_address(t: *mut Thread, addr: u64, size: u32, line: u32) {
    // SAFETY: generated code passes the running thread.
    unsafe {
        let grid = grid_of(t);
        let (size, write) = (size & !READ_ONLY, size & READ_ONLY == 0);
        let len = u64::from(size);
        if len > 0 && !addr.is_multiple_of(len) {
            let what = format!("misaligned access of {size} bytes at {addr:#x}");
            fail(t, FaultKind::MisalignedAddress, line, what);
        }
        // Parameters are read by their generic addresses too, and never written.
        let params = grid.params.as_ptr() as u64;
        let in_params = !write
            && addr.wrapping_sub(params) < grid.params.len() as u64
            && len <= params + grid.params.len() as u64 - addr;
        if !in_params && !grid.permits(addr, len, write) {
            fail(t, FaultKind::IllegalAddress, line, format!("illegal access of {size} bytes at {addr:#x}"));
        }
    }
}

unsafe extern "C" fn bad_shared(t: *mut Thread, offset: u64, size: u32, line: u32) {
    // SAFETY: as in `slow_address`.
    unsafe {
        let all = (*(*t).block).total_shared;
        if size > 0 && !offset.is_multiple_of(u64::from(size)) {
            let what = format!("misaligned access of {size} bytes at shared offset {offset:#x}");
            fail(t, FaultKind::MisalignedAddress, line, what);
        }
        let what =
            format!("access of {size} bytes at shared offset {offset:#x}, but the block has {all} bytes");
        fail(t, FaultKind::IllegalAddress, line, what)
    }
}

/// Neighbouring accesses of `lanes` lanes, of which `t` is the first one.
unsafe extern "C" fn slow_span(t: *mut Thread, addr: u64, size: u32, lanes: u32, line: u32) {
    let bytes = size & !(READ_ONLY | IN_SHARED);
    for lane in 0..lanes {
        let at = addr.wrapping_add(u64::from(lane * bytes));
        // SAFETY: as in `slow_address`; the lanes of a group follow each other.
        unsafe {
            let t = t.add(lane as usize);
            if size & IN_SHARED == 0 {
                slow_address(t, at, size, line);
            } else if !fits_shared(t, at, bytes) {
                bad_shared(t, at, bytes, line);
            }
        }
    }
}

/// Whether a shared offset may be accessed.
///
/// # Safety
/// As `slow_address`.
unsafe fn fits_shared(t: *mut Thread, offset: u64, size: u32) -> bool {
    // SAFETY: as promised.
    let all = unsafe { u64::from((*(*t).block).total_shared) };
    let size = u64::from(size);
    offset.is_multiple_of(size) && size <= all && offset <= all - size
}

/// The accesses of a test that did not pass, with the values that it was made with: the first one that may not be ends the grid.
unsafe extern "C" fn slow_cover(t: *mut Thread, values: *const u64, number: u32) {
    // SAFETY: as in `slow_address`.
    let covers = unsafe { &grid_of(t).code.covers };
    for a in covers.get(number as usize).into_iter().flatten() {
        // SAFETY: there is a value for each cover of the test.
        let value = unsafe { values.add(a.cover as usize).read() };
        let at = value.wrapping_add_signed(a.offset);
        let at = if a.narrow { at & u64::from(u32::MAX) } else { at };
        let reads = if a.write { 0 } else { READ_ONLY };
        let shared = if a.shared { IN_SHARED } else { 0 };
        // SAFETY: as promised.
        unsafe { slow_span(t, at, a.size | reads | shared, a.lanes, a.line) };
    }
}
