//! `cuGetProcAddress`: the address of an exported function, by the rule of `cuda.h`.
#![forbid(unsafe_code)]

use crate::driver;
use crate::error::*;
use crate::exports::{self, Address};
use cuda_abi::symbols::Refusal;

/// What `cuGetProcAddress_v2` reports beside its result (`CUdriverProcAddressQueryResult`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// There it is.
    Found = 0,
    /// No such function.
    NotFound = 1,
    /// It came after the version that was asked for.
    TooOld = 2,
}

/// The address, or why there is none.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for wrong flags and for a version newer than the driver.
pub fn find(base: &[u8], version: i32, flags: u64) -> Result<std::result::Result<Address, Status>> {
    match exports::addresses().find(base, version, flags, driver::version()) {
        Ok(address) => Ok(Ok(address)),
        Err(Refusal::NotFound) => Ok(Err(Status::NotFound)),
        Err(Refusal::VersionNotSufficient) => Ok(Err(Status::TooOld)),
        Err(Refusal::InvalidValue) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
