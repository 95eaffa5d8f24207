//! The two ends of a copy, and the bytes that go between them.

use crate::allocations::{Allocation, What};
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::{host, mappings, virtual_memory};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where bytes are.
#[derive(Clone)]
pub enum Place {
    /// Memory that the driver knows: on a device or pinned.
    Known(u64, Allocation),
    /// Any other memory of the program.
    Pageable(u64),
}

impl Place {
    /// An address that must be known, with all `length` bytes in one allocation, to be read or written.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn known(address: u64, length: u64, write: bool) -> Result<Place> {
        let mut allocation = TABLES.allocations.holding(address, length).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if allocation.what == What::Mapped {
            // Copies go by way of a device that has access; mapped memory may have been opened to another one's only.
            let open = |device: &&Arc<Device>| device.memory.allows(address, length, write);
            let mut devices = std::iter::once(&allocation.device).chain(driver::devices());
            allocation.device = devices.find(open).ok_or(CUDA_ERROR_INVALID_VALUE)?.clone();
        }
        // The system would end the process.
        if write && matches!(allocation.what, What::Registered(flags) if flags & host::READ_ONLY != 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !is_backed(&allocation) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Place::Known(address, allocation))
    }

    /// Any address: what the driver does not know is the program's memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for null, for an address among a device's that is not allocated, if the range leaves the allocation
    /// that it begins in, and for memory that the program does not have.
    pub fn any(address: u64, length: u64, write: bool) -> Result<Place> {
        if address == 0 || address.checked_add(length).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let of_device = || driver::devices().iter().any(|device| device.memory.reserves(address));
        match TABLES.allocations.find(address) {
            Some(_) => Place::known(address, length, write),
            // Device memory that was freed, or never allocated; a range without memory.
            None if of_device() || virtual_memory::range(address).is_some() => Err(CUDA_ERROR_INVALID_VALUE),
            None if !mappings::allow(address, length, write) => Err(CUDA_ERROR_INVALID_VALUE),
            None => Ok(Place::Pageable(address)),
        }
    }

    /// Whether an asynchronous copy must be over before the call returns (or has to stage the bytes).
    pub fn is_pageable(&self) -> bool {
        matches!(self, Place::Pageable(_))
    }

    /// Whether the program wants operations on it to be over when the call returns.
    pub fn is_synchronous(&self) -> bool {
        matches!(self, Place::Known(_, allocation) if allocation.synchronous.load(Ordering::Relaxed))
    }

    fn address(&self) -> u64 {
        match self {
            Place::Known(address, _) | Place::Pageable(address) => *address,
        }
    }

    /// The device whose memory holds it, or none for host memory.
    fn on_device(&self) -> Option<&Allocation> {
        match self {
            Place::Known(_, allocation) if allocation.what.is_device() => Some(allocation),
            _ => None,
        }
    }

    /// Whether the program still has the memory: it may have unmapped it since the place was found.
    pub fn is_there(&self, length: u64, write: bool) -> bool {
        match self {
            Place::Known(_, allocation) => is_backed(allocation),
            Place::Pageable(address) => mappings::allow(*address, length, write),
        }
    }

    /// The same place some bytes further.
    pub fn plus(&self, offset: u64) -> Place {
        match self {
            Place::Known(address, allocation) => Place::Known(address + offset, allocation.clone()),
            Place::Pageable(address) => Place::Pageable(address + offset),
        }
    }
}

/// Whether memory of the host is still there: registered memory that the program has, pinned memory that nobody freed. Other memory
/// is a device's, which says itself when it is not.
pub fn is_backed(allocation: &Allocation) -> bool {
    match allocation.what {
        What::Registered(_) => host::is_there(allocation),
        What::Host(_) => TABLES.allocations.find(allocation.base).is_some_and(|a| a.id == allocation.id),
        _ => true,
    }
}

/// Copies `length` bytes. What was checked when the copy was asked for may have been freed since: that is an error of
/// the program which ends its context, as on a card.
///
/// # Errors
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
///
/// # Safety
/// Pageable and pinned places must be valid for the length; that is the program's duty.
pub unsafe fn copy(to: &Place, from: &Place, length: usize) -> Result {
    if length == 0 {
        return Ok(());
    }
    let done = match (to.on_device(), from.on_device()) {
        (Some(to_), Some(from_)) => {
            to_.device.memory.copy_from(to.address(), &from_.device.memory, from.address(), length as u64)
        }
        (Some(to_), None) => {
            // SAFETY: the caller vouches for the program's memory; it is only read. Other threads of the program may
            // write it at the same time, which then is the program's race; the bytes are copied by `memmove`.
            let bytes = unsafe { std::slice::from_raw_parts(from.address() as *const u8, length) };
            to_.device.memory.write(to.address(), bytes)
        }
        (None, Some(from_)) => {
            // SAFETY: as above, and the range is the copy's target, which nobody else may use meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to.address() as *mut u8, length) };
            from_.device.memory.read(from.address(), bytes)
        }
        (None, None) => {
            // SAFETY: the caller vouches for both; they may overlap.
            unsafe { std::ptr::copy(from.address() as *const u8, to.address() as *mut u8, length) };
            true
        }
    };
    if done { Ok(()) } else { Err(CUDA_ERROR_ILLEGAL_ADDRESS) }
}
