//! Options of the JIT compiler and the linker. Numbers go to the worker; buffers for logs stay here and are filled when
//! its answer is there.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use gpupool_protocol::image::JitOption;

use super::images::encoded;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::cptr::Ptr;
use crate::host;

// CUjit_option.
const WALL_TIME: u32 = 2;
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
/// Names and addresses of symbols, and lists of what is used: arrays of pointers.
const POINTERS: [u32; 4] = [17, 18, 25, 27];
/// The highest that cuda.h 13.5 has.
const LAST: u32 = 35;
/// More options than exist make no sense.
const COUNT_MAX: u32 = 256;

/// A buffer of the program's for a log.
#[derive(Debug, Clone, Copy, Default)]
struct Log {
    buffer: u64,
    size: u64,
    /// Where in the program's array of values the used length is stored.
    length_at: Option<usize>,
}

impl Log {
    fn store(&self, text: &str, values: u64) {
        let mut used = 0;
        if self.buffer != 0 && self.size != 0 {
            let bytes = text.as_bytes();
            let len = bytes.len().min(self.size as usize - 1);
            let buffer = host::bytes_mut(self.buffer, len + 1);
            buffer[..len].copy_from_slice(&bytes[..len]);
            buffer[len] = 0;
            used = if len == 0 { 0 } else { len + 1 };
        }
        if let Some(at) = self.length_at {
            store_value(values, at, used as u64);
        }
    }
}

/// Options whose value is an output are written to the program's array of values, as the manual says.
fn store_value(values: u64, at: usize, value: u64) {
    let values: Ptr<*mut c_void> = Ptr::of_argument(ptr::with_exposed_provenance_mut(values as usize));
    values.set_at(at, ptr::without_provenance_mut(value as usize));
}

/// The options of one load or link.
#[derive(Debug, Clone)]
pub struct Jit {
    numbers: Vec<JitOption>,
    info: Log,
    error: Log,
    wall_time_at: Option<usize>,
    values: u64,
    start: Instant,
}

impl Jit {
    /// No options.
    pub fn none() -> Self {
        let (info, error) = (Log::default(), Log::default());
        Self { numbers: Vec::new(), info, error, wall_time_at: None, values: 0, start: Instant::now() }
    }

    /// The options of a call.
    pub fn parse(count: u32, options: Ptr<u32>, values: Ptr<*mut c_void>) -> Answer<Self> {
        let mut jit = Self { values: values.addr(), ..Self::none() };
        if count == 0 {
            return Ok(jit);
        }
        if count > COUNT_MAX || options.is_null() || values.is_null() {
            return Err(INVALID_VALUE);
        }
        for at in 0..count as usize {
            jit.take(at, options.at(at), values.at(at).expose_provenance() as u64)?;
        }
        Ok(jit)
    }

    fn take(&mut self, at: usize, option: u32, value: u64) -> Answer {
        match option {
            WALL_TIME => self.wall_time_at = Some(at),
            INFO_LOG => self.info.buffer = value,
            ERROR_LOG => self.error.buffer = value,
            INFO_LOG_SIZE | ERROR_LOG_SIZE => {
                let log = if option == INFO_LOG_SIZE { &mut self.info } else { &mut self.error };
                log.size = u64::from(value as u32);
                log.length_at = Some(at);
                self.numbers.push(JitOption { option, value: log.size });
            }
            pointer if POINTERS.contains(&pointer) => return Err(NOT_SUPPORTED),
            option if option <= LAST => self.numbers.push(JitOption { option, value }),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    /// The numbers.
    pub fn numbers(&self) -> &[JitOption] {
        &self.numbers
    }

    /// The numbers as a record carries them.
    pub fn encode(&self) -> Vec<u8> {
        encoded(&self.numbers)
    }

    /// Stores logs and the time since the options were read.
    pub fn store(&self, info: &str, error: &str) {
        self.info.store(info, self.values);
        self.error.store(error, self.values);
        if let Some(at) = self.wall_time_at {
            let milliseconds = self.start.elapsed().as_secs_f32() * 1000.0;
            store_value(self.values, at, u64::from(milliseconds.to_bits()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_come_to_their_buffers_and_lengths_to_the_values() {
        let mut log = [1u8; 8];
        let mut options = [ERROR_LOG, ERROR_LOG_SIZE, 7, WALL_TIME];
        let address = ptr::without_provenance_mut::<c_void>;
        let mut values = [log.as_mut_ptr().cast::<c_void>(), address(8), address(3), address(0)];
        log.as_mut_ptr().expose_provenance();
        values.as_mut_ptr().expose_provenance();
        let jit =
            Jit::parse(4, Ptr::of_argument(options.as_mut_ptr()), Ptr::of_argument(values.as_mut_ptr()))
                .unwrap();
        let numbers: Vec<_> = jit.numbers().iter().map(|o| (o.option, o.value)).collect();
        assert_eq!(numbers, [(ERROR_LOG_SIZE, 8), (7, 3)]);
        jit.store("", "line 12 is wrong");
        assert_eq!((&log, values[1].addr()), (b"line 12\0", 8));
        assert!(f32::from_bits(values[3].addr() as u32) >= 0.0);
    }

    #[test]
    fn what_cannot_travel_is_refused() {
        let mut values = [ptr::null_mut::<c_void>()];
        for (option, want) in [(17, NOT_SUPPORTED), (36, INVALID_VALUE)] {
            let mut options = [option];
            let got =
                Jit::parse(1, Ptr::of_argument(options.as_mut_ptr()), Ptr::of_argument(values.as_mut_ptr()));
            assert_eq!(got.err(), Some(want));
        }
        assert_eq!(
            Jit::parse(1, Ptr::of_argument(ptr::null_mut()), Ptr::of_argument(ptr::null_mut())).err(),
            Some(INVALID_VALUE)
        );
    }
}
