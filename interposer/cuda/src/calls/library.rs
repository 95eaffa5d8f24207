//! Libraries: images that belong to no context, and their kernels.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::CUdeviceptr;
use gpupool_protocol::api::{kinds, numbers};
use gpupool_protocol::wire::codec::Wire;

use super::credit;
use super::images::{self, Source, loaded, send_parcel};
use super::jit::Jit;
use super::module::{bind, empty, index_of, variable};
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::state::objects::{Inside, Library, lock};

type Handle = Raw<kinds::Library>;
type Kernel = Raw<kinds::Function>;

/// CU_LIBRARY_BINARY_IS_PRESERVED: the image stays where it is, which does not matter here.
const BINARY_IS_PRESERVED: u32 = 1;

/// Options of the library itself.
fn check_options(count: u32, options: Ptr<u32>, values: Ptr<*mut c_void>) -> Answer {
    if count > 0 && options.is_null() {
        return Err(INVALID_VALUE);
    }
    for at in 0..count.min(16) as usize {
        match options.at(at) {
            BINARY_IS_PRESERVED => {}
            // A table of host functions, which device code would call.
            0 if values.is_null() || values.at(at).is_null() => {}
            0 => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

pub fn cuLibraryLoadData(
    cx: Cx,
    library: Ptr<Handle>,
    image: Ptr<c_void>,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
    count: u32,
    library_options: Ptr<u32>,
    library_values: Ptr<*mut c_void>,
    library_count: u32,
) -> Answer {
    library.not_null()?;
    check_options(library_count, library_options, library_values)?;
    let jit = Jit::parse(count, options, values)?;
    load(cx, library, images::at(image.addr())?, &jit)
}

pub fn cuLibraryLoadFromFile(
    cx: Cx,
    library: Ptr<Handle>,
    path: Ptr<c_char>,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
    count: u32,
    library_options: Ptr<u32>,
    library_values: Ptr<*mut c_void>,
    library_count: u32,
) -> Answer {
    library.not_null()?;
    check_options(library_count, library_options, library_values)?;
    let jit = Jit::parse(count, options, values)?;
    load(cx, library, Source { bytes: images::in_file(path)?.into(), wrapped: false }, &jit)
}

fn load(cx: Cx, out: Ptr<Handle>, image: Source<'_>, jit: &Jit) -> Answer {
    match credit::device(cx) {
        Ok(device) => credit::with_room(cx, device, 0, || try_to_load(cx, out, &image, jit)),
        // A library needs no context.
        Err(_) => try_to_load(cx, out, &image, jit),
    }
}

fn try_to_load(cx: Cx, out: Ptr<Handle>, image: &Source<'_>, jit: &Jit) -> Answer {
    let parcel = send_parcel(cx, &image.bytes)?;
    let wrapped = image.wrapped;
    let options = jit.encode();
    let libraries = &cx.session.libraries;
    let (handle, pending) = libraries.create(|handle, library| {
        *lock(&library.inside) = Inside { wrapped, ..Inside::default() };
        lock(&library.modules).clear();
        cx.begin(numbers::library_load, false, 16 + options.wire_len(), |to| {
            handle.put(to);
            parcel.put(to);
            options.put(to);
        })
    })?;
    match loaded(cx, pending, jit) {
        Ok(image) => {
            lock(&find(cx, Raw::new(handle))?.inside).image = Some(image);
            out.set(Raw::new(handle))
        }
        Err(error) => {
            libraries.remove(handle, |_| ());
            Err(error)
        }
    }
}

fn find(cx: Cx, handle: Handle) -> Answer<&'static Library> {
    cx.session.libraries.get(handle.0).ok_or(INVALID_HANDLE)
}

pub fn cuLibraryUnload(cx: Cx, handle: Handle) -> Answer {
    if lock(&find(cx, handle)?.inside).image.is_none() {
        // It is still being loaded: nobody has its handle yet, and the worker has no library to unload.
        return Err(INVALID_HANDLE);
    }
    let unloaded = cx.session.libraries.remove(handle.0, |library| {
        for (_, module) in lock(&library.modules).drain() {
            cx.session.modules.forget(module);
        }
        let inside = std::mem::take(&mut *lock(&library.inside));
        empty(cx, inside);
        send::library_unload(cx, handle.0)
    });
    unloaded.unwrap_or(Err(INVALID_HANDLE))
}

pub fn cuLibraryGetKernel(cx: Cx, out: Ptr<Kernel>, handle: Handle, name: Ptr<c_char>) -> Answer {
    let (out, name) = (out.not_null()?, name.bytes()?);
    let library = find(cx, handle)?;
    let mut inside = lock(&library.inside);
    let index = index_of(&inside, name)?;
    out.set(Raw::new(bind(cx, &mut inside, index, handle.0, true)?))
}

fn kernels(library: &Library) -> u32 {
    lock(&library.inside).image.map_or(0, |image| image.kernels.len() as u32)
}

pub fn cuLibraryGetKernelCount(cx: Cx, count: Ptr<u32>, handle: Handle) -> Answer {
    count.not_null()?;
    count.set(kernels(find(cx, handle)?))
}

pub fn cuLibraryEnumerateKernels(cx: Cx, out: Ptr<Kernel>, count: u32, handle: Handle) -> Answer {
    out.not_null()?;
    let library = find(cx, handle)?;
    for index in 0..count.min(kernels(library)) {
        let kernel = bind(cx, &mut lock(&library.inside), index, handle.0, true)?;
        out.set_at(index as usize, Raw::new(kernel));
    }
    Ok(())
}

/// The module of a library in the current context.
pub fn module_of(cx: Cx, handle: Handle) -> Answer<u64> {
    cx.current()?;
    let library = find(cx, handle)?;
    let mut modules = lock(&library.modules);
    if let Some(module) = modules.get(&cx.context) {
        return Ok(*module);
    }
    let (module, ()) = cx.session.modules.create(|module, object| {
        object.context.store(cx.context, Relaxed);
        object.library.store(handle.0, Relaxed);
        *lock(&object.inside) = Inside::default();
        send::library_module(cx, module, handle.0)
    })?;
    modules.insert(cx.context, module);
    Ok(module)
}

pub fn cuLibraryGetModule(cx: Cx, out: Ptr<Raw<kinds::Module>>, handle: Handle) -> Answer {
    out.not_null()?;
    out.set(Raw::new(module_of(cx, handle)?))
}

/// A variable of a library in the call's context.
pub fn global(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: Ptr<usize>,
    handle: Handle,
    name: Ptr<c_char>,
) -> Answer {
    let library = find(cx, handle)?;
    let mut inside = lock(&library.inside);
    variable(cx, &mut inside, name, (address, bytes), |name, at, size| {
        send::library_global(cx, handle.0, name, at, size)
    })
}

pub fn cuLibraryGetGlobal(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: Ptr<usize>,
    handle: Handle,
    name: Ptr<c_char>,
) -> Answer {
    cx.current()?;
    global(cx, address, bytes, handle, name)
}
