//! Many copies by one call.

use super::memories::Location;
use super::on;
use crate::copy::{self, Ends};
use crate::copy_batch::{Attributes as RawAttributes, CopyBatch, Request, during_call};
use crate::copy_box::{self, End, Extent};
use crate::error::*;
use crate::graph::node::Content;
use crate::op::Op;
use crate::{array, stream};
use cudarc::driver::sys::{CUcontext, CUstream};

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

/// Batches may not be given to the legacy stream.
fn batch_stream(stream: usize) -> Result<usize> {
    if stream == stream::LEGACY || stream == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(stream) }
}

/// `CUDA_MEMCPY_BATCH_NODE_PARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct BatchNode {
    count: usize,
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    attributes: *const RawAttributes,
    firsts: *const usize,
    kinds: usize,
    context: CUcontext,
}

impl BatchNode {
    /// The lists.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a list that is missing.
    ///
    /// # Safety
    /// The pointers are null or hold `count` (the attributes: `kinds`) elements.
    unsafe fn request(&self) -> Result<Request> {
        // SAFETY: the caller vouches for the counts.
        unsafe {
            Ok(Request {
                to: list(self.to, self.count)?,
                from: list(self.from, self.count)?,
                bytes: list(self.bytes, self.count)?,
                attributes: list(self.attributes, self.kinds)?,
                firsts: list(self.firsts, self.kinds)?,
            })
        }
    }

    /// The node that it describes.
    ///
    /// # Errors
    /// As [`CopyBatch::prepare`].
    ///
    /// # Safety
    /// As [`BatchNode::request`]; host ranges are valid at every launch.
    pub(super) unsafe fn content(&self) -> Result<Content> {
        let context = super::contexts::find(self.context)?;
        // SAFETY: the caller vouches for the lists and ranges.
        Ok(Content::Do(Op::Copies(unsafe { CopyBatch::prepare(&context, self.request()?)? })))
    }

    /// The description of a node; its pointers are good as long as the node is not changed.
    pub(super) fn of(batch: &CopyBatch) -> BatchNode {
        let Request { to, from, bytes, attributes, firsts } = &batch.request;
        BatchNode {
            count: to.len(),
            to: to.as_ptr(),
            from: from.as_ptr(),
            bytes: bytes.as_ptr(),
            attributes: attributes.as_ptr(),
            firsts: firsts.as_ptr(),
            kinds: attributes.len(),
            context: super::handle(batch.context.handle),
        }
    }
}

/// # Safety
/// `first` is null or has `count` elements.
unsafe fn list<T: Copy>(first: *const T, count: usize) -> Result<Box<[T]>> {
    if first.is_null() || count == 0 || count > 1 << 24 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the count.
    Ok((0..count).map(|i| unsafe { first.add(i).read_unaligned() }).collect())
}

/// # Safety
/// As [`BatchNode::request`]; host ranges as of [`copy::asynchronous`].
unsafe fn batch(what: BatchNode, stream: usize) -> Result {
    let stream = batch_stream(stream)?;
    // SAFETY: the caller vouches for the lists.
    let request = unsafe { what.request()? };
    for (i, now) in request.during_call()?.into_iter().enumerate() {
        let (to, from, bytes) = (request.to[i], request.from[i], request.bytes[i]);
        // SAFETY: the caller vouches for the ranges.
        unsafe {
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
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize, attributes: *mut RawAttributes, firsts: *mut usize,
        kinds: usize, failed: *mut usize, stream: CUstream
    ) [cuMemcpyBatchAsync_ptsz, default] {
        super::set_if_wanted(failed, usize::MAX);
        let context = std::ptr::null_mut();
        batch(BatchNode { count, to, from, bytes, attributes, firsts, kinds, context }, on(stream, default))
    }
    cuMemcpyBatchAsync_v2(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize, attributes: *mut RawAttributes, firsts: *mut usize,
        kinds: usize, stream: CUstream
    ) [cuMemcpyBatchAsync_v2_ptsz, default] {
        let context = std::ptr::null_mut();
        batch(BatchNode { count, to, from, bytes, attributes, firsts, kinds, context }, on(stream, default))
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
        assert_eq!(size_of::<Attributes>(), size_of::<RawAttributes>());
        // CUDA_MEMCPY_BATCH_NODE_PARAMS of cuda.h 13.5: seven words, and the context.
        assert_eq!((size_of::<BatchNode>(), offset_of!(BatchNode, context)), (64, 56));
        assert_eq!(size_of::<Operation>(), size_of::<CUDA_MEMCPY3D_BATCH_OP>());
        assert_eq!(offset_of!(Operation, to), offset_of!(CUDA_MEMCPY3D_BATCH_OP, dst));
        assert_eq!(offset_of!(Operation, extent), offset_of!(CUDA_MEMCPY3D_BATCH_OP, extent));
        assert_eq!(offset_of!(Operation, flags), offset_of!(CUDA_MEMCPY3D_BATCH_OP, flags));
        assert_eq!(offset_of!(Operand, words), offset_of!(CUmemcpy3DOperand, op));
    }
}
