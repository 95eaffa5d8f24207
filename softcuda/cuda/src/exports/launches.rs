//! Launches.

use super::on;
use crate::error::*;
use crate::launch::{self, Attributes, Refusal, Request, Shape, legacy};
use cudarc::driver::sys::{CUfunction, CUstream};
use std::ffi::c_void;

/// `CUlaunchConfig`, whose attributes' numbers may be none of the enumeration.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: CUstream,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`: a number and 64 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Attribute {
    id: u32,
    padding: u32,
    value: [u64; 8],
}

/// More attributes than exist.
const ATTRIBUTES: u32 = 64;

exports! { ($) launches_names, launched;
    cuLaunchKernel(
        f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream,
        values: *mut *mut c_void, extra: *mut *mut c_void
    ) [cuLaunchKernel_ptsz, default] {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: false };
        launch::kernel(plain(f, shape), on(stream, default), values, extra)
    }
    cuLaunchCooperativeKernel(
        f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream,
        values: *mut *mut c_void
    ) [cuLaunchCooperativeKernel_ptsz, default] {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: true };
        launch::kernel(plain(f, shape), on(stream, default), values, std::ptr::null_mut())
    }
    cuLaunchKernelEx(
        config: *const Config, f: CUfunction, values: *mut *mut c_void, extra: *mut *mut c_void
    ) [cuLaunchKernelEx_ptsz, default] {
        let c = config.as_ref().ok_or(Refusal::Code(CUDA_ERROR_INVALID_VALUE))?;
        let attributes = c.attributes()?;
        let shape = Shape { grid: c.grid, block: c.block, shared: c.shared, cooperative: false };
        launch::kernel(Request { function: f.addr(), shape, attributes, stream: 0, priority: 0 }, on(c.stream, default), values, extra)
    }
    cuLaunch(f: CUfunction) { legacy::launch(f.addr(), 1, 1, crate::stream::LEGACY) }
    cuLaunchGrid(f: CUfunction, width: i32, height: i32) { legacy::launch(f.addr(), width, height, crate::stream::LEGACY) }
    cuLaunchGridAsync(f: CUfunction, width: i32, height: i32, stream: CUstream) {
        legacy::launch(f.addr(), width, height, on(stream, crate::stream::LEGACY))
    }
    cuFuncSetBlockShape(f: CUfunction, x: i32, y: i32, z: i32) { Ok(legacy::set_block(f.addr(), [x, y, z])?) }
    cuFuncSetSharedSize(f: CUfunction, bytes: u32) { Ok(legacy::set_shared(f.addr(), bytes)?) }
    cuParamSetSize(f: CUfunction, bytes: u32) { Ok(legacy::set_size(f.addr(), bytes as usize)?) }
    cuParamSeti(f: CUfunction, offset: i32, value: u32) { Ok(legacy::set_bytes(f.addr(), offset, &value.to_le_bytes())?) }
    cuParamSetf(f: CUfunction, offset: i32, value: f32) { Ok(legacy::set_bytes(f.addr(), offset, &value.to_le_bytes())?) }
    cuParamSetv(f: CUfunction, offset: i32, value: *const c_void, bytes: u32) {
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        let bytes = std::slice::from_raw_parts(value.cast::<u8>(), bytes as usize);
        Ok(legacy::set_bytes(f.addr(), offset, bytes)?)
    }
}

impl Config {
    /// The attributes of the launch.
    ///
    /// # Errors
    /// As [`Attributes::read`]; `CUDA_ERROR_INVALID_VALUE` for more than there are.
    ///
    /// # Safety
    /// The array has as many as are said, or is null.
    unsafe fn attributes(&self) -> Result<Attributes> {
        if self.count > ATTRIBUTES || (self.count > 0 && self.attributes.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Attributes::read((0..self.count as usize).map(|i| {
            // SAFETY: the caller vouches for the array.
            let attribute = unsafe { &*self.attributes.add(i) };
            (attribute.id, attribute.value)
        }))
    }

    /// What occupancy is asked for: threads a block, dynamic shared memory, blocks of a cluster (zeros: not said).
    ///
    /// # Errors
    /// As [`Config::attributes`]; `CUDA_ERROR_INVALID_VALUE` for an impossible block.
    ///
    /// # Safety
    /// As [`Config::attributes`].
    pub(super) unsafe fn occupancy(&self) -> Result<(u32, u32, [u32; 3])> {
        // SAFETY: the caller vouches for the array.
        let cluster = unsafe { self.attributes()? }.cluster();
        let threads = self.block.iter().try_fold(1u32, |all, n| all.checked_mul(*n)).filter(|n| *n > 0);
        Ok((threads.ok_or(CUDA_ERROR_INVALID_VALUE)?, self.shared, cluster))
    }
}

fn plain(function: CUfunction, shape: Shape) -> Request {
    Request { function: function.addr(), shape, attributes: Attributes::default(), stream: 0, priority: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchConfig};
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Config>(), size_of::<CUlaunchConfig>());
        assert_eq!(offset_of!(Config, stream), offset_of!(CUlaunchConfig, hStream));
        assert_eq!(offset_of!(Config, count), offset_of!(CUlaunchConfig, numAttrs));
        assert_eq!(size_of::<Attribute>(), size_of::<CUlaunchAttribute>());
        assert_eq!(offset_of!(Attribute, value), offset_of!(CUlaunchAttribute, value));
    }
}
