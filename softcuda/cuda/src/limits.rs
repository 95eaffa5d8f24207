//! `cuCtxGetLimit` and `cuCtxSetLimit`. A CPU needs none but those of the buffer of `printf` and of the heap of device code; the
//! others are kept so that a program reads back what it set.
#![forbid(unsafe_code)]

use crate::error::*;
use softcuda_engine::Realm;

/// The limits of a context, by their number.
#[derive(Debug, Clone)]
pub struct Limits([usize; 7]);

impl Default for Limits {
    fn default() -> Self {
        // Stack of a thread, printf buffer, device heap, nesting (not on this architecture), pending device launches, L2
        // fetch granularity, persisting L2.
        Self([1024, 1 << 20, 8 << 20, 0, 2048, 64, 0])
    }
}

/// `CU_LIMIT_PRINTF_FIFO_SIZE` and `CU_LIMIT_MALLOC_HEAP_SIZE`.
const PRINTF: usize = 1;
const HEAP: usize = 2;
/// Device-side synchronisation is gone since compute capability 9.0.
const SYNC_DEPTH: usize = 3;

impl Limits {
    fn index(limit: u32) -> Result<usize> {
        match limit as usize {
            SYNC_DEPTH | 7..=10 => Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
            index if index < 7 => Ok(index),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The value of a limit.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT`, or `CUDA_ERROR_INVALID_VALUE` for a number that is no limit.
    pub fn get(&self, limit: u32) -> Result<usize> {
        Ok(self.0[Self::index(limit)?])
    }

    /// Sets a limit.
    ///
    /// # Errors
    /// As [`Limits::get`]; `CUDA_ERROR_INVALID_VALUE` for a value out of range.
    pub fn set(&mut self, limit: u32, value: usize, realm: &Realm) -> Result {
        let index = Self::index(limit)?;
        let allowed = match index {
            0 => value <= 512 << 10,
            5 => value <= 128,
            6 => value == 0,
            _ => true,
        };
        if !allowed {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.0[index] = value;
        match index {
            PRINTF => realm.set_output_limit(value),
            HEAP => realm.set_heap_limit(value as u64),
            _ => {}
        }
        Ok(())
    }
}
