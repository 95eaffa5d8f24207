//! What kernels print. A driver writes it to the process's standard output; here that is a file in memory, from which
//! the client fetches it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpupool_protocol::wire::{LinkError, Replier};
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};

/// Text that is kept until the client fetches it. An honest client fetches after each call that waits, and a driver's own
/// buffer holds some MiB between two of them; without a bound another could fill the host's memory.
const KEPT_MAX: u64 = 64 << 20;
/// Stands behind the text that was kept, in the place of what was not.
const LOST: &[u8] = b"\n[gpupool: kernel output was lost here: 64 MiB waited to be fetched]\n";

/// The captured output.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// An image was loaded whose kernels may print.
    expected: AtomicBool,
    /// How much the client knows of.
    told: AtomicU64,
    /// How much it has fetched.
    taken: Mutex<u64>,
}

impl Output {
    /// Makes the file, without putting it anywhere.
    ///
    /// # Errors
    /// No memory for it.
    pub fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("kernel-output", MemfdFlags::CLOEXEC)?;
        // Appending, so that several writers (the driver, its C library) never overwrite each other.
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Self {
            file: file.into(),
            expected: AtomicBool::new(false),
            told: AtomicU64::new(0),
            taken: Mutex::new(0),
        })
    }

    /// Puts it in the place of the process's standard output.
    ///
    /// # Errors
    /// What `dup2` says.
    pub fn capture(&self) -> io::Result<()> {
        Ok(rustix::stdio::dup2_stdout(&self.file)?)
    }

    /// An image is about to be loaded. Only from now on can there be output if its kernels may print.
    pub fn expect_from(&self, image: &[u8]) {
        if may_print(image) {
            self.expected.store(true, Ordering::Release);
        }
    }

    /// Tells the client if there is more than it knows of. To be called after a driver call at which printed text
    /// appears, and before the answer.
    ///
    /// # Errors
    /// The link is broken.
    pub fn tell(&self, link: &Replier) -> Result<(), LinkError> {
        if !self.expected.load(Ordering::Acquire) {
            return Ok(());
        }
        flush_c_streams();
        let written = self.bounded().unwrap_or(0);
        // Another thread that tells of more at the same time is as good as this one.
        if self.told.fetch_max(written, Ordering::AcqRel) < written {
            link.output_written(written)
        } else {
            Ok(())
        }
    }

    /// How much was written, after cutting off what is too much. What the client was told of stays.
    fn bounded(&self) -> io::Result<u64> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.file.metadata()?.size();
        let (most, marked) = (*taken + KEPT_MAX, *taken + KEPT_MAX + LOST.len() as u64);
        // At just this length it was cut before.
        if written > most && written != marked {
            tracing::warn!(bytes = written - most, "kernel output that nobody fetches is dropped");
            self.file.set_len(most)?;
            (&self.file).write_all(LOST)?;
            return Ok(marked);
        }
        Ok(written)
    }

    /// Takes at most `most` bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn take(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.file.metadata()?.size().saturating_sub(*taken);
        let mut text = vec![0; usize::try_from(left).unwrap_or(most).min(most)];
        self.file.read_exact_at(&mut text, *taken)?;
        let (from, length) = (*taken, text.len() as u64);
        *taken += length;
        if length > 0 {
            // What was fetched need not stay in memory. Without it the text is only kept for longer.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, hole, from, length);
        }
        Ok(text)
    }
}

/// Whether kernels of this image may print: `printf` in device code is a call of `vprintf`, which PTX text and cubins name.
/// Other images hold compressed parts.
fn may_print(image: &[u8]) -> bool {
    const CALLED: &[u8] = b"vprintf";
    let fatbin = image.starts_with(&0xBA55_ED50u32.to_le_bytes());
    fatbin || image.windows(CALLED.len()).any(|bytes| bytes == CALLED)
}

/// Drivers print through the C library, whose buffer for a file is only written when it is full.
#[allow(unsafe_code)]
fn flush_c_streams() {
    // SAFETY: a null pointer means all output streams (fflush(3)); it locks each by itself.
    let _ = unsafe { libc::fflush(std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_print() {
        assert!(!may_print(b".version 9.0 .entry k() { ret; }"));
        assert!(may_print(
            b".version 9.0 .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);"
        ));
        assert!(may_print(&[0x50, 0xED, 0x55, 0xBA, 1, 0]), "a fatbin's parts may be compressed");
        assert!(may_print(b"\x7fELF ... vprintf\0"));
    }

    #[test]
    fn text_is_taken_once_and_in_order() {
        let output = Output::new().unwrap();
        (&output.file).write_all(b"one two").unwrap();
        assert_eq!(output.take(3).unwrap(), b"one");
        (&output.file).write_all(b" three").unwrap();
        assert_eq!(output.take(100).unwrap(), b" two three");
        assert_eq!(output.take(100).unwrap(), b"");
    }

    #[test]
    fn what_nobody_fetches_is_bounded_and_what_is_lost_is_said() {
        let output = Output::new().unwrap();
        let print = |bytes: u64| (&output.file).write_all(&vec![b'x'; bytes as usize]).unwrap();
        print(1000);
        assert_eq!(output.bounded().unwrap(), 1000);
        for _ in 0..3 {
            print(KEPT_MAX);
            assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64);
            assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64, "cut once");
        }
        assert_eq!(output.take(1000).unwrap(), vec![b'x'; 1000]);
        let rest = output.take(usize::MAX).unwrap();
        assert_eq!(rest.len() as u64, KEPT_MAX - 1000 + LOST.len() as u64);
        assert!(rest.ends_with(LOST));
        print(5);
        assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64 + 5);
        assert_eq!(output.take(100).unwrap(), b"xxxxx");
    }
}
