//! Virtual memory management.

use super::memories::Location;
use super::{handle, out};
use crate::error::*;
use crate::virtual_memory::{self as vmm, Wanted};
use crate::{driver, log};
use softcuda_engine::Access;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, IntoRawFd};

/// `CUmemAllocationProp`, with numbers that may be none of the enumerations.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    windows: *mut c_void,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`, likewise.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Description {
    location: Location,
    flags: u32,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, the only kind there is.
const PINNED: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const FILE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;

impl Properties {
    /// What they ask for.
    fn wanted(&self) -> Result<Wanted> {
        match (self.kind, self.location.kind) {
            (PINNED, ON_DEVICE) => {}
            // Memory of the host, of a NUMA node; managed memory.
            (1 | 2, 1..=4) => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        driver::device(self.location.id)?;
        match self.handles {
            0 | FILE => {}
            // Windows' handles and those of a fabric.
            2..=15 => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        // Compression is a wish that need not be granted. The attributes say that there is no GPUDirect RDMA, and no memory
        // for tiles.
        if self.rdma != 0 || self.usage != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(Wanted { device: self.location.id, exportable: self.handles == FILE })
    }
}

fn access_of(flags: u32) -> Result<Option<Access>> {
    match flags {
        0 => Ok(None),
        1 => Ok(Some(Access::Read)),
        3 => Ok(Some(Access::ReadWrite)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `CUmemAccess_flags`
pub(super) fn number_of(access: Option<Access>) -> u64 {
    match access {
        None => 0,
        Some(Access::Read) => 1,
        Some(Access::ReadWrite) => 3,
    }
}

impl Description {
    /// The device that it is for, and what it may do.
    pub(super) fn on_device(&self) -> Result<(i32, Option<Access>)> {
        match self.location.kind {
            ON_DEVICE => Ok((self.location.id, access_of(self.flags)?)),
            // The host reaches all memory as it is.
            2..=4 => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

exports! { ($) virtual_memories_names, initialised;
    cuMemAddressReserve(address: *mut u64, size: usize, alignment: usize, hint: u64, flags: u64) {
        let address = out(address)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        address.set(vmm::reserve(size as u64, alignment as u64, hint)?)
    }
    cuMemAddressFree(address: u64, size: usize) { vmm::free(address, size as u64) }
    cuMemCreate(memory: *mut u64, size: usize, properties: *const Properties, flags: u64) {
        let memory = out(memory)?;
        let properties = properties.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory.set(vmm::create(size as u64, properties.wanted()?)? as u64)
    }
    cuMemRelease(memory: u64) { vmm::release(memory as usize) }
    cuMemMap(address: u64, size: usize, offset: usize, memory: u64, flags: u64) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        vmm::map(address, size as u64, offset as u64, memory as usize)
    }
    cuMemUnmap(address: u64, size: usize) { vmm::unmap(address, size as u64) }
    cuMemSetAccess(address: u64, size: usize, descriptions: *const Description, count: usize) {
        if descriptions.is_null() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut wanted = Vec::new();
        for description in std::slice::from_raw_parts(descriptions, count) {
            wanted.push(description.on_device()?);
        }
        wanted.iter().try_for_each(|(device, _)| driver::device(*device).map(drop))?;
        wanted.into_iter().try_for_each(|(device, access)| vmm::set_access(address, size as u64, device, access))
    }
    cuMemGetAccess(flags: *mut u64, location: *const Location, address: u64) {
        let flags = out(flags)?;
        let location = location.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if location.kind != ON_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        flags.set(number_of(vmm::access(address, location.id)?))
    }
    cuMemRetainAllocationHandle(memory: *mut u64, address: *mut c_void) {
        out(memory)?.set(vmm::retain(address.addr() as u64)? as u64)
    }
    cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const Properties, option: u32) {
        let granularity = out(granularity)?;
        properties.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?.wanted()?;
        if option > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        granularity.set(vmm::GRANULARITY as usize)
    }
    cuMemGetAllocationPropertiesFromHandle(properties: *mut Properties, memory: u64) {
        let properties = out(properties)?;
        let backing = vmm::find(memory as usize)?;
        properties.set(Properties {
            kind: PINNED,
            handles: if backing.exportable { FILE } else { 0 },
            location: Location { kind: ON_DEVICE, id: backing.device },
            windows: handle(0),
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        })
    }
    cuMemExportToShareableHandle(file: *mut c_void, memory: u64, kind: u32, flags: u64) {
        let file = out(file.cast::<i32>())?;
        if kind != FILE || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        file.set(vmm::export(memory as usize)?.into_raw_fd())
    }
    cuMemImportFromShareableHandle(memory: *mut u64, file: *mut c_void, kind: u32) {
        let memory = out(memory)?;
        let file = i32::try_from(file.addr()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if kind != FILE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory.set(vmm::import(BorrowedFd::borrow_raw(file))? as u64)
    }
    cuMemGetHandleForAddressRange(handle: *mut c_void, address: u64, _size: usize, kind: u32, _flags: u64) {
        if handle.is_null() || kind != 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver::TABLES.allocations.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // The attribute says so as well.
        log::line(|| "cuMemGetHandleForAddressRange: there are no dma-bufs of this memory".to_owned());
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUmemAccessDesc, CUmemAllocationProp};
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Properties>(), size_of::<CUmemAllocationProp>());
        assert_eq!(offset_of!(Properties, compression), offset_of!(CUmemAllocationProp, allocFlags));
        assert_eq!(size_of::<Description>(), size_of::<CUmemAccessDesc>());
        assert_eq!(offset_of!(Description, flags), offset_of!(CUmemAccessDesc, flags));
    }
}
