//! Start, versions, entry points, names of errors.

use std::ffi::{c_char, c_void};

use cudarc::driver::sys::CUuuid;

use crate::code::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::cptr::Ptr;
use crate::cx::{Bare, Cx};
use crate::{session, tables, versions};

pub fn cuInit(_: Bare, flags: u32) -> Answer {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    session::init()
}

pub fn cuDriverGetVersion(_: Bare, version: Ptr<i32>) -> Answer {
    version.not_null()?.set(versions::driver())
}

pub fn cuGetProcAddress(
    _: Bare,
    symbol: Ptr<c_char>,
    pfn: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
) -> Answer {
    let (found, status) = versions::look_up(symbol, pfn, version, flags)?;
    pfn.set(found)?;
    if status == versions::Status::Found { Ok(()) } else { Err(NOT_FOUND) }
}

pub fn cuGetProcAddress_v2(
    _: Bare,
    symbol: Ptr<c_char>,
    pfn: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
    status: Ptr<u32>,
) -> Answer {
    let (found, what) = versions::look_up(symbol, pfn, version, flags)?;
    status.set_if_wanted(what as u32);
    pfn.set(found)
}

pub fn cuGetExportTable(_: Bare, table: Ptr<*const c_void>, id: Ptr<CUuuid>) -> Answer {
    table.not_null()?;
    match cuda_abi::export_tables::get(&id.get()?, &tables::Tables) {
        Some(found) => table.set(found),
        None => Err(NOT_FOUND),
    }
}

pub fn cuGetErrorName(_: Bare, error: u32, text: Ptr<*const c_char>) -> Answer {
    describe(error, text, |(name, _)| name)
}

pub fn cuGetErrorString(_: Bare, error: u32, text: Ptr<*const c_char>) -> Answer {
    describe(error, text, |(_, meaning)| meaning)
}

type Pair = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn describe(error: u32, text: Ptr<*const c_char>, part: fn(Pair) -> &'static std::ffi::CStr) -> Answer {
    text.not_null()?;
    match cuda_abi::errors::from_code(error) {
        Some(code) => text.set(part(cuda_abi::errors::describe(code)).as_ptr()),
        None => {
            text.set(std::ptr::null())?;
            Err(INVALID_VALUE)
        }
    }
}

/// Modules are loaded lazily (CU_MODULE_LAZY_LOADING), unless `CUDA_MODULE_LOADING` asks for the other.
pub fn cuModuleGetLoadingMode(_: Cx, mode: Ptr<u32>) -> Answer {
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|value| value == "EAGER");
    mode.set(if eager { 1 } else { 2 })
}
