//! Memory sets: of bytes, halves and words, linear and in rows.
#![forbid(unsafe_code)]

use crate::context;
use crate::error::*;
use crate::place::Place;
use crate::stream::Work;
use std::sync::Arc;

/// Rows of elements.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// First address.
    pub address: u64,
    /// Bytes from row to row; anything for one row.
    pub pitch: usize,
    /// Elements a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rows {
    /// One row.
    pub fn line(address: u64, count: usize) -> Self {
        Self { address, pitch: 0, width: count, height: 1 }
    }
}

/// Sets every element to `pattern` (1, 2 or 4 bytes). In a stream; the calls that are not asynchronous by name give the
/// default stream, and CUDA lets those return early as well.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an address that is not a multiple of the element, or a range that is not (all) there.
pub fn set(rows: Rows, pattern: &[u8], stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let row = rows.width.checked_mul(pattern.len()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let element = pattern.len() as u64;
    let rows_apart = rows.height > 1;
    if !rows.address.is_multiple_of(element)
        || (rows_apart && (rows.pitch < row || !rows.pitch.is_multiple_of(pattern.len())))
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let span = rows.pitch.checked_mul(rows.height - 1).and_then(|s| s.checked_add(row));
    let place = Place::known(rows.address, span.ok_or(CUDA_ERROR_INVALID_VALUE)? as u64, true)?;
    let now = place.is_synchronous();
    let Place::Known(_, allocation) = place else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let pattern: Arc<[u8]> = pattern.into();
    let job = move || {
        let memory = &allocation.device.memory;
        for y in 0..rows.height {
            let address = rows.address + (y * rows.pitch) as u64;
            if !memory.fill(address, &pattern, rows.width as u64) {
                return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
        }
        Ok(())
    };
    let bytes = row.saturating_mul(rows.height);
    if now { context.run_now(&stream, job) } else { context.submit(&stream, Work::of_size(bytes, job)) }
}
