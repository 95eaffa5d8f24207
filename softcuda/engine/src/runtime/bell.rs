//! What code that runs for long is told: that another process wants the device, that mappings
//! of memory are to be replaced, or that its grid is to end.
//!
//! There is one word a device and process, the *bell*. Every loop looks at it on its way back (so does a yield), and comes here when it
//! is not 0: the thread stays here while the device is another process's, as a card's would that is switched to another
//! context, and leaves its block for good if its grid is to end.

use super::block::{fail, grid_of};
use super::context::Thread;
use super::quiet::quiet;
use crate::error::FaultKind;
use crate::memory::door;
use std::sync::atomic::Ordering;

quiet!(quiet_attend, attend);

/// The bell was heard.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn attend(t: *mut Thread) {
    // SAFETY: as promised; the grid lives as long as its blocks run.
    unsafe {
        let grid = grid_of(t);
        if grid.stop.load(Ordering::Relaxed) != 0 {
            fail(t, FaultKind::Cancelled, 0, "stopped".to_string());
        }
        // It may stand there for long, or somebody waits until it is outside.
        door::outside(|| {
            if let Some(gate) = &grid.gate {
                gate.heed();
            }
        });
    }
}

/// [`attend`], if the bell rings.
///
/// # Safety
/// `t` is the running thread.
pub unsafe fn listen(t: *mut Thread) {
    // SAFETY: as promised; the bell is the engine's or its gate's, which outlive all blocks.
    unsafe {
        if (*(*(*t).block).bell).load(Ordering::Relaxed) != 0 {
            attend(t);
        }
    }
}
