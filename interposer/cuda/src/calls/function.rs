//! Functions and kernels: CUDA lets one stand for the other, and so do the handles here.

use std::ffi::c_char;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gpupool_protocol::api::kinds;

use super::library::module_of;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::state::image::Kernel;
use crate::state::objects::{Function, lock};

type Handle = Raw<kinds::Function>;

const MAX_DYNAMIC_SHARED: u32 = 8;
/// CU_FUNCTION_LOADING_STATE_LOADED: what is listed is loaded.
const LOADED: u32 = 1;

fn find(cx: Cx, handle: Handle) -> Answer<(&'static Function, &'static Kernel)> {
    let function = cx.session.functions.get(handle.0).ok_or(INVALID_HANDLE)?;
    Ok((function, function.kernel.get().ok_or(INVALID_HANDLE)?))
}

/// The worker's number of the device that the current context is on.
fn current_device(cx: Cx) -> Answer<i32> {
    let ordinal = cx.current()?.device.load(Relaxed);
    Ok(cx.session.device(ordinal)?.pool)
}

pub fn cuKernelGetFunction(cx: Cx, function: Ptr<Handle>, kernel: Handle) -> Answer {
    function.not_null()?;
    cx.current()?;
    find(cx, kernel)?;
    function.set(kernel)
}

pub fn cuKernelGetLibrary(cx: Cx, library: Ptr<Raw<kinds::Library>>, kernel: Handle) -> Answer {
    library.not_null()?;
    let (function, _) = find(cx, kernel)?;
    if !function.of_library.load(Relaxed) {
        return Err(INVALID_HANDLE);
    }
    library.set(Raw::new(function.owner.load(Relaxed)))
}

pub fn cuFuncGetModule(cx: Cx, module: Ptr<Raw<kinds::Module>>, handle: Handle) -> Answer {
    module.not_null()?;
    let (function, _) = find(cx, handle)?;
    let owner = function.owner.load(Relaxed);
    module.set(Raw::new(if function.of_library.load(Relaxed) {
        module_of(cx, Raw::new(owner))?
    } else {
        owner
    }))
}

pub fn cuFuncGetName(cx: Cx, name: Ptr<*const c_char>, handle: Handle) -> Answer {
    name.not_null()?;
    name.set(find(cx, handle)?.1.name.as_ptr())
}

pub fn cuKernelGetName(cx: Cx, name: Ptr<*const c_char>, kernel: Handle) -> Answer {
    cuFuncGetName(cx, name, kernel)
}

pub fn cuFuncGetParamInfo(
    cx: Cx,
    handle: Handle,
    index: usize,
    offset: Ptr<usize>,
    size: Ptr<usize>,
) -> Answer {
    offset.not_null()?;
    let (at, bytes) = find(cx, handle)?.1.params.get(index).ok_or(INVALID_VALUE)?;
    size.set_if_wanted(*bytes as usize);
    offset.set(*at as usize)
}

pub fn cuKernelGetParamInfo(
    cx: Cx,
    kernel: Handle,
    index: usize,
    offset: Ptr<usize>,
    size: Ptr<usize>,
) -> Answer {
    cuFuncGetParamInfo(cx, kernel, index, offset, size)
}

pub fn cuFuncGetParamCount(cx: Cx, handle: Handle, count: Ptr<usize>) -> Answer {
    count.not_null()?;
    count.set(find(cx, handle)?.1.params.len())
}

pub fn cuKernelGetParamCount(cx: Cx, kernel: Handle, count: Ptr<usize>) -> Answer {
    cuFuncGetParamCount(cx, kernel, count)
}

fn get_attribute(cx: Cx, value: Ptr<i32>, attribute: u32, handle: Handle, pool: i32) -> Answer {
    value.not_null()?;
    let (function, kernel) = find(cx, handle)?;
    let set = if function.any_set.load(Acquire) {
        lock(&function.set).iter().find(|(a, _)| *a == attribute).map(|(_, value)| *value)
    } else {
        None
    };
    // What came with the load is of the session's first device.
    let known = set.or_else(|| if pool == 0 { kernel.attribute(attribute) } else { None });
    match known {
        Some(known) => value.set(known),
        None => {
            let mut got = 0;
            send::function_get_attribute(cx, handle.0, attribute, pool, &mut got)?;
            value.set(got)
        }
    }
}

fn set_attribute(cx: Cx, attribute: u32, value: i32, handle: Handle, pool: i32) -> Answer {
    let (function, _) = find(cx, handle)?;
    send::function_set_attribute(cx, handle.0, attribute, value, pool)?;
    let mut set = lock(&function.set);
    set.retain(|(a, _)| *a != attribute);
    set.push((attribute, value));
    function.any_set.store(true, Release);
    if attribute == MAX_DYNAMIC_SHARED {
        function.max_dynamic_shared.store(value, Relaxed);
    }
    Ok(())
}

pub fn cuFuncGetAttribute(cx: Cx, value: Ptr<i32>, attribute: u32, handle: Handle) -> Answer {
    get_attribute(cx, value, attribute, handle, current_device(cx)?)
}

pub fn cuFuncSetAttribute(cx: Cx, handle: Handle, attribute: u32, value: i32) -> Answer {
    set_attribute(cx, attribute, value, handle, current_device(cx)?)
}

pub fn cuKernelGetAttribute(cx: Cx, value: Ptr<i32>, attribute: u32, kernel: Handle, device: i32) -> Answer {
    get_attribute(cx, value, attribute, kernel, cx.session.device(device)?.pool)
}

pub fn cuKernelSetAttribute(cx: Cx, attribute: u32, value: i32, kernel: Handle, device: i32) -> Answer {
    set_attribute(cx, attribute, value, kernel, cx.session.device(device)?.pool)
}

fn set_cache(cx: Cx, handle: Handle, config: u32, pool: i32) -> Answer {
    find(cx, handle)?;
    if config > 3 {
        return Err(INVALID_VALUE);
    }
    send::function_set_cache(cx, handle.0, config, pool)
}

pub fn cuFuncSetCacheConfig(cx: Cx, handle: Handle, config: u32) -> Answer {
    set_cache(cx, handle, config, current_device(cx)?)
}

pub fn cuKernelSetCacheConfig(cx: Cx, kernel: Handle, config: u32, device: i32) -> Answer {
    set_cache(cx, kernel, config, cx.session.device(device)?.pool)
}

pub fn cuFuncLoad(cx: Cx, handle: Handle) -> Answer {
    find(cx, handle).map(drop)
}

pub fn cuFuncIsLoaded(cx: Cx, state: Ptr<u32>, handle: Handle) -> Answer {
    state.not_null()?;
    find(cx, handle)?;
    state.set(LOADED)
}
