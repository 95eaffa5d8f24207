//! Launches as before CUDA 4: block, shared memory and parameters are set at the function first (`cuFuncSetBlockShape`,
//! `cuParamSet*`, `cuLaunchGrid`).

use super::{Attributes, Refusal, Request, Shape};
use crate::error::*;
use crate::function;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Bytes of parameters that a kernel can have.
const MOST_BYTES: usize = 32764;

/// What was set for a function's next launches.
#[derive(Debug, Default)]
pub struct Setup(Mutex<State>);

#[derive(Debug, Default, Clone)]
struct State {
    block: [u32; 3],
    shared: u32,
    parameters: Vec<u8>,
}

fn change(function: usize, edit: impl FnOnce(&mut State) -> Result) -> Result {
    edit(&mut function::find(function)?.setup.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// `cuFuncSetBlockShape`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a dimension that is not positive, `CUDA_ERROR_INVALID_HANDLE`.
pub fn set_block(function: usize, block: [i32; 3]) -> Result {
    if block.iter().any(|n| *n <= 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    change(function, |state| {
        state.block = block.map(|n| n as u32);
        Ok(())
    })
}

/// `cuFuncSetSharedSize`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn set_shared(function: usize, bytes: u32) -> Result {
    change(function, |state| {
        state.shared = bytes;
        Ok(())
    })
}

/// `cuParamSetSize`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for more than any kernel has, `CUDA_ERROR_INVALID_HANDLE`.
pub fn set_size(function: usize, bytes: usize) -> Result {
    if bytes > MOST_BYTES {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    change(function, |state| {
        state.parameters.resize(bytes, 0);
        Ok(())
    })
}

/// `cuParamSeti`, `cuParamSetf`, `cuParamSetv`: the bytes of a parameter at an offset.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` beyond what any kernel has, `CUDA_ERROR_INVALID_HANDLE`.
pub fn set_bytes(function: usize, offset: i32, bytes: &[u8]) -> Result {
    let offset = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let end =
        offset.checked_add(bytes.len()).filter(|end| *end <= MOST_BYTES).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    change(function, |state| {
        // The size may be set before or after.
        if state.parameters.len() < end {
            state.parameters.resize(end, 0);
        }
        state.parameters[offset..end].copy_from_slice(bytes);
        Ok(())
    })
}

/// `cuLaunch`, `cuLaunchGrid` and `cuLaunchGridAsync`.
///
/// # Errors
/// As [`super::kernel`]; `CUDA_ERROR_INVALID_VALUE` for a block that was never set.
pub fn launch(function: usize, width: i32, height: i32, stream: usize) -> std::result::Result<(), Refusal> {
    let found = function::find(function)?;
    let State { block, shared, mut parameters } =
        found.setup.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if width <= 0 || height <= 0 || block == [0; 3] {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let shape = Shape { grid: [width as u32, height as u32, 1], block, shared, cooperative: false };
    let request = Request { function, shape, attributes: Attributes::default(), stream: 0, priority: 0 };
    let mut size = parameters.len();
    // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END.
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        parameters.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut size).cast(),
        std::ptr::null_mut(),
    ];
    // SAFETY: the array is complete, and what it names lives until the call returns.
    unsafe { super::kernel(request, stream, std::ptr::null_mut(), extra.as_mut_ptr()) }
}
