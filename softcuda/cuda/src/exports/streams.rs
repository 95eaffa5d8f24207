//! Streams and host functions.

use super::{handle, on, out, set_if_wanted};
use crate::error::*;
use crate::host_call::{HostCall, HostFunction};
use crate::launch::Value;
use crate::{context, stream};
use cudarc::driver::sys::{CUcontext, CUgreenCtx, CUstream, CUstreamCallback};
use std::ffi::c_void;

/// A pointer of the program that goes to a driver thread and back into the program.
struct Theirs(*mut c_void);

// SAFETY: the program gives the pointer to be handed to its function on another thread.
unsafe impl Send for Theirs {}

impl Theirs {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

type Function = Option<HostFunction>;

exports! { ($) streams_names, initialised;
    cuStreamCreate(stream: *mut CUstream, flags: u32) { out(stream)?.set(handle(stream::create(flags, 0)?)) }
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32) {
        out(stream)?.set(handle(stream::create(flags, priority)?))
    }
    cuStreamDestroy(stream: CUstream) { stream::destroy(stream.addr()) }
    cuStreamDestroy_v2(stream: CUstream) { stream::destroy(stream.addr()) }
    cuStreamSynchronize(stream: CUstream) [cuStreamSynchronize_ptsz, default] {
        let (context, stream) = context::stream(on(stream, default))?;
        context.synchronize_stream(&stream)
    }
    cuStreamQuery(stream: CUstream) [cuStreamQuery_ptsz, default] {
        let (context, stream) = context::stream(on(stream, default))?;
        context.query_stream(&stream)
    }
    cuStreamWaitEvent(stream: CUstream, event: *mut c_void, flags: u32) [cuStreamWaitEvent_ptsz, default] {
        stream::wait_event(on(stream, default), event.addr(), flags)
    }
    cuStreamGetFlags(stream: CUstream, flags: *mut u32) [cuStreamGetFlags_ptsz, default] {
        out(flags)?.set(context::stream(on(stream, default))?.1.flags)
    }
    cuStreamGetPriority(stream: CUstream, priority: *mut i32) [cuStreamGetPriority_ptsz, default] {
        out(priority)?.set(context::stream(on(stream, default))?.1.priority)
    }
    cuStreamGetId(stream: CUstream, id: *mut u64) [cuStreamGetId_ptsz, default] {
        out(id)?.set(context::stream(on(stream, default))?.1.id)
    }
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) [cuStreamGetCtx_ptsz, default] {
        out(context)?.set(handle(context::stream(on(stream, default))?.0.handle))
    }
    cuStreamGetCtx_v2(stream: CUstream, context: *mut CUcontext, green: *mut CUgreenCtx) [cuStreamGetCtx_v2_ptsz, default] {
        // For a stream of a green context the other one is the primary context.
        let (context, found) = (out(context)?, context::stream(on(stream, default))?);
        set_if_wanted(green, handle(found.1.green()));
        context.set(handle(found.0.handle))
    }
    cuStreamGetDevice(stream: CUstream, device: *mut i32) [cuStreamGetDevice_ptsz, default] {
        out(device)?.set(context::stream(on(stream, default))?.0.device.ordinal)
    }
    cuStreamAddCallback(
        stream: CUstream, callback: CUstreamCallback, argument: *mut c_void, flags: u32
    ) [cuStreamAddCallback_ptsz, default] {
        let callback = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (argument, seen) = (Theirs(argument), Theirs(stream.cast()));
        stream::add_callback(on(stream, default), move |status| {
            // SAFETY: the program gave the function for this call, with this argument.
            unsafe { callback(seen.get().cast(), status, argument.get()) }
        })
    }
    cuLaunchHostFunc(stream: CUstream, function: Function, argument: *mut c_void) [cuLaunchHostFunc_ptsz, default] {
        launch(on(stream, default), function, argument)
    }
    cuLaunchHostFunc_v2(
        stream: CUstream, function: Function, argument: *mut c_void, mode: u32
    ) [cuLaunchHostFunc_v2_ptsz, default] {
        // The mode says how the driver waits for the function; every way is right.
        if mode > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        launch(on(stream, default), function, argument)
    }
    cuStreamCopyAttributes(to: CUstream, from: CUstream) [cuStreamCopyAttributes_ptsz, default] {
        stream::copy_attributes(on(to, default), on(from, default))
    }
    cuStreamGetAttribute(stream: CUstream, attribute: u32, value: *mut Value) [cuStreamGetAttribute_ptsz, default] {
        out(value)?.set(stream::attribute(on(stream, default), attribute)?)
    }
    cuStreamSetAttribute(stream: CUstream, attribute: u32, value: *const Value) [cuStreamSetAttribute_ptsz, default] {
        let value = if value.is_null() { return Err(CUDA_ERROR_INVALID_VALUE) } else { value.read_unaligned() };
        stream::set_attribute(on(stream, default), attribute, value)
    }
}

fn launch(stream: usize, function: Function, argument: *mut c_void) -> Result {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    stream::launch_host(stream, HostCall { function, argument })
}
