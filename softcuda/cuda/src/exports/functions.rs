//! Functions, kernels, occupancy.

use super::launches::Config;
use super::{handle, out, set_if_wanted};
use crate::error::*;
use crate::function::{self, Function};
use crate::library::{self, Kernel};
use crate::{current, driver, occupancy};
use cudarc::driver::sys::{CUfunction, CUkernel, CUlibrary, CUmodule, CUoccupancyB2DSize};
use std::ffi::c_char;
use std::sync::Arc;

exports! { ($) functions_names, initialised;
    cuFuncGetAttribute(value: *mut i32, attribute: u32, function: CUfunction) {
        let (value, function) = (out(value)?, find(function)?);
        value.set(function.settings.get(&function.kernel, &function.device.capability, attribute)?)
    }
    cuFuncSetAttribute(function: CUfunction, attribute: u32, value: i32) {
        let function = find(function)?;
        function.settings.set(&function.kernel, &function.device.capability, attribute, value)
    }
    cuFuncSetCacheConfig(function: CUfunction, config: u32) { hint(find(function).map(drop), config, 3) }
    cuFuncSetSharedMemConfig(function: CUfunction, config: u32) { hint(find(function).map(drop), config, 2) }
    cuFuncGetModule(module: *mut CUmodule, function: CUfunction) {
        out(module)?.set(handle(find(function)?.module))
    }
    cuFuncGetName(name: *mut *const c_char, function: CUfunction) {
        // The module keeps the function, and so its name.
        out(name)?.set(find(function)?.name.as_ptr())
    }
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        give_parameter(function::parameter(&find(function)?.kernel, index)?, offset, size)
    }
    cuFuncGetParamCount(function: CUfunction, count: *mut usize) {
        out(count)?.set(find(function)?.kernel.params.len())
    }
    cuFuncIsLoaded(state: *mut u32, function: CUfunction) {
        let state = out(state)?;
        find(function)?;
        state.set(1)
    }
    // All of a module is loaded with it; what is left to do is to make the code.
    cuFuncLoad(function: CUfunction) {
        let function = find(function)?;
        function.device.engine.prepare(&function.kernel).map_err(|fault| of_fault(&fault))
    }

    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) {
        let function = out(function)?;
        function.set(handle(library::function(&*kernel_of(kernel)?, &*current::healthy()?)?.handle))
    }
    cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) {
        let library = out(library)?;
        let found = kernel_of(kernel)?.library.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        library.set(handle(found.handle))
    }
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) { out(name)?.set(kernel_of(kernel)?.name.as_ptr()) }
    cuKernelGetAttribute(value: *mut i32, attribute: u32, kernel: CUkernel, device: i32) {
        let (value, kernel) = (out(value)?, kernel_of(kernel)?);
        let capability = &driver::device(device)?.capability;
        value.set(kernel.settings.get(&kernel.prototype, capability, attribute)?)
    }
    cuKernelSetAttribute(attribute: u32, value: i32, kernel: CUkernel, device: i32) {
        let kernel = kernel_of(kernel)?;
        let capability = &driver::device(device)?.capability;
        kernel.settings.set(&kernel.prototype, capability, attribute, value)
    }
    cuKernelSetCacheConfig(kernel: CUkernel, config: u32, device: i32) {
        driver::device(device)?;
        hint(kernel_of(kernel).map(drop), config, 3)
    }
    cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        give_parameter(function::parameter(&kernel_of(kernel)?.prototype, index)?, offset, size)
    }
    cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) {
        out(count)?.set(kernel_of(kernel)?.prototype.params.len())
    }

    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut i32, function: CUfunction, threads: i32, shared: usize) {
        out(blocks)?.set(occupancy::active_blocks(&*find(function)?, threads, shared)?)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, function: CUfunction, threads: i32, shared: usize, flags: u32
    ) {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out(blocks)?.set(occupancy::active_blocks(&*find(function)?, threads, shared)?)
    }
    cuOccupancyMaxPotentialClusterSize(blocks: *mut i32, function: CUfunction, config: *const Config) {
        let (blocks, config) = (out(blocks)?, config.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        let (threads, shared, _) = config.occupancy()?;
        blocks.set(occupancy::largest_cluster(&*find(function)?, threads, shared)?)
    }
    cuOccupancyMaxActiveClusters(clusters: *mut i32, function: CUfunction, config: *const Config) {
        let (clusters, config) = (out(clusters)?, config.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        let (threads, shared, size) = config.occupancy()?;
        clusters.set(occupancy::active_clusters(&*find(function)?, threads, shared, size)?)
    }
    cuOccupancyAvailableDynamicSMemPerBlock(size: *mut usize, function: CUfunction, blocks: i32, threads: i32) {
        out(size)?.set(occupancy::available_shared(&*find(function)?, blocks, threads)?)
    }
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: CUfunction, shared_of: CUoccupancyB2DSize, shared: usize, limit: i32
    ) { best_block((grid, block), function, (shared_of, shared), limit, 0) }
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32, block: *mut i32, function: CUfunction, shared_of: CUoccupancyB2DSize, shared: usize, limit: i32,
        flags: u32
    ) { best_block((grid, block), function, (shared_of, shared), limit, flags) }
}

fn find(function: CUfunction) -> Result<Arc<Function>> {
    function::find(function.addr())
}

fn kernel_of(kernel: CUkernel) -> Result<Arc<Kernel>> {
    library::find_kernel(kernel.addr())
}

/// A setting that tells a card how to divide its caches.
fn hint(target: Result, value: u32, most: u32) -> Result {
    target?;
    if value > most { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// # Safety
/// Both places are null or may be written.
unsafe fn give_parameter(found: (usize, usize), offset: *mut usize, size: *mut usize) -> Result {
    // SAFETY: the caller vouches for them.
    unsafe {
        let offset = out(offset)?;
        set_if_wanted(size, found.1);
        offset.set(found.0)
    }
}

/// # Safety
/// The places are null or may be written; the function is null or may be called.
unsafe fn best_block(
    (grid, block): (*mut i32, *mut i32),
    function: CUfunction,
    (shared_of, shared): (CUoccupancyB2DSize, usize),
    limit: i32,
    flags: u32,
) -> Result {
    // SAFETY: the caller vouches for them.
    let (grid, block) = unsafe { (out(grid)?, out(block)?) };
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the program gave the function to be asked for block sizes.
    let dynamic = |threads| shared_of.map_or(shared, |f| unsafe { f(threads) });
    let found = occupancy::best_block(&*current::healthy()?, &*find(function)?, dynamic, limit)?;
    grid.set(found.0)?;
    block.set(found.1)
}
