//! NVML's error codes.
#![forbid(unsafe_code)]

use std::ffi::CStr;

/// Results: an error is a number of `nvmlReturn_t`.
pub type Result<T = ()> = std::result::Result<T, Status>;

/// An error of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// `nvmlInit` was not called.
    Uninitialized = 1,
    /// A null pointer, or a number out of range.
    InvalidArgument = 2,
    /// This device does not have it.
    NotSupported = 3,
    /// There is none of that name.
    NotFound = 6,
    /// The place is too small.
    InsufficientSize = 7,
    /// There is no device.
    DriverNotLoaded = 9,
    /// A struct of a version that is not known.
    VersionMismatch = 25,
}

/// `nvmlErrorString`.
pub fn text(code: u32) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"The operating system has blocked the request",
        18 => c"RM has detected an NVML/RM version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Operation is not supported with ECC enabled",
        23 => c"Insufficient Resources",
        24 => c"Requested frequency is not supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        _ => c"Unknown Error",
    }
}
