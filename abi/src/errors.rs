//! Name and text of every `CUresult`, for `cuGetErrorName` and `cuGetErrorString`.
#![forbid(unsafe_code)]

use crate::sys::CUresult;
use std::ffi::CStr;

/// One table, from which come both directions; the match has no wildcard, so a new code in `cuda.h` stops the build.
macro_rules! table {
    ($($name:ident = $text:literal;)*) => {
        /// The name (`CUDA_ERROR_…`) and the text of a result.
        pub fn describe(result: CUresult) -> (&'static CStr, &'static CStr) {
            const fn c(bytes: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(bytes.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("a text of the table holds a zero byte"),
                }
            }
            match result {
                $(CUresult::$name => {
                    const PAIR: (&CStr, &CStr) = (c(concat!(stringify!($name), "\0")), c(concat!($text, "\0")));
                    PAIR
                })*
            }
        }

        /// Every result that `cuda.h` declares.
        pub const ALL: &[CUresult] = &[$(CUresult::$name),*];
    };
}

table! {
    CUDA_SUCCESS = "no error";
    CUDA_ERROR_INVALID_VALUE = "invalid argument";
    CUDA_ERROR_OUT_OF_MEMORY = "out of memory";
    CUDA_ERROR_NOT_INITIALIZED = "initialization error";
    CUDA_ERROR_DEINITIALIZED = "driver shutting down";
    CUDA_ERROR_PROFILER_DISABLED = "profiler disabled while using external profiling tool";
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = "profiler not initialized: call cudaProfilerInitialize()";
    CUDA_ERROR_PROFILER_ALREADY_STARTED = "profiler already started";
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = "profiler already stopped";
    CUDA_ERROR_STUB_LIBRARY = "CUDA driver is a stub library";
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = "API call is not supported in the installed CUDA driver";
    CUDA_ERROR_DEVICE_UNAVAILABLE = "CUDA-capable device(s) is/are busy or unavailable";
    CUDA_ERROR_MULTICAST_RESOURCE_FULL = "multicast resources exhausted";
    CUDA_ERROR_NO_DEVICE = "no CUDA-capable device is detected";
    CUDA_ERROR_INVALID_DEVICE = "invalid device ordinal";
    CUDA_ERROR_DEVICE_NOT_LICENSED = "device doesn't have valid Grid license";
    CUDA_ERROR_INVALID_IMAGE = "device kernel image is invalid";
    CUDA_ERROR_INVALID_CONTEXT = "invalid device context";
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = "context already current";
    CUDA_ERROR_MAP_FAILED = "mapping of buffer object failed";
    CUDA_ERROR_UNMAP_FAILED = "unmapping of buffer object failed";
    CUDA_ERROR_ARRAY_IS_MAPPED = "array is mapped";
    CUDA_ERROR_ALREADY_MAPPED = "resource already mapped";
    CUDA_ERROR_NO_BINARY_FOR_GPU = "no kernel image is available for execution on the device";
    CUDA_ERROR_ALREADY_ACQUIRED = "resource already acquired";
    CUDA_ERROR_NOT_MAPPED = "resource not mapped";
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = "resource not mapped as array";
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = "resource not mapped as pointer";
    CUDA_ERROR_ECC_UNCORRECTABLE = "uncorrectable ECC error encountered";
    CUDA_ERROR_UNSUPPORTED_LIMIT = "limit is not supported on this architecture";
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = "exclusive-thread device already in use by a different thread";
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = "peer access is not supported between these two devices";
    CUDA_ERROR_INVALID_PTX = "a PTX JIT compilation failed";
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = "invalid OpenGL or DirectX context";
    CUDA_ERROR_NVLINK_UNCORRECTABLE = "uncorrectable NVLink error detected during the execution";
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = "PTX JIT compiler library not found";
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = "the provided PTX was compiled with an unsupported toolchain.";
    CUDA_ERROR_JIT_COMPILATION_DISABLED = "PTX JIT compilation was disabled";
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = "the provided execution affinity is not supported";
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = "the operation is not supported: device-side synchronization";
    CUDA_ERROR_CONTAINED = "contained error";
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION = "the image needs a newer loader";
    CUDA_ERROR_INVALID_SOURCE = "device kernel image is invalid";
    CUDA_ERROR_FILE_NOT_FOUND = "file not found";
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = "shared object symbol not found";
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = "shared object initialization failed";
    CUDA_ERROR_OPERATING_SYSTEM = "OS call failed or operation not supported on this OS";
    CUDA_ERROR_INVALID_HANDLE = "invalid resource handle";
    CUDA_ERROR_ILLEGAL_STATE = "the operation cannot be performed in the present state";
    CUDA_ERROR_LOSSY_QUERY = "attempted introspection would be semantically lossy";
    CUDA_ERROR_NOT_FOUND = "named symbol not found";
    CUDA_ERROR_NOT_READY = "device not ready";
    CUDA_ERROR_ILLEGAL_ADDRESS = "an illegal memory access was encountered";
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = "too many resources requested for launch";
    CUDA_ERROR_LAUNCH_TIMEOUT = "the launch timed out and was terminated";
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = "launch uses incompatible texturing mode";
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = "peer access is already enabled";
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = "peer access has not been enabled";
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = "cannot set while device is active in this process";
    CUDA_ERROR_CONTEXT_IS_DESTROYED = "context is destroyed";
    CUDA_ERROR_ASSERT = "device-side assert triggered";
    CUDA_ERROR_TOO_MANY_PEERS = "peer mapping resources exhausted";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = "part or all of the requested memory range is already mapped";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = "pointer does not correspond to a registered memory region";
    CUDA_ERROR_HARDWARE_STACK_ERROR = "hardware stack error";
    CUDA_ERROR_ILLEGAL_INSTRUCTION = "an illegal instruction was encountered";
    CUDA_ERROR_MISALIGNED_ADDRESS = "misaligned address";
    CUDA_ERROR_INVALID_ADDRESS_SPACE = "operation not supported on global/shared address space";
    CUDA_ERROR_INVALID_PC = "invalid program counter";
    CUDA_ERROR_LAUNCH_FAILED = "unspecified launch failure";
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = "too many blocks in cooperative launch";
    CUDA_ERROR_TENSOR_MEMORY_LEAK = "tensor memory was not freed before the kernel ended";
    CUDA_ERROR_NOT_PERMITTED = "operation not permitted";
    CUDA_ERROR_NOT_SUPPORTED = "operation not supported";
    CUDA_ERROR_SYSTEM_NOT_READY = "system not yet initialized";
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = "system has unsupported display driver / cuda driver combination";
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = "forward compatibility was attempted on non supported HW";
    CUDA_ERROR_MPS_CONNECTION_FAILED = "MPS client failed to connect to the MPS control daemon or the MPS server";
    CUDA_ERROR_MPS_RPC_FAILURE = "the remote procedural call between the MPS server and the MPS client failed";
    CUDA_ERROR_MPS_SERVER_NOT_READY = "MPS server is not ready to accept new MPS client requests";
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = "the hardware resources required to create MPS client have been exhausted";
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = "the hardware resources required to support device connections have been exhausted";
    CUDA_ERROR_MPS_CLIENT_TERMINATED = "the MPS client has been terminated by the server";
    CUDA_ERROR_CDP_NOT_SUPPORTED = "the program uses dynamic parallelism, which the device does not support";
    CUDA_ERROR_CDP_VERSION_MISMATCH = "the program mixes versions of dynamic parallelism";
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = "operation not permitted when stream is capturing";
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = "operation failed due to a previous error during capture";
    CUDA_ERROR_STREAM_CAPTURE_MERGE = "operation would result in a merge of separate capture sequences";
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = "capture was not ended in the same stream as it began";
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = "capturing stream has unjoined work";
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = "dependency created on uncaptured work in another stream";
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = "operation would make the legacy stream depend on a capturing blocking stream";
    CUDA_ERROR_CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream";
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = "attempt to terminate a thread-local capture sequence from another thread";
    CUDA_ERROR_TIMEOUT = "wait operation timed out";
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    CUDA_ERROR_EXTERNAL_DEVICE = "an async error has occurred in external entity outside of CUDA";
    CUDA_ERROR_INVALID_CLUSTER_SIZE = "a kernel launch error has occurred due to cluster misconfiguration";
    CUDA_ERROR_FUNCTION_NOT_LOADED = "the function handle is not loaded";
    CUDA_ERROR_INVALID_RESOURCE_TYPE = "a resource of the wrong type was passed";
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = "the resources are insufficient or wrongly configured";
    CUDA_ERROR_KEY_ROTATION = "an error happened during key rotation";
    CUDA_ERROR_STREAM_DETACHED = "the stream is detached";
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = "the graph could not be captured again";
    CUDA_ERROR_FABRIC_NOT_READY = "the fabric is not ready";
    CUDA_ERROR_UNKNOWN = "unknown error";
}

/// The raw number that a launch with impossible dimensions must answer to NVIDIA's runtime: `cudaErrorInvalidConfiguration`.
///
/// `cuda.h` has no such result, and whoever calls the driver by itself gets `CUDA_ERROR_INVALID_VALUE`. But runtime 13.5
/// passes the driver's answer on as it is, and programs get error 9 from it: measured, of all answers only 9 becomes 9,
/// and `CUDA_ERROR_INVALID_VALUE` stays 1. (Runtime 12.9 makes 9 of `CUDA_ERROR_INVALID_VALUE` by itself, and leaves 9 as
/// it is.) So a function that was loaded from the compiler's fatbin wrapper, which only the runtime hands over, is
/// answered with 9. Impossible are a zero or too large grid or block dimension and more than 1024 threads a block; too
/// much shared memory and more threads than the function's launch bounds are `CUDA_ERROR_INVALID_VALUE`, too many
/// threads for its registers is `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
pub const INVALID_CONFIGURATION: u32 = 9;

/// The result with this number, if `cuda.h` declares one. A C program may hand any number to `cuGetErrorName`, which
/// then answers `CUDA_ERROR_INVALID_VALUE` and a null pointer.
pub fn from_code(code: u32) -> Option<CUresult> {
    ALL.iter().copied().find(|result| *result as u32 == code)
}

/// The name of a result, as Rust text.
pub fn name(result: CUresult) -> &'static str {
    describe(result).0.to_str().unwrap_or("CUDA_ERROR_UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_cuda_users_know() {
        let text = |code| describe(from_code(code).unwrap()).1.to_str().unwrap();
        assert_eq!(text(0), "no error");
        assert_eq!(text(1), "invalid argument");
        assert_eq!(text(2), "out of memory");
        assert_eq!(text(600), "device not ready");
        assert_eq!(text(700), "an illegal memory access was encountered");
        assert_eq!(name(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(name(CUresult::CUDA_SUCCESS), "CUDA_SUCCESS");
    }

    #[test]
    fn every_code_is_found_and_no_other() {
        assert!(ALL.iter().all(|r| from_code(*r as u32) == Some(*r)));
        assert!(ALL.windows(2).all(|w| (w[0] as u32) < (w[1] as u32)));
        let found = (0..2000).filter(|c| from_code(*c).is_some()).count();
        assert_eq!(found, ALL.len());
        assert_eq!(from_code(u32::MAX), None);
    }

    #[test]
    fn no_two_results_share_a_name() {
        let names: std::collections::HashSet<_> = ALL.iter().map(|r| name(*r)).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
