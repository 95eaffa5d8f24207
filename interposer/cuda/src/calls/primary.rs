//! Primary contexts. The program's retains are counted here; the worker hears of the first and of the last release.

use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::kinds;

use super::context::purge;
use super::credit;
use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::session::Device;
use crate::state::objects::lock;

/// Flags that a context may have (CUctx_flags), the deprecated ones among them.
pub const CONTEXT_FLAGS: u32 = 0x3ff;

/// The handle of a device's primary context, which need not be active.
pub fn primary_context(cx: Cx, ordinal: i32) -> Answer<u64> {
    let device = cx.session.device(ordinal)?;
    let mut primary = lock(&device.primary);
    if primary.handle == 0 {
        let (handle, ()) = cx.session.contexts.create(|handle, context| {
            context.device.store(ordinal, Relaxed);
            context.limits.set(&device.limits);
            context.primary.store(true, Relaxed);
            context.active.store(false, Relaxed);
            context.sticky.store(0, Relaxed);
            context.id.store(cx.session.new_id(), Relaxed);
            send::primary_name(cx, handle, device.pool)
        })?;
        primary.handle = handle;
    }
    Ok(primary.handle)
}

fn find(cx: Cx, handle: u64) -> Answer<&'static crate::state::objects::Context> {
    cx.session.contexts.get(handle).ok_or(INVALID_CONTEXT)
}

pub fn cuDevicePrimaryCtxRetain(cx: Cx, out: Ptr<Raw<kinds::Context>>, ordinal: i32) -> Answer {
    out.not_null()?;
    let handle = primary_context(cx, ordinal)?;
    let device = cx.session.device(ordinal)?;
    let context = find(cx, handle)?;
    // Held during the call: who comes second must not go on before the context is there.
    let mut primary = lock(&device.primary);
    if primary.retained == 0 {
        credit::with_room(cx, device, 0, || send::primary_retain(cx.within(0), handle, device.pool))?;
        context.sticky.store(0, Relaxed);
        context.active.store(true, Relaxed);
    }
    primary.retained += 1;
    drop(primary);
    out.set(Raw::new(handle))
}

pub fn cuDevicePrimaryCtxRelease_v2(cx: Cx, ordinal: i32) -> Answer {
    let device = cx.session.device(ordinal)?;
    let handle = {
        let mut primary = lock(&device.primary);
        match primary.retained {
            0 => return Err(INVALID_CONTEXT),
            1 => {}
            _ => {
                primary.retained -= 1;
                return Ok(());
            }
        }
        primary.retained = 0;
        primary.handle
    };
    end(cx, device, handle, |cx, device, handle| send::primary_release(cx, handle, device.pool))
}

pub fn cuDevicePrimaryCtxReset_v2(cx: Cx, ordinal: i32) -> Answer {
    let device = cx.session.device(ordinal)?;
    let handle = primary_context(cx, ordinal)?;
    lock(&device.primary).retained = 0;
    end(cx, device, handle, |cx, device, handle| send::primary_reset(cx, handle, device.pool))
}

/// The context stops to exist on the device; its handle stays its name.
fn end(cx: Cx, device: &Device, handle: u64, tell: impl FnOnce(Cx, &Device, u64) -> Answer) -> Answer {
    // Runtimes clean up while the context still works.
    cuda_abi::export_tables::context_destroyed(std::ptr::without_provenance_mut(handle as usize));
    find(cx, handle)?.active.store(false, Relaxed);
    let told = tell(cx.within(0), device, handle);
    purge(cx, handle);
    told
}

pub fn cuDevicePrimaryCtxSetFlags_v2(cx: Cx, ordinal: i32, flags: u32) -> Answer {
    let device = cx.session.device(ordinal)?;
    if flags & !CONTEXT_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    send::primary_set_flags(cx.within(0), device.pool, flags)?;
    lock(&device.primary).flags = flags;
    Ok(())
}

pub fn cuDevicePrimaryCtxGetState(cx: Cx, ordinal: i32, flags: Ptr<u32>, active: Ptr<i32>) -> Answer {
    let device = cx.session.device(ordinal)?;
    let (flags, active) = (flags.not_null()?, active.not_null()?);
    let primary = lock(&device.primary);
    flags.set(primary.flags)?;
    active.set(i32::from(primary.retained > 0))
}
