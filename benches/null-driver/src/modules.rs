//! Loaded modules and libraries: the kernels that their images' headers name.

use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_abi::sys::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_FOUND};

use crate::Result;
use crate::image::{self, Kernel};

/// A module's handle is `FIRST + STEP * index`; its kernels' handles follow it.
const FIRST: u64 = 1 << 40;
const STEP: u64 = 1 << 16;

static MODULES: Mutex<Vec<Option<Arc<Vec<Kernel>>>>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Option<Arc<Vec<Kernel>>>>> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads an image.
pub fn load(text: &[u8]) -> Result<u64> {
    let kernels = Arc::new(image::kernels(text)?);
    let mut modules = lock();
    let index = match modules.iter().position(Option::is_none) {
        Some(index) => index,
        None => {
            modules.push(None);
            modules.len() - 1
        }
    };
    modules[index] = Some(kernels);
    Ok(FIRST + STEP * index as u64)
}

/// Unloads it.
pub fn unload(module: u64) -> Result {
    kernels(module)?;
    let index = (module - FIRST) / STEP;
    lock()[index as usize] = None;
    Ok(())
}

/// The kernels of the module that a module's or a kernel's handle belongs to.
pub fn kernels(handle: u64) -> Result<Arc<Vec<Kernel>>> {
    let index = handle.checked_sub(FIRST).map(|offset| (offset / STEP) as usize);
    let modules = lock();
    index.and_then(|index| modules.get(index)?.clone()).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The handle of a module's kernel.
pub fn handle(module: u64, index: usize) -> u64 {
    module + 1 + index as u64
}

/// The handle of the kernel with this name.
pub fn find(module: u64, name: &CStr) -> Result<u64> {
    let index = kernels(module)?.iter().position(|kernel| kernel.name.as_c_str() == name);
    index.map(|index| handle(module, index)).ok_or(CUDA_ERROR_NOT_FOUND)
}

/// Looks at the kernel of a handle.
pub fn with_kernel<R>(kernel: u64, look: impl FnOnce(&Kernel) -> R) -> Result<R> {
    let all = kernels(kernel)?;
    let index = (kernel.saturating_sub(FIRST) % STEP).checked_sub(1).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    all.get(index as usize).map(look).ok_or(CUDA_ERROR_INVALID_HANDLE)
}
