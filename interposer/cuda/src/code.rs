//! Short names for the results that this crate answers with.

use std::hint::cold_path;

use cudarc::driver::sys::CUresult;

/// A result other than success, as a number: a driver may answer what this library's `cuda.h` does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl From<Code> for CUresult {
    fn from(code: Code) -> Self {
        cuda_abi::errors::from_code(code.0).unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
    }
}

/// What a call's body gives: nothing, or the code that the exported function returns.
pub type Answer<T = ()> = Result<T, Code>;

/// What a launch with impossible dimensions answers to NVIDIA's runtime; see [`cuda_abi::errors`].
pub const INVALID_CONFIGURATION: Code = Code(cuda_abi::errors::INVALID_CONFIGURATION);

macro_rules! codes {
    ($($name:ident = $variant:ident;)*) => {
        $(#[doc = concat!("`", stringify!($variant), "`.")] pub const $name: Code = Code(CUresult::$variant as u32);)*
    };
}

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED;
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED;
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE;
    NO_DEVICE = CUDA_ERROR_NO_DEVICE;
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
    INVALID_IMAGE = CUDA_ERROR_INVALID_IMAGE;
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
    FILE_NOT_FOUND = CUDA_ERROR_FILE_NOT_FOUND;
    ALREADY_MAPPED = CUDA_ERROR_ALREADY_MAPPED;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    NOT_FOUND = CUDA_ERROR_NOT_FOUND;
    NOT_READY = CUDA_ERROR_NOT_READY;
    LAUNCH_OUT_OF_RESOURCES = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    COOPERATIVE_LAUNCH_TOO_LARGE = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    HOST_MEMORY_ALREADY_REGISTERED = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    HOST_MEMORY_NOT_REGISTERED = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    SYSTEM_NOT_READY = CUDA_ERROR_SYSTEM_NOT_READY;
    UNKNOWN = CUDA_ERROR_UNKNOWN;
}

/// `code` unless `condition`. That is told to be rare: a chain of checks then stays a straight line of instructions.
#[inline(always)]
pub fn ensure(condition: bool, code: Code) -> Answer {
    if condition {
        Ok(())
    } else {
        cold_path();
        Err(code)
    }
}

/// What is there, else `code`, which is told to be rare as in [`ensure`].
#[inline(always)]
pub fn there<T>(option: Option<T>, code: Code) -> Answer<T> {
    match option {
        Some(value) => Ok(value),
        None => {
            cold_path();
            Err(code)
        }
    }
}

/// A code that came over the wire.
pub fn from_wire(code: u32) -> Answer {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}
