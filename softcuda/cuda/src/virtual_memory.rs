//! Virtual memory management: ranges of addresses, memory without addresses, and the one mapped into the other.
#![forbid(unsafe_code)]

use crate::allocations::What;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::{config, graveyard};
use softcuda_engine::{Access, Physical, Reservation};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What memory comes and is mapped in multiples of, least and recommended: as on cards.
pub const GRANULARITY: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// What `cuMemCreate` made.
pub struct Backing {
    handle: usize,
    memory: Arc<Physical>,
    /// Its device.
    pub device: i32,
    /// Whether it was made to be exported as a file descriptor.
    pub exportable: bool,
    /// How often the program has the handle; changed under the lock of [`VIRTUAL`].
    references: AtomicUsize,
}

/// A part of a range that has memory.
struct Mapping {
    size: u64,
    backing: Arc<Backing>,
    /// By ordinal; devices that are not here have no access.
    access: BTreeMap<i32, Access>,
}

/// A range from `cuMemAddressReserve`.
struct Range {
    reservation: Reservation,
    mappings: BTreeMap<u64, Mapping>,
}

impl Range {
    /// The first addresses of the mappings that make up a part exactly, without gaps.
    fn tiles(&self, address: u64, size: u64) -> Result<Vec<u64>> {
        let end = address.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut at = address;
        let mut found = Vec::new();
        while at < end {
            let mapping = self.mappings.get(&at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            found.push(at);
            at += mapping.size;
        }
        if at == end && !found.is_empty() { Ok(found) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}

/// All ranges, by first address.
static VIRTUAL: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());

type Ranges = BTreeMap<u64, Range>;

fn lock() -> MutexGuard<'static, Ranges> {
    VIRTUAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The range that holds all of a part.
fn range_of(ranges: &mut Ranges, address: u64, size: u64) -> Result<&mut Range> {
    let (base, range) = ranges.range_mut(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let inside =
        address - base < range.reservation.size() && size <= range.reservation.size() - (address - base);
    if inside { Ok(range) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// The range that an address is in: first address and bytes.
pub fn range(address: u64) -> Option<(u64, u64)> {
    let mut ranges = lock();
    range_of(&mut ranges, address, 1).ok().map(|r| (r.reservation.address(), r.reservation.size()))
}

/// What a program asks for: where, how, and whether to be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The device's ordinal.
    pub device: i32,
    /// To be exported as a file descriptor.
    pub exportable: bool,
}

/// `cuMemAddressReserve`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for sizes and hints that are no multiples of the page size and alignments that are no powers
/// of two, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn reserve(size: u64, alignment: u64, hint: u64) -> Result<u64> {
    let aligned = alignment == 0 || alignment.is_power_of_two();
    if size == 0 || !size.is_multiple_of(PAGE) || !hint.is_multiple_of(PAGE) || !aligned {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    graveyard::sweep();
    let alignment = if alignment == 0 { GRANULARITY } else { alignment.max(PAGE) };
    let hint = Some(hint).filter(|hint| *hint != 0 && !config::get().refuse_hints);
    let reservation = Reservation::new(size, alignment, hint).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let address = reservation.address();
    lock().insert(address, Range { reservation, mappings: BTreeMap::new() });
    Ok(address)
}

/// `cuMemAddressFree`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless it is a whole range with nothing mapped.
pub fn free(address: u64, size: u64) -> Result {
    let mut ranges = lock();
    let whole = |r: &Range| r.reservation.size() == size && r.mappings.is_empty();
    if !ranges.get(&address).is_some_and(whole) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(range) = ranges.remove(&address) {
        drop(ranges);
        graveyard::bury(Box::new(range.reservation));
    }
    Ok(())
}

/// `cuMemCreate`: the handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a size that is no multiple of the granularity, `CUDA_ERROR_INVALID_DEVICE`,
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn create(size: u64, wanted: Wanted) -> Result<usize> {
    let device = driver::device(wanted.device)?;
    if size == 0 || !size.is_multiple_of(GRANULARITY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let label = label_of(device);
    let memory =
        device.memory.create(size, &label, wanted.exportable).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(add(memory, wanted.device, wanted.exportable))
}

fn add(memory: Arc<Physical>, device: i32, exportable: bool) -> usize {
    let handle = TABLES.backings.reserve();
    let references = AtomicUsize::new(1);
    TABLES.backings.add(handle, Arc::new(Backing { handle, memory, device, exportable, references }));
    handle
}

/// What the file of a device's memory is marked with: which device, in every process.
fn label_of(device: &Device) -> String {
    let uuid: String = device.identity.uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("memory:{uuid}")
}

/// The backing of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn find(handle: usize) -> Result<Arc<Backing>> {
    TABLES.backings.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuMemRelease`: the memory itself goes when it is mapped nowhere either.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn release(handle: usize) -> Result {
    let _ranges = lock();
    let backing = find(handle)?;
    if backing.references.fetch_sub(1, Ordering::Relaxed) == 1 {
        TABLES.backings.remove(handle);
    }
    Ok(())
}

/// `cuMemRetainAllocationHandle`: the handle of what is mapped at an address.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if nothing is.
pub fn retain(address: u64) -> Result<usize> {
    let mut ranges = lock();
    let range = range_of(&mut ranges, address, 1)?;
    let (base, mapping) = range.mappings.range(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if address - base >= mapping.size {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if mapping.backing.references.fetch_add(1, Ordering::Relaxed) == 0 {
        TABLES.backings.add(mapping.backing.handle, mapping.backing.clone());
    }
    Ok(mapping.backing.handle)
}

/// `cuMemMap`: nobody may touch it before [`set_access`].
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for what is no multiple of the granularity, outside of a range or of the memory, or where
/// something is mapped already.
pub fn map(address: u64, size: u64, offset: u64, handle: usize) -> Result {
    let backing = find(handle)?;
    let fine = [address, size, offset].iter().all(|n| n.is_multiple_of(GRANULARITY));
    if size == 0 || !fine {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut ranges = lock();
    let range = range_of(&mut ranges, address, size)?;
    let before = range.mappings.range(..address + size).next_back();
    if before.is_some_and(|(base, mapping)| base + mapping.size > address) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if offset.checked_add(size).is_none_or(|end| end > backing.memory.size()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(place) = backing.memory.only_place() {
        let shared = range_of(&mut ranges, place, 1)?.reservation.share(&backing.memory);
        shared.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    }
    let range = range_of(&mut ranges, address, size)?;
    let mapped = range.reservation.map(address, &backing.memory, offset, size);
    mapped.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let device = driver::device(backing.device)?;
    TABLES.allocations.add(address, size, What::Mapped, 0, device);
    range.mappings.insert(address, Mapping { size, backing, access: BTreeMap::new() });
    Ok(())
}

/// `cuMemUnmap`: waits for the work that may use it, as `cuMemFree` does.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless the part is made up of whole mappings.
pub fn unmap(address: u64, size: u64) -> Result {
    range_of(&mut lock(), address, size)?.tiles(address, size)?;
    driver::wait_for_all();
    let mut ranges = lock();
    let range = range_of(&mut ranges, address, size)?;
    for at in range.tiles(address, size)? {
        let Some(mapping) = range.mappings.get_mut(&at) else { continue };
        for ordinal in std::mem::take(&mut mapping.access).into_keys() {
            driver::device(ordinal)?.memory.close_window(at);
        }
        // Without a handle, and mapped nowhere else, nobody can ask for its bytes any more.
        let unmapped = if Arc::strong_count(&mapping.backing) == 1 {
            range.reservation.unmap(at, mapping.size)
        } else {
            range.reservation.unmap_kept(at, mapping.size, &mapping.backing.memory)
        };
        unmapped.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        TABLES.allocations.take(at, |a| a.what == What::Mapped);
        range.mappings.remove(&at);
    }
    Ok(())
}

/// `cuMemSetAccess` for one device; `None` takes its access away.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless the part is made up of whole mappings, `CUDA_ERROR_INVALID_DEVICE`.
pub fn set_access(address: u64, size: u64, ordinal: i32, access: Option<Access>) -> Result {
    let device = driver::device(ordinal)?;
    let mut ranges = lock();
    let range = range_of(&mut ranges, address, size)?;
    for at in range.tiles(address, size)? {
        let Some(mapping) = range.mappings.get_mut(&at) else { continue };
        if mapping.access.get(&ordinal).copied() == access {
            continue;
        }
        if mapping.access.remove(&ordinal).is_some() {
            device.memory.close_window(at);
        }
        if let Some(access) = access {
            if !device.memory.open_window(at, mapping.size, access) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            mapping.access.insert(ordinal, access);
        }
    }
    Ok(())
}

/// `cuMemGetAccess`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where nothing is mapped, `CUDA_ERROR_INVALID_DEVICE`.
pub fn access(address: u64, ordinal: i32) -> Result<Option<Access>> {
    driver::device(ordinal)?;
    let mut ranges = lock();
    let range = range_of(&mut ranges, address, 1)?;
    let (base, mapping) = range.mappings.range(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if address - base >= mapping.size {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(mapping.access.get(&ordinal).copied())
}

/// `cuMemExportToShareableHandle`: a file descriptor of the program's own.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for memory that was not made for it, `CUDA_ERROR_OPERATING_SYSTEM` without descriptors.
pub fn export(handle: usize) -> Result<OwnedFd> {
    let backing = find(handle)?;
    if !backing.exportable {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    backing.memory.file().map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}

/// `cuMemImportFromShareableHandle`: the handle of what another process exported. The descriptor stays the program's.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a file that is no device's memory, or of a device that is not here.
pub fn import(file: impl AsFd) -> Result<usize> {
    let file = file.as_fd().try_clone_to_owned().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let (memory, label) = Physical::open(file).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let device = driver::devices().iter().find(|d| label_of(d) == label).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(add(memory, device.ordinal, true))
}
