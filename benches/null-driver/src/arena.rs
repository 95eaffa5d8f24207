//! Device memory: one range of untouched pages, whose pieces `cuMemAlloc` gives out.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_abi::sys::CUresult::{self, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::{Result, vmm};

/// The device's memory. Only pages that are written take memory of the host.
pub const BYTES: u64 = 16 << 30;
/// Allocations begin at multiples of this, as on a card.
const ALIGNMENT: u64 = 512;

/// The memory that is not reserved by [`vmm`].
struct Arena {
    base: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Allocations: length by address.
    used: BTreeMap<u64, u64>,
    /// Free ranges: length by address; neighbours are joined.
    free: BTreeMap<u64, u64>,
}

fn arena() -> Result<&'static Arena> {
    static ARENA: OnceLock<std::result::Result<Arena, CUresult>> = OnceLock::new();
    ARENA.get_or_init(map).as_ref().map_err(|code| *code)
}

fn map() -> Result<Arena> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe {
        mmap_anonymous(std::ptr::null_mut(), BYTES as usize, ProtFlags::READ | ProtFlags::WRITE, flags)
    };
    let base = base.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?.expose_provenance() as u64;
    let state = State { used: BTreeMap::new(), free: BTreeMap::from([(base, BYTES)]) };
    Ok(Arena { base, state: Mutex::new(state) })
}

impl Arena {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that nobody has, of the arena and of physical memory.
pub fn left() -> Result<u64> {
    let used: u64 = arena()?.lock().used.values().sum();
    Ok(BYTES.saturating_sub(used).saturating_sub(vmm::created()))
}

/// Gives `bytes` bytes.
pub fn alloc(bytes: usize) -> Result<u64> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let length = (bytes as u64)
        .checked_next_multiple_of(ALIGNMENT)
        .filter(|length| left().is_ok_and(|left| *length <= left));
    let length = length.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut state = arena()?.lock();
    let fits = state.free.iter().find(|(_, free)| **free >= length).map(|(address, free)| (*address, *free));
    let (address, free) = fits.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    state.free.remove(&address);
    if free > length {
        state.free.insert(address + length, free - length);
    }
    state.used.insert(address, length);
    Ok(address)
}

/// Takes an allocation back; its pages go back to the host.
pub fn free(address: u64) -> Result {
    let mut state = arena()?.lock();
    let mut length = state.used.remove(&address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let page = rustix::param::page_size() as u64;
    let whole = address.next_multiple_of(page)..(address + length) / page * page;
    if whole.start < whole.end {
        let start = std::ptr::with_exposed_provenance_mut(whole.start as usize);
        // SAFETY: whole pages of an allocation that has just ended; reading them gives zeroes from now on.
        let _ = unsafe { madvise(start, (whole.end - whole.start) as usize, Advice::LinuxDontNeed) };
    }
    let mut start = address;
    if let Some((before, free)) = state.free.range(..address).next_back().map(|(a, l)| (*a, *l))
        && before + free == address
    {
        state.free.remove(&before);
        (start, length) = (before, free + length);
    }
    if let Some(free) = state.free.remove(&(start + length)) {
        length += free;
    }
    state.free.insert(start, length);
    Ok(())
}

/// The start and length of the allocation that holds an address.
pub fn range_of(address: u64) -> Result<Range<u64>> {
    let state = arena()?.lock();
    let (start, length) = state.used.range(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let range = *start..start + length;
    if range.contains(&address) { Ok(range) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// `bytes` bytes of device memory at `address`, if they can be read and written. Of the arena any range can, allocated or
/// not: this driver measures and finds no faults.
fn reach(address: u64, bytes: usize) -> Result<*mut u8> {
    let base = arena()?.base;
    let end = address.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if address >= base && end <= base + BYTES || vmm::reaches(address, end) {
        Ok(std::ptr::with_exposed_provenance_mut(address as usize))
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Copies within the device.
pub fn copy(to: u64, from: u64, bytes: usize) -> Result {
    let (to, from) = (reach(to, bytes)?, reach(from, bytes)?);
    // SAFETY: both ranges are mapped and writable (`reach`); overlapping ones are allowed here.
    unsafe { to.copy_from(from, bytes) };
    Ok(())
}

/// Copies to the device.
///
/// # Safety
/// `bytes` bytes can be read at `from`.
pub unsafe fn copy_in(to: u64, from: *const u8, bytes: usize) -> Result {
    let to = reach(to, bytes)?;
    // SAFETY: `reach`, and the caller's word.
    unsafe { to.copy_from(from, bytes) };
    Ok(())
}

/// Copies from the device.
///
/// # Safety
/// `bytes` bytes can be written at `to`.
pub unsafe fn copy_out(to: *mut u8, from: u64, bytes: usize) -> Result {
    let from = reach(from, bytes)?;
    // SAFETY: `reach`, and the caller's word.
    unsafe { to.copy_from(from, bytes) };
    Ok(())
}

/// Fills `count` elements with the bytes of `value`.
pub fn set<const BYTES: usize>(to: u64, value: [u8; BYTES], count: usize) -> Result {
    let bytes = count.checked_mul(BYTES).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let to = reach(to, bytes)?.cast::<[u8; BYTES]>();
    for i in 0..count {
        // SAFETY: one of the `count` elements that `reach` has found writable; byte arrays have no alignment.
        unsafe { to.add(i).write(value) };
    }
    Ok(())
}

/// Fills `height` rows of `width` elements, `pitch` bytes apart.
pub fn set_rows<const BYTES: usize>(
    to: u64,
    pitch: usize,
    value: [u8; BYTES],
    width: usize,
    height: usize,
) -> Result {
    for row in 0..height {
        let offset = pitch.checked_mul(row).and_then(|offset| to.checked_add(offset as u64));
        set(offset.ok_or(CUDA_ERROR_INVALID_VALUE)?, value, width)?;
    }
    Ok(())
}
