//! Primary and created contexts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpupool_protocol::api::kinds::Context;
use gpupool_protocol::wire::codec::BadRecord;

use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;
use crate::worker::objects::{ContextState, Found, Fresh};

pub fn primary_name(cx: &mut Cx, context: Fresh, device: i32) -> Result<(), Fail> {
    let state = cx.session.primaries.of(cx.device(device)?);
    cx.bind::<Context>(context, 0, Arc::default(), state);
    Ok(())
}

/// The primary context that `context` names, which must be that of `device`.
fn primary<'c>(cx: &Cx, context: &'c Found<Context>, device: i32) -> Result<&'c Arc<ContextState>, Fail> {
    let state = &context.parts;
    if state.primary && state.device == cx.device(device)? {
        Ok(state)
    } else {
        Err(BadRecord::OutOfRange.into())
    }
}

pub fn primary_retain(cx: &mut Cx, context: &Found<Context>, device: i32) -> Result<(), Fail> {
    let state = primary(cx, context, device)?;
    let mut native = 0;
    cx.session.driver.hand.cuDevicePrimaryCtxRetain(&mut native, state.device).ok()?;
    state.native.store(native, Ordering::Release);
    state.retained.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub fn primary_release(cx: &mut Cx, context: &Found<Context>, device: i32) -> Result<(), Fail> {
    let state = primary(cx, context, device)?;
    // The worker is the driver's only user, so its count is the driver's.
    let last =
        state.retained.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)) == Ok(1);
    if last {
        cx.session.end_context(state);
    }
    cx.session.driver.hand.cuDevicePrimaryCtxRelease_v2(state.device).ok()
}

pub fn primary_reset(cx: &mut Cx, context: &Found<Context>, device: i32) -> Result<(), Fail> {
    let state = primary(cx, context, device)?;
    cx.session.end_context(state);
    state.retained.store(0, Ordering::Release);
    cx.session.driver.hand.cuDevicePrimaryCtxReset_v2(state.device).ok()
}

pub fn primary_state(cx: &mut Cx, device: i32, flags: &mut u32, active: &mut i32) -> Result<(), Fail> {
    cx.session.driver.hand.cuDevicePrimaryCtxGetState(cx.device(device)?, flags, active).ok()
}

pub fn primary_set_flags(cx: &mut Cx, device: i32, flags: u32) -> Result<(), Fail> {
    cx.session.driver.hand.cuDevicePrimaryCtxSetFlags_v2(cx.device(device)?, flags).ok()
}

pub fn context_create(cx: &mut Cx, context: Fresh, flags: u32, device: i32) -> Result<(), Fail> {
    let device = cx.device(device)?;
    let mut native = 0;
    // It comes to stand on this thread's stack of contexts; the next call puts its own context over it.
    cx.leave();
    cx.session.driver.hand.cuCtxCreate_v2(&mut native, flags, device).ok()?;
    let state = ContextState::new(native, device, false);
    cx.bind::<Context>(context, native, state.life(), state);
    Ok(())
}

pub fn context_destroy(cx: &mut Cx, context: &Found<Context>) -> Result<(), Fail> {
    let state = &context.parts;
    if state.primary {
        // CUDA does not let a primary context be destroyed; the handle is only a name of it.
        return Err(Code::INVALID_CONTEXT.into());
    }
    cx.session.end_context(state);
    cx.leave();
    cx.session.driver.hand.cuCtxDestroy_v2(context.native).ok()
}
