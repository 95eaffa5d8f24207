//! What the private tables of `cuda-abi` need from this library.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use cuda_abi::export_tables::Host;
use cuda_abi::integrity::DeviceIdentity;
use cudarc::driver::sys::{CUcontext, CUdevice, CUmodule, CUresult};

use crate::calls;
use crate::code::{Answer, NOT_FOUND};
use crate::cptr::{Ptr, Raw};
use crate::cx::{Cx, Enter};
use crate::state::objects::lock;
use crate::{session, thread, versions};

/// This library, as the tables see it.
pub struct Tables;

/// Modules of CUDA 11's runtimes, by the address of their fatbin wrappers.
static OF_WRAPPERS: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);

fn as_pointer<T>(handle: u64) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}

impl Host for Tables {
    fn driver_version(&self) -> i32 {
        versions::driver()
    }

    fn devices(&self) -> Vec<DeviceIdentity> {
        let Ok(session) = session::live() else { return Vec::new() };
        let identity = |device: &session::Device| {
            let (pci_domain, pci_bus, pci_device) = device.pci;
            DeviceIdentity { uuid: device.uuid, pci_domain, pci_bus, pci_device }
        };
        session.devices.iter().map(identity).collect()
    }

    fn primary_context(&self, device: CUdevice) -> Result<CUcontext, CUresult> {
        Ok(as_pointer(calls::primary_context(Cx::enter(false)?, device)?))
    }

    fn current_context(&self) -> CUcontext {
        as_pointer(thread::context())
    }

    unsafe fn load_cubin(&self, image: *const c_void) -> Result<CUmodule, CUresult> {
        let cx = Cx::enter(false)?;
        let mut module = Raw::NULL;
        // The caller vouches for the image, as for cuModuleLoadData's.
        calls::cuModuleLoadData(cx, Ptr::to(&mut module), Ptr::of_argument(image.cast_mut()))?;
        lock(&OF_WRAPPERS).get_or_insert_default().insert(image.addr(), module.0);
        Ok(as_pointer(module.0))
    }

    fn unload_cubin(&self, image: *const c_void) -> CUresult {
        let module = lock(&OF_WRAPPERS).as_mut().and_then(|modules| modules.remove(&image.addr()));
        let unload = || -> Answer {
            let cx = Cx::enter(false)?;
            calls::cuModuleUnload(cx, Raw::new(module.ok_or(NOT_FOUND)?))
        };
        unload().map_or_else(CUresult::from, |()| CUresult::CUDA_SUCCESS)
    }
}
