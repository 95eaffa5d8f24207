//! Contexts: creation, the thread's stack, what is known of each.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::{kinds, numbers};
use gpupool_protocol::wire::codec::Wire;

use super::primary::CONTEXT_FLAGS;
use crate::code::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::session::supported;
use crate::state::objects::{Context, lock};
use crate::{send, thread};

type Handle = Raw<kinds::Context>;

/// What cuCtxGetApiVersion answers for every context that this library makes.
const API_VERSION: u32 = 3020;

pub fn cuCtxCreate_v2(cx: Cx, out: Ptr<Handle>, flags: u32, device: i32) -> Answer {
    create(cx, out, flags, device)
}

pub fn cuCtxCreate_v3(
    cx: Cx,
    out: Ptr<Handle>,
    _affinity: Ptr<c_void>,
    count: i32,
    flags: u32,
    device: i32,
) -> Answer {
    supported(count == 0)?;
    create(cx, out, flags, device)
}

pub fn cuCtxCreate_v4(cx: Cx, out: Ptr<Handle>, params: Ptr<c_void>, flags: u32, device: i32) -> Answer {
    if !params.is_null() {
        // {affinity parameters, their number, graphics parameters}: all empty means a plain context.
        let [_, count, graphics] = params.cast::<[u64; 3]>().get()?;
        supported(count as u32 == 0 && graphics == 0)?;
    }
    create(cx, out, flags, device)
}

fn create(cx: Cx, out: Ptr<Handle>, flags: u32, ordinal: i32) -> Answer {
    out.not_null()?;
    let device = cx.session.device(ordinal)?;
    if flags & !CONTEXT_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    super::credit::with_room(cx, device, 0, || try_to_create(cx, out, flags, ordinal))
}

fn try_to_create(cx: Cx, out: Ptr<Handle>, flags: u32, ordinal: i32) -> Answer {
    let device = cx.session.device(ordinal)?;
    let pool = device.pool;
    let contexts = &cx.session.contexts;
    let (handle, pending) = contexts.create(|handle, context| {
        context.device.store(ordinal, Relaxed);
        context.limits.set(&device.limits);
        context.flags.store(flags, Relaxed);
        context.primary.store(false, Relaxed);
        context.active.store(false, Relaxed);
        context.sticky.store(0, Relaxed);
        context.id.store(cx.session.new_id(), Relaxed);
        cx.within(0).begin(numbers::context_create, false, 24, |to| {
            handle.put(to);
            flags.put(to);
            pool.put(to);
        })
    })?;
    if let Err(error) = pending.finish(|from| from.end()) {
        contexts.remove(handle, |_| ());
        return Err(error);
    }
    find(cx, handle)?.active.store(true, Relaxed);
    thread::push_context(handle);
    out.set(Raw::new(handle))
}

pub fn cuCtxDestroy_v2(cx: Cx, handle: Handle) -> Answer {
    let handle = handle.0;
    let context = find(cx, handle)?;
    // One that is not active is still being made.
    if context.primary.load(Relaxed) || !context.active.load(Relaxed) {
        return Err(INVALID_CONTEXT);
    }
    cuda_abi::export_tables::context_destroyed(std::ptr::without_provenance_mut(handle as usize));
    if cx.context == handle {
        thread::pop_context();
    }
    let told = cx.session.contexts.remove(handle, |context| {
        context.active.store(false, Relaxed);
        send::context_destroy(cx.within(0), handle)
    });
    purge(cx, handle);
    told.unwrap_or(Err(INVALID_CONTEXT))
}

/// Forgets everything that lived in a context. Places in tables stay unused, since the worker still counts them.
pub fn purge(cx: Cx, context: u64) {
    let session = cx.session;
    let of = |owner: &std::sync::atomic::AtomicU64| owner.load(Relaxed) == context;
    for (handle, _) in session.streams.iter().filter(|(_, s)| of(&s.context)) {
        session.streams.forget(handle);
    }
    for (handle, _) in session.events.iter().filter(|(_, e)| of(&e.context)) {
        session.events.forget(handle);
    }
    for (handle, module) in session.modules.iter().filter(|(_, m)| of(&m.context)) {
        session.modules.forget(handle);
        for function in lock(&module.inside).functions.drain().map(|(_, handle)| handle) {
            session.functions.forget(function);
        }
    }
    for (_, library) in session.libraries.iter() {
        lock(&library.modules).remove(&context);
        lock(&library.inside).variables.retain(|(owner, _), _| *owner != context);
    }
    super::landing::context_gone(cx, context);
    let ranges = session.memory.context_gone(context);
    super::credit::context_gone(cx, context, ranges.iter().map(|range| (range.base, range.size)));
}

/// The context with this handle. Else CUDA_ERROR_INVALID_CONTEXT.
fn find(cx: Cx, handle: u64) -> Answer<&'static Context> {
    cx.session.contexts.get(handle).ok_or(INVALID_CONTEXT)
}

/// The context that an argument means, null being the current one.
fn meant(cx: Cx, handle: Handle) -> Answer<&'static Context> {
    if handle.is_null() { named(cx) } else { find(cx, handle.0) }
}

/// The current context, also if it is not active.
fn named(cx: Cx) -> Answer<&'static Context> {
    if cx.context == 0 {
        return Err(INVALID_CONTEXT);
    }
    cx.context_object.ok_or(CONTEXT_IS_DESTROYED)
}

pub fn cuCtxPushCurrent_v2(cx: Cx, handle: Handle) -> Answer {
    find(cx, handle.0)?;
    thread::push_context(handle.0);
    Ok(())
}

pub fn cuCtxPopCurrent_v2(_: Cx, out: Ptr<Handle>) -> Answer {
    let top = thread::pop_context().ok_or(INVALID_CONTEXT)?;
    out.set_if_wanted(Raw::new(top));
    Ok(())
}

pub fn cuCtxSetCurrent(cx: Cx, handle: Handle) -> Answer {
    if !handle.is_null() {
        find(cx, handle.0)?;
    }
    thread::set_context(handle.0);
    Ok(())
}

pub fn cuCtxGetCurrent(cx: Cx, out: Ptr<Handle>) -> Answer {
    out.set(Raw::new(cx.context))
}

pub fn cuCtxGetDevice(cx: Cx, device: Ptr<i32>) -> Answer {
    device.not_null()?;
    device.set(named(cx)?.device.load(Relaxed))
}

pub fn cuCtxGetDevice_v2(cx: Cx, device: Ptr<i32>, handle: Handle) -> Answer {
    device.not_null()?;
    device.set(meant(cx, handle)?.device.load(Relaxed))
}

pub fn cuCtxGetFlags(cx: Cx, flags: Ptr<u32>) -> Answer {
    flags.not_null()?;
    let context = named(cx)?;
    if context.primary.load(Relaxed) {
        let device = cx.session.device(context.device.load(Relaxed))?;
        return flags.set(lock(&device.primary).flags);
    }
    flags.set(context.flags.load(Relaxed))
}

pub fn cuCtxGetId(cx: Cx, handle: Handle, id: Ptr<u64>) -> Answer {
    id.not_null()?;
    id.set(meant(cx, handle)?.id.load(Relaxed))
}

pub fn cuCtxGetApiVersion(cx: Cx, handle: Handle, version: Ptr<u32>) -> Answer {
    version.not_null()?;
    meant(cx, handle)?;
    version.set(API_VERSION)
}
