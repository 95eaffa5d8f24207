//! Managed memory.

use super::memories::Location;
use super::{on, out};
use crate::error::*;
use crate::managed::{self, Advice, Site};
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;

impl Location {
    fn site(&self) -> Result<Site> {
        Site::of_location(self.kind, self.id)
    }
}

/// # Safety
/// `data` is null or has room for `bytes` bytes.
unsafe fn range_attribute(data: *mut c_void, bytes: usize, id: u32, address: u64, length: usize) -> Result {
    if data.is_null() || !bytes.is_multiple_of(4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (i, number) in managed::attribute(id, bytes / 4, address, length)?.into_iter().enumerate() {
        // SAFETY: as many numbers as there is room for.
        unsafe { data.cast::<i32>().add(i).write_unaligned(number) };
    }
    Ok(())
}

exports! { ($) managed_names, initialised;
    cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) {
        out(address)?.set(managed::alloc(bytes, flags)?)
    }
    cuStreamAttachMemAsync(stream: CUstream, address: u64, bytes: usize, flags: u32) [cuStreamAttachMemAsync_ptsz, default] {
        managed::attach(address, bytes, flags, on(stream, default))
    }
    cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32) {
        managed::advise(address, bytes, Advice::new(advice, || Site::of_ordinal(device))?)
    }
    cuMemAdvise_v2(address: u64, bytes: usize, advice: u32, location: Location) {
        managed::advise(address, bytes, Advice::new(advice, || location.site())?)
    }
    cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: CUstream) [cuMemPrefetchAsync_ptsz, default] {
        managed::prefetch(address, bytes, Site::of_ordinal(device)?, on(stream, default))
    }
    cuMemPrefetchAsync_v2(
        address: u64, bytes: usize, location: Location, flags: u32, stream: CUstream
    ) [cuMemPrefetchAsync_v2_ptsz, default] {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        managed::prefetch(address, bytes, location.site()?, on(stream, default))
    }
    cuMemRangeGetAttribute(data: *mut c_void, bytes: usize, attribute: u32, address: u64, length: usize) {
        range_attribute(data, bytes, attribute, address, length)
    }
    cuMemRangeGetAttributes(
        data: *mut *mut c_void, sizes: *mut usize, attributes: *mut u32, count: usize, address: u64, length: usize
    ) {
        if data.is_null() || sizes.is_null() || attributes.is_null() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        (0..count).try_for_each(|i| {
            range_attribute(*data.add(i), *sizes.add(i), *attributes.add(i), address, length)
        })
    }
}
