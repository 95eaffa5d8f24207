//! Launches: everything that can be wrong is found before the work is queued.

use crate::attributes::{MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK, SHARED_PER_BLOCK_OPTIN};
use crate::context::{self, Context};
use crate::error::*;
use crate::function::{self, Function};
use crate::log;
use crate::stream::Work;
use cudarc::driver::sys::CUresult;
use softcuda_engine as engine;
use std::ffi::c_void;

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE` in the `extra` array.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// Why a launch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// For one of CUDA's reasons.
    Code(CUresult),
    /// See [`cuda_abi::errors::INVALID_CONFIGURATION`]: for functions that NVIDIA's runtime loaded.
    Configuration,
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self::Code(code)
    }
}

/// The dimensions of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// All blocks at once.
    pub cooperative: bool,
}

/// `cuLaunchKernel` and its relatives.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for no function, no stream, or a stream of another context; what [`check`] and
/// [`parameters`] say.
///
/// # Safety
/// As [`parameters`].
pub unsafe fn kernel(
    f: usize,
    shape: Shape,
    stream: usize,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> std::result::Result<(), Refusal> {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    let function = function::find(f)?;
    if function.context != context.handle {
        return Err(CUDA_ERROR_INVALID_HANDLE.into());
    }
    if !shape.is_possible() {
        let runtime = function.from_runtime;
        return Err(if runtime { Refusal::Configuration } else { CUDA_ERROR_INVALID_VALUE.into() });
    }
    check(&context, &function, &shape)?;
    // SAFETY: the caller vouches for both arrays.
    let params = unsafe { parameters(&function.kernel, values, extra)? };
    let launch = engine::Launch {
        grid: shape.grid,
        block: shape.block,
        dynamic_shared: shape.shared,
        params,
        cooperative: shape.cooperative,
    };
    let (runner, kernel) = (context.device.engine.clone(), function.kernel.clone());
    let job = move || {
        runner.run(&kernel, &launch).map_err(|fault| {
            log::line(|| format!("kernel {}: {fault}", kernel.name));
            of_fault(&fault)
        })
    };
    Ok(context.submit(&stream, Work::Run(Box::new(job)))?)
}

impl Shape {
    /// Whether the device can have such a grid and such blocks at all.
    pub fn is_possible(&self) -> bool {
        let within =
            |value: &[u32; 3], most: &[u32; 3]| value.iter().zip(most).all(|(v, m)| (1..=*m).contains(v));
        within(&self.grid, &MAX_GRID)
            && within(&self.block, &MAX_BLOCK)
            && self.threads() <= MAX_THREADS_PER_BLOCK
    }

    /// Threads a block.
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// Whether a function can be launched so, which is possible in itself.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a block or shared memory that the function does not allow,
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES` for a block with more threads than this function's registers allow,
/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`.
pub fn check(context: &Context, function: &Function, shape: &Shape) -> Result {
    let kernel = &function.kernel;
    let threads = shape.threads();
    let bounds_broken = threads > kernel.max_threads_per_block;
    if bounds_broken || kernel.required_block.is_some_and(|block| block != shape.block) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if threads > function::max_threads(kernel) {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    if shape.shared > function.settings.max_dynamic_shared()
        || kernel.static_shared.saturating_add(shape.shared) > SHARED_PER_BLOCK_OPTIN
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if shape.cooperative {
        let blocks = shape.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        if blocks > resident_blocks(context, kernel, threads, shape.shared) {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// How many blocks can run at once: what occupancy says for all multiprocessors, and what the engine can hold.
fn resident_blocks(context: &Context, kernel: &engine::Kernel, threads: u32, shared: u32) -> u64 {
    let each = u64::from(crate::occupancy::blocks_per_multiprocessor(kernel, threads, shared));
    let held = u64::from(context.device.engine.max_resident_blocks(kernel, threads, shared));
    (each * u64::from(context.device.multiprocessors)).min(held)
}

/// The parameters, packed: from an array of pointers to values, or from the one buffer that `extra` names.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if both or (for a kernel with parameters) none is given, for null pointers, and for a
/// buffer of the wrong size.
///
/// # Safety
/// Each array is null or complete: `values` has a pointer to a value for each parameter, `extra` ends with its end mark.
pub unsafe fn parameters(
    kernel: &engine::Kernel,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>> {
    let total = kernel.params.iter().map(|p| (p.offset + p.size) as usize).max().unwrap_or(0);
    match (values.is_null(), extra.is_null()) {
        (false, false) => Err(CUDA_ERROR_INVALID_VALUE),
        // SAFETY: the caller vouches for `extra`.
        (true, false) => unsafe { from_buffer(extra, total) },
        (true, true) if total > 0 => Err(CUDA_ERROR_INVALID_VALUE),
        (_, true) => {
            let mut packed = vec![0; total];
            for (i, parameter) in kernel.params.iter().enumerate() {
                // SAFETY: `values` has an entry for each parameter.
                let value = unsafe { *values.add(i) };
                if value.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let place = &mut packed[parameter.offset as usize..][..parameter.size as usize];
                // SAFETY: the value has the parameter's size.
                unsafe { std::ptr::copy_nonoverlapping(value.cast(), place.as_mut_ptr(), place.len()) };
            }
            Ok(packed)
        }
    }
}

/// # Safety
/// `extra` ends with its end mark, and what it names is there.
unsafe fn from_buffer(extra: *mut *mut c_void, total: usize) -> Result<Vec<u8>> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0);
    let mut at = extra;
    // Two settings are all that exist.
    for _ in 0..3 {
        // SAFETY: the end mark has not come yet.
        let (name, value) = unsafe { ((*at).addr(), at.add(1)) };
        match name {
            EXTRA_END => break,
            // SAFETY: a setting is followed by its value.
            EXTRA_POINTER => buffer = unsafe { *value }.cast(),
            // SAFETY: the value of this setting points at a size.
            EXTRA_SIZE => unsafe {
                let place = (*value).cast::<usize>();
                if place.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                size = place.read();
            },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: as above.
        at = unsafe { at.add(2) };
    }
    if size < total || (buffer.is_null() && total > 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut packed = vec![0; total];
    if total > 0 {
        // SAFETY: the buffer has `size` bytes, which are at least as many.
        unsafe { std::ptr::copy_nonoverlapping(buffer, packed.as_mut_ptr(), total) };
    }
    Ok(packed)
}

/// What the attributes of `cuLaunchKernelEx` come down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extended {
    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
    pub cooperative: bool,
}

/// Reads launch attributes: (number, first word of the value) each. Hints are accepted and have no effect; what changes
/// the meaning of the launch and cannot be done is refused.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for clusters of more than one block, launch events and device-updatable nodes,
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
pub fn attributes(list: impl Iterator<Item = (u32, [u32; 3])>) -> Result<Extended> {
    let mut out = Extended::default();
    for (id, value) in list {
        match id {
            2 => out.cooperative = value[0] != 0,
            // A cluster of one block is no cluster.
            4 | 11 if value.iter().all(|n| *n <= 1) => {}
            // Ignored by name, or hints: access window, waiting, cluster scheduling, overlap with the launch before,
            // priority, memory domains, carve-out, NVLink.
            0 | 1 | 3 | 5 | 6 | 8 | 9 | 10 | 14 | 16 | 17 | 18 => {}
            4 | 7 | 11 | 12 | 13 => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_known_refused_or_wrong() {
        let one = |id, value| attributes(std::iter::once((id, value)));
        assert_eq!(one(2, [1, 0, 0]), Ok(Extended { cooperative: true }));
        assert_eq!(one(2, [0, 0, 0]), Ok(Extended::default()));
        assert_eq!(one(4, [1, 1, 1]), Ok(Extended::default()));
        assert_eq!(one(4, [2, 1, 1]), Err(CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(one(7, [0, 0, 0]), Err(CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(one(99, [0, 0, 0]), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
