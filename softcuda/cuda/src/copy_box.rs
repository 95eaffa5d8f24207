//! Copies of boxes: rows of bytes, planes of rows.

use crate::context;
use crate::error::*;
use crate::place::{self, Place};
use crate::stream::Work;

/// One end of a box copy.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
    pub kind: u32,
    /// The host address, for kind 1.
    pub host: u64,
    /// The device or unified address, for kinds 2 and 4.
    pub device: u64,
    /// First byte, row and plane.
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

/// An end whose steps and range are known.
struct Side {
    place: Place,
    row: u64,
    plane: u64,
}

impl End {
    fn side(&self, extent: &Extent, write: bool) -> Result<Side> {
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
            // Arrays are not there yet.
            3 => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        Ok(Side { place, row: pitch as u64, plane: (pitch * rows) as u64 })
    }
}

/// Copies a box. With `wait` it is over when the call returns; without, only if memory is pageable.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for pitches smaller than the rows and ranges that are not (all) there,
/// `CUDA_ERROR_NOT_SUPPORTED` for arrays.
///
/// # Safety
/// Host ranges are the program's and valid, pinned ones until the stream has come past the copy.
pub unsafe fn copy(to: End, from: End, extent: Extent, stream: usize, wait: bool) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let largest = [to.origin, from.origin, [extent.width, extent.height, extent.depth]];
    if largest.iter().flatten().any(|n| *n > 1 << 47) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (to, from) = (to.side(&extent, true)?, from.side(&extent, false)?);
    let now = wait || to.place.is_pageable() || from.place.is_pageable();
    let job = move || {
        for z in 0..extent.depth as u64 {
            for y in 0..extent.height as u64 {
                let place = |side: &Side| side.place.plus(z * side.plane + y * side.row);
                // SAFETY: `side` found all rows inside their allocations; the caller vouches for host ranges.
                unsafe { place::copy(&place(&to), &place(&from), extent.width)? };
            }
        }
        Ok(())
    };
    if now { context.run_now(&stream, job) } else { context.submit(&stream, Work::Run(Box::new(job))) }
}
