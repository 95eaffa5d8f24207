//! Memory of another process: `cuIpcGetMemHandle` and the calls around it.
//!
//! An exported allocation becomes a file in memory, which the handle names by process and descriptor; who opens it maps the
//! file. The label of the file says which device's memory it is.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::context::Context;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::{current, graveyard};
use softcuda_engine::{Access, Physical, Reservation};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// `CUipcMemHandle`: what a program passes on, as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Handle {
    mark: u64,
    process: u32,
    file: i32,
    offset: u64,
    size: u64,
    device: [u8; 16],
    /// Tells two exports of one descriptor number apart.
    allocation: u64,
    /// The pool that the memory is of, in the process that exported it; 0: it is of `cuMemAlloc`.
    pub(crate) pool: u64,
}

/// "softcipc"
const MARK: u64 = u64::from_le_bytes(*b"softcipc");

impl Handle {
    /// The process that exported it.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Bytes of the allocation.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

/// The files of what was exported, by allocation: they stay open as long as the allocation can be freed by the program.
static EXPORTED: Mutex<Option<HashMap<u64, (Handle, OwnedFd)>>> = Mutex::new(None);

/// What was opened, by the address that the program got.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    handle: Handle,
    context: usize,
    address: u64,
    references: usize,
    range: Reservation,
}

/// What the files of a device's memory are marked with.
fn label(device: &Device) -> String {
    let uuid: String = device.identity.uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("shared:{uuid}")
}

/// `cuIpcGetMemHandle`: a handle of the allocation that an address is in.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for anything but memory of `cuMemAlloc`, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn export(address: u64) -> Result<Handle> {
    current::healthy()?;
    let found = TABLES.allocations.find(address).filter(|a| a.what == What::Device);
    share(&found.ok_or(CUDA_ERROR_INVALID_VALUE)?, 0)
}

/// A handle of an allocation, which is of a pool unless that is 0. The first time the bytes move, while kernels and copies pause
/// for a moment ([`softcuda_engine::Memory::share`]); nothing is waited for.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if it was freed meanwhile.
pub(crate) fn share(allocation: &Allocation, pool: u64) -> Result<Handle> {
    let known =
        |table: &Option<HashMap<u64, (Handle, OwnedFd)>>| Some(table.as_ref()?.get(&allocation.id)?.0);
    if let Some(handle) = known(&EXPORTED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(handle);
    }
    let device = &allocation.device;
    let shared =
        device.memory.share(allocation.base, &label(device)).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = known(&exported) {
        return Ok(handle);
    }
    // What was freed meanwhile has left the table before it is forgotten, which waits for the lock.
    TABLES
        .allocations
        .find(allocation.base)
        .filter(|a| a.id == allocation.id)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let handle = Handle {
        mark: MARK,
        process: std::process::id(),
        file: shared.file.as_raw_fd(),
        offset: shared.offset,
        size: allocation.size,
        device: device.identity.uuid,
        allocation: allocation.id,
        pool,
    };
    exported.get_or_insert_default().insert(allocation.id, (handle, shared.file));
    Ok(handle)
}

/// An allocation is freed: its handle leads nowhere from now on.
pub fn forget(allocation: u64) {
    if let Some(exported) = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        exported.remove(&allocation);
    }
}

/// `cuIpcOpenMemHandle`: the address of the allocation here. `flags` is `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` in the process that exported it, `CUDA_ERROR_INVALID_VALUE` for other flags,
/// `CUDA_ERROR_INVALID_HANDLE` for a handle of nothing, `CUDA_ERROR_MAP_FAILED`.
pub fn open(handle: &Handle, flags: u32) -> Result<u64> {
    let context = current::healthy()?;
    if flags != 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if handle.mark != MARK || handle.pool != 0 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if handle.process == std::process::id() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |o: &&mut Opened| o.handle == *handle && o.context == context.handle;
    if let Some(known) = opened.iter_mut().find(same) {
        known.references += 1;
        return Ok(known.address);
    }
    let new = map(handle, &context)?;
    let address = new.address;
    opened.push(new);
    Ok(address)
}

/// Another process's memory at an address of this one, which no kernel may touch yet: the range, and where in it the
/// allocation begins.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for a handle of nothing, `CUDA_ERROR_MAP_FAILED`.
pub(crate) fn attach(handle: &Handle) -> Result<(Reservation, u64)> {
    let device = driver::devices().iter().find(|d| d.identity.uuid == handle.device);
    let device = device.filter(|_| handle.mark == MARK).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
    let file = File::options().read(true).write(true).open(path).map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
    let (memory, told) = Physical::open(file.into()).map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
    let end = handle.offset.checked_add(handle.size);
    if told != label(device) || handle.size == 0 || end.is_none_or(|end| end > memory.size()) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let range = Reservation::new(memory.size(), 1 << 16, None).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
    range.map(range.address(), &memory, 0, memory.size()).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
    let address = range.address() + handle.offset;
    Ok((range, address))
}

fn map(handle: &Handle, context: &Context) -> Result<Opened> {
    let (range, address) = attach(handle)?;
    // Open to the current context's device, as the flag says.
    if !context.device.memory.open_window(address, handle.size, Access::ReadWrite) {
        return Err(CUDA_ERROR_MAP_FAILED);
    }
    TABLES.allocations.add(address, handle.size, What::Imported, context.handle, &context.device);
    Ok(Opened { handle: *handle, context: context.handle, address, references: 1, range })
}

/// `cuIpcCloseMemHandle`: waits for the context's work when it is the last time.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an address that [`open`] did not give.
pub fn close(address: u64) -> Result {
    let context = current::healthy()?;
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = opened.iter().position(|o| o.address == address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if opened[at].references > 1 {
        opened[at].references -= 1;
        return Ok(());
    }
    context.synchronize()?;
    let gone = opened.swap_remove(at);
    drop(opened);
    unmap(gone);
    Ok(())
}

fn unmap(gone: Opened) {
    if let Some(allocation) = TABLES.allocations.take(gone.address, |a| a.what == What::Imported) {
        allocation.device.memory.close_window(gone.address);
    }
    graveyard::bury(Box::new(gone.range));
}

/// Closes what a context opened, which has ended.
pub fn close_all_of(context: usize) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let (gone, stay): (Vec<_>, Vec<_>) = opened.drain(..).partition(|o| o.context == context);
    *opened = stay;
    drop(opened);
    gone.into_iter().for_each(unmap);
}
