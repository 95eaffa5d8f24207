//! Device memory: allocation and questions about it.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::attributes::{PITCH_ALIGNMENT, TEXTURE_ALIGNMENT};
use crate::driver::TABLES;
use crate::error::*;
use crate::graph::{self, capture};
use crate::{current, ipc, managed, pool};

/// What allocations are aligned to: a texture may begin at any of them.
pub const ALIGNMENT: u64 = TEXTURE_ALIGNMENT as u64;

/// Memory of the current device for any purpose.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn take(bytes: usize, what: What) -> Result<u64> {
    capture::permit_unsafe()?;
    let context = current::healthy()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let memory = &context.device.memory;
    let address = memory.alloc(bytes as u64, ALIGNMENT).or_else(|_| {
        // What pools keep for later is free memory.
        pool::release_all(&context.device);
        memory.alloc(bytes as u64, ALIGNMENT)
    });
    let address = address.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    TABLES.allocations.add(address, bytes as u64, what, context.handle, &context.device);
    Ok(address)
}

/// `cuMemAlloc`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn alloc(bytes: usize) -> Result<u64> {
    take(bytes, What::Device)
}

/// `cuMemAllocPitch`: the address and the bytes from row to row.
///
/// # Errors
/// As [`alloc`]; `CUDA_ERROR_INVALID_VALUE` for elements of other than 4, 8 or 16 bytes.
pub fn alloc_pitch(width: usize, height: usize, element: u32) -> Result<(u64, usize)> {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let pitch = width.checked_next_multiple_of(PITCH_ALIGNMENT as usize).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let bytes = pitch.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok((alloc(bytes)?, pitch))
}

/// `cuMemFree`: waits for all work of the context that could use it, as NVIDIA's driver does.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless the address is an allocation's first.
pub fn free(address: u64) -> Result {
    capture::permit_unsafe()?;
    let context = current::healthy()?;
    if address == 0 {
        return Ok(());
    }
    if TABLES.allocations.find(address).is_some_and(|a| a.base == address && a.what == What::Graph) {
        context.drain()?;
        return graph::memory::free(address);
    }
    let ours = |a: &Allocation| {
        a.base == address && matches!(a.what, What::Device | What::Managed | What::Pooled(_))
    };
    TABLES.allocations.find(address).filter(ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    context.drain()?;
    // A second free of the same address by another thread may have come first.
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    give_back(&allocation);
    Ok(())
}

/// Gives device memory back that has left the table of allocations.
pub fn give_back(allocation: &Allocation) {
    ipc::forget(allocation.id);
    if allocation.what == What::Managed {
        managed::forget(allocation);
    }
    match allocation.what {
        What::Pooled(pool) => pool::give_back(pool, allocation),
        _ => _ = allocation.device.memory.free(allocation.base),
    }
}

/// `cuMemGetInfo`: free and total bytes of the current device.
///
/// # Errors
/// No current context.
pub fn info() -> Result<(usize, usize)> {
    let context = current::healthy()?;
    let (used, total) = (context.device.memory.used(), context.device.memory.total());
    Ok((total.saturating_sub(used) as usize, total as usize))
}

/// `cuMemGetAddressRange`: first address and bytes of the allocation that holds an address.
///
/// # Errors
/// `CUDA_ERROR_NOT_FOUND` where there is none.
pub fn address_range(address: u64) -> Result<(u64, usize)> {
    current::healthy()?;
    let allocation = TABLES.allocations.find(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
    Ok((allocation.base, allocation.size as usize))
}
