//! Memory sets on the default stream.

use cudarc::driver::sys::CUdeviceptr;
use gpupool_protocol::api::kinds::plane;

use super::stream::wait;
use crate::args::StreamArg;
use crate::code::{Answer, INVALID_VALUE};
use crate::cx::Cx;
use crate::send;

/// `height` rows of `width` elements of `element` bytes.
struct Rows {
    pitch: usize,
    element: u32,
    width: usize,
    height: usize,
}

fn set(cx: Cx, destination: u64, value: u32, rows: Rows) -> Answer {
    let Rows { pitch, element, width, height } = rows;
    cx.current()?;
    let bytes = width.saturating_mul(element as usize);
    if !destination.is_multiple_of(u64::from(element)) || (height > 1 && pitch < bytes) {
        return Err(INVALID_VALUE);
    }
    if bytes == 0 || height == 0 {
        return Ok(());
    }
    cx.reaches(destination, plane(pitch, bytes, height) as u64)?;
    let stream = StreamArg::of_none(cx);
    send::set(cx, destination, pitch as u64, element, value, width as u64, height as u64, stream)?;
    // "Fully synchronous" where the memory is pinned memory of the host (the manual's "API synchronization behavior"): the
    // program may look at it as soon as the call returns.
    if cx.session.pinned.is_shared(destination, 1) { wait(cx, stream) } else { Ok(()) }
}

pub fn cuMemsetD8_v2(cx: Cx, destination: CUdeviceptr, value: u8, n: usize) -> Answer {
    set(cx, destination, value.into(), Rows { pitch: 0, element: 1, width: n, height: 1 })
}

pub fn cuMemsetD16_v2(cx: Cx, destination: CUdeviceptr, value: u16, n: usize) -> Answer {
    set(cx, destination, value.into(), Rows { pitch: 0, element: 2, width: n, height: 1 })
}

pub fn cuMemsetD32_v2(cx: Cx, destination: CUdeviceptr, value: u32, n: usize) -> Answer {
    set(cx, destination, value, Rows { pitch: 0, element: 4, width: n, height: 1 })
}

pub fn cuMemsetD2D8_v2(
    cx: Cx,
    destination: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Answer {
    set(cx, destination, value.into(), Rows { pitch, element: 1, width, height })
}

pub fn cuMemsetD2D16_v2(
    cx: Cx,
    destination: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> Answer {
    set(cx, destination, value.into(), Rows { pitch, element: 2, width, height })
}

pub fn cuMemsetD2D32_v2(
    cx: Cx,
    destination: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
) -> Answer {
    set(cx, destination, value, Rows { pitch, element: 4, width, height })
}
