//! Copies of boxes as the driver takes them, with all zero that is not said.

use super::{H, sys};

/// One end of `CUDA_MEMCPY3D` and of `CUDA_MEMCPY3D_PEER`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Side {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: H,
    pub context: H,
    pub pitch: usize,
    pub height: usize,
}

/// One end of `CUDA_MEMCPY2D`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Flat {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: H,
    pitch: usize,
}

impl Side {
    /// Host memory, with bytes from row to row and rows from plane to plane.
    pub fn host(address: u64, pitch: usize, height: usize) -> Side {
        Side { kind: 1, host: address, pitch, height, ..Side::default() }
    }

    /// Device memory, likewise.
    pub fn device(address: u64, pitch: usize, height: usize) -> Side {
        Side { kind: 2, device: address, pitch, height, ..Side::default() }
    }

    /// An array, from a byte of its rows and a row on.
    pub fn array(array: H, x: usize, y: usize) -> Side {
        Side { kind: 3, array, x, y, ..Side::default() }
    }

    fn flat(&self) -> Flat {
        let Side { x, y, kind, host, device, array, pitch, .. } = *self;
        Flat { x, y, kind, host, device, array, pitch }
    }
}

/// `CUDA_MEMCPY3D`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Copy3D {
    pub from: Side,
    pub to: Side,
    /// Bytes a row, rows, planes.
    pub extent: [usize; 3],
}

impl Copy3D {
    pub fn new(to: Side, from: Side, extent: [usize; 3]) -> Copy3D {
        const { assert!(size_of::<Copy3D>() == size_of::<sys::CUDA_MEMCPY3D>()) };
        Copy3D { from, to, extent }
    }

    pub fn raw(&self) -> *const sys::CUDA_MEMCPY3D {
        std::ptr::from_ref(self).cast()
    }

    pub fn out(&mut self) -> *mut sys::CUDA_MEMCPY3D {
        std::ptr::from_mut(self).cast()
    }

    pub fn peer(&self) -> *const sys::CUDA_MEMCPY3D_PEER {
        std::ptr::from_ref(self).cast()
    }
}

/// `CUDA_MEMCPY2D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy2D {
    from: Flat,
    to: Flat,
    extent: [usize; 2],
}

impl Copy2D {
    pub fn new(to: Side, from: Side, extent: [usize; 2]) -> Copy2D {
        const { assert!(size_of::<Copy2D>() == size_of::<sys::CUDA_MEMCPY2D>()) };
        Copy2D { from: from.flat(), to: to.flat(), extent }
    }

    pub fn raw(&self) -> *const sys::CUDA_MEMCPY2D {
        std::ptr::from_ref(self).cast()
    }
}
