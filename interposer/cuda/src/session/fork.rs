//! `fork` and `exit`. The child of a process that has a session shares its descriptors and mappings: it must not touch
//! them, and must not keep the server from seeing the parent's end.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU64};

use gpupool_protocol::control::CONNECTIONS_MAX;

use super::{Phase, leave_for};

const NONE: RawFd = -1;

/// A descriptor, and the file behind it (device and inode).
struct Descriptor {
    fd: AtomicI32,
    file: [AtomicU64; 2],
}

/// The control connection, what wakes its thread, and the data connections.
const COUNT: usize = 2 + CONNECTIONS_MAX as usize;

static DESCRIPTORS: [Descriptor; COUNT] =
    [const { Descriptor { fd: AtomicI32::new(NONE), file: [AtomicU64::new(0), AtomicU64::new(0)] } }; COUNT];

/// Descriptors of the session, which a child closes.
pub fn remember(descriptors: &[RawFd]) {
    for (place, &fd) in DESCRIPTORS.iter().zip(descriptors) {
        let file = file(fd).unwrap_or_default();
        place.file.iter().zip(file).for_each(|(to, from)| to.store(from, Relaxed));
        place.fd.store(fd, Relaxed);
    }
}

/// Whether a descriptor is still the session's. A program may have closed all descriptors (as daemons do) and have opened
/// files of its own under the same numbers, which are not ours to close.
pub fn is_ours(fd: RawFd) -> bool {
    DESCRIPTORS.iter().any(|place| place.fd.load(Relaxed) == fd && place.is_same())
}

impl Descriptor {
    fn is_same(&self) -> bool {
        let [device, inode] = &self.file;
        file(self.fd.load(Relaxed)) == Some([device.load(Relaxed), inode.load(Relaxed)])
    }
}

/// Device and inode of an open file. Async-signal-safe.
fn file(fd: RawFd) -> Option<[u64; 2]> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for a `stat`, which is filled in if the answer is 0.
    let stat = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    Some([stat.st_dev, stat.st_ino])
}

/// Registers what happens at `fork` and `exit`. Once a process.
pub fn watch() {
    // SAFETY: both take functions that live as long as the process (the library is never unloaded).
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(super::at_exit);
    }
}

/// Only what is allowed between `fork` and `exec`: plain stores and system calls.
extern "C" fn in_child() {
    leave_for(Phase::Child);
    for place in &DESCRIPTORS {
        let ours = place.is_same();
        let fd = place.fd.swap(NONE, Relaxed);
        if fd != NONE && ours {
            // SAFETY: a descriptor of the session, which this process never uses again.
            unsafe { libc::close(fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_number_under_which_the_program_has_opened_another_file_is_not_ours() {
        let session = File::open("/dev/null").unwrap().into_raw_fd();
        remember(&[session]);
        assert!(is_ours(session));
        // What a program does that closes all descriptors and goes on.
        let other = File::open("/proc/self/exe").unwrap();
        // SAFETY: plain system calls on descriptors of this test.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), session) }, session);
        assert!(!is_ours(session));
        in_child();
        // SAFETY: as above.
        assert_ne!(unsafe { libc::fcntl(session, libc::F_GETFD) }, -1, "the program's file was closed");
        leave_for(Phase::Fresh);
        // SAFETY: as above.
        unsafe { libc::close(session) };
        assert!(!is_ours(session));
    }
}
