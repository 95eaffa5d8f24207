//! Peer access: kernels of one context that touch memory of another device's context.
//!
//! Access is of a context, in whose view of the memory the peer's device is open; what is opened is all of that device's
//! memory, as long as the context wants access to one context there.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::current;
use crate::driver::{self, TABLES};
use crate::error::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who may touch whose memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pair {
    /// The context that may, and its device.
    from: (usize, i32),
    /// The context whose memory it is, and its device.
    to: (usize, i32),
}

static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Pair>> {
    PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether two pairs are the access of one context to one device.
fn same_opening(a: &Pair, b: &Pair) -> bool {
    (a.from, a.to.1) == (b.from, b.to.1)
}

fn pair(from: &Context, to: &Context) -> Pair {
    Pair { from: (from.handle, from.device.ordinal), to: (to.handle, to.device.ordinal) }
}

/// The current context, and the peer of a handle.
fn both(peer: usize) -> Result<(Arc<Context>, Pair)> {
    let context = current::healthy()?;
    let peer =
        TABLES.contexts.get(peer).filter(|p| p.handle != context.handle).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let pair = pair(&context, &peer);
    Ok((context, pair))
}

/// `cuCtxEnablePeerAccess`: the current context's kernels may touch the peer's memory.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a peer that is none or the current context, `CUDA_ERROR_INVALID_DEVICE` for one of the
/// same device, `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, `CUDA_ERROR_INVALID_VALUE` for flags, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn enable(peer: usize, flags: u32) -> Result {
    let (context, new) = both(peer)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if new.from.1 == new.to.1 {
        return Err(CUDA_ERROR_INVALID_DEVICE);
    }
    let mut pairs = lock();
    if pairs.contains(&new) {
        return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    if !pairs.iter().any(|p| same_opening(p, &new)) {
        driver::device(new.to.1)?.memory.open_to(context.make_view()?);
    }
    pairs.push(new);
    Ok(())
}

/// Takes pairs away; what a context wants no more is closed to it.
fn end(pairs: &mut Vec<Pair>, gone: impl Fn(&Pair) -> bool) -> Result {
    let ended: Vec<Pair> = pairs.iter().filter(|p| gone(p)).copied().collect();
    pairs.retain(|p| !gone(p));
    for pair in ended.iter().filter(|pair| !pairs.iter().any(|p| same_opening(p, pair))) {
        // The view of a context that has ended went with it.
        let context = TABLES.contexts.get(pair.from.0);
        if let Some(view) = context.as_ref().and_then(|context| context.view()) {
            driver::device(pair.to.1)?.memory.close_to(view);
        }
    }
    Ok(())
}

/// `cuCtxDisablePeerAccess`: waits for the context's work first.
///
/// # Errors
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`, `CUDA_ERROR_INVALID_CONTEXT`.
pub fn disable(peer: usize) -> Result {
    let (context, old) = both(peer)?;
    context.synchronize()?;
    let mut pairs = lock();
    if !pairs.contains(&old) {
        return Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    end(&mut pairs, |p| *p == old)
}

/// A context has ended: it needs nothing, and nobody needs it.
pub fn forget(context: usize) {
    // The devices of pairs exist as long as the process.
    let _ = end(&mut lock(), |p| p.from.0 == context || p.to.0 == context);
}

/// `cuDeviceCanAccessPeer`: every device can access every other.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn is_possible(device: i32, peer: i32) -> Result<bool> {
    Ok(driver::device(device)?.ordinal != driver::device(peer)?.ordinal)
}

/// `cuDeviceGetP2PAttribute`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`; `CUDA_ERROR_INVALID_VALUE` for one device and itself, and a number that is no attribute.
pub fn attribute(id: u32, from: i32, to: i32) -> Result<i32> {
    if !is_possible(from, to)? {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match id {
        // Rank among the links; partial atomics only.
        1 | 5 => Ok(0),
        // Access, native atomics, arrays.
        2..=4 => Ok(1),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
