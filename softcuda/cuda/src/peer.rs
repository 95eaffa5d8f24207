//! Peer access: kernels of one context that touch memory of another device's context.
//!
//! What is asked for is kept by pairs of contexts; what is open is open between devices, as long as one pair wants it.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::current;
use crate::driver::{self, TABLES};
use crate::error::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

fn same_devices(a: &Pair, b: &Pair) -> bool {
    (a.from.1, a.to.1) == (b.from.1, b.to.1)
}

fn pair(from: &Context, to: &Context) -> Pair {
    Pair { from: (from.handle, from.device.ordinal), to: (to.handle, to.device.ordinal) }
}

/// The current context, and the peer of a handle.
fn both(peer: usize) -> Result<Pair> {
    let context = current::healthy()?;
    let peer =
        TABLES.contexts.get(peer).filter(|p| p.handle != context.handle).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    Ok(pair(&context, &peer))
}

/// `cuCtxEnablePeerAccess`: the current context's kernels may touch the peer's memory.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a peer that is none or the current context, `CUDA_ERROR_INVALID_DEVICE` for one of the
/// same device, `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, `CUDA_ERROR_INVALID_VALUE` for flags.
pub fn enable(peer: usize, flags: u32) -> Result {
    let new = both(peer)?;
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
    if !pairs.iter().any(|p| same_devices(p, &new)) {
        driver::device(new.to.1)?.memory.open_to(&driver::device(new.from.1)?.memory);
    }
    pairs.push(new);
    Ok(())
}

/// Takes pairs away; what no pair wants any more is closed.
fn end(pairs: &mut Vec<Pair>, gone: impl Fn(&Pair) -> bool) -> Result {
    let ended: Vec<Pair> = pairs.iter().filter(|p| gone(p)).copied().collect();
    pairs.retain(|p| !gone(p));
    for pair in ended {
        if !pairs.iter().any(|p| same_devices(p, &pair)) {
            driver::device(pair.to.1)?.memory.close_to(&driver::device(pair.from.1)?.memory);
        }
    }
    Ok(())
}

/// `cuCtxDisablePeerAccess`: waits for the context's work first.
///
/// # Errors
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`, `CUDA_ERROR_INVALID_CONTEXT`.
pub fn disable(peer: usize) -> Result {
    let old = both(peer)?;
    current::healthy()?.synchronize()?;
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
