//! Stream-ordered memory pools, in their simplest right form: memory is taken at the call and given back in stream
//! order.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::context;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::graph::{self, capture};
use crate::memory;
use crate::stream::Work;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One pool.
pub struct Pool {
    handle: usize,
    device: i32,
    default: bool,
    /// Attributes 1 to 4, which are kept and have no effect.
    settings: Mutex<[u64; 4]>,
    highest: AtomicU64,
}

/// The pools that a device offers without being asked.
pub struct DevicePools {
    default: usize,
    current: AtomicUsize,
}

impl Default for DevicePools {
    fn default() -> Self {
        Self::new()
    }
}

impl DevicePools {
    /// The default pool's handle; the pool itself is made when it is first asked for.
    pub fn new() -> Self {
        let default = TABLES.pools.reserve();
        Self { default, current: AtomicUsize::new(default) }
    }
}

fn find(handle: usize) -> Result<Arc<Pool>> {
    TABLES.pools.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn make(handle: usize, device: i32, default: bool) {
    let settings = Mutex::new([1, 1, 1, 0]);
    TABLES
        .pools
        .add(handle, Arc::new(Pool { handle, device, default, settings, highest: AtomicU64::new(0) }));
}

/// `cuDeviceGetDefaultMemPool`.
pub fn default_of(device: &Device) -> usize {
    let handle = device.pools.default;
    if TABLES.pools.get(handle).is_none() {
        make(handle, device.ordinal, true);
    }
    handle
}

/// `cuDeviceGetMemPool`.
pub fn current_of(device: &Device) -> usize {
    default_of(device);
    device.pools.current.load(Ordering::Acquire)
}

/// `cuDeviceSetMemPool`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none, or a pool of another device.
pub fn set_current(device: &Device, handle: usize) -> Result {
    default_of(device);
    if find(handle)?.device != device.ordinal {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    device.pools.current.store(handle, Ordering::Release);
    Ok(())
}

/// `cuMemPoolCreate` on a device.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn create(device: i32) -> Result<usize> {
    driver::device(device)?;
    let handle = TABLES.pools.reserve();
    make(handle, device, false);
    Ok(handle)
}

/// `cuMemPoolDestroy`: memory taken from it stays until it is freed.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a default pool or no pool.
pub fn destroy(handle: usize) -> Result {
    if find(handle)?.default {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    TABLES.pools.remove(handle);
    for device in driver::devices() {
        let _ = device.pools.current.compare_exchange(
            handle,
            device.pools.default,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
    Ok(())
}

/// `cuMemAllocAsync` (pool 0: the device's current one) and `cuMemAllocFromPoolAsync`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for no bytes or no pool, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn alloc(bytes: usize, pool: usize, stream: usize) -> Result<u64> {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let pool = find(if pool == 0 { current_of(&context.device) } else { pool })?;
    let device = driver::device(pool.device)?;
    if let Some(address) = capture::alloc(&context, &stream, device, bytes as u64)? {
        return Ok(address);
    }
    let address = device.memory.alloc(bytes as u64, 256).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    TABLES.allocations.add(address, bytes as u64, What::Pooled(pool.handle), context.handle, device);
    pool.highest.fetch_max(pool.used(), Ordering::Relaxed);
    Ok(address)
}

/// `cuMemFreeAsync`: in stream order; also for memory of `cuMemAlloc`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless the address is an allocation's first.
pub fn free(address: u64, stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if address == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if capture::free(&stream, address)? {
        return Ok(());
    }
    if TABLES.allocations.find(address).is_some_and(|a| a.base == address && a.what == What::Graph) {
        return graph::memory::free(address);
    }
    let ours = |a: &Allocation| matches!(a.what, What::Pooled(_) | What::Device | What::Managed);
    // Out of the table at once, so that a second free is an error; the memory itself in stream order.
    let allocation = TABLES.allocations.take(address, ours).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let job = move |_| memory::give_back(&allocation);
    context.submit(&stream, Work::Always(Box::new(job)))
}

impl Pool {
    fn used(&self) -> u64 {
        TABLES.allocations.total(|a| a.what == What::Pooled(self.handle))
    }
}

/// `cuMemPoolGetAttribute`: the value, and whether it has 8 bytes (else 4).
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
pub fn attribute(handle: usize, id: u32) -> Result<(u64, bool)> {
    let pool = find(handle)?;
    let settings = pool.settings.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match id {
        1..=3 => (settings[id as usize - 1], false),
        4 => (settings[3], true),
        5 | 7 => (pool.used(), true),
        6 | 8 => (pool.highest.load(Ordering::Relaxed).max(pool.used()), true),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// `cuMemPoolSetAttribute`; `value` gives what the program wrote, as 8 bytes or as 4.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an attribute that cannot be set.
pub fn set_attribute(handle: usize, id: u32, value: impl Fn(bool) -> u64) -> Result {
    let pool = find(handle)?;
    match id {
        1..=4 => {
            pool.settings.lock().unwrap_or_else(PoisonError::into_inner)[id as usize - 1] = value(id == 4)
        }
        // The high-water marks can only be set to 0.
        6 | 8 if value(true) == 0 => pool.highest.store(pool.used(), Ordering::Relaxed),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// `cuMemPoolTrimTo`: nothing is kept that could be given back.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none.
pub fn trim(handle: usize) -> Result {
    find(handle).map(drop)
}
