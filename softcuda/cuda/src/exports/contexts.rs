//! Contexts and what is current.

use super::{handle, out, set_if_wanted};
use crate::context::{self, Context};
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::{current, peer, stream};
use cudarc::driver::sys::{CUcontext, CUctxCreateParams};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

exports! { ($) contexts_names, initialised;
    cuCtxCreate(context: *mut CUcontext, flags: u32, device: i32) { create(context, flags, device) }
    cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: i32) { create(context, flags, device) }
    cuCtxCreate_v3(context: *mut CUcontext, affinities: *mut c_void, count: i32, flags: u32, device: i32) {
        // Affinity to some multiprocessors is said not to be supported.
        if !affinities.is_null() || count != 0 {
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, device)
    }
    cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut CUctxCreateParams, flags: u32, device: i32) {
        if let Some(p) = parameters.as_ref() {
            if !p.execAffinityParams.is_null() || p.numExecAffinityParams != 0 {
                return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
            }
            if !p.cigParams.is_null() {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        create(context, flags, device)
    }
    cuCtxDestroy(context: CUcontext) { context::destroy(context.addr()) }
    cuCtxDestroy_v2(context: CUcontext) { context::destroy(context.addr()) }
    cuCtxAttach(context: *mut CUcontext, flags: u32) {
        let (context, found) = (out(context)?, current::context()?);
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        found.attached.fetch_add(1, Ordering::Relaxed);
        context.set(handle(found.handle))
    }
    cuCtxDetach(context: CUcontext) { context::detach(context.addr()) }
    cuCtxGetExecAffinity(_affinity: *mut c_void, _kind: u32) { Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY) }
    cuCtxPushCurrent(context: CUcontext) { current::push(context.addr()) }
    cuCtxPushCurrent_v2(context: CUcontext) { current::push(context.addr()) }
    cuCtxPopCurrent(context: *mut CUcontext) { pop(context) }
    cuCtxPopCurrent_v2(context: *mut CUcontext) { pop(context) }
    cuCtxSetCurrent(context: CUcontext) { current::set(context.addr()) }
    cuCtxGetCurrent(context: *mut CUcontext) { out(context)?.set(handle(current::handle())) }
    cuCtxGetDevice(device: *mut i32) { out(device)?.set(device_of(current::handle())?) }
    cuCtxGetDevice_v2(device: *mut i32, context: CUcontext) { out(device)?.set(device_of(or_current(context))?) }
    cuCtxGetFlags(flags: *mut u32) { out(flags)?.set(current::context()?.flags.load(Ordering::Relaxed)) }
    cuCtxSetFlags(flags: u32) {
        context::check_flags(flags)?;
        current::context()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }
    cuCtxGetId(context: CUcontext, id: *mut u64) { out(id)?.set(find(context)?.id) }
    cuCtxGetApiVersion(context: CUcontext, version: *mut u32) {
        let version = out(version)?;
        // A runtime asks this of a primary context that was just reset.
        device_of(or_current(context))?;
        version.set(TABLES.contexts.get(or_current(context)).map_or(3020, |c| c.api_version))
    }
    cuCtxSynchronize() { current::context()?.synchronize() }
    cuCtxSynchronize_v2(context: CUcontext) { find(context)?.synchronize() }
    cuCtxGetLimit(value: *mut usize, limit: u32) {
        let (value, context) = (out(value)?, current::healthy()?);
        let limits = context.limits.lock().unwrap_or_else(PoisonError::into_inner);
        value.set(limits.get(limit)?)
    }
    cuCtxSetLimit(limit: u32, value: usize) {
        let context = current::healthy()?;
        context.limits.lock().unwrap_or_else(PoisonError::into_inner).set(limit, value, &context.realm)
    }
    cuCtxGetCacheConfig(config: *mut u32) {
        out(config)?.set(current::healthy()?.cache_config.load(Ordering::Relaxed))
    }
    cuCtxSetCacheConfig(config: u32) {
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        current::healthy()?.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }
    cuCtxGetSharedMemConfig(config: *mut u32) {
        out(config)?.set(current::healthy()?.shared_config.load(Ordering::Relaxed))
    }
    cuCtxSetSharedMemConfig(config: u32) {
        if config > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Banks of 4 bytes are all that this architecture has.
        current::healthy().map(drop)
    }
    cuCtxResetPersistingL2Cache() { current::healthy().map(drop) }
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        current::healthy()?;
        set_if_wanted(least, stream::PRIORITIES.0);
        set_if_wanted(greatest, stream::PRIORITIES.1);
        Ok(())
    }
    cuCtxEnablePeerAccess(context: CUcontext, flags: u32) { peer::enable(context.addr(), flags) }
    cuCtxDisablePeerAccess(context: CUcontext) { peer::disable(context.addr()) }
}

/// # Safety
/// `context` is null or may be written.
unsafe fn create(context: *mut CUcontext, flags: u32, device: i32) -> Result {
    // SAFETY: the caller vouches for it.
    let context = unsafe { out(context)? };
    context.set(handle(context::create(driver::device(device)?, flags)?))
}

/// # Safety
/// `context` is null or may be written.
unsafe fn pop(context: *mut CUcontext) -> Result {
    let popped = current::pop()?;
    // SAFETY: the caller vouches for it.
    unsafe { set_if_wanted(context, handle(popped)) };
    Ok(())
}

fn or_current(context: CUcontext) -> usize {
    if context.is_null() { current::handle() } else { context.addr() }
}

/// The living context of an argument, null for the current one.
pub(super) fn find(context: CUcontext) -> Result<Arc<Context>> {
    if context.is_null() {
        return current::context();
    }
    TABLES.contexts.get(context.addr()).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The device of a context, which may be a primary one that nobody retains.
fn device_of(context: usize) -> Result<i32> {
    if context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if let Some(device) = driver::devices().iter().find(|d| d.primary.handle == context) {
        return Ok(device.ordinal);
    }
    TABLES.contexts.get(context).map(|c| c.device.ordinal).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
}
