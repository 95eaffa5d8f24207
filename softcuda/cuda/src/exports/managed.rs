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

/// The ranges of a batch; with locations, each for the ranges from an index on.
///
/// # Safety
/// The arrays are null or have as many elements as are said.
unsafe fn ranges(
    addresses: *const u64,
    sizes: *const usize,
    count: usize,
    locations: Option<(*const Location, *const usize, usize)>,
) -> Result<Vec<(u64, usize, Option<Site>)>> {
    if addresses.is_null() || sizes.is_null() || count == 0 || count > 1 << 24 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut sites = vec![None; count];
    if let Some((locations, firsts, kinds)) = locations {
        if locations.is_null() || firsts.is_null() || kinds == 0 || kinds > count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the caller vouches for the counts.
        let (locations, firsts) = unsafe {
            (std::slice::from_raw_parts(locations, kinds), std::slice::from_raw_parts(firsts, kinds))
        };
        if firsts[0] != 0 || firsts.windows(2).any(|w| w[0] >= w[1]) || firsts[kinds - 1] >= count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (location, first) in locations.iter().zip(firsts) {
            sites[*first..].fill(Some(location.site()?));
        }
    }
    // SAFETY: not null, and the caller vouches for the count.
    let (addresses, sizes) =
        unsafe { (std::slice::from_raw_parts(addresses, count), std::slice::from_raw_parts(sizes, count)) };
    Ok(addresses
        .iter()
        .zip(sizes)
        .zip(sites)
        .map(|((address, size), site)| (*address, *size, site))
        .collect())
}

/// The stream of a batch, which may not be the legacy one, and flags, of which there are none.
fn batch_stream(stream: usize, flags: u64) -> Result<usize> {
    if flags != 0 || stream == crate::stream::LEGACY { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(stream) }
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
    cuMemPrefetchBatchAsync(
        addresses: *mut u64, sizes: *mut usize, count: usize, locations: *mut Location, firsts: *mut usize, kinds: usize,
        flags: u64, stream: CUstream
    ) [cuMemPrefetchBatchAsync_ptsz, default] {
        let stream = batch_stream(on(stream, default), flags)?;
        managed::prefetch_all(ranges(addresses, sizes, count, Some((locations, firsts, kinds)))?, stream)
    }
    cuMemDiscardBatchAsync(
        addresses: *mut u64, sizes: *mut usize, count: usize, flags: u64, stream: CUstream
    ) [cuMemDiscardBatchAsync_ptsz, default] {
        let stream = batch_stream(on(stream, default), flags)?;
        managed::prefetch_all(ranges(addresses, sizes, count, None)?, stream)
    }
    cuMemDiscardAndPrefetchBatchAsync(
        addresses: *mut u64, sizes: *mut usize, count: usize, locations: *mut Location, firsts: *mut usize, kinds: usize,
        flags: u64, stream: CUstream
    ) [cuMemDiscardAndPrefetchBatchAsync_ptsz, default] {
        let stream = batch_stream(on(stream, default), flags)?;
        managed::prefetch_all(ranges(addresses, sizes, count, Some((locations, firsts, kinds)))?, stream)
    }
}
