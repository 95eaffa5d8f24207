//! Modules, libraries, links.

use super::{handle, out, set_if_wanted, text};
use crate::error::*;
use crate::image;
use crate::jit::Options;
use crate::module::{self, Refused};
use crate::{current, library, link, log};
use cudarc::driver::sys::{CUfunction, CUkernel, CUlibrary, CUlinkState, CUmodule, CUsurfref, CUtexref};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// `CU_LIBRARY_NUM_OPTIONS`.
const LIBRARY_OPTIONS: u32 = 2;

exports! { ($) modules_names, initialised;
    cuModuleGetLoadingMode(mode: *mut u32) { out(mode)?.set(if crate::config::get().eager { 1 } else { 2 }) }
    cuModuleLoad(module: *mut CUmodule, path: *const c_char) {
        let module = out(module)?;
        current::healthy()?;
        let image = module::read_file(path_of(path)?)?;
        module.set(handle(module::load(&image).map_err(|e| e.code)?))
    }
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        let module = out(module)?;
        module.set(handle(reported(&Options::NONE, || module::load(&image::read(image, current::architecture())?))?))
    }
    cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) {
        let module = out(module)?;
        module.set(handle(reported(&Options::NONE, || module::load(&image::read(image, current::architecture())?))?))
    }
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: u32, names: *mut u32, values: *mut *mut c_void
    ) {
        let (module, options) = (out(module)?, Options::read(count, names, values)?);
        module.set(handle(reported(&options, || module::load(&image::read(image, current::architecture())?.with(&options)))?))
    }
    cuModuleUnload(module: CUmodule) { module::unload(module.addr()) }
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        out(function)?.set(handle(module::find(module.addr())?.function(text(name)?)?.handle))
    }
    cuModuleGetTexRef(reference: *mut CUtexref, module: CUmodule, name: *const c_char) {
        out(reference)?.set(handle(module::find(module.addr())?.references.texture(text(name)?)?))
    }
    cuModuleGetSurfRef(reference: *mut CUsurfref, module: CUmodule, name: *const c_char) {
        out(reference)?.set(handle(module::find(module.addr())?.references.surface(text(name)?)?))
    }
    // Functions that host and device share: the device has none (attribute 129).
    cuLibraryGetUnifiedFunction(_function: *mut *mut c_void, library: CUlibrary, name: *const c_char) {
        text(name)?;
        library::find(library.addr())?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
    cuModuleGetGlobal_v2(address: *mut u64, size: *mut usize, module: CUmodule, name: *const c_char) {
        give_variable(address, size, module::find(module.addr())?.global(text(name)?)?)
    }
    cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) {
        out(count)?.set(module::find(module.addr())?.functions.len() as u32)
    }
    cuModuleEnumerateFunctions(functions: *mut CUfunction, count: u32, module: CUmodule) {
        let module = module::find(module.addr())?;
        give_list(functions, count, module.functions.iter().map(|f| f.handle))
    }

    cuLibraryLoadData(
        library: *mut CUlibrary, image: *const c_void, names: *mut u32, values: *mut *mut c_void, count: u32,
        options: *mut u32, _option_values: *mut *mut c_void, options_count: u32
    ) {
        let (library, jit) = (out(library)?, Options::read(count, names, values)?);
        check_library_options(options, options_count)?;
        library.set(handle(reported(&jit, || library::load(&image::read(image, current::architecture())?.with(&jit)))?))
    }
    cuLibraryLoadFromFile(
        library: *mut CUlibrary, path: *const c_char, names: *mut u32, values: *mut *mut c_void, count: u32,
        options: *mut u32, _option_values: *mut *mut c_void, options_count: u32
    ) {
        let (library, jit) = (out(library)?, Options::read(count, names, values)?);
        check_library_options(options, options_count)?;
        let path = path_of(path)?;
        library.set(handle(reported(&jit, || library::load(&module::read_file(path)?.with(&jit)))?))
    }
    cuLibraryUnload(library: CUlibrary) { library::unload(library.addr()) }
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        out(kernel)?.set(handle(library::find(library.addr())?.kernel(text(name)?)?.handle))
    }
    cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) {
        out(count)?.set(library::find(library.addr())?.kernels.len() as u32)
    }
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary) {
        let library = library::find(library.addr())?;
        give_list(kernels, count, library.kernels.iter().map(|k| k.handle))
    }
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) {
        let (module, library) = (out(module)?, library::find(library.addr())?);
        module.set(handle(library.module_in(&*current::healthy()?)?.handle))
    }
    cuLibraryGetGlobal(address: *mut u64, size: *mut usize, library: CUlibrary, name: *const c_char) {
        let library = library::find(library.addr())?;
        let module = library.module_in(&*current::healthy()?)?;
        give_variable(address, size, module.global(text(name)?)?)
    }
    cuLibraryGetManaged(address: *mut u64, size: *mut usize, library: CUlibrary, name: *const c_char) {
        let library = library::find(library.addr())?;
        give_variable(address, size, library.managed(text(name)?)?)
    }

    cuLinkCreate(count: u32, names: *mut u32, values: *mut *mut c_void, link: *mut CUlinkState) {
        out(link)?.set(handle(link::create(Options::read(count, names, values)?)))
    }
    cuLinkCreate_v2(count: u32, names: *mut u32, values: *mut *mut c_void, link: *mut CUlinkState) {
        out(link)?.set(handle(link::create(Options::read(count, names, values)?)))
    }
    cuLinkAddData(
        link: CUlinkState, kind: u32, data: *mut c_void, size: usize, _name: *const c_char, count: u32, names: *mut u32,
        values: *mut *mut c_void
    ) { add_data(link, kind, data, size, (count, names, values)) }
    cuLinkAddData_v2(
        link: CUlinkState, kind: u32, data: *mut c_void, size: usize, _name: *const c_char, count: u32, names: *mut u32,
        values: *mut *mut c_void
    ) { add_data(link, kind, data, size, (count, names, values)) }
    cuLinkAddFile(
        link: CUlinkState, kind: u32, path: *const c_char, count: u32, names: *mut u32, values: *mut *mut c_void
    ) { add_file(link, kind, path, (count, names, values)) }
    cuLinkAddFile_v2(
        link: CUlinkState, kind: u32, path: *const c_char, count: u32, names: *mut u32, values: *mut *mut c_void
    ) { add_file(link, kind, path, (count, names, values)) }
    cuLinkComplete(link: CUlinkState, image: *mut *mut c_void, size: *mut usize) {
        let (image, link) = (out(image)?, link::find(link.addr())?);
        let product = link.complete()?;
        set_if_wanted(size, product.len());
        // The link keeps the bytes; they live as long as it.
        image.set(product.as_ptr().cast_mut().cast())
    }
    cuLinkDestroy(link: CUlinkState) {
        crate::driver::TABLES.links.remove(link.addr()).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

/// Does what loads, and reports to the log buffers how it went.
///
/// # Safety
/// The options' buffers are good.
unsafe fn reported(
    options: &Options,
    load: impl FnOnce() -> std::result::Result<usize, Refused>,
) -> Result<usize> {
    let began = Instant::now();
    let loaded = load();
    let text = loaded.as_ref().err().map_or("", |e| e.log.as_str());
    if let Err(error) = &loaded {
        log::line(|| format!("image refused with {}: {text}", error.code as u32));
        if error.code == CUDA_ERROR_NO_BINARY_FOR_GPU {
            // CuPy, for one, computes on without the kernels of a module that does not load.
            log::once(|| {
                "a module holds nothing that this device can run, only machine code (SASS) or PTX for newer cards, and was refused \
                 (209, said once); docs/compatibility.md says what helps"
                    .into()
            });
        }
    }
    // SAFETY: the caller vouches for the buffers.
    unsafe { options.report(text, began.elapsed()) };
    loaded.map_err(|e| e.code)
}

/// # Safety
/// `path` is null or ends with a zero.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the zero.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// Options of libraries say how long the program keeps the image; it is read at once in any case.
///
/// # Safety
/// `options` is null or has `count` entries.
unsafe fn check_library_options(options: *const u32, count: u32) -> Result {
    if count == 0 {
        return Ok(());
    }
    if options.is_null() || count > LIBRARY_OPTIONS {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the entries.
    let known = (0..count as usize).all(|i| unsafe { *options.add(i) } < LIBRARY_OPTIONS);
    if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// # Safety
/// Both places are null or may be written.
unsafe fn give_variable(address: *mut u64, size: *mut usize, found: (u64, usize)) -> Result {
    if address.is_null() && size.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for them.
    unsafe {
        set_if_wanted(address, found.0);
        set_if_wanted(size, found.1);
    }
    Ok(())
}

/// # Safety
/// `list` is null or has room for `count` handles.
unsafe fn give_list<T>(list: *mut *mut T, count: u32, handles: impl Iterator<Item = usize>) -> Result {
    if list.is_null() || count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (i, number) in handles.take(count as usize).enumerate() {
        // SAFETY: `i` is below `count`.
        unsafe { list.add(i).write(handle(number)) };
    }
    Ok(())
}

type Arrays = (u32, *mut u32, *mut *mut c_void);

/// # Safety
/// `data` is null or has `size` bytes; the arrays are good.
unsafe fn add_data(link: CUlinkState, kind: u32, data: *mut c_void, size: usize, options: Arrays) -> Result {
    // SAFETY: the caller vouches for the arrays. Options of one input tune code that is not made.
    unsafe { Options::read(options.0, options.1, options.2)? };
    let (link, input) = (link::find(link.addr())?, link::input(kind)?);
    if data.is_null() || size == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the bytes.
    link.add(input, unsafe { std::slice::from_raw_parts(data.cast(), size) })
}

/// # Safety
/// `path` is null or ends with a zero; the arrays are good.
unsafe fn add_file(link: CUlinkState, kind: u32, path: *const c_char, options: Arrays) -> Result {
    // SAFETY: the caller vouches for both.
    let path = unsafe {
        Options::read(options.0, options.1, options.2)?;
        path_of(path)?
    };
    let (link, input) = (link::find(link.addr())?, link::input(kind)?);
    link.add(input, &std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?)
}
