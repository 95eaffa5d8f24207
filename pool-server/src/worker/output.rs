//! What kernels print. A driver writes it to the process's standard output, and what failed assertions say to its standard
//! error; here both are files in memory, from which the client fetches it. The worker's own log has a descriptor of its own.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpupool_protocol::image::linked;
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
    out: Captured,
    err: Captured,
    /// The process's standard output is `out`.
    captured: AtomicBool,
    /// An image was loaded whose kernels may print.
    expected: AtomicBool,
    /// How much of both the client knows of.
    told: AtomicU64,
}

impl Output {
    /// Makes the files, without putting them anywhere.
    ///
    /// # Errors
    /// No memory for them.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            out: Captured::new()?,
            err: Captured::new()?,
            captured: AtomicBool::new(false),
            expected: AtomicBool::new(false),
            told: AtomicU64::new(0),
        })
    }

    /// Puts it in the place of the process's standard output, and of its standard error as soon as kernels may write there.
    ///
    /// # Errors
    /// What `dup2` says.
    pub fn capture(&self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.out.file)?;
        self.captured.store(true, Ordering::Release);
        Ok(())
    }

    /// An image is about to be loaded. Only from now on can there be output if its kernels may print.
    pub fn expect_from(&self, image: &[u8]) {
        if !self.expected.load(Ordering::Acquire) && may_print(image) {
            if self.captured.load(Ordering::Acquire)
                && let Err(error) = rustix::stdio::dup2_stderr(&self.err.file)
            {
                tracing::warn!(%error, "what failed assertions say stays in this log");
            }
            self.expected.store(true, Ordering::Release);
        }
    }

    /// Tells the client if there is more than it knows of. To be called after a driver call at which printed text
    /// appears, and before the answer. `failed`: the call did, as it does when an assertion has.
    ///
    /// # Errors
    /// The link is broken.
    pub fn tell(&self, link: &Replier, failed: bool) -> Result<(), LinkError> {
        if !self.expected.load(Ordering::Acquire) {
            return Ok(());
        }
        flush_c_streams();
        self.out.look();
        if failed {
            self.err.look();
        }
        let written = self.out.known() + self.err.known();
        // Another thread that tells of more at the same time is as good as this one.
        if self.told.fetch_max(written, Ordering::AcqRel) < written {
            link.output_written(written)
        } else {
            Ok(())
        }
    }

    /// Takes at most `most` bytes of what the client knows of, and the number of the descriptor that they were written to.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn take(&self, most: usize) -> io::Result<(u32, Vec<u8>)> {
        match self.out.take(most)? {
            text if text.is_empty() => Ok((2, self.err.take(most)?)),
            text => Ok((1, text)),
        }
    }
}

/// One stream's file.
#[derive(Debug)]
struct Captured {
    file: File,
    /// How much was written, when it was looked at last.
    known: AtomicU64,
    /// How much the client has fetched.
    taken: Mutex<u64>,
}

impl Captured {
    fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("kernel-output", MemfdFlags::CLOEXEC)?;
        // Appending, so that several writers (the driver, its C library) never overwrite each other.
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Self { file: file.into(), known: AtomicU64::new(0), taken: Mutex::new(0) })
    }

    fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// Sees how much was written by now.
    fn look(&self) {
        self.known.fetch_max(self.bounded().unwrap_or(0), Ordering::AcqRel);
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

    /// Takes at most `most` bytes of what is known.
    fn take(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.known().saturating_sub(*taken);
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

/// Whether kernels of this image may print: `printf` in device code is a call of `vprintf` and a failed assertion one of
/// `__assertfail`, which PTX text and cubins name. Other images hold compressed parts.
fn may_print(image: &[u8]) -> bool {
    let names = |what: &[u8]| image.windows(what.len()).any(|bytes| bytes == what);
    let fatbin = image.starts_with(&0xBA55_ED50u32.to_le_bytes()) || linked::is_joined(image);
    fatbin || names(b"vprintf") || names(b"__assertfail")
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
        assert!(may_print(b".extern .func __assertfail (.param .b64 message);"));
        assert!(may_print(&[0x50, 0xED, 0x55, 0xBA, 1, 0]), "a fatbin's parts may be compressed");
        assert!(may_print(b"\x7fELF ... vprintf\0"));
    }

    #[test]
    fn text_is_taken_once_and_in_order() {
        let output = Output::new().unwrap();
        let print = |to: &Captured, text: &[u8]| {
            (&to.file).write_all(text).unwrap();
            to.look();
        };
        print(&output.out, b"one two");
        assert_eq!(output.take(3).unwrap(), (1, b"one".to_vec()));
        print(&output.err, b"wrong");
        print(&output.out, b" three");
        assert_eq!(output.take(100).unwrap(), (1, b" two three".to_vec()));
        assert_eq!(output.take(3).unwrap(), (2, b"wro".to_vec()));
        assert_eq!(output.take(100).unwrap(), (2, b"ng".to_vec()));
        // What the client does not know of yet is not taken: it counts what it has.
        (&output.err.file).write_all(b"later").unwrap();
        assert_eq!(output.take(100).unwrap().1, b"");
    }

    #[test]
    fn what_nobody_fetches_is_bounded_and_what_is_lost_is_said() {
        let output = Captured::new().unwrap();
        let print = |bytes: u64| (&output.file).write_all(&vec![b'x'; bytes as usize]).unwrap();
        print(1000);
        assert_eq!(output.bounded().unwrap(), 1000);
        for _ in 0..3 {
            print(KEPT_MAX);
            assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64);
            assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64, "cut once");
        }
        output.look();
        assert_eq!(output.take(1000).unwrap(), vec![b'x'; 1000]);
        let rest = output.take(usize::MAX).unwrap();
        assert_eq!(rest.len() as u64, KEPT_MAX - 1000 + LOST.len() as u64);
        assert!(rest.ends_with(LOST));
        print(5);
        assert_eq!(output.bounded().unwrap(), KEPT_MAX + LOST.len() as u64 + 5);
        output.look();
        assert_eq!(output.take(100).unwrap(), b"xxxxx");
    }
}
