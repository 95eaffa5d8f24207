//! Copies.

use super::on;
use crate::copy::{self, Ends};
use crate::copy_box::{self, End, Extent};
use crate::error::*;
use cudarc::driver::sys::{CUcontext, CUstream};
use std::ffi::c_void;

/// `CUDA_MEMCPY2D`, with memory types that may be none of the enumeration.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy2D {
    from: Plane,
    to: Plane,
    width: usize,
    height: usize,
}

/// One end of [`Copy2D`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Plane {
    x: usize,
    y: usize,
    kind: u32,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    pitch: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, which differ in what is of no use here.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy3D {
    from: Volume,
    to: Volume,
    width: usize,
    height: usize,
    depth: usize,
}

/// One end of [`Copy3D`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Volume {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    context: *mut c_void,
    pitch: usize,
    height: usize,
}

impl Plane {
    fn end(&self) -> End {
        let (host, device) = (self.host.expose_provenance() as u64, self.device);
        let (origin, array) = ([self.x, self.y, 0], self.array.addr());
        End { kind: self.kind, host, device, array, origin, pitch: self.pitch, height: 0 }
    }
}

impl Volume {
    fn end(&self) -> End {
        let (host, device) = (self.host.expose_provenance() as u64, self.device);
        let origin = [self.x, self.y, self.z];
        let array = self.array.addr();
        End { kind: self.kind, host, device, array, origin, pitch: self.pitch, height: self.height }
    }
}

impl Copy3D {
    /// Target, source and extent.
    pub(super) fn parts(&self) -> (End, End, Extent) {
        let extent = Extent { width: self.width, height: self.height, depth: self.depth };
        (self.to.end(), self.from.end(), extent)
    }

    /// The struct of a copy.
    pub(super) fn of(to: &End, from: &End, extent: &Extent) -> Copy3D {
        let Extent { width, height, depth } = *extent;
        Copy3D { from: Volume::of(from), to: Volume::of(to), width, height, depth }
    }
}

impl Volume {
    fn of(end: &End) -> Volume {
        let [x, y, z] = end.origin;
        Volume {
            x,
            y,
            z,
            level: 0,
            kind: end.kind,
            host: std::ptr::with_exposed_provenance_mut(end.host as usize),
            device: end.device,
            array: super::handle(end.array),
            context: std::ptr::null_mut(),
            pitch: end.pitch,
            height: end.height,
        }
    }
}

/// # Safety
/// `what` is null or good, and so are the host ranges that it names.
unsafe fn copy_2d(what: *const Copy2D, stream: usize, wait: bool) -> Result {
    // SAFETY: the caller vouches for it.
    let c = unsafe { what.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let extent = Extent { width: c.width, height: c.height, depth: 1 };
    // SAFETY: the caller vouches for the ranges.
    unsafe { copy_box::copy(c.to.end(), c.from.end(), extent, stream, wait) }
}

/// # Safety
/// `what` is null or good, and so are the host ranges that it names.
unsafe fn copy_3d(what: *const Copy3D, stream: usize, wait: bool) -> Result {
    // SAFETY: the caller vouches for it.
    let c = unsafe { what.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let extent = Extent { width: c.width, height: c.height, depth: c.depth };
    // SAFETY: the caller vouches for the ranges.
    unsafe { copy_box::copy(c.to.end(), c.from.end(), extent, stream, wait) }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

exports! { ($) copies_names, initialised;
    cuMemcpy(to: u64, from: u64, bytes: usize) [cuMemcpy_ptds, default] {
        copy::blocking(Ends::Unified, to, from, bytes, default)
    }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) [cuMemcpyHtoD_v2_ptds, default] {
        copy::blocking(Ends::HostToDevice, to, address(from), bytes, default)
    }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) [cuMemcpyDtoH_v2_ptds, default] {
        copy::blocking(Ends::DeviceToHost, address(to), from, bytes, default)
    }
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) [cuMemcpyDtoD_v2_ptds, default] {
        copy::blocking(Ends::DeviceToDevice, to, from, bytes, default)
    }
    cuMemcpyPeer(to: u64, _target: CUcontext, from: u64, _source: CUcontext, bytes: usize) [cuMemcpyPeer_ptds, default] {
        copy::blocking(Ends::DeviceToDevice, to, from, bytes, default)
    }
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: CUstream) [cuMemcpyAsync_ptsz, default] {
        copy::asynchronous(Ends::Unified, to, from, bytes, on(stream, default))
    }
    cuMemcpyHtoDAsync_v2(
        to: u64, from: *const c_void, bytes: usize, stream: CUstream
    ) [cuMemcpyHtoDAsync_v2_ptsz, default] {
        copy::asynchronous(Ends::HostToDevice, to, address(from), bytes, on(stream, default))
    }
    cuMemcpyDtoHAsync_v2(
        to: *mut c_void, from: u64, bytes: usize, stream: CUstream
    ) [cuMemcpyDtoHAsync_v2_ptsz, default] {
        copy::asynchronous(Ends::DeviceToHost, address(to), from, bytes, on(stream, default))
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: CUstream) [cuMemcpyDtoDAsync_v2_ptsz, default] {
        copy::asynchronous(Ends::DeviceToDevice, to, from, bytes, on(stream, default))
    }
    cuMemcpyPeerAsync(
        to: u64, _target: CUcontext, from: u64, _source: CUcontext, bytes: usize, stream: CUstream
    ) [cuMemcpyPeerAsync_ptsz, default] {
        copy::asynchronous(Ends::DeviceToDevice, to, from, bytes, on(stream, default))
    }
    cuMemcpy2D_v2(what: *const Copy2D) [cuMemcpy2D_v2_ptds, default] { copy_2d(what, default, true) }
    cuMemcpy2DUnaligned_v2(what: *const Copy2D) [cuMemcpy2DUnaligned_v2_ptds, default] { copy_2d(what, default, true) }
    cuMemcpy2DAsync_v2(what: *const Copy2D, stream: CUstream) [cuMemcpy2DAsync_v2_ptsz, default] {
        copy_2d(what, on(stream, default), false)
    }
    cuMemcpy3D_v2(what: *const Copy3D) [cuMemcpy3D_v2_ptds, default] { copy_3d(what, default, true) }
    cuMemcpy3DAsync_v2(what: *const Copy3D, stream: CUstream) [cuMemcpy3DAsync_v2_ptsz, default] {
        copy_3d(what, on(stream, default), false)
    }
    cuMemcpy3DPeer(what: *const Copy3D) [cuMemcpy3DPeer_ptds, default] { copy_3d(what, default, true) }
    cuMemcpy3DPeerAsync(what: *const Copy3D, stream: CUstream) [cuMemcpy3DPeerAsync_ptsz, default] {
        copy_3d(what, on(stream, default), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER};
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Copy2D>(), size_of::<CUDA_MEMCPY2D>());
        assert_eq!(offset_of!(Copy2D, to), offset_of!(CUDA_MEMCPY2D, dstXInBytes));
        assert_eq!(offset_of!(Plane, pitch), offset_of!(CUDA_MEMCPY2D, srcPitch));
        assert_eq!(offset_of!(Copy2D, width), offset_of!(CUDA_MEMCPY2D, WidthInBytes));
        assert_eq!(size_of::<Copy3D>(), size_of::<CUDA_MEMCPY3D>());
        assert_eq!(size_of::<Copy3D>(), size_of::<CUDA_MEMCPY3D_PEER>());
        assert_eq!(offset_of!(Copy3D, to), offset_of!(CUDA_MEMCPY3D, dstXInBytes));
        assert_eq!(offset_of!(Volume, height), offset_of!(CUDA_MEMCPY3D, srcHeight));
        assert_eq!(offset_of!(Volume, height), offset_of!(CUDA_MEMCPY3D_PEER, srcHeight));
        assert_eq!(offset_of!(Copy3D, depth), offset_of!(CUDA_MEMCPY3D, Depth));
    }
}
