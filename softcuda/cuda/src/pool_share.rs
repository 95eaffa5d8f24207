//! Pools of several processes: a pool goes to another process as a file descriptor, and each of its allocations as a handle
//! that the program passes on as it likes.
#![forbid(unsafe_code)]

use crate::allocations::What;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::ipc::{self, Handle};
use crate::{current, graveyard, pool};
use softcuda_engine::{Reservation, token, token_label};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// A pool of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    process: u32,
    pool: u64,
}

/// What was imported, by its address here.
static IMPORTED: Mutex<Option<HashMap<u64, Reservation>>> = Mutex::new(None);

/// What the files of a pool are marked with.
fn label(device: &Device, source: Source) -> String {
    let uuid: String = device.identity.uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("pool:{uuid}:{}:{}", source.process, source.pool)
}

/// Reads a [`label`]: the device and the pool there.
fn read_label(label: &str) -> Option<(i32, Source)> {
    let mut words = label.strip_prefix("pool:")?.split(':').skip(1);
    let source = Source { process: words.next()?.parse().ok()?, pool: words.next()?.parse().ok()? };
    let device = driver::devices().iter().find(|d| self::label(d, source) == label)?;
    Some((device.ordinal, source))
}

/// `cuMemPoolExportToShareableHandle`: a file descriptor of the program's own.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a pool that was not made for it, `CUDA_ERROR_OPERATING_SYSTEM` without descriptors.
pub fn export(handle: usize) -> Result<OwnedFd> {
    let device = driver::device(pool::exportable(handle)?)?;
    let source = Source { process: std::process::id(), pool: handle as u64 };
    token(&label(device, source)).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}

/// `cuMemPoolImportFromShareableHandle`: a pool that gives no new memory. The descriptor stays the program's.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a file that is no pool, or of a device that is not here.
pub fn import(file: impl AsFd) -> Result<usize> {
    let file = file.as_fd().try_clone_to_owned().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let label = token_label(file).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let (device, source) = read_label(&label).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(pool::imported(device, source))
}

/// `cuMemPoolExportPointer`: a handle of an allocation of a pool that can be exported.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for any other address, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn export_pointer(address: u64) -> Result<Handle> {
    current::healthy()?;
    let allocation = TABLES.allocations.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let What::Pooled(pool) = allocation.what else { return Err(CUDA_ERROR_INVALID_VALUE) };
    pool::exportable(pool)?;
    ipc::share(&allocation, pool as u64)
}

/// `cuMemPoolImportPointer`: the address here of an allocation of the pool that was imported. It is freed as other memory
/// of pools is.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a pool that was not imported and a handle of nothing or of another pool's memory,
/// `CUDA_ERROR_MAP_FAILED`.
pub fn import_pointer(pool: usize, handle: &Handle) -> Result<u64> {
    let context = current::healthy()?;
    let (device, source) = pool::source(pool)?;
    if source != (Source { process: handle.process(), pool: handle.pool }) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (range, address) = ipc::attach(handle).map_err(|e| match e {
        CUDA_ERROR_INVALID_HANDLE => CUDA_ERROR_INVALID_VALUE,
        other => other,
    })?;
    let device = driver::device(device)?;
    pool::adopt(pool, device, address, handle.size())?;
    TABLES.allocations.add(address, handle.size(), What::Pooled(pool), context.handle, device);
    IMPORTED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(address, range);
    Ok(address)
}

/// Gives up imported memory that the program has freed. Whether it was imported at all.
pub fn give_up(device: &Device, address: u64) -> bool {
    let mut imported = IMPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(range) = imported.as_mut().and_then(|all| all.remove(&address)) else { return false };
    drop(imported);
    device.memory.close_window(address);
    graveyard::bury(Box::new(range));
    true
}
