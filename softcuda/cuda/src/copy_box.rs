//! Copies of boxes: rows of bytes, planes of rows.

use crate::array;
use crate::context;
use crate::driver;
use crate::error::*;
use crate::graph::capture;
use crate::op::Op;
use crate::place::{self, Place};
use crate::share;
use crate::stream::Work;
use std::sync::Arc;

/// One end of a box copy.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
    pub kind: u32,
    /// The host address, for kind 1.
    pub host: u64,
    /// The device or unified address, for kinds 2 and 4.
    pub device: u64,
    /// The array's handle, for kind 3.
    pub array: usize,
    /// First byte, row and plane (layer, face).
    pub origin: [usize; 3],
    /// Bytes from row to row; 0: as wide as the copy.
    pub pitch: usize,
    /// Rows from plane to plane; 0: as high as the copy.
    pub height: usize,
}

/// Bytes a row, rows, planes.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Planes.
    pub depth: usize,
}

impl End {
    /// Bytes at an address, of kind 1, 2 or 4.
    pub fn linear(kind: u32, address: u64) -> End {
        End { kind, host: address, device: address, array: 0, origin: [0; 3], pitch: 0, height: 0 }
    }
}

impl Extent {
    /// One row.
    pub fn line(bytes: usize) -> Extent {
        Extent { width: bytes, height: 1, depth: 1 }
    }
}

/// An end whose steps and range are known.
struct Side {
    place: Place,
    /// Bytes from the first to the last.
    length: u64,
    row: u64,
    plane: u64,
}

impl End {
    /// A box in an array, which knows its own rows.
    fn in_array(&self, extent: &Extent) -> Result<Side> {
        let array = array::find(self.array).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let image = &array.image;
        let [x, y, z] = self.origin;
        let row = image.extent[0] as usize * image.format.bytes() as usize;
        let planes = image.extent[2] as usize * image.layers as usize;
        let rows = image.extent[1] as usize;
        if x + extent.width > row || y + extent.height > rows || z + extent.depth > planes {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = image.base + x as u64 + y as u64 * image.row + z as u64 * image.plane;
        let place = Place::Known(address, array.allocation.clone());
        Ok(Side { place, length: 0, row: image.row, plane: image.plane })
    }

    fn side(&self, extent: &Extent, write: bool) -> Result<Side> {
        if self.kind == 3 {
            return self.in_array(extent);
        }
        let pitch = if self.pitch == 0 { self.origin[0] + extent.width } else { self.pitch };
        let rows = if self.height == 0 { self.origin[1] + extent.height } else { self.height };
        if pitch < self.origin[0] + extent.width || rows < self.origin[1] + extent.height && extent.depth > 1
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let offset = |[x, y, z]: [usize; 3]| {
            let lines = z.checked_mul(rows)?.checked_add(y)?;
            lines.checked_mul(pitch)?.checked_add(x).map(|n| n as u64)
        };
        let [x, y, z] = self.origin;
        let first = offset(self.origin).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let last = offset([x + extent.width, y + extent.height - 1, z + extent.depth - 1]);
        let length = last.ok_or(CUDA_ERROR_INVALID_VALUE)? - first;
        let base = if self.kind == 1 { self.host } else { self.device };
        let address = base.checked_add(first).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let place = match self.kind {
            1 | 4 => Place::any(address, length, write)?,
            2 => Place::known(address, length, write)?,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        Ok(Side { place, length, row: pitch as u64, plane: (pitch * rows) as u64 })
    }
}

/// A copy that is found to be possible.
pub struct BoxCopy {
    /// Where to, as the program says it.
    pub to: End,
    /// Where from, as the program says it.
    pub from: End,
    /// How much.
    pub extent: Extent,
    /// None: nothing is to be copied.
    sides: Option<(Side, Side)>,
}

impl BoxCopy {
    /// Checks a copy.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for pitches smaller than the rows, ranges that are not (all) there, and arrays that are none.
    ///
    /// # Safety
    /// Host ranges are the program's and valid whenever the copy runs.
    pub unsafe fn prepare(to: End, from: End, extent: Extent) -> Result<Arc<BoxCopy>> {
        let largest = [to.origin, from.origin, [extent.width, extent.height, extent.depth]];
        if largest.iter().flatten().any(|n| *n > 1 << 47) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let empty = extent.width == 0 || extent.height == 0 || extent.depth == 0;
        let sides = if empty { None } else { Some((to.side(&extent, true)?, from.side(&extent, false)?)) };
        Ok(Arc::new(BoxCopy { to, from, extent, sides }))
    }

    /// Whether host memory that the driver does not know is at one of the ends: (target, source).
    pub fn pageable(&self) -> (bool, bool) {
        self.sides
            .as_ref()
            .map_or((false, false), |(to, from)| (to.place.is_pageable(), from.place.is_pageable()))
    }

    /// Whether the program wants operations on one of the ends to be over when the call returns.
    pub fn is_synchronous(&self) -> bool {
        self.sides.as_ref().is_some_and(|(to, from)| to.place.is_synchronous() || from.place.is_synchronous())
    }

    /// Whether nothing is to be copied.
    pub fn is_empty(&self) -> bool {
        self.sides.is_none()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.extent.width.saturating_mul(self.extent.height).saturating_mul(self.extent.depth)
    }

    /// Copies.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` for memory that was freed or unmapped meanwhile.
    pub fn run(&self) -> Result {
        share::slowed(|| self.run_once())
    }

    fn run_once(&self) -> Result {
        let Some((to, from)) = &self.sides else { return Ok(()) };
        // What is there now stays mapped until the copy is over.
        let _use = driver::devices().first().map(|device| device.memory.enter());
        if !to.place.is_there(to.length, true) || !from.place.is_there(from.length, false) {
            return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        for z in 0..self.extent.depth as u64 {
            for y in 0..self.extent.height as u64 {
                let place = |side: &Side| side.place.plus(z * side.plane + y * side.row);
                // SAFETY: `side` found all rows inside their allocations; who called `prepare` vouches for host ranges.
                unsafe { place::copy(&place(to), &place(from), self.extent.width)? };
            }
        }
        Ok(())
    }
}

/// Copies a box. With `wait` it is over when the call returns; without, only if memory is pageable and the stream does not
/// capture.
///
/// # Errors
/// As [`BoxCopy::prepare`], and the context's fatal error.
///
/// # Safety
/// As [`BoxCopy::prepare`]; ranges that are not pinned at least until the call returns.
pub unsafe fn copy(to: End, from: End, extent: Extent, stream: usize, wait: bool) -> Result {
    if wait {
        capture::permit_unsafe()?;
    }
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    // SAFETY: the caller vouches for the ranges.
    let copy = unsafe { BoxCopy::prepare(to, from, extent)? };
    if copy.is_empty() {
        return Ok(());
    }
    let pageable = copy.pageable().0 || copy.pageable().1;
    if wait || (pageable && !stream.is_capturing()) {
        context.run_now(&stream, || copy.run())
    } else {
        context.submit(&stream, Work::Do(Op::Copy(copy)))
    }
}
