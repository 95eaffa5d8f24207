//! Occupancy: how many blocks of a function one multiprocessor holds.
#![forbid(unsafe_code)]

use crate::attributes::REGISTERS;
use crate::capability::Capability;
use crate::context::Context;
use crate::error::*;
use crate::function::{self, Function};
use crate::launch::clusters;
use softcuda_engine as engine;

/// Blocks of `threads` threads that one multiprocessor of a device holds; 0 if not even one fits.
pub fn blocks_per_multiprocessor(
    device: &Capability,
    kernel: &engine::Kernel,
    threads: u32,
    dynamic: u32,
) -> u32 {
    if threads == 0 || threads > function::max_threads(kernel) {
        return 0;
    }
    let shared = kernel.static_shared.saturating_add(dynamic);
    if shared > device.shared_of_block {
        return 0;
    }
    let warps = threads.div_ceil(32);
    let registers = kernel.num_regs.max(1).next_multiple_of(8) * warps * 32;
    let by_threads = device.threads / (warps * 32);
    let by_registers = REGISTERS / registers.max(1);
    let by_shared = device.shared / (shared + device.shared_reserved).max(1);
    by_threads.min(by_registers).min(by_shared).min(device.blocks)
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a block size that is none.
pub fn active_blocks(function: &Function, threads: i32, dynamic: usize) -> Result<i32> {
    let threads = u32::try_from(threads).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
    Ok(blocks_per_multiprocessor(&function.device.capability, &function.kernel, threads, dynamic) as i32)
}

/// `cuOccupancyMaxPotentialBlockSize`: the grid that fills the device, and the block size that holds most threads.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if no block fits.
pub fn best_block(
    context: &Context,
    function: &Function,
    dynamic: impl Fn(i32) -> usize,
    limit: i32,
) -> Result<(i32, i32)> {
    let most = function::max_threads(&function.kernel) as i32;
    let most = if limit > 0 { most.min(limit) } else { most };
    let mut best = (0, 0, 0);
    let sizes = std::iter::once(most).chain((32..most).rev().filter(|n| n % 32 == 0));
    for threads in sizes {
        let blocks = active_blocks(function, threads, dynamic(threads))?;
        if blocks * threads > best.0 {
            best = (blocks * threads, blocks, threads);
        }
    }
    let (_, blocks, threads) = best;
    if threads == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok((blocks * context.device.multiprocessors as i32, threads))
}

/// `cuOccupancyAvailableDynamicSMemPerBlock`: what a block may use so that `blocks` of them fit.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for numbers that are none or do not fit whatever they use.
pub fn available_shared(function: &Function, blocks: i32, threads: i32) -> Result<usize> {
    let blocks = u32::try_from(blocks).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if active_blocks(function, threads, 0)? < blocks as i32 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = &function.device.capability;
    let each = (device.shared / blocks).saturating_sub(device.shared_reserved).min(device.shared_of_block);
    Ok(each.saturating_sub(function.kernel.static_shared) as usize)
}

/// `cuOccupancyMaxPotentialClusterSize`: the largest cluster that blocks of a shape can form.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for a device without clusters, `CUDA_ERROR_INVALID_VALUE` for a block that does not fit.
pub fn largest_cluster(function: &Function, threads: u32, dynamic: u32) -> Result<i32> {
    clusters_of(function, threads, dynamic, clusters::PORTABLE).map(|_| clusters::PORTABLE as i32)
}

/// `cuOccupancyMaxActiveClusters`: how many clusters the device holds at once.
///
/// # Errors
/// As [`largest_cluster`]; `CUDA_ERROR_INVALID_CLUSTER_SIZE` for a cluster that is too large, or none.
pub fn active_clusters(function: &Function, threads: u32, dynamic: u32, given: [u32; 3]) -> Result<i32> {
    let own = function.kernel.required_cluster.filter(|size| *size != [0; 3]);
    let size = if given == [0; 3] { own.ok_or(CUDA_ERROR_INVALID_CLUSTER_SIZE)? } else { given };
    let blocks = size.iter().map(|n| u64::from(*n)).product::<u64>();
    if !(1..=clusters::PORTABLE).contains(&blocks) || own.is_some_and(|own| own != size) {
        return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    clusters_of(function, threads, dynamic, blocks)
}

/// Clusters of so many blocks that the device holds. One it always does.
fn clusters_of(function: &Function, threads: u32, dynamic: u32, blocks: u64) -> Result<i32> {
    let device = &function.device;
    if device.attribute(clusters::CLUSTER_LAUNCH)? == 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let each = blocks_per_multiprocessor(&device.capability, &function.kernel, threads, dynamic);
    if each == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok((u64::from(each * device.multiprocessors) / blocks).max(1) as i32)
}
