//! The block size with which a kernel fills the device best.

use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpupool_protocol::api::kinds;

use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::{host, send};

/// CUoccupancyB2DSize.
type DynamicShared = Option<unsafe extern "C" fn(i32) -> usize>;

pub fn cuOccupancyMaxPotentialBlockSize(
    cx: Cx,
    min_grid: Ptr<i32>,
    block_size: Ptr<i32>,
    function: Raw<kinds::Function>,
    dynamic_shared_of: DynamicShared,
    dynamic_shared: usize,
    limit: i32,
) -> Answer {
    best(cx, min_grid, block_size, function, dynamic_shared_of, dynamic_shared, limit, 0)
}

pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    cx: Cx,
    min_grid: Ptr<i32>,
    block_size: Ptr<i32>,
    function: Raw<kinds::Function>,
    dynamic_shared_of: DynamicShared,
    dynamic_shared: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    best(cx, min_grid, block_size, function, dynamic_shared_of, dynamic_shared, limit, flags)
}

/// Tries every multiple of the warp size from the largest down, and takes the one with the most threads on a
/// multiprocessor; of equals the largest.
fn best(
    cx: Cx,
    min_grid: Ptr<i32>,
    block_size: Ptr<i32>,
    function: Raw<kinds::Function>,
    dynamic_shared_of: DynamicShared,
    dynamic_shared: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    let (min_grid, block_size) = (min_grid.not_null()?, block_size.not_null()?);
    let context = cx.current()?;
    let object = cx.session.functions.get(function.0).ok_or(INVALID_HANDLE)?;
    let kernel = object.kernel.get().ok_or(INVALID_HANDLE)?;
    if flags & !1 != 0 || limit < 0 {
        return Err(INVALID_VALUE);
    }
    let device = cx.session.device(context.device.load(Relaxed))?;
    let of_device = |attribute: Attribute| device.attribute(attribute as i32).unwrap_or(0);
    let warp = of_device(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1);
    let multiprocessors = of_device(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let most = kernel.attribute(0).unwrap_or(i32::MAX).min(device.limits.threads as i32);
    let most = if limit == 0 { most } else { most.min(limit) };
    let (mut chosen, mut blocks_of_chosen) = (0, 0);
    let mut size = (most + warp - 1) / warp * warp;
    while size > 0 {
        let tried = size.min(most);
        let shared = dynamic_shared_of.map_or(dynamic_shared, |of| host::dynamic_shared(of, tried));
        let mut blocks = 0;
        send::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            cx,
            &mut blocks,
            function.0,
            tried,
            shared,
            flags,
        )?;
        if i64::from(blocks) * i64::from(tried) > i64::from(blocks_of_chosen) * i64::from(chosen) {
            (chosen, blocks_of_chosen) = (tried, blocks);
        }
        size -= warp;
    }
    min_grid.set(blocks_of_chosen * multiprocessors)?;
    block_size.set(chosen)
}
