//! Linear copies.

use crate::context::{self, Context};
use crate::error::*;
use crate::place::{self, Place};
use crate::stream::{Stream, Work};
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
    fn places(self, to: u64, from: u64, length: usize) -> Result<(Place, Place)> {
        let (to_known, from_known) = match self {
            Ends::HostToDevice => (true, false),
            Ends::DeviceToHost => (false, true),
            Ends::DeviceToDevice => (true, true),
            Ends::Unified => (false, false),
        };
        let end = |address, known, write| {
            let length = length as u64;
            if known { Place::known(address, length, write) } else { Place::any(address, length, write) }
        };
        Ok((end(to, to_known, true)?, end(from, from_known, false)?))
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
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if length == 0 {
        return Ok(());
    }
    let (to, from) = ends.places(to, from, length)?;
    if ends == Ends::DeviceToDevice && !to.is_synchronous() && !from.is_synchronous() {
        return enqueue(&context, &stream, to, from, length);
    }
    // SAFETY: the caller vouches for host ranges.
    context.run_now(&stream, || unsafe { place::copy(&to, &from, length) })
}

/// A copy in a stream. With pageable memory it is over (or its source is read) when the call returns.
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
    let (to, from) = ends.places(to, from, length)?;
    if from.is_pageable() && !to.is_pageable() && length <= STAGED {
        let mut staged = vec![0u8; length];
        let buffer = Place::Pageable(staged.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: the caller vouches for the source; the buffer is as long.
        unsafe { place::copy(&buffer, &from, length)? };
        // SAFETY: the closure owns the buffer.
        let job = move || unsafe {
            place::copy(&to, &Place::Pageable(staged.as_ptr().expose_provenance() as u64), staged.len())
        };
        return context.submit(&stream, Work::of_size(length, job));
    }
    if from.is_pageable() || to.is_pageable() {
        // SAFETY: the caller vouches for host ranges.
        return context.run_now(&stream, || unsafe { place::copy(&to, &from, length) });
    }
    enqueue(&context, &stream, to, from, length)
}

fn enqueue(context: &Context, stream: &Arc<Stream>, to: Place, from: Place, length: usize) -> Result {
    // SAFETY: both places are known memory; what the program frees meanwhile `copy` notices or the program promised not to.
    let job = move || unsafe { place::copy(&to, &from, length) };
    context.submit(stream, Work::of_size(length, job))
}
