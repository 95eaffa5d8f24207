//! Linear copies to and from arrays: each is a box of one row.

use super::on;
use crate::copy_box::{self, End, Extent};
use crate::error::*;
use cudarc::driver::sys::{CUarray, CUstream};
use std::ffi::c_void;

fn array(array: CUarray, offset: usize) -> End {
    End { kind: 3, host: 0, device: 0, array: array.addr(), origin: [offset, 0, 0], pitch: 0, height: 0 }
}

fn host(address: *const c_void) -> End {
    let host = address.expose_provenance() as u64;
    End { kind: 1, host, device: 0, array: 0, origin: [0; 3], pitch: 0, height: 0 }
}

fn device(address: u64) -> End {
    End { kind: 2, host: 0, device: address, array: 0, origin: [0; 3], pitch: 0, height: 0 }
}

/// # Safety
/// As [`copy_box::copy`].
unsafe fn row(to: End, from: End, bytes: usize, stream: usize, wait: bool) -> Result {
    // SAFETY: the caller vouches for the ranges.
    unsafe { copy_box::copy(to, from, Extent { width: bytes, height: 1, depth: 1 }, stream, wait) }
}

exports! { ($) array_copies_names, initialised;
    cuMemcpyHtoA_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize) [cuMemcpyHtoA_v2_ptds, default] {
        row(array(to, offset), host(from), bytes, default, true)
    }
    cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) [cuMemcpyAtoH_v2_ptds, default] {
        row(host(to), array(from, offset), bytes, default, true)
    }
    cuMemcpyDtoA_v2(to: CUarray, offset: usize, from: u64, bytes: usize) [cuMemcpyDtoA_v2_ptds, default] {
        row(array(to, offset), device(from), bytes, default, false)
    }
    cuMemcpyAtoD_v2(to: u64, from: CUarray, offset: usize, bytes: usize) [cuMemcpyAtoD_v2_ptds, default] {
        row(device(to), array(from, offset), bytes, default, false)
    }
    cuMemcpyAtoA_v2(
        to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize
    ) [cuMemcpyAtoA_v2_ptds, default] {
        row(array(to, to_offset), array(from, from_offset), bytes, default, false)
    }
    cuMemcpyHtoAAsync_v2(
        to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream
    ) [cuMemcpyHtoAAsync_v2_ptsz, default] {
        row(array(to, offset), host(from), bytes, on(stream, default), false)
    }
    cuMemcpyAtoHAsync_v2(
        to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream
    ) [cuMemcpyAtoHAsync_v2_ptsz, default] {
        row(host(to), array(from, offset), bytes, on(stream, default), false)
    }
}
