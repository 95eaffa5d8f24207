//! What works without `cuInit`.

use super::{Address, out, text};
use crate::error::*;
use crate::procaddr::{self, Status};
use crate::{driver, tables};
use cuda_abi::{errors, export_tables};
use cudarc::driver::sys::CUuuid;
use std::ffi::{c_char, c_void};

exports! { ($) init_names, always;
    cuInit(flags: u32) { driver::init(flags) }
    cuDriverGetVersion(version: *mut i32) { out(version)?.set(driver::version()) }
    cuGetErrorName(error: u32, name: *mut *const c_char) { describe(error, name, |pair| pair.0.as_ptr()) }
    cuGetErrorString(error: u32, text: *mut *const c_char) { describe(error, text, |pair| pair.1.as_ptr()) }
    cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) {
        let table = out(table)?;
        let uuid = if uuid.is_null() { return Err(CUDA_ERROR_INVALID_VALUE) } else { uuid.read_unaligned() };
        table.set(export_tables::get(&uuid, &tables::HOST).ok_or(CUDA_ERROR_NOT_FOUND)?)
    }
    cuGetProcAddress_v2(symbol: *const c_char, function: *mut *mut c_void, version: i32, flags: u64, status: *mut u32) {
        let (function, found) = (out(function)?, look_up(symbol, version, flags)?);
        super::set_if_wanted(status, found.err().unwrap_or(Status::Found) as u32);
        function.set(found.map_or(std::ptr::null_mut(), |address| address.0.cast_mut().cast()))
    }
    cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: i32, flags: u64) {
        let (function, found) = (out(function)?, look_up(symbol, version, flags)?);
        function.set(found.map_err(|_| CUDA_ERROR_NOT_FOUND)?.0.cast_mut().cast())
    }
}

/// # Safety
/// `symbol` is null or ends with a zero.
unsafe fn look_up(
    symbol: *const c_char,
    version: i32,
    flags: u64,
) -> Result<std::result::Result<Address, Status>> {
    // SAFETY: the caller vouches for it.
    procaddr::find(unsafe { text(symbol)? }.as_bytes(), version, flags)
}

type Pair = (&'static std::ffi::CStr, &'static std::ffi::CStr);

/// # Safety
/// `place` is null or may be written.
unsafe fn describe(error: u32, place: *mut *const c_char, which: fn(Pair) -> *const c_char) -> Result {
    // SAFETY: the caller vouches for it.
    let place = unsafe { out(place)? };
    match errors::from_code(error) {
        Some(result) => place.set(which(errors::describe(result))),
        None => {
            place.set(std::ptr::null())?;
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}
