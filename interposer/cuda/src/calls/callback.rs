//! Host functions in streams.

use std::ffi::c_void;

use cudarc::driver::sys::CUresult;
use gpupool_protocol::api::kinds;

use crate::args::stream;
use crate::callbacks::Job;
use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::host::HostFunction;
use crate::send;
use crate::session::supported;

type Stream = Raw<kinds::Stream>;
/// CUstreamCallback.
pub type StreamFunction = unsafe extern "C" fn(Stream, CUresult, *mut c_void);

fn enqueue(cx: Cx, hstream: Stream, job: Job) -> Answer {
    cx.current()?;
    let stream = stream(cx, hstream)?;
    let id = cx.session.callbacks.register(cx.session, job)?;
    send::host_function(cx, stream, id).inspect_err(|_| cx.session.callbacks.unregister(id))
}

pub fn cuLaunchHostFunc(
    cx: Cx,
    hstream: Stream,
    function: Option<HostFunction>,
    data: Ptr<c_void>,
) -> Answer {
    let function = function.ok_or(INVALID_VALUE)?;
    enqueue(cx, hstream, Job::Host { function, data: data.addr() })
}

/// `sync_mode` 0 (CU_HOST_TASK_BLOCKING) is what cuLaunchHostFunc does.
pub fn cuLaunchHostFunc_v2(
    cx: Cx,
    hstream: Stream,
    function: Option<HostFunction>,
    data: Ptr<c_void>,
    sync_mode: u32,
) -> Answer {
    supported(sync_mode == 0)?;
    cuLaunchHostFunc(cx, hstream, function, data)
}

pub fn cuStreamAddCallback(
    cx: Cx,
    hstream: Stream,
    function: Option<StreamFunction>,
    data: Ptr<c_void>,
    flags: u32,
) -> Answer {
    let function = function.ok_or(INVALID_VALUE)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    enqueue(cx, hstream, Job::Stream { function, stream: hstream.0, data: data.addr() })
}
