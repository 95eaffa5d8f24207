//! Memory sets: of bytes, halves and words, linear and in rows.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::context;
use crate::error::*;
use crate::op::Op;
use crate::place::{self, Place};
use crate::share;
use crate::stream::Work;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// A memory set that is found to be possible.
pub struct Fill {
    /// What is set.
    pub rows: Rows,
    /// Bytes of an element: 1, 2 or 4 of them.
    pub pattern: Arc<[u8]>,
    /// None: nothing is to be set.
    allocation: Option<Allocation>,
}

impl Fill {
    /// Checks a memory set.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an address that is not a multiple of the element, or a range that is not (all) there.
    pub fn prepare(rows: Rows, pattern: &[u8]) -> Result<Arc<Fill>> {
        let mut fill = Fill { rows, pattern: pattern.into(), allocation: None };
        if rows.width == 0 || rows.height == 0 {
            return Ok(Arc::new(fill));
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
        let Place::Known(_, allocation) = place else { return Err(CUDA_ERROR_INVALID_VALUE) };
        fill.allocation = Some(allocation);
        Ok(Arc::new(fill))
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.rows.width.saturating_mul(self.pattern.len()).saturating_mul(self.rows.height)
    }

    /// Sets.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` for memory that was freed meanwhile.
    pub fn run(&self) -> Result {
        share::slowed(|| self.run_once())
    }

    fn run_once(&self) -> Result {
        let Some(allocation) = &self.allocation else { return Ok(()) };
        if !place::is_backed(allocation) {
            return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        let memory = &allocation.device.memory;
        for y in 0..self.rows.height {
            let address = self.rows.address + (y * self.rows.pitch) as u64;
            if !memory.fill(address, &self.pattern, self.rows.width as u64) {
                return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
        }
        Ok(())
    }
}

/// Sets every element to `pattern` (1, 2 or 4 bytes) in a stream.
///
/// # Errors
/// As [`Fill::prepare`], and the context's fatal error.
pub fn set(rows: Rows, pattern: &[u8], stream: usize) -> Result {
    set_in(rows, pattern, stream, |_| false)
}

/// As [`set`], for the calls that are not asynchronous by name. They too return early, unless the memory is the host's or managed:
/// then they are "fully synchronous" (the manual's "API synchronization behavior").
///
/// # Errors
/// As [`set`].
pub fn set_for_the_host(rows: Rows, pattern: &[u8], stream: usize) -> Result {
    set_in(rows, pattern, stream, |what| what.is_host() || what.is_managed())
}

fn set_in(rows: Rows, pattern: &[u8], stream: usize, at_once: impl FnOnce(What) -> bool) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    let fill = Fill::prepare(rows, pattern)?;
    let Some(allocation) = &fill.allocation else { return Ok(()) };
    let at_once = allocation.synchronous.load(Ordering::Relaxed) || at_once(allocation.what);
    if at_once && !stream.is_capturing() {
        return context.run_now(&stream, || fill.run());
    }
    context.submit(&stream, Work::Do(Op::Set(fill)))
}
