//! Clusters of blocks: which ones a launch may have.
#![forbid(unsafe_code)]

use super::Shape;
use crate::device::Device;
use crate::error::*;
use softcuda_engine as engine;

/// Blocks of a cluster that every device with clusters can hold.
pub const PORTABLE: u64 = 8;
/// `CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH`.
pub const CLUSTER_LAUNCH: u32 = 120;

/// Whether a grid falls into the clusters that the launch (zeros: it does not say) and the kernel ask for.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` below compute capability 9.0, `CUDA_ERROR_INVALID_CLUSTER_SIZE` for a cluster that is too large,
/// does not divide the grid, is not the kernel's own, or is missing where the kernel leaves it to the launch.
pub fn check(device: &Device, kernel: &engine::Kernel, shape: &Shape, given: [u32; 3]) -> Result {
    let own = kernel.required_cluster.filter(|c| *c != [0; 3]);
    let given = (given != [0; 3]).then_some(given);
    let Some(size) = given.or(own) else {
        return if kernel.required_cluster.is_some() { Err(CUDA_ERROR_INVALID_CLUSTER_SIZE) } else { Ok(()) };
    };
    let blocks = size.iter().map(|n| u64::from(*n)).product::<u64>();
    if blocks > 1 && device.attribute(CLUSTER_LAUNCH)? == 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let divides = shape.grid.iter().zip(size).all(|(g, c)| c > 0 && g.is_multiple_of(c));
    if (1..=PORTABLE).contains(&blocks) && divides && own.is_none_or(|own| own == size) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_CLUSTER_SIZE)
    }
}
