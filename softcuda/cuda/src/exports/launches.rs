//! Launches.

use super::on;
use crate::error::*;
use crate::launch::{self, Attributes, Refusal, Request, Shape};
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
        if c.count > ATTRIBUTES || (c.count > 0 && c.attributes.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        let list = (0..c.count as usize).map(|i| {
            let attribute = &*c.attributes.add(i);
            (attribute.id, attribute.value)
        });
        let attributes = Attributes::read(list)?;
        let shape = Shape { grid: c.grid, block: c.block, shared: c.shared, cooperative: false };
        launch::kernel(Request { function: f.addr(), shape, attributes, stream: 0 }, on(c.stream, default), values, extra)
    }
}

fn plain(function: CUfunction, shape: Shape) -> Request {
    Request { function: function.addr(), shape, attributes: Attributes::default(), stream: 0 }
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
