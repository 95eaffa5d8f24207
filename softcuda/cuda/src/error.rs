//! Results, and which of CUDA's error codes an engine error is.
#![forbid(unsafe_code)]

use cudarc::driver::sys::CUresult;
use softcuda_engine::{Fault, FaultKind, LoadError};

/// CUDA's own codes are this crate's errors: nothing else leaves a driver.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

pub use CUresult::*;

/// The code that a dead grid leaves in its context.
pub fn of_fault(fault: &Fault) -> CUresult {
    match fault.kind {
        FaultKind::IllegalAddress => CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress => CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Trap => CUDA_ERROR_LAUNCH_FAILED,
        FaultKind::Assert => CUDA_ERROR_ASSERT,
        FaultKind::IllegalInstruction => CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::LaunchTimeout => CUDA_ERROR_LAUNCH_TIMEOUT,
        FaultKind::CooperativeTooLarge => CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        FaultKind::InvalidLaunch => CUDA_ERROR_INVALID_VALUE,
        FaultKind::OutOfResources => CUDA_ERROR_OUT_OF_MEMORY,
        FaultKind::Internal => CUDA_ERROR_UNKNOWN,
        FaultKind::Cancelled => CUDA_ERROR_CONTEXT_IS_DESTROYED,
    }
}

/// The code of a module that cannot be placed.
pub fn of_load(error: &LoadError) -> CUresult {
    match error {
        LoadError::OutOfMemory(_) => CUDA_ERROR_OUT_OF_MEMORY,
        // A text that uses what nobody defines is refused by NVIDIA's just-in-time compiler in the same way.
        LoadError::Ptx(_) | LoadError::Unresolved { .. } => CUDA_ERROR_INVALID_PTX,
    }
}
