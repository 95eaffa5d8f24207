//! `SOFTCUDA_LOG=file`: what devices did and when, from all processes, as an oracle for everything that measures time.
//!
//! Lines of fields between tabs; times are nanoseconds of the monotonic clock, which is the same in all processes:
//!
//! ```text
//! kernel  <device>  <process>  <start>  <end>  <stream>  <name>
//! turn    <device>  <process>  <start>
//! ```
//!
//! A kernel starts when its process has the device and its first block is about to run. Between `start` and `end` other
//! processes may have had the device: each `turn` line says from when on a process had it, until the next such line of
//! the device. Lines are written whole (one `write` to a file opened for appending); their order is that of the writing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The file.
pub struct Trace {
    file: File,
    process: u32,
}

impl Trace {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> std::io::Result<Trace> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Trace { file, process: std::process::id() })
    }

    /// A kernel has run in a stream of a number.
    pub fn kernel(&self, device: u32, (start, end): (u64, u64), stream: u64, name: &str) {
        self.line(&format!("kernel\t{device}\t{}\t{start}\t{end}\t{stream}\t{name}\n", self.process));
    }

    /// This process has got the device.
    pub fn turn(&self, device: u32, start: u64) {
        self.line(&format!("turn\t{device}\t{}\t{start}\n", self.process));
    }

    fn line(&self, line: &str) {
        // A full disk must not stop the device.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}
