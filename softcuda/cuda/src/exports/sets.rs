//! Memory sets.

use super::on;
use crate::memset::{Rows, set, set_for_the_host};
use cudarc::driver::sys::CUstream;

exports! { ($) sets_names, initialised;
    cuMemsetD8_v2(to: u64, value: u8, count: usize) [cuMemsetD8_v2_ptds, default] {
        set_for_the_host(Rows::line(to, count), &[value], default)
    }
    cuMemsetD16_v2(to: u64, value: u16, count: usize) [cuMemsetD16_v2_ptds, default] {
        set_for_the_host(Rows::line(to, count), &value.to_le_bytes(), default)
    }
    cuMemsetD32_v2(to: u64, value: u32, count: usize) [cuMemsetD32_v2_ptds, default] {
        set_for_the_host(Rows::line(to, count), &value.to_le_bytes(), default)
    }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: CUstream) [cuMemsetD8Async_ptsz, default] {
        set(Rows::line(to, count), &[value], on(stream, default))
    }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: CUstream) [cuMemsetD16Async_ptsz, default] {
        set(Rows::line(to, count), &value.to_le_bytes(), on(stream, default))
    }
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: CUstream) [cuMemsetD32Async_ptsz, default] {
        set(Rows::line(to, count), &value.to_le_bytes(), on(stream, default))
    }
    cuMemsetD2D8_v2(address: u64, pitch: usize, value: u8, width: usize, height: usize) [cuMemsetD2D8_v2_ptds, default] {
        set_for_the_host(Rows { address, pitch, width, height }, &[value], default)
    }
    cuMemsetD2D16_v2(
        address: u64, pitch: usize, value: u16, width: usize, height: usize
    ) [cuMemsetD2D16_v2_ptds, default] {
        set_for_the_host(Rows { address, pitch, width, height }, &value.to_le_bytes(), default)
    }
    cuMemsetD2D32_v2(
        address: u64, pitch: usize, value: u32, width: usize, height: usize
    ) [cuMemsetD2D32_v2_ptds, default] {
        set_for_the_host(Rows { address, pitch, width, height }, &value.to_le_bytes(), default)
    }
    cuMemsetD2D8Async(
        address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream
    ) [cuMemsetD2D8Async_ptsz, default] {
        set(Rows { address, pitch, width, height }, &[value], on(stream, default))
    }
    cuMemsetD2D16Async(
        address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream
    ) [cuMemsetD2D16Async_ptsz, default] {
        set(Rows { address, pitch, width, height }, &value.to_le_bytes(), on(stream, default))
    }
    cuMemsetD2D32Async(
        address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream
    ) [cuMemsetD2D32Async_ptsz, default] {
        set(Rows { address, pitch, width, height }, &value.to_le_bytes(), on(stream, default))
    }
}
