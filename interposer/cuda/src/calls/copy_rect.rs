//! Copies of planes and boxes between linear memories, as rows.

use gpupool_protocol::api::kinds::{self, plane};

use super::copy::{Copy, Reads, Side, carry_out, check, settle, side};
use super::landing;
use crate::args::{StreamArg, stream};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::host;

/// Rows that lie apart on the device are read together with the gaps between them if those are not much more than the rows.
const GAP_FACTOR: usize = 2;
/// And if together they are not more than this.
const SPAN_MAX: usize = 4 << 20;

/// A copy to pinned memory that is made of more linear ones waits for its bytes: each takes two places in the driver's queue.
const LANDINGS_MAX: usize = 64;

/// One side of a plane (half of CUDA_MEMCPY2D, in its layout).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Half2d {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// CUDA_MEMCPY2D with numbers instead of C's enum, since a program may write any number there.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy2d {
    source: Half2d,
    destination: Half2d,
    width: usize,
    height: usize,
}

/// One side of a box (half of CUDA_MEMCPY3D, in its layout).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Half3d {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// CUDA_MEMCPY3D, as [`Copy2d`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy3d {
    source: Half3d,
    destination: Half3d,
    width: usize,
    height: usize,
    depth: usize,
}

/// One side of a copy of rows.
#[derive(Debug, Clone, Copy)]
struct Rows {
    start: u64,
    side: Side,
    pitch: usize,
}

/// The memory that a half names: CUmemorytype 1 host, 2 device, 3 array, 4 unified.
fn base(cx: Cx, kind: u32, host: u64, device: u64) -> Answer<(u64, Side)> {
    match kind {
        1 => Ok((host, Side::Host)),
        2 => Ok((device, Side::Device)),
        3 => Err(NOT_SUPPORTED),
        4 => Ok((device, side(cx, device)?)),
        _ => Err(INVALID_VALUE),
    }
}

/// The first byte, where rows and planes are so far apart.
fn start(base: u64, x: usize, row: usize, pitch: usize) -> Answer<u64> {
    let offset = row.checked_mul(pitch).and_then(|offset| offset.checked_add(x)).ok_or(INVALID_VALUE)?;
    base.checked_add(offset as u64).ok_or(INVALID_VALUE)
}

impl Half2d {
    fn rows(&self, cx: Cx, width: usize, height: usize) -> Answer<Rows> {
        let (base, side) = base(cx, self.kind, self.host, self.device)?;
        let row = self.x.checked_add(width).ok_or(INVALID_VALUE)?;
        let pitch = if self.pitch == 0 && height <= 1 && self.y == 0 { row } else { self.pitch };
        if pitch < row {
            return Err(INVALID_VALUE);
        }
        Ok(Rows { start: start(base, self.x, self.y, pitch)?, side, pitch })
    }
}

impl Half3d {
    /// The rows of plane `z` of the copy.
    fn rows(&self, cx: Cx, width: usize, height: usize, z: usize) -> Answer<Rows> {
        let (base, side) = base(cx, self.kind, self.host, self.device)?;
        let row = self.x.checked_add(width).ok_or(INVALID_VALUE)?;
        let pitch = if self.pitch == 0 { row } else { self.pitch };
        let rows = if self.height == 0 { height } else { self.height };
        if pitch < row || rows < height || self.lod != 0 {
            return Err(INVALID_VALUE);
        }
        let plane = self.z.checked_add(z).and_then(|z| z.checked_mul(rows)).ok_or(INVALID_VALUE)?;
        let at = plane.checked_add(self.y).ok_or(INVALID_VALUE)?;
        Ok(Rows { start: start(base, self.x, at, pitch)?, side, pitch })
    }
}

/// A copy of rows.
struct Plane {
    to: Rows,
    from: Rows,
    width: usize,
    height: usize,
}

impl Plane {
    fn check(&self, cx: Cx) -> Answer {
        let Plane { width, height, .. } = *self;
        check(cx, self.to.start, self.to.side, plane(self.to.pitch, width, height))?;
        check(cx, self.from.start, self.from.side, plane(self.from.pitch, width, height))
    }

    fn row(&self, at: usize) -> Copy {
        let Plane { to, from, width, .. } = self;
        Copy {
            destination: to.start + (at * to.pitch) as u64,
            to: to.side,
            source: from.start + (at * from.pitch) as u64,
            from: from.side,
            len: *width,
        }
    }

    /// Linear copies that it is made of.
    fn pieces(&self) -> usize {
        if self.is_linear() { 1 } else { self.height }
    }

    fn is_linear(&self) -> bool {
        self.to.pitch == self.width && self.from.pitch == self.width
    }

    /// `lands`: the bytes of the copy may come after this call.
    fn carry_out(&self, cx: Cx, stream: StreamArg, lands: bool) -> Answer {
        let Plane { to, from, width, height } = *self;
        let one = |copy| {
            if lands && landing::post(cx, copy, stream)? { Ok(()) } else { carry_out(cx, copy, stream) }
        };
        if self.is_linear() {
            return one(Copy { len: width * height, ..self.row(0) });
        }
        if lands && landing::fits(cx, to.start, plane(to.pitch, width, height)) {
            return (0..height).try_for_each(|at| one(self.row(at)));
        }
        let shared = || cx.session.pinned.is_shared(to.start, plane(to.pitch, width, height) as u64);
        if (to.side, from.side) == (Side::Host, Side::Device) && !shared() {
            return self.read(cx, stream);
        }
        (0..height).try_for_each(|at| carry_out(cx, self.row(at), stream))
    }

    /// As [`settle`], after a synchronous copy.
    fn settle(&self, cx: Cx, stream: StreamArg, sync: bool) -> Answer {
        if sync { settle(cx, self.row(0), stream) } else { Ok(()) }
    }

    fn read(&self, cx: Cx, stream: StreamArg) -> Answer {
        let span = plane(self.from.pitch, self.width, self.height);
        let mut reads = Reads::new(cx, stream);
        if span > SPAN_MAX || span / GAP_FACTOR > self.width * self.height {
            for at in 0..self.height {
                let Copy { source, destination, len, .. } = self.row(at);
                reads.read(source, destination, len)?;
            }
            return reads.finish();
        }
        let mut bytes = vec![0u8; span];
        reads.read(self.from.start, bytes.as_mut_ptr().expose_provenance() as u64, span)?;
        reads.finish()?;
        for at in 0..self.height {
            let row = &bytes[at * self.from.pitch..][..self.width];
            host::bytes_mut(self.row(at).destination, self.width).copy_from_slice(row);
        }
        Ok(())
    }
}

fn copy_2d(cx: Cx, copy: Ptr<Copy2d>, stream: StreamArg, sync: bool) -> Answer {
    let copy = copy.get()?;
    cx.current()?;
    let (width, height) = (copy.width, copy.height);
    if width == 0 || height == 0 {
        return Ok(());
    }
    let to = copy.destination.rows(cx, width, height)?;
    let plane = Plane { to, from: copy.source.rows(cx, width, height)?, width, height };
    plane.check(cx)?;
    plane.carry_out(cx, stream, !sync && plane.pieces() <= LANDINGS_MAX)?;
    plane.settle(cx, stream, sync)
}

fn copy_3d(cx: Cx, copy: Ptr<Copy3d>, stream: StreamArg, sync: bool) -> Answer {
    let copy = copy.get()?;
    cx.current()?;
    let (width, height) = (copy.width, copy.height);
    if width == 0 || height == 0 || copy.depth == 0 {
        return Ok(());
    }
    let planes = |z| -> Answer<Plane> {
        let to = copy.destination.rows(cx, width, height, z)?;
        Ok(Plane { to, from: copy.source.rows(cx, width, height, z)?, width, height })
    };
    // All is checked before anything is copied.
    (0..copy.depth).try_for_each(|z| planes(z)?.check(cx))?;
    let lands = !sync && planes(0)?.pieces().saturating_mul(copy.depth) <= LANDINGS_MAX;
    (0..copy.depth).try_for_each(|z| planes(z)?.carry_out(cx, stream, lands))?;
    planes(0)?.settle(cx, stream, sync)
}

pub fn cuMemcpy2D_v2(cx: Cx, copy: Ptr<Copy2d>) -> Answer {
    copy_2d(cx, copy, StreamArg::of_none(cx), true)
}

pub fn cuMemcpy2DAsync_v2(cx: Cx, copy: Ptr<Copy2d>, hstream: Raw<kinds::Stream>) -> Answer {
    copy_2d(cx, copy, stream(cx, hstream)?, false)
}

pub fn cuMemcpy3D_v2(cx: Cx, copy: Ptr<Copy3d>) -> Answer {
    copy_3d(cx, copy, StreamArg::of_none(cx), true)
}

pub fn cuMemcpy3DAsync_v2(cx: Cx, copy: Ptr<Copy3d>, hstream: Raw<kinds::Stream>) -> Answer {
    copy_3d(cx, copy, stream(cx, hstream)?, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D};
    use std::mem::offset_of;

    #[test]
    fn the_structs_have_cuda_h_s_layout() {
        assert_eq!(size_of::<Copy2d>(), size_of::<CUDA_MEMCPY2D>());
        assert_eq!(size_of::<Copy3d>(), size_of::<CUDA_MEMCPY3D>());
        assert_eq!(offset_of!(Copy2d, destination), offset_of!(CUDA_MEMCPY2D, dstXInBytes));
        assert_eq!(offset_of!(Half2d, pitch), offset_of!(CUDA_MEMCPY2D, srcPitch));
        assert_eq!(offset_of!(Half2d, device), offset_of!(CUDA_MEMCPY2D, srcDevice));
        assert_eq!(offset_of!(Copy2d, height), offset_of!(CUDA_MEMCPY2D, Height));
        assert_eq!(offset_of!(Copy3d, destination), offset_of!(CUDA_MEMCPY3D, dstXInBytes));
        assert_eq!(offset_of!(Half3d, device), offset_of!(CUDA_MEMCPY3D, srcDevice));
        assert_eq!(offset_of!(Half3d, height), offset_of!(CUDA_MEMCPY3D, srcHeight));
        assert_eq!(offset_of!(Copy3d, depth), offset_of!(CUDA_MEMCPY3D, Depth));
    }

    #[test]
    fn a_start_that_wraps_is_refused() {
        assert_eq!(start(0x1000, 4, 2, 0x100), Ok(0x1204));
        assert_eq!(start(u64::MAX, 1, 0, 0), Err(INVALID_VALUE));
        assert_eq!(start(0, 0, usize::MAX, 2), Err(INVALID_VALUE));
    }
}
