//! Page-locked host memory: plain memory, since nothing here needs more.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cuda_abi::sys::CUresult::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::Result;

/// What `cuMemHostAlloc` gave: length by address.
static ALLOCATED: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// Gives memory.
pub fn alloc(bytes: usize) -> Result<usize> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let address = memory.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?.expose_provenance();
    let mut allocated = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    allocated.get_or_insert_default().insert(address, bytes);
    Ok(address)
}

/// Takes it back.
pub fn free(address: usize) -> Result {
    let mut allocated = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = allocated.get_or_insert_default().remove(&address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: exactly what `alloc` mapped; the program says that it uses it no more.
    let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    Ok(())
}
