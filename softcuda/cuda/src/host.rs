//! Pinned host memory: allocated here or registered by the program, reached by kernels under the same address.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::graph::capture;
use crate::mappings::{self, Kept};
use crate::{current, graveyard};
use softcuda_engine::{Access, Reservation};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: u32 = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub const READ_ONLY: u32 = 8;
/// All flags of `cuMemHostRegister`.
const REGISTER_FLAGS: u32 = 15;
/// What kernels' access is checked by: memory of whole granules passes the quick check.
const GRANULE: u64 = 64 << 10;

/// The memory of [`alloc`], by address.
static ALLOCATED: Mutex<BTreeMap<u64, Reservation>> = Mutex::new(BTreeMap::new());

/// Ranges of the program's own memory that kernels reach, by address.
static REGISTERED: Mutex<BTreeMap<u64, Kept>> = Mutex::new(BTreeMap::new());

/// Takes from kernels what the program has unmapped, mapped anew or protected without saying so: they would bring the process
/// down, or reach memory that nobody gave them. A card keeps such pages; here their access is 700. Called before each kernel and
/// each copy; what the program does while one runs is not seen.
pub fn forget_what_is_gone() {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|address, kept| {
        let there = kept.is_there();
        if !there {
            driver::devices().iter().for_each(|device| _ = device.memory.close_window(*address));
        }
        there
    });
}

/// Whether registered memory is what it was when it was registered.
pub fn is_there(allocation: &Allocation) -> bool {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.get(&allocation.base).is_some_and(Kept::is_there)
}

/// Lets the kernels of every device reach a range.
fn register(address: u64, bytes: u64, access: Access) -> bool {
    let devices = driver::devices();
    for (done, device) in devices.iter().enumerate() {
        if !device.memory.open_window(address, bytes, access) {
            devices[..done].iter().for_each(|d| _ = d.memory.close_window(address));
            return false;
        }
    }
    true
}

/// Ends what [`alloc`] or [`pin`] made; the memory itself goes if it was allocated here.
pub fn give_back(allocation: &Allocation) {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).remove(&allocation.base);
    for device in driver::devices() {
        device.memory.close_window(allocation.base);
    }
    let memory = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).remove(&allocation.base);
    if let Some(memory) = memory {
        graveyard::bury(Box::new(memory));
    }
}

/// `cuMemHostAlloc`: zeroed, page-aligned memory. It is always portable and mapped.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags or no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn alloc(bytes: usize, flags: u32) -> Result<u64> {
    capture::permit_unsafe()?;
    let context = current::healthy()?;
    if flags & !ALLOC_FLAGS != 0 || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    graveyard::sweep();
    let room = (bytes as u64).checked_next_multiple_of(GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let memory = Reservation::new(room, GRANULE, None).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let address = memory.address();
    // Zeros are what an unmapped part shows, too.
    memory.unmap(address, room).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    if !register(address, room, Access::ReadWrite) {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).insert(address, memory);
    TABLES.allocations.add(address, bytes as u64, What::Host(flags), context.handle, &context.device);
    Ok(address)
}

/// `cuMemFreeHost`: waits for the context's work first.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless [`alloc`] gave the address.
pub fn free(address: u64) -> Result {
    capture::permit_unsafe()?;
    let context = current::healthy()?;
    if address == 0 {
        return Ok(());
    }
    let ours = |a: &Allocation| a.base == address && matches!(a.what, What::Host(_));
    TABLES.allocations.find(address).filter(ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    context.drain()?;
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    give_back(&allocation);
    Ok(())
}

/// `cuMemHostRegister`: lets kernels reach the program's own memory.
///
/// # Errors
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if part of it is; `CUDA_ERROR_INVALID_VALUE` for null, no bytes,
/// addresses where nothing is, and memory that cannot be written unless the flags say so; `CUDA_ERROR_NOT_SUPPORTED` for I/O
/// memory.
pub fn pin(address: u64, bytes: usize, flags: u32) -> Result {
    let context = current::healthy()?;
    if flags & !REGISTER_FLAGS != 0 || address == 0 || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & IO_MEMORY != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let access = match mappings::access(address, bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)? {
        Access::Read if flags & READ_ONLY == 0 => return Err(CUDA_ERROR_INVALID_VALUE),
        _ if flags & READ_ONLY != 0 => Access::Read,
        access => access,
    };
    if !register(address, bytes as u64, access) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    // Locked only now, as another registration may keep part of it by the same means.
    let Some(kept) = Kept::new(address, bytes as u64, access) else {
        driver::devices().iter().for_each(|device| _ = device.memory.close_window(address));
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).insert(address, kept);
    TABLES.allocations.add(address, bytes as u64, What::Registered(flags), context.handle, &context.device);
    Ok(())
}

/// `cuMemHostUnregister`.
///
/// # Errors
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
pub fn unpin(address: u64) -> Result {
    let context = current::healthy()?;
    let ours = |a: &Allocation| a.base == address && matches!(a.what, What::Registered(_));
    TABLES.allocations.find(address).filter(ours).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    context.drain()?;
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    give_back(&allocation);
    Ok(())
}

/// `cuMemHostGetDevicePointer`: the same address.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless it is pinned memory; flags are none.
pub fn device_pointer(address: u64, flags: u32) -> Result<u64> {
    current::healthy()?;
    let pinned = TABLES.allocations.find(address).is_some_and(|a| a.what.is_host());
    if flags == 0 && pinned { Ok(address) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// `cuMemHostGetFlags`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless [`alloc`] gave the memory.
pub fn flags(address: u64) -> Result<u32> {
    current::healthy()?;
    match TABLES.allocations.find(address).map(|a| a.what) {
        // All memory is mapped, whether asked for or not, as with unified addressing.
        Some(What::Host(flags)) => Ok(flags | 2),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
