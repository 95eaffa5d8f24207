//! The options of `cuModuleLoadDataEx`, `cuLibraryLoadData` and `cuLinkCreate`: of all that CUDA knows, the log buffers
//! mean something here; the rest tunes machine code that is never made.

use crate::error::*;
use std::ffi::c_void;

const MAX_REGISTERS: u32 = 0;
const WALL_TIME: u32 = 2;
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
/// `CU_JIT_NUM_OPTIONS`.
const OPTIONS: u32 = 36;

/// A text buffer of the program, and where the number of bytes written to it goes.
#[derive(Debug, Clone, Copy)]
struct Log {
    buffer: *mut u8,
    room: usize,
    size_slot: *mut *mut c_void,
}

/// The options of one call.
#[derive(Debug, Clone)]
pub struct Options {
    info: Log,
    error: Log,
    wall_time: *mut *mut c_void,
    /// `CU_JIT_MAX_REGISTERS`: what kernels then say that they use at most. A CPU has no such choice to make.
    pub max_registers: Option<u32>,
}

// SAFETY: the buffers are the program's; CUDA demands that they stay valid for the link's or the call's duration, and
// calls with one link state are not made at once.
unsafe impl Send for Options {}
// SAFETY: as above.
unsafe impl Sync for Options {}

const NONE: Log = Log { buffer: std::ptr::null_mut(), room: 0, size_slot: std::ptr::null_mut() };

impl Options {
    /// No options.
    pub const NONE: Options =
        Options { info: NONE, error: NONE, wall_time: std::ptr::null_mut(), max_registers: None };

    /// Reads the two arrays.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a null array or a number that is no option.
    ///
    /// # Safety
    /// Both arrays have `count` entries (or are null), the log buffers have the sizes given, and all stay valid while
    /// the value is used.
    pub unsafe fn read(count: u32, names: *const u32, values: *mut *mut c_void) -> Result<Options> {
        let mut options = Options::NONE;
        if count == 0 {
            return Ok(options);
        }
        if names.is_null() || values.is_null() || count > OPTIONS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: both arrays have more than `i` entries.
            let (name, slot) = unsafe { (*names.add(i), values.add(i)) };
            // SAFETY: the slot is an entry of the array.
            let value = unsafe { *slot };
            match name {
                MAX_REGISTERS => options.max_registers = Some(value.addr() as u32).filter(|n| *n > 0),
                WALL_TIME => options.wall_time = slot,
                INFO_LOG => options.info.buffer = value.cast(),
                ERROR_LOG => options.error.buffer = value.cast(),
                INFO_LOG_SIZE => {
                    (options.info.room, options.info.size_slot) = (value.addr() as u32 as usize, slot)
                }
                ERROR_LOG_SIZE => {
                    (options.error.room, options.error.size_slot) = (value.addr() as u32 as usize, slot)
                }
                _ if name < OPTIONS => {}
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(options)
    }

    /// Writes the outcome: the text into the error log (empty: none), the time, and an empty info log.
    ///
    /// # Safety
    /// What [`Options::read`] demands still holds.
    pub unsafe fn report(&self, error: &str, took: std::time::Duration) {
        // SAFETY: the caller vouches for buffers and slots.
        unsafe {
            self.info.write("");
            self.error.write(error);
            if !self.wall_time.is_null() {
                // CUDA stores a float of milliseconds in the pointer's own bytes.
                let milliseconds = (took.as_secs_f64() * 1e3) as f32;
                self.wall_time.write(std::ptr::without_provenance_mut(milliseconds.to_bits() as usize));
            }
        }
    }
}

impl Log {
    /// # Safety
    /// The buffer has `room` bytes; the slot is null or writable.
    unsafe fn write(&self, text: &str) {
        if self.buffer.is_null() || self.room == 0 {
            return;
        }
        let length = text.len().min(self.room - 1);
        // SAFETY: `length` and the zero behind it fit in the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.buffer, length);
            self.buffer.add(length).write(0);
            if !self.size_slot.is_null() {
                self.size_slot.write(std::ptr::without_provenance_mut(length));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_goes_into_the_log_and_is_cut_to_its_room() {
        let mut buffer = [b'?'; 8];
        let names = [ERROR_LOG, ERROR_LOG_SIZE, WALL_TIME, 7];
        let mut values: [*mut c_void; 4] = [
            buffer.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(8),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ];
        // SAFETY: arrays and buffer are as long as said.
        let options = unsafe { Options::read(4, names.as_ptr(), values.as_mut_ptr()) }.unwrap();
        // SAFETY: as above.
        unsafe { options.report("line 3: what", std::time::Duration::from_millis(2)) };
        assert_eq!(&buffer, b"line 3:\0");
        assert_eq!(values[1].addr(), 7);
        assert_eq!(f32::from_bits(values[2].addr() as u32), 2.0);
    }

    #[test]
    fn wrong_arrays_are_refused() {
        let names = [99];
        let mut values = [std::ptr::null_mut()];
        // SAFETY: the arrays have one entry, or are null.
        unsafe {
            assert!(Options::read(1, names.as_ptr(), values.as_mut_ptr()).is_err());
            assert!(Options::read(1, std::ptr::null(), values.as_mut_ptr()).is_err());
            assert!(Options::read(0, std::ptr::null(), std::ptr::null_mut()).is_ok());
        }
    }
}
