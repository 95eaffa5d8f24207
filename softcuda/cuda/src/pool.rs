//! Stream-ordered memory pools: memory is taken at the call and comes back in stream order. A pool keeps what comes back up
//! to its release threshold; another allocation, of any stream, may then have it.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::context;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::graph::{self, capture};
use crate::pool_share::Source;
use crate::stream::Work;
use crate::{memory, pool_share};
use softcuda_engine::Access;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One pool.
pub struct Pool {
    handle: usize,
    device: i32,
    default: bool,
    /// Bytes that it may have at most; 0: what the device has.
    most: u64,
    reach: Reach,
    /// `CU_MEMPOOL_ATTR_REUSE_…` (kept: blocks come back only when their stream has passed the free, which every rule
    /// allows) and the release threshold.
    settings: Mutex<[u64; 4]>,
    blocks: Mutex<Blocks>,
}

/// Which processes a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// This one.
    Own,
    /// Made here, and others may have it.
    Exportable,
    /// Another's: it gives no new memory.
    Imported(Source),
}

/// What a pool has from its device.
#[derive(Default)]
struct Blocks {
    /// Blocks that nobody uses, by size.
    idle: BTreeMap<u64, Vec<u64>>,
    /// Blocks that the program has: bytes asked for, bytes of the block.
    live: HashMap<u64, (u64, u64)>,
    /// Bytes of all blocks, and the most there were.
    reserved: [u64; 2],
    /// Bytes asked for, and the most there were.
    used: [u64; 2],
    /// Other devices whose kernels reach the pool's memory.
    open: BTreeMap<i32, Access>,
}

impl Blocks {
    fn grow(counter: &mut [u64; 2], bytes: u64) {
        counter[0] += bytes;
        counter[1] = counter[1].max(counter[0]);
    }

    /// An idle block that is not much larger than what is wanted.
    fn reuse(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let (size, blocks) = self.idle.range_mut(bytes..=bytes.saturating_mul(2)).next()?;
        let (size, block) = (*size, blocks.pop());
        if blocks.is_empty() {
            self.idle.remove(&size);
        }
        block.map(|address| (address, size))
    }

    /// Gives idle blocks back to the device until no more than so many bytes are reserved.
    fn release(&mut self, device: &Device, keep: u64) {
        while self.reserved[0] > keep
            && let Some((size, blocks)) = self.idle.pop_last()
        {
            for (i, address) in blocks.iter().enumerate() {
                if self.reserved[0] <= keep {
                    self.idle.insert(size, blocks[i..].to_vec());
                    return;
                }
                device.memory.free(*address);
                self.reserved[0] -= size;
            }
        }
    }
}

/// Blocks are multiples of this.
const BLOCK: u64 = 512;

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

/// The pool of a handle if it gives memory.
fn find_source(handle: usize) -> Result<Arc<Pool>> {
    let gives = |pool: &Arc<Pool>| !matches!(pool.reach, Reach::Imported(_));
    Some(find(handle)?).filter(gives).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn make(handle: usize, device: i32, default: bool, most: u64, reach: Reach) {
    let settings = Mutex::new([1, 1, 1, 0]);
    let pool = Pool { handle, device, default, most, reach, settings, blocks: Mutex::default() };
    TABLES.pools.add(handle, Arc::new(pool));
}

/// The device of a pool that other processes may have.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for any other.
pub fn exportable(handle: usize) -> Result<i32> {
    let pool = find(handle)?;
    if pool.reach == Reach::Exportable { Ok(pool.device) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// A new pool that stands for another process's.
pub fn imported(device: i32, source: Source) -> usize {
    let handle = TABLES.pools.reserve();
    make(handle, device, false, 0, Reach::Imported(source));
    handle
}

/// The device of an imported pool, and whose it is.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for any other.
pub fn source(handle: usize) -> Result<(i32, Source)> {
    let pool = find(handle)?;
    match pool.reach {
        Reach::Imported(source) => Ok((pool.device, source)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Memory of another process that is mapped here becomes an imported pool's: open to its device and to those that the pool
/// is open to.
///
/// # Errors
/// `CUDA_ERROR_MAP_FAILED`.
pub fn adopt(handle: usize, device: &Device, address: u64, bytes: u64) -> Result {
    let pool = find(handle)?;
    let mut blocks = pool.blocks();
    if !device.memory.open_window(address, bytes, Access::ReadWrite) {
        return Err(CUDA_ERROR_MAP_FAILED);
    }
    for (peer, access) in &blocks.open {
        driver::device(*peer)?.memory.open_window(address, bytes, *access);
    }
    // It has no place in the counts: the bytes are the other process's.
    blocks.live.insert(address, (0, bytes));
    Ok(())
}

/// `cuDeviceGetDefaultMemPool`.
pub fn default_of(device: &Device) -> usize {
    let handle = device.pools.default;
    if TABLES.pools.get(handle).is_none() {
        make(handle, device.ordinal, true, 0, Reach::Own);
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
    if find_source(handle)?.device != device.ordinal {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    device.pools.current.store(handle, Ordering::Release);
    Ok(())
}

/// `cuMemPoolCreate` on a device, for so many bytes at most (0: all), and perhaps to go to other processes.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn create(device: i32, most: u64, exportable: bool) -> Result<usize> {
    driver::device(device)?;
    let handle = TABLES.pools.reserve();
    make(handle, device, false, most, if exportable { Reach::Exportable } else { Reach::Own });
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
    if let Some(pool) = TABLES.pools.remove(handle) {
        pool.blocks().release(driver::device(pool.device)?, 0);
    }
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
    let pool = find_source(if pool == 0 { current_of(&context.device) } else { pool })?;
    let device = driver::device(pool.device)?;
    if let Some(address) = capture::alloc(&context, &stream, device, bytes as u64)? {
        return Ok(address);
    }
    let address = pool.take(device, bytes as u64)?;
    TABLES.allocations.add(address, bytes as u64, What::Pooled(pool.handle), context.handle, device);
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
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block for so many bytes: an idle one, or a new one from the device.
    fn take(&self, device: &Device, bytes: u64) -> Result<u64> {
        let size = bytes.checked_next_multiple_of(BLOCK).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut blocks = self.blocks();
        let (address, size) = match blocks.reuse(size) {
            Some(block) => block,
            None => {
                if self.most > 0 && blocks.reserved[0] + size > self.most {
                    blocks.release(device, self.most.saturating_sub(size));
                    if blocks.reserved[0] + size > self.most {
                        return Err(CUDA_ERROR_OUT_OF_MEMORY);
                    }
                }
                drop(blocks);
                let address = self.new_block(device, size)?;
                blocks = self.blocks();
                Blocks::grow(&mut blocks.reserved, size);
                (address, size)
            }
        };
        Blocks::grow(&mut blocks.used, bytes);
        blocks.live.insert(address, (bytes, size));
        for (peer, access) in &blocks.open {
            driver::device(*peer)?.memory.open_window(address, size, *access);
        }
        Ok(address)
    }

    /// A new block. When the device has no room, what its pools keep for later is given back first.
    fn new_block(&self, device: &Device, size: u64) -> Result<u64> {
        if let Ok(address) = device.memory.alloc(size, BLOCK) {
            return Ok(address);
        }
        release_all(device);
        device.memory.alloc(size, BLOCK).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// A block comes back: it is kept if the threshold lets it.
    fn give(&self, device: &Device, address: u64) {
        let threshold = self.settings.lock().unwrap_or_else(PoisonError::into_inner)[3];
        let mut blocks = self.blocks();
        let Some((bytes, size)) = blocks.live.remove(&address) else { return };
        for peer in blocks.open.keys() {
            let _ = driver::device(*peer).map(|d| d.memory.close_window(address));
        }
        if pool_share::give_up(device, address) {
            return;
        }
        blocks.used[0] -= bytes;
        blocks.idle.entry(size).or_default().push(address);
        blocks.release(device, threshold);
    }
}

/// Gives back what the pools of a device keep for later.
pub fn release_all(device: &Device) {
    for pool in TABLES.pools.all().iter().filter(|pool| pool.device == device.ordinal) {
        pool.blocks().release(device, 0);
    }
}

/// Memory of a pool comes back, to the pool or, if that is gone, to the device.
pub fn give_back(pool: usize, allocation: &Allocation) {
    match TABLES.pools.get(pool) {
        Some(pool) => pool.give(&allocation.device, allocation.base),
        None if pool_share::give_up(&allocation.device, allocation.base) => {}
        None => _ = allocation.device.memory.free(allocation.base),
    }
}

/// `cuMemPoolGetAttribute`: the value, and whether it has 8 bytes (else 4).
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
pub fn attribute(handle: usize, id: u32) -> Result<(u64, bool)> {
    let pool = find(handle)?;
    let settings = pool.settings.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks = pool.blocks();
    Ok(match id {
        1..=3 => (settings[id as usize - 1], false),
        4 => (settings[3], true),
        5 | 6 => (blocks.reserved[id as usize - 5], true),
        7 | 8 => (blocks.used[id as usize - 7], true),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// `cuMemPoolSetAttribute`; `value` gives what the program wrote, as 8 bytes or as 4.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an attribute that cannot be set.
pub fn set_attribute(handle: usize, id: u32, value: impl Fn(bool) -> u64) -> Result {
    let pool = find(handle)?;
    let mut blocks = pool.blocks();
    match id {
        1..=4 => {
            pool.settings.lock().unwrap_or_else(PoisonError::into_inner)[id as usize - 1] = value(id == 4)
        }
        // The high-water marks can only be set to 0: they start again from what there is.
        6 if value(true) == 0 => blocks.reserved[1] = blocks.reserved[0],
        8 if value(true) == 0 => blocks.used[1] = blocks.used[0],
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// `cuMemPoolTrimTo`: gives back what is not in use, down to so many bytes.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none.
pub fn trim(handle: usize, keep: u64) -> Result {
    let pool = find(handle)?;
    pool.blocks().release(driver::device(pool.device)?, keep);
    Ok(())
}

/// `cuMemPoolSetAccess` for one device; `None` takes its access away.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none, and for taking it from the pool's own device,
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn set_access(handle: usize, device: i32, access: Option<Access>) -> Result {
    let pool = find(handle)?;
    let memory = &driver::device(device)?.memory;
    if device == pool.device {
        return if access == Some(Access::ReadWrite) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) };
    }
    let mut blocks = pool.blocks();
    if blocks.open.remove(&device).is_some() {
        blocks.live.keys().for_each(|address| _ = memory.close_window(*address));
    }
    if let Some(access) = access {
        blocks.live.iter().for_each(|(address, (_, size))| _ = memory.open_window(*address, *size, access));
        blocks.open.insert(device, access);
    }
    Ok(())
}

/// `cuMemPoolGetAccess`.
///
/// # Errors
/// As [`set_access`].
pub fn access(handle: usize, device: i32) -> Result<Option<Access>> {
    let pool = find(handle)?;
    driver::device(device)?;
    let own = (device == pool.device).then_some(Access::ReadWrite);
    Ok(own.or_else(|| pool.blocks().open.get(&device).copied()))
}
