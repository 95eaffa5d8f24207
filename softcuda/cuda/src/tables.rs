//! What the private tables of `cuda-abi` need from this driver.

use crate::driver::{self, TABLES};
use crate::error::*;
use crate::module::{self, Refused};
use crate::{current, image};
use cuda_abi::export_tables::Host;
use cuda_abi::integrity::DeviceIdentity;
use cudarc::driver::sys::{CUcontext, CUdevice, CUmodule, CUresult};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// This driver.
pub static HOST: Softcuda = Softcuda { loaded: Mutex::new(None) };

/// See [`HOST`].
pub struct Softcuda {
    /// Modules that CUDA 11 runtimes loaded through the table, by the image's address.
    loaded: Mutex<Option<HashMap<usize, usize>>>,
}

impl Host for Softcuda {
    fn driver_version(&self) -> i32 {
        driver::version()
    }

    fn devices(&self) -> Vec<DeviceIdentity> {
        driver::devices().iter().map(|d| d.identity).collect()
    }

    fn primary_context(&self, device: CUdevice) -> std::result::Result<CUcontext, CUresult> {
        driver::device(device).map(|d| std::ptr::with_exposed_provenance_mut(d.primary.handle))
    }

    fn current_context(&self) -> CUcontext {
        std::ptr::with_exposed_provenance_mut(current::handle())
    }

    unsafe fn load_cubin(&self, wrapper: *const c_void) -> std::result::Result<CUmodule, CUresult> {
        // SAFETY: the caller vouches for the image.
        let image = unsafe { image::read(wrapper, current::architecture())? };
        let handle = module::load(&image).map_err(|e: Refused| e.code)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.get_or_insert_default().insert(wrapper.addr(), handle);
        Ok(std::ptr::with_exposed_provenance_mut(handle))
    }

    fn unload_cubin(&self, wrapper: *const c_void) -> CUresult {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = loaded.as_mut().and_then(|map| map.remove(&wrapper.addr()));
        drop(loaded);
        match handle {
            // Gone already with its context: nothing is left to do.
            Some(handle) if TABLES.modules.get(handle).is_none() => CUDA_SUCCESS,
            Some(handle) => module::unload(handle).err().unwrap_or(CUDA_SUCCESS),
            None => CUDA_ERROR_NOT_FOUND,
        }
    }
}
