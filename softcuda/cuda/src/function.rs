//! Functions: a kernel of a module that lives in a context, with the attributes that a program may set.
#![forbid(unsafe_code)]

use crate::attributes::{MAX_THREADS_PER_BLOCK, REGISTERS, SHARED_PER_BLOCK};
use crate::capability::Capability;
use crate::context::Context;
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use crate::handles::{self, Kind};
use crate::launch::legacy::Setup;
use crate::reference::References;
use crate::{current, library};
use softcuda_engine as engine;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const MAX_DYNAMIC_SHARED: u32 = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const CARVEOUT: u32 = 9;

/// What a program can set.
#[derive(Debug)]
pub struct Settings {
    max_dynamic_shared: AtomicI32,
    carveout: AtomicI32,
    /// Registers that the kernel says it uses.
    registers: u32,
}

/// One function.
pub struct Function {
    /// Its handle.
    pub handle: usize,
    /// Its context's handle.
    pub context: usize,
    /// Its module's handle.
    pub module: usize,
    /// Its context's device.
    pub device: Arc<Device>,
    /// Its code.
    pub kernel: Arc<engine::Kernel>,
    /// Its name, as C text.
    pub name: CString,
    /// Whether NVIDIA's runtime loaded it; see [`cuda_abi::errors::INVALID_CONFIGURATION`].
    pub from_runtime: bool,
    /// What the calls of CUDA 3 have set for its launches.
    pub setup: Setup,
    /// The texture and surface references of its module.
    pub references: Arc<References>,
    /// Shared with the `CUkernel` that it comes from, if it comes from a library.
    pub settings: Arc<Settings>,
}

impl Settings {
    /// CUDA's defaults for a kernel, which says that it uses at most so many registers.
    pub fn new(kernel: &engine::Kernel, max_registers: Option<u32>) -> Self {
        let dynamic = SHARED_PER_BLOCK.saturating_sub(kernel.static_shared);
        Self {
            max_dynamic_shared: AtomicI32::new(dynamic as i32),
            carveout: AtomicI32::new(-1),
            registers: kernel.num_regs.min(max_registers.unwrap_or(u32::MAX)),
        }
    }

    /// Bytes of dynamic shared memory that a launch may ask for.
    pub fn max_dynamic_shared(&self) -> u32 {
        self.max_dynamic_shared.load(Ordering::Relaxed).max(0) as u32
    }

    /// `cuFuncSetAttribute` and `cuKernelSetAttribute`, for a device of a capability.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an attribute that cannot be set, or a value out of range.
    pub fn set(&self, kernel: &engine::Kernel, device: &Capability, id: u32, value: i32) -> Result {
        match id {
            MAX_DYNAMIC_SHARED => {
                let most = device.shared_of_block.saturating_sub(kernel.static_shared) as i32;
                if !(0..=most).contains(&value) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                self.max_dynamic_shared.store(value, Ordering::Relaxed);
            }
            CARVEOUT if (-1..=100).contains(&value) => self.carveout.store(value, Ordering::Relaxed),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    /// `cuFuncGetAttribute` and `cuKernelGetAttribute`, for a device of a capability.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
    pub fn get(&self, kernel: &engine::Kernel, device: &Capability, id: u32) -> Result<i32> {
        Ok(match id {
            0 => max_threads(kernel) as i32,
            1 => kernel.static_shared as i32,
            2 => kernel.const_bytes as i32,
            3 => kernel.local_bytes as i32,
            4 => self.registers as i32,
            5 => kernel.ptx_target as i32,
            6 => device.architecture() as i32,
            7 => 0,
            MAX_DYNAMIC_SHARED => self.max_dynamic_shared.load(Ordering::Relaxed),
            CARVEOUT => self.carveout.load(Ordering::Relaxed),
            10 => (kernel.required_cluster == Some([0; 3])).into(),
            11..=13 => kernel.required_cluster.map_or(0, |c| c[id as usize - 11] as i32),
            // Clusters of portable size only, no device-side node updates, one shared memory mode.
            14..=17 => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}

/// Threads that a block of this kernel can have: by its own bound and by its registers.
pub fn max_threads(kernel: &engine::Kernel) -> u32 {
    let registers = kernel.num_regs.max(1).next_multiple_of(8);
    let fit = REGISTERS / registers / 32 * 32;
    kernel.max_threads_per_block.min(fit.max(32)).min(MAX_THREADS_PER_BLOCK)
}

/// The function that a `CUfunction` (or a `CUkernel` in its place) means in the current context.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`; no current context for a `CUkernel`.
pub fn find(handle: usize) -> Result<Arc<Function>> {
    if handles::kind_of(handle) == Kind::Kernel as usize {
        let (kernel, context) = (library::find_kernel(handle)?, current::context()?);
        return library::function(&kernel, &context);
    }
    TABLES.functions.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// As [`find`], for a context that need not be the current one.
///
/// # Errors
/// As [`find`].
pub fn find_in(handle: usize, context: &Context) -> Result<Arc<Function>> {
    if handles::kind_of(handle) == Kind::Kernel as usize {
        return library::function(&*library::find_kernel(handle)?, context);
    }
    find(handle)
}

/// `cuFuncGetParamInfo`: offset and size of a parameter.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` beyond the last parameter.
pub fn parameter(kernel: &engine::Kernel, index: usize) -> Result<(usize, usize)> {
    let parameter = kernel.params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok((parameter.offset as usize, parameter.size as usize))
}
