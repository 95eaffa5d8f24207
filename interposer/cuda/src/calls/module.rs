//! Modules.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::CUdeviceptr;
use gpupool_protocol::api::{kinds, numbers};
use gpupool_protocol::wire::codec::Wire;

use super::credit;
use super::images::{self, Source, loaded, send_parcel};
use super::jit::Jit;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::state::image::Image;
use crate::state::memory::Origin;
use crate::state::objects::{Inside, Module, Resident, lock};

type Handle = Raw<kinds::Module>;
type Function = Raw<kinds::Function>;

/// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, and what it is where the driver does not say.
const MAX_DYNAMIC_SHARED: u32 = 8;
const USUAL_SHARED: i32 = 48 * 1024;

pub fn cuModuleLoad(cx: Cx, module: Ptr<Handle>, path: Ptr<c_char>) -> Answer {
    module.not_null()?;
    cx.current()?;
    load(cx, module, Source { bytes: images::in_file(path)?.into(), wrapped: false }, &Jit::none())
}

pub fn cuModuleLoadData(cx: Cx, module: Ptr<Handle>, image: Ptr<c_void>) -> Answer {
    module.not_null()?;
    cx.current()?;
    load(cx, module, images::at(image.addr())?, &Jit::none())
}

pub fn cuModuleLoadDataEx(
    cx: Cx,
    module: Ptr<Handle>,
    image: Ptr<c_void>,
    count: u32,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
) -> Answer {
    module.not_null()?;
    cx.current()?;
    let jit = Jit::parse(count, options, values)?;
    load(cx, module, images::at(image.addr())?, &jit)
}

pub fn cuModuleLoadFatBinary(cx: Cx, module: Ptr<Handle>, image: Ptr<c_void>) -> Answer {
    cuModuleLoadData(cx, module, image)
}

fn load(cx: Cx, out: Ptr<Handle>, image: Source<'_>, jit: &Jit) -> Answer {
    credit::with_room(cx, credit::device(cx)?, 0, || try_to_load(cx, out, &image, jit))
}

fn try_to_load(cx: Cx, out: Ptr<Handle>, image: &Source<'_>, jit: &Jit) -> Answer {
    let parcel = send_parcel(cx, &image.bytes)?;
    let wrapped = image.wrapped;
    let options = jit.encode();
    let modules = &cx.session.modules;
    let (handle, pending) = modules.create(|handle, module| {
        module.context.store(cx.context, Relaxed);
        module.library.store(0, Relaxed);
        *lock(&module.inside) = Inside { wrapped, ..Inside::default() };
        cx.begin(numbers::module_load, false, 16 + options.wire_len(), |to| {
            handle.put(to);
            parcel.put(to);
            options.put(to);
        })
    })?;
    match loaded(cx, pending, jit) {
        Ok(image) => {
            if let Some(module) = modules.get(handle) {
                lock(&module.inside).image = Some(image);
            }
            out.set(Raw::new(handle))
        }
        Err(error) => {
            // The worker has freed the place as well.
            modules.remove(handle, |_| ());
            Err(error)
        }
    }
}

/// The module with this handle, and the call in its context.
pub fn find(cx: Cx, handle: Handle) -> Answer<(Cx, &'static Module)> {
    let module = cx.session.modules.get(handle.0).ok_or(INVALID_HANDLE)?;
    Ok((cx.within(module.context.load(Relaxed)), module))
}

pub fn cuModuleUnload(cx: Cx, handle: Handle) -> Answer {
    let (cx, module) = find(cx, handle)?;
    if module.library.load(Relaxed) != 0 {
        return Err(NOT_PERMITTED);
    }
    if lock(&module.inside).image.is_none() {
        // It is still being loaded: nobody has its handle yet, and the worker has no module to unload.
        return Err(INVALID_HANDLE);
    }
    let unloaded = cx.session.modules.remove(handle.0, |module| {
        let inside = std::mem::take(&mut *lock(&module.inside));
        empty(cx, inside);
        send::module_unload(cx, handle.0)
    });
    unloaded.unwrap_or(Err(INVALID_HANDLE))
}

/// Ends the handles and the memory of what was inside.
pub fn empty(cx: Cx, inside: Inside) {
    let told = cx.session.answers(numbers::function_end);
    for function in inside.functions.into_values() {
        if told {
            // An error breaks the session, which is said by what comes next.
            let _ = cx.session.functions.remove(function, |_| send::function_end(cx, function));
        } else {
            cx.session.functions.forget(function);
        }
    }
    cx.session.memory.variables_gone(inside.variables.into_values().map(|(address, _)| address));
}

/// The handle of the kernel at `index`, made when it is first asked for.
pub fn bind(cx: Cx, inside: &mut Inside, index: u32, owner: u64, of_library: bool) -> Answer<u64> {
    if let Some(handle) = inside.functions.get(&index) {
        return Ok(*handle);
    }
    let kernel = inside.image.and_then(|image| image.kernels.get(index as usize)).ok_or(NOT_FOUND)?;
    let (handle, ()) = cx.session.functions.create(|handle, function| {
        function.owner.store(owner, Relaxed);
        function.of_library.store(of_library, Relaxed);
        function.from_runtime.store(inside.wrapped, Relaxed);
        function.kernel.set(kernel);
        let shared = kernel.attribute(MAX_DYNAMIC_SHARED).unwrap_or(USUAL_SHARED);
        function.max_dynamic_shared.store(shared, Relaxed);
        function.any_set.store(false, Relaxed);
        lock(&function.set).clear();
        *lock(&function.resident) = Resident::default();
        match of_library {
            true => send::library_kernel(cx, handle, owner, index),
            false => send::module_function(cx, handle, owner, index),
        }
    })?;
    inside.functions.insert(index, handle);
    Ok(handle)
}

/// The index of the kernel with this name. Else CUDA_ERROR_NOT_FOUND.
pub fn index_of(inside: &Inside, name: &CStr) -> Answer<u32> {
    inside.image.and_then(|image| image.find(name)).ok_or(NOT_FOUND)
}

/// The kernel at `index` of a module; of a library's module it is the library's own.
fn function(cx: Cx, handle: Handle, module: &Module, index: impl Fn(&Inside) -> Answer<u32>) -> Answer<u64> {
    match module.library.load(Relaxed) {
        0 => {
            let mut inside = lock(&module.inside);
            let index = index(&inside)?;
            bind(cx, &mut inside, index, handle.0, false)
        }
        library => {
            let object = cx.session.libraries.get(library).ok_or(INVALID_HANDLE)?;
            let mut inside = lock(&object.inside);
            let index = index(&inside)?;
            bind(cx, &mut inside, index, library, true)
        }
    }
}

pub fn cuModuleGetFunction(cx: Cx, out: Ptr<Function>, handle: Handle, name: Ptr<c_char>) -> Answer {
    let (out, name) = (out.not_null()?, name.bytes()?);
    let (cx, module) = find(cx, handle)?;
    out.set(Raw::new(function(cx, handle, module, |inside| index_of(inside, name))?))
}

/// What is in a module.
fn image_of(cx: Cx, module: &Module) -> Answer<&'static Image> {
    match module.library.load(Relaxed) {
        0 => lock(&module.inside).image.ok_or(INVALID_HANDLE),
        library => {
            let library = cx.session.libraries.get(library).ok_or(INVALID_HANDLE)?;
            lock(&library.inside).image.ok_or(INVALID_HANDLE)
        }
    }
}

pub fn cuModuleGetFunctionCount(cx: Cx, count: Ptr<u32>, handle: Handle) -> Answer {
    count.not_null()?;
    let (cx, module) = find(cx, handle)?;
    count.set(image_of(cx, module)?.kernels.len() as u32)
}

pub fn cuModuleEnumerateFunctions(cx: Cx, functions: Ptr<Function>, count: u32, handle: Handle) -> Answer {
    functions.not_null()?;
    let (cx, module) = find(cx, handle)?;
    let all = image_of(cx, module)?.kernels.len() as u32;
    for index in 0..count.min(all) {
        functions.set_at(index as usize, Raw::new(function(cx, handle, module, |_| Ok(index))?));
    }
    Ok(())
}

/// Address and size of a variable, asked for once, stored where the program wants them.
pub fn variable(
    cx: Cx,
    inside: &mut Inside,
    name: Ptr<c_char>,
    (address, bytes): (Ptr<CUdeviceptr>, Ptr<usize>),
    ask: impl FnOnce(&str, &mut u64, &mut u64) -> Answer,
) -> Answer {
    if address.is_null() && bytes.is_null() {
        return Err(INVALID_VALUE);
    }
    // Names that are no text are in no image.
    let name = name.bytes()?.to_str().map_err(|_| NOT_FOUND)?;
    let key = (cx.context, name.to_owned());
    let (at, size) = match inside.variables.get(&key) {
        Some(known) => *known,
        None => {
            let (mut at, mut size) = (0, 0);
            ask(name, &mut at, &mut size)?;
            cx.session.memory.add(at, size, cx.context, Origin::Variable);
            inside.variables.insert(key, (at, size));
            (at, size)
        }
    };
    address.set_if_wanted(at);
    bytes.set_if_wanted(size as usize);
    Ok(())
}

pub fn cuModuleGetGlobal_v2(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: Ptr<usize>,
    handle: Handle,
    name: Ptr<c_char>,
) -> Answer {
    let (cx, module) = find(cx, handle)?;
    let library = module.library.load(Relaxed);
    if library != 0 {
        return super::library::global(cx, address, bytes, Raw::new(library), name);
    }
    let mut inside = lock(&module.inside);
    variable(cx, &mut inside, name, (address, bytes), |name, at, size| {
        send::module_global(cx, handle.0, name, at, size)
    })
}
