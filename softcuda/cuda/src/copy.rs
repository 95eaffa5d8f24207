//! Linear copies.

use crate::context;
use crate::copy_box::{BoxCopy, End, Extent};
use crate::error::*;
use crate::graph::capture;
use crate::op::Op;
use crate::place::{self, Place};
use crate::stream::Work;
use std::sync::Arc;

/// An asynchronous copy from pageable memory is staged up to this size; above it the call does the copy itself.
const STAGED: usize = 4 << 20;

/// What the caller of a copy says its addresses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// `cuMemcpyHtoD`.
    HostToDevice,
    /// `cuMemcpyDtoH`.
    DeviceToHost,
    /// `cuMemcpyDtoD`.
    DeviceToDevice,
    /// `cuMemcpy`: whatever they are.
    Unified,
}

impl Ends {
    /// The copy, checked; the kinds are those of `CUmemorytype`.
    ///
    /// # Safety
    /// As [`BoxCopy::prepare`].
    pub unsafe fn prepare(self, to: u64, from: u64, length: usize) -> Result<Arc<BoxCopy>> {
        let (to_kind, from_kind) = match self {
            Ends::HostToDevice => (2, 1),
            Ends::DeviceToHost => (1, 2),
            Ends::DeviceToDevice => (2, 2),
            Ends::Unified => (4, 4),
        };
        let (to, from) = (End::linear(to_kind, to), End::linear(from_kind, from));
        // SAFETY: the caller vouches for host ranges.
        unsafe { BoxCopy::prepare(to, from, Extent::line(length)) }
    }
}

/// A copy that is over when the call returns, except between devices' memories, where CUDA returns at once.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a range that is not (all) there, the context's fatal error.
///
/// # Safety
/// Host ranges are the program's and valid.
pub unsafe fn blocking(ends: Ends, to: u64, from: u64, length: usize, stream: usize) -> Result {
    capture::permit_unsafe()?;
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the caller vouches for host ranges.
    let copy = unsafe { ends.prepare(to, from, length)? };
    if ends == Ends::DeviceToDevice && !copy.is_synchronous() {
        return context.submit(&stream, Work::Do(Op::Copy(copy)));
    }
    context.run_now(&stream, || copy.run())
}

/// A copy in a stream. With pageable memory it is over (or its source is read) when the call returns, unless the stream
/// captures: then it reads and writes that memory at each launch of the graph.
///
/// # Errors
/// As [`blocking`].
///
/// # Safety
/// Host ranges are the program's and valid, pinned ones until the stream has come past the copy.
pub unsafe fn asynchronous(ends: Ends, to: u64, from: u64, length: usize, stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the caller vouches for host ranges.
    let copy = unsafe { ends.prepare(to, from, length)? };
    match copy.pageable() {
        _ if stream.is_capturing() => context.submit(&stream, Work::Do(Op::Copy(copy))),
        (false, true) if length <= STAGED => {
            // SAFETY: the caller vouches for the source.
            let staged = unsafe { stage(&copy, length)? };
            context.submit(&stream, staged)
        }
        (false, false) => context.submit(&stream, Work::Do(Op::Copy(copy))),
        _ => context.run_now(&stream, || copy.run()),
    }
}

/// The copy as work that has read its pageable source.
///
/// # Safety
/// The source has `length` bytes.
unsafe fn stage(copy: &BoxCopy, length: usize) -> Result<Work> {
    let from = if copy.from.kind == 1 { copy.from.host } else { copy.from.device };
    let mut staged = vec![0u8; length];
    let buffer = Place::Pageable(staged.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: the caller vouches for the source; the buffer is as long.
    unsafe { place::copy(&buffer, &Place::Pageable(from), length)? };
    let source = End::linear(1, staged.as_ptr().expose_provenance() as u64);
    // SAFETY: the buffer goes with the work.
    let copy = unsafe { BoxCopy::prepare(copy.to, source, copy.extent)? };
    Ok(Work::of_size(length, move || {
        let _staged = &staged;
        copy.run()
    }))
}
