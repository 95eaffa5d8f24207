//! Many copies by one call.

use super::memories::Location;
use super::on;
use crate::copy::{self, Ends};
use crate::copy_box::{self, End, Extent};
use crate::error::*;
use crate::{array, stream};
use cudarc::driver::sys::CUstream;

/// `CUmemcpyAttributes`, with an order that may be none.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Attributes {
    order: u32,
    from: Location,
    to: Location,
    flags: u32,
}

/// `CUmemcpy3DOperand`: a kind and a union of four words: pointer, texels a row, rows a plane; or array and offset.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Operand {
    kind: u32,
    words: [usize; 4],
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Operation {
    from: Operand,
    to: Operand,
    extent: [usize; 3],
    order: u32,
    flags: u32,
}

/// When the source is read: `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`, `_DURING_API_CALL`, `_ANY`. Whether the copy must be
/// over when the call returns.
fn during_call(order: u32) -> Result<bool> {
    match order {
        1 | 3 => Ok(false),
        2 => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Batches may not be given to the legacy stream.
fn batch_stream(stream: usize) -> Result<usize> {
    if stream == stream::LEGACY || stream == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(stream) }
}

/// # Safety
/// The pointers are null or hold `count` (the attributes: `kinds`) elements; host ranges as of [`copy::asynchronous`].
unsafe fn batch(
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    count: usize,
    attributes: *const Attributes,
    firsts: *const usize,
    kinds: usize,
    stream: usize,
) -> Result {
    let stream = batch_stream(stream)?;
    let missing =
        to.is_null() || from.is_null() || bytes.is_null() || attributes.is_null() || firsts.is_null();
    if missing || count == 0 || kinds == 0 || kinds > count {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the counts.
    let (firsts, attributes) =
        unsafe { (std::slice::from_raw_parts(firsts, kinds), std::slice::from_raw_parts(attributes, kinds)) };
    if firsts[0] != 0 || firsts.windows(2).any(|w| w[0] >= w[1]) || firsts[kinds - 1] >= count {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let orders = attributes.iter().map(|a| during_call(a.order)).collect::<Result<Vec<_>>>()?;
    for i in 0..count {
        let now = orders[firsts.partition_point(|first| *first <= i) - 1];
        // SAFETY: the caller vouches for the counts and ranges.
        unsafe {
            let (to, from, bytes) = (*to.add(i), *from.add(i), *bytes.add(i));
            if now {
                copy::blocking(Ends::Unified, to, from, bytes, stream)?;
            } else {
                copy::asynchronous(Ends::Unified, to, from, bytes, stream)?;
            }
        }
    }
    Ok(())
}

impl Operand {
    /// Bytes of an element, if this end has elements of its own.
    fn element(&self) -> Result<Option<usize>> {
        match self.kind {
            1 => Ok(None),
            2 => Ok(Some(array::find(self.words[0])?.image.format.bytes() as usize)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn end(&self, element: usize) -> Result<End> {
        let [first, x, y, z] = self.words;
        let none = End { kind: 4, host: 0, device: 0, array: 0, origin: [0; 3], pitch: 0, height: 0 };
        if self.kind == 2 {
            let x = x.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            return Ok(End { kind: 3, array: first, origin: [x, y, z], ..none });
        }
        let pitch = x.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(End { device: first as u64, pitch, height: y, ..none })
    }
}

/// # Safety
/// `attributes` is null or good; host ranges as of [`copy::asynchronous`].
unsafe fn one(to: u64, from: u64, bytes: usize, attributes: *const Attributes, stream: usize) -> Result {
    // SAFETY: the caller vouches for it.
    let attributes = unsafe { attributes.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let now = during_call(attributes.order)?;
    // SAFETY: the caller vouches for the ranges.
    unsafe {
        if now {
            copy::blocking(Ends::Unified, to, from, bytes, stream)
        } else {
            copy::asynchronous(Ends::Unified, to, from, bytes, stream)
        }
    }
}

/// # Safety
/// `operations` is null or holds `count`; host ranges as of [`copy_box::copy`].
unsafe fn boxes(operations: *const Operation, count: usize, flags: u64, stream: usize) -> Result {
    if operations.is_null() || count == 0 || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the count.
    for operation in unsafe { std::slice::from_raw_parts(operations, count) } {
        let now = during_call(operation.order)?;
        let (to, from) = (operation.to.element()?, operation.from.element()?);
        if to.is_some() && from.is_some() && to != from {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let element = to.or(from).unwrap_or(1);
        let [width, height, depth] = operation.extent;
        let width = width.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (to, from) = (operation.to.end(element)?, operation.from.end(element)?);
        // SAFETY: the caller vouches for the ranges.
        unsafe { copy_box::copy(to, from, Extent { width, height, depth }, stream, now)? };
    }
    Ok(())
}

exports! { ($) batch_copies_names, initialised;
    cuMemcpyBatchAsync(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize, attributes: *mut Attributes, firsts: *mut usize,
        kinds: usize, failed: *mut usize, stream: CUstream
    ) [cuMemcpyBatchAsync_ptsz, default] {
        super::set_if_wanted(failed, usize::MAX);
        batch(to, from, bytes, count, attributes, firsts, kinds, on(stream, default))
    }
    cuMemcpyBatchAsync_v2(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize, attributes: *mut Attributes, firsts: *mut usize,
        kinds: usize, stream: CUstream
    ) [cuMemcpyBatchAsync_v2_ptsz, default] {
        batch(to, from, bytes, count, attributes, firsts, kinds, on(stream, default))
    }
    cuMemcpy3DBatchAsync(
        count: usize, operations: *mut Operation, failed: *mut usize, flags: u64, stream: CUstream
    ) [cuMemcpy3DBatchAsync_ptsz, default] {
        super::set_if_wanted(failed, usize::MAX);
        boxes(operations, count, flags, batch_stream(on(stream, default))?)
    }
    cuMemcpy3DBatchAsync_v2(
        count: usize, operations: *mut Operation, flags: u64, stream: CUstream
    ) [cuMemcpy3DBatchAsync_v2_ptsz, default] {
        boxes(operations, count, flags, batch_stream(on(stream, default))?)
    }
    cuMemcpyWithAttributesAsync(
        to: u64, from: u64, bytes: usize, attributes: *mut Attributes, stream: CUstream
    ) [cuMemcpyWithAttributesAsync_ptsz, default] { one(to, from, bytes, attributes, on(stream, default)) }
    cuMemcpy3DWithAttributesAsync(
        operation: *mut Operation, flags: u64, stream: CUstream
    ) [cuMemcpy3DWithAttributesAsync_ptsz, default] { boxes(operation, 1, flags, on(stream, default)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::*;
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Attributes>(), size_of::<CUmemcpyAttributes>());
        assert_eq!(offset_of!(Attributes, flags), offset_of!(CUmemcpyAttributes, flags));
        assert_eq!(size_of::<Operation>(), size_of::<CUDA_MEMCPY3D_BATCH_OP>());
        assert_eq!(offset_of!(Operation, to), offset_of!(CUDA_MEMCPY3D_BATCH_OP, dst));
        assert_eq!(offset_of!(Operation, extent), offset_of!(CUDA_MEMCPY3D_BATCH_OP, extent));
        assert_eq!(offset_of!(Operation, flags), offset_of!(CUDA_MEMCPY3D_BATCH_OP, flags));
        assert_eq!(offset_of!(Operand, words), offset_of!(CUmemcpy3DOperand, op));
    }
}
