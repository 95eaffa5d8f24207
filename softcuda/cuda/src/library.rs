//! Libraries and their kernels: code that belongs to no context and is placed in each one that uses it.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::current;
use crate::driver::TABLES;
use crate::error::*;
use crate::function::{Function, Settings};
use crate::image::Image;
use crate::module::{self, Module, Origin, Refused};
use softcuda_engine as engine;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// One library.
pub struct Library {
    /// Its handle.
    pub handle: usize,
    parsed: engine::Module,
    origin: Origin,
    /// Its kernels, in the order of the text.
    pub kernels: Vec<Arc<Kernel>>,
    by_name: HashMap<String, usize>,
    placed: Mutex<Placed>,
}

struct Placed {
    /// Placed when the library was loaded, for the first context of that device; for all its contexts if the library has
    /// managed variables, which are the same in all.
    first: Option<(i32, Arc<engine::Loaded>)>,
    /// By context.
    modules: HashMap<usize, Arc<Module>>,
}

/// One `CUkernel`.
pub struct Kernel {
    /// Its handle.
    pub handle: usize,
    /// Its library.
    pub library: Weak<Library>,
    /// Its name, as C text.
    pub name: CString,
    /// Its code in the device for which the library was loaded: only its properties are used.
    pub prototype: Arc<engine::Kernel>,
    /// What a program can set.
    pub settings: Arc<Settings>,
    /// Its function in the context that used it last.
    last: Mutex<Option<Arc<Function>>>,
}

/// `cuLibraryLoadData` of what an image holds.
///
/// # Errors
/// [`Refused`].
pub fn load(image: &Image) -> std::result::Result<usize, Refused> {
    let device = current::device()?;
    let parsed = module::parse(&image.texts, &device.capability)?;
    let loaded = module::place(parsed.clone(), &device)?;
    let handle = TABLES.libraries.reserve();
    let library = Arc::new_cyclic(|library| {
        let kernels: Vec<Arc<Kernel>> =
            loaded.kernels().iter().map(|k| Arc::new(Kernel::new(k, library, image.max_registers))).collect();
        let by_name = kernels.iter().enumerate().map(|(i, k)| (k.prototype.name.clone(), i)).collect();
        let placed = Mutex::new(Placed { first: Some((device.ordinal, loaded)), modules: HashMap::new() });
        Library { handle, parsed, origin: Origin::of(image), kernels, by_name, placed }
    });
    for kernel in &library.kernels {
        TABLES.kernels.add(kernel.handle, kernel.clone());
    }
    TABLES.libraries.add(handle, library);
    Ok(handle)
}

impl Kernel {
    fn new(kernel: &Arc<engine::Kernel>, library: &Weak<Library>, max_registers: Option<u32>) -> Self {
        Self {
            handle: TABLES.kernels.reserve(),
            library: library.clone(),
            name: CString::new(kernel.name.as_str()).unwrap_or_default(),
            prototype: kernel.clone(),
            settings: Arc::new(Settings::new(kernel, max_registers)),
            last: Mutex::new(None),
        }
    }
}

impl Library {
    fn lock(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library's module in a context, placed there now if it is not yet.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn module_in(&self, context: &Context) -> Result<Arc<Module>> {
        let mut placed = self.lock();
        if let Some(module) = placed.modules.get(&context.handle) {
            return Ok(module.clone());
        }
        let here = |(device, _): &mut (i32, _)| *device == context.device.ordinal;
        let first = if self.origin.managed.is_empty() {
            placed.first.take_if(here)
        } else {
            placed.first.clone().take_if(here)
        };
        let loaded = match first {
            Some((_, loaded)) => loaded,
            None => module::place(self.parsed.clone(), &context.device).map_err(|e| e.code)?,
        };
        let settings =
            |k: &engine::Kernel| self.by_name.get(&k.name).map(|i| self.kernels[*i].settings.clone());
        let module = Module::new(context, loaded, &self.origin, settings);
        placed.modules.insert(context.handle, module.clone());
        Ok(module)
    }

    /// The context is gone, and its module with it.
    pub fn forget_context(&self, context: usize) {
        self.lock().modules.remove(&context);
        for kernel in &self.kernels {
            kernel.last.lock().unwrap_or_else(PoisonError::into_inner).take_if(|f| f.context == context);
        }
    }

    /// `cuLibraryGetManaged`: address and size. A runtime asks before any context exists.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` for a name that is no managed variable's.
    pub fn managed(&self, name: &str) -> Result<(u64, usize)> {
        if !self.origin.managed.contains(name) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let placed = self.lock();
        let (_, loaded) = placed.first.as_ref().ok_or(CUDA_ERROR_NOT_FOUND)?;
        let found = loaded.globals().find(|g| g.name == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        Ok((found.addr, found.size as usize))
    }

    /// `cuLibraryGetKernel`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn kernel(&self, name: &str) -> Result<&Arc<Kernel>> {
        self.by_name.get(name).map(|i| &self.kernels[*i]).ok_or(CUDA_ERROR_NOT_FOUND)
    }
}

/// The library of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find(handle: usize) -> Result<Arc<Library>> {
    TABLES.libraries.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The kernel of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find_kernel(handle: usize) -> Result<Arc<Kernel>> {
    TABLES.kernels.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The kernel's function in a context.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` if the library is gone, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn function(kernel: &Kernel, context: &Context) -> Result<Arc<Function>> {
    if let Some(function) = &*kernel.last.lock().unwrap_or_else(PoisonError::into_inner)
        && function.context == context.handle
    {
        return Ok(function.clone());
    }
    let library = kernel.library.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let function = library.module_in(context)?.function(&kernel.prototype.name)?;
    *kernel.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(function.clone());
    Ok(function)
}

/// `cuLibraryUnload`: waits for the work of every context that used it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn unload(handle: usize) -> Result {
    let library = TABLES.libraries.remove(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    for kernel in &library.kernels {
        TABLES.kernels.remove(kernel.handle);
    }
    let modules: Vec<_> = library.lock().modules.drain().collect();
    for (context, module) in modules {
        if let Some(context) = TABLES.contexts.get(context) {
            // A dead context's error is not this call's to report.
            let _ = context.drain();
        }
        module.unload();
    }
    Ok(())
}
