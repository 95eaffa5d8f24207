//! Modules, libraries, their kernels and variables.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::sync::Arc;

use gpupool_protocol::api::kinds::{Function, Library, Module};
use gpupool_protocol::image::KernelInfo;
use gpupool_protocol::wire::codec::BadRecord;

use super::image::{Image, Jit, contents, library_kernels, module_kernels, options};
use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;
use crate::worker::objects::{Found, Fresh, FunctionParts, Kernels, LibraryParts, Life, ModuleParts};

/// What loading gave: the driver's handle and its kernels.
type Loaded = Result<(u64, Kernels, Vec<KernelInfo>), Code>;

pub fn module_load(
    cx: &mut Cx,
    module: Fresh,
    image: u64,
    jit: &[u8],
    result: &mut i32,
    parcel: &mut u64,
    length: &mut u64,
) -> Result<(), Fail> {
    let (jit, image) = (options(jit)?, cx.session.parcels.take(image)?);
    let loaded = load(cx, jit_of(&jit), image, load_module, (result, parcel, length))?;
    match loaded {
        Ok((native, kernels)) => {
            let life = Life::within(&cx.context_life());
            let parts = ModuleParts { kernels: Arc::new(kernels), life: life.clone(), of_library: false };
            cx.bind::<Module>(module, native, life, parts);
        }
        Err(code) => cx.session.objects().failed(module, code, false),
    }
    Ok(())
}

pub fn library_load(
    cx: &mut Cx,
    library: Fresh,
    image: u64,
    jit: &[u8],
    result: &mut i32,
    parcel: &mut u64,
    length: &mut u64,
) -> Result<(), Fail> {
    let (jit, image) = (options(jit)?, cx.session.parcels.take(image)?);
    let loaded = load(cx, jit_of(&jit), image, load_library, (result, parcel, length))?;
    match loaded {
        Ok((native, kernels)) => {
            let life = Arc::new(Life::default());
            let parts = LibraryParts { kernels: Arc::new(kernels), life: life.clone() };
            cx.bind::<Library>(library, native, life, parts);
        }
        Err(code) => cx.session.objects().failed(library, code, false),
    }
    Ok(())
}

fn jit_of(options: &[gpupool_protocol::image::JitOption]) -> Result<Jit, Code> {
    Jit::new(options)
}

/// Loads and answers with the contents, on failure too: then they hold the logs.
fn load(
    cx: &mut Cx,
    jit: Result<Jit, Code>,
    image: Vec<u8>,
    by: fn(&Cx, &Image, &mut Jit) -> Loaded,
    (result, parcel, length): (&mut i32, &mut u64, &mut u64),
) -> Result<Result<(u64, Kernels), Code>, Fail> {
    let mut infos = Vec::new();
    let mut jit = match jit {
        Ok(jit) => jit,
        Err(code) => {
            *result = code.0;
            return Ok(Err(code));
        }
    };
    cx.session.output.expect_from(&image);
    let loaded =
        Image::new(image).and_then(|image| by(cx, &image, &mut jit)).map(|(native, kernels, found)| {
            infos = found;
            (native, kernels)
        });
    *result = loaded.as_ref().err().map_or(0, |code| code.0);
    (*parcel, *length) = cx.session.parcels.keep(contents(infos, &jit).to_bytes())?;
    Ok(loaded)
}

fn load_module(cx: &Cx, image: &Image, jit: &mut Jit) -> Loaded {
    let f = &cx.session.driver.hand;
    let mut native = 0;
    // SAFETY: the image is whole (`Image::new`) and lives during the call; options and values are as many as are said.
    let code = unsafe {
        f.cuModuleLoadDataEx(&mut native, image.address(), jit.count(), jit.options(), jit.values())
    };
    if code != Code::SUCCESS {
        return Err(code);
    }
    let described = module_kernels(f, native);
    if described.is_err() {
        // Nobody will have a handle for it.
        let _ = f.cuModuleUnload(native);
    }
    described.map(|(kernels, infos)| (native, kernels, infos))
}

fn load_library(cx: &Cx, image: &Image, jit: &mut Jit) -> Loaded {
    let f = &cx.session.driver.hand;
    let device = cx.session.devices.first().copied().ok_or(Code::INVALID_DEVICE)?;
    let mut native = 0;
    let (count, none) = (jit.count(), std::ptr::null_mut());
    // SAFETY: as in `load_module`. Without CU_LIBRARY_BINARY_IS_PRESERVED the driver keeps a copy.
    let code = unsafe {
        f.cuLibraryLoadData(
            &mut native,
            image.address(),
            jit.options(),
            jit.values(),
            count,
            none,
            none.cast(),
            0,
        )
    };
    if code != Code::SUCCESS {
        return Err(code);
    }
    let described = library_kernels(f, native, device);
    if described.is_err() {
        // Nobody will have a handle for it.
        let _ = f.cuLibraryUnload(native);
    }
    described.map(|(kernels, infos)| (native, kernels, infos))
}

pub fn module_unload(cx: &mut Cx, module: &Found<Module>) -> Result<(), Fail> {
    if module.parts.of_library {
        // The handle goes; the module is its library's.
        return Ok(());
    }
    module.parts.life.end(Code::INVALID_HANDLE);
    cx.session.driver.hand.cuModuleUnload(module.native).ok()
}

/// The handle alone goes; the kernel is its module's or library's.
pub fn function_end(_: &mut Cx, _: &Found<Function>) -> Result<(), Fail> {
    Ok(())
}

pub fn library_unload(cx: &mut Cx, library: &Found<Library>) -> Result<(), Fail> {
    library.parts.life.end(Code::INVALID_HANDLE);
    cx.session.driver.hand.cuLibraryUnload(library.native).ok()
}

/// The parts of a function handle for the kernel at `index`.
fn function_parts(kernels: &Kernels, index: u32, is_kernel: bool) -> Result<Arc<FunctionParts>, Fail> {
    let kernel = kernels.all.get(index as usize).ok_or(BadRecord::OutOfRange)?;
    Ok(Arc::new(FunctionParts { kernel: kernel.clone(), is_kernel }))
}

pub fn module_function(cx: &mut Cx, function: Fresh, module: &Found<Module>, index: u32) -> Result<(), Fail> {
    let parts = function_parts(&module.parts.kernels, index, false)?;
    let mut native = parts.kernel.native;
    if module.parts.of_library {
        let kernel = native;
        cx.session.driver.hand.cuKernelGetFunction(&mut native, kernel).ok()?;
    }
    cx.bind::<Function>(function, native, module.parts.life.clone(), parts);
    Ok(())
}

pub fn library_kernel(cx: &mut Cx, kernel: Fresh, library: &Found<Library>, index: u32) -> Result<(), Fail> {
    let parts = function_parts(&library.parts.kernels, index, true)?;
    let native = parts.kernel.native;
    cx.bind::<Function>(kernel, native, library.parts.life.clone(), parts);
    Ok(())
}

pub fn library_module(cx: &mut Cx, module: Fresh, library: &Found<Library>) -> Result<(), Fail> {
    let mut native = 0;
    cx.session.driver.hand.cuLibraryGetModule(&mut native, library.native).ok()?;
    let life = library.parts.life.clone();
    let parts = ModuleParts { kernels: library.parts.kernels.clone(), life: life.clone(), of_library: true };
    cx.bind::<Module>(module, native, life, parts);
    Ok(())
}

fn c_string(name: &str) -> Result<CString, Fail> {
    Ok(CString::new(name).or(Err(BadRecord::BadString))?)
}

pub fn module_global(
    cx: &mut Cx,
    module: &Found<Module>,
    name: &str,
    address: &mut u64,
    size: &mut u64,
) -> Result<(), Fail> {
    let (name, mut bytes) = (c_string(name)?, 0);
    let hand = &cx.session.driver.hand;
    // SAFETY: a C string that lives during the call.
    unsafe { hand.cuModuleGetGlobal_v2(address, &mut bytes, module.native, name.as_ptr()) }.ok()?;
    *size = bytes as u64;
    Ok(())
}

pub fn library_global(
    cx: &mut Cx,
    library: &Found<Library>,
    name: &str,
    address: &mut u64,
    size: &mut u64,
) -> Result<(), Fail> {
    let (name, mut bytes) = (c_string(name)?, 0);
    let hand = &cx.session.driver.hand;
    // SAFETY: a C string that lives during the call.
    unsafe { hand.cuLibraryGetGlobal(address, &mut bytes, library.native, name.as_ptr()) }.ok()?;
    *size = bytes as u64;
    Ok(())
}

pub fn function_get_attribute(
    cx: &mut Cx,
    function: &Found<Function>,
    attribute: u32,
    device: i32,
    value: &mut i32,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    if function.parts.is_kernel {
        hand.cuKernelGetAttribute(value, attribute, function.native, cx.device(device)?).ok()
    } else {
        hand.cuFuncGetAttribute(value, attribute, function.native).ok()
    }
}

pub fn function_set_attribute(
    cx: &mut Cx,
    function: &Found<Function>,
    attribute: u32,
    value: i32,
    device: i32,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    if function.parts.is_kernel {
        hand.cuKernelSetAttribute(attribute, value, function.native, cx.device(device)?).ok()
    } else {
        hand.cuFuncSetAttribute(function.native, attribute, value).ok()
    }
}

pub fn function_set_cache(
    cx: &mut Cx,
    function: &Found<Function>,
    config: u32,
    device: i32,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    if function.parts.is_kernel {
        hand.cuKernelSetCacheConfig(function.native, config, cx.device(device)?).ok()
    } else {
        hand.cuFuncSetCacheConfig(function.native, config).ok()
    }
}
