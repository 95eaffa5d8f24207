//! Virtual memory management: reserved ranges, physical memory, and what of it is mapped where.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cuda_abi::sys::CUresult::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::{Result, arena, objects};

/// Sizes and addresses are multiples of this: 2 MiB, as on a card.
pub const GRANULARITY: usize = 2 << 20;

#[derive(Default)]
struct State {
    /// Reserved ranges: length by address.
    reserved: BTreeMap<u64, usize>,
    /// Physical memory by handle.
    physical: HashMap<u64, Arc<Physical>>,
}

struct Physical {
    file: OwnedFd,
    bytes: usize,
}

/// What is mapped at one place.
struct Mapped {
    bytes: usize,
    /// The program may touch it.
    open: bool,
    /// Keeps the memory when its handle is released.
    _physical: Arc<Physical>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
/// What is mapped, by address. Apart from the rest: every copy looks.
static MAPPED: RwLock<BTreeMap<u64, Mapped>> = RwLock::new(BTreeMap::new());
/// Bytes of all physical memory.
static CREATED: AtomicU64 = AtomicU64::new(0);

impl Drop for Physical {
    fn drop(&mut self) {
        CREATED.fetch_sub(self.bytes as u64, Ordering::AcqRel);
    }
}

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn whole(bytes: usize) -> Result<usize> {
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY) { Ok(bytes) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn pointer(address: u64) -> *mut std::ffi::c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Bytes of physical memory that were created and live.
pub fn created() -> u64 {
    CREATED.load(Ordering::Acquire)
}

/// Reserves addresses, at `hint` if that is free.
pub fn reserve(bytes: usize, alignment: usize, hint: u64) -> Result<u64> {
    let bytes = whole(bytes)?;
    let alignment = if alignment == 0 { GRANULARITY } else { alignment.max(GRANULARITY) };
    if !alignment.is_power_of_two() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let hinted = (hint != 0 && hint.is_multiple_of(alignment as u64)).then(|| hold_at(hint, bytes)).flatten();
    let address = match hinted {
        Some(address) => address,
        None => hold_anywhere(bytes, alignment)?,
    };
    lock().get_or_insert_default().reserved.insert(address, bytes);
    Ok(address)
}

const HELD: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

fn hold_at(hint: u64, bytes: usize) -> Option<u64> {
    let flags = HELD.union(MapFlags::FIXED_NOREPLACE);
    // SAFETY: FIXED_NOREPLACE touches nothing that is mapped.
    let held = unsafe { mmap_anonymous(pointer(hint), bytes, ProtFlags::empty(), flags) }.ok()?;
    let address = held.expose_provenance() as u64;
    if address != hint {
        // A kernel that does not know the flag took the address for a hint.
        // SAFETY: what was mapped just now.
        let _ = unsafe { munmap(held, bytes) };
        return None;
    }
    Some(address)
}

fn hold_anywhere(bytes: usize, alignment: usize) -> Result<u64> {
    let room = bytes.checked_add(alignment).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let held = unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), HELD) }
        .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let start = held.expose_provenance();
    let address = start.next_multiple_of(alignment);
    for (from, to) in [(start, address), (address + bytes, start + room)] {
        if from < to {
            // SAFETY: the ends of the mapping above, which nobody knows.
            let _ = unsafe { munmap(pointer(from as u64), to - from) };
        }
    }
    Ok(address as u64)
}

/// Gives reserved addresses back. Nothing may be mapped there.
pub fn unreserve(address: u64, bytes: usize) -> Result {
    let mut state = lock();
    let reserved = &mut state.get_or_insert_default().reserved;
    let mapped = MAPPED.read().unwrap_or_else(PoisonError::into_inner);
    if reserved.get(&address) != Some(&bytes)
        || mapped.range(address..address + bytes as u64).next().is_some()
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    reserved.remove(&address);
    // SAFETY: a whole reservation, in which nothing is mapped.
    unsafe { munmap(pointer(address), bytes) }.map_err(|_| CUDA_ERROR_UNKNOWN)
}

/// Makes physical memory.
pub fn create(bytes: usize) -> Result<u64> {
    let bytes = whole(bytes)?;
    if bytes as u64 > arena::left()? {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let file = memfd_create("null-driver", MemfdFlags::CLOEXEC).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    ftruncate(&file, bytes as u64).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    CREATED.fetch_add(bytes as u64, Ordering::AcqRel);
    let handle = objects::fresh();
    lock().get_or_insert_default().physical.insert(handle, Arc::new(Physical { file, bytes }));
    Ok(handle)
}

/// Lets physical memory go; it stays as long as it is mapped.
pub fn release(handle: u64) -> Result {
    lock().get_or_insert_default().physical.remove(&handle).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Maps physical memory at reserved addresses; nobody may touch it yet.
pub fn map(address: u64, bytes: usize, offset: usize, handle: u64) -> Result {
    let bytes = whole(bytes)?;
    let mut state = lock();
    let State { reserved, physical } = state.get_or_insert_default();
    let physical = physical.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?.clone();
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let inside = reserved.range(..=address).next_back().is_some_and(|(from, len)| end <= from + *len as u64);
    let mut mapped = MAPPED.write().unwrap_or_else(PoisonError::into_inner);
    let before = mapped.range(..end).next_back().is_some_and(|(from, map)| from + map.bytes as u64 > address);
    // Like CUDA today: only whole allocations.
    if !inside
        || before
        || offset != 0
        || bytes != physical.bytes
        || !address.is_multiple_of(GRANULARITY as u64)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the range is reserved by us and nothing is mapped in it.
    unsafe {
        mmap(
            pointer(address),
            bytes,
            ProtFlags::empty(),
            MapFlags::SHARED | MapFlags::FIXED,
            &physical.file,
            0,
        )
    }
    .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    mapped.insert(address, Mapped { bytes, open: false, _physical: physical });
    Ok(())
}

/// Whole mappings that make up a range.
fn mappings(mapped: &BTreeMap<u64, Mapped>, address: u64, bytes: usize) -> Result<Vec<u64>> {
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut at = address;
    let mut found = Vec::new();
    for (from, map) in mapped.range(address..end) {
        if *from != at {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        found.push(*from);
        at += map.bytes as u64;
    }
    if at == end && bytes > 0 { Ok(found) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Ends the mappings of a range.
pub fn unmap(address: u64, bytes: usize) -> Result {
    let mut mapped = MAPPED.write().unwrap_or_else(PoisonError::into_inner);
    let found = mappings(&mapped, address, bytes)?;
    // SAFETY: the range is reserved by us and stays so.
    unsafe { mmap_anonymous(pointer(address), bytes, ProtFlags::empty(), HELD | MapFlags::FIXED) }
        .map_err(|_| CUDA_ERROR_UNKNOWN)?;
    for from in found {
        mapped.remove(&from);
    }
    Ok(())
}

/// Lets the device touch a range, or not.
pub fn set_access(address: u64, bytes: usize, open: bool) -> Result {
    let mut mapped = MAPPED.write().unwrap_or_else(PoisonError::into_inner);
    let found = mappings(&mapped, address, bytes)?;
    let protection = if open { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::empty() };
    // SAFETY: mapped by us, and no reference to it exists.
    unsafe { mprotect(pointer(address), bytes, protection) }.map_err(|_| CUDA_ERROR_UNKNOWN)?;
    for from in found {
        if let Some(map) = mapped.get_mut(&from) {
            map.open = open;
        }
    }
    Ok(())
}

/// Whether all of a range is mapped and may be touched.
pub fn reaches(address: u64, end: u64) -> bool {
    let mapped = MAPPED.read().unwrap_or_else(PoisonError::into_inner);
    let mut at = address;
    while at < end {
        match mapped.range(..=at).next_back() {
            Some((from, map)) if map.open && from + map.bytes as u64 > at => at = from + map.bytes as u64,
            _ => return false,
        }
    }
    at > address || (address == end && end != 0)
}
