//! `fork` and `exit`. The child of a process that has a session shares its descriptors and mappings: it must not touch
//! them, and must not keep the server from seeing the parent's end.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{PHASE, Phase};

const NONE: RawFd = -1;
static DESCRIPTORS: [AtomicI32; 3] = [const { AtomicI32::new(NONE) }; 3];

/// Descriptors of the session, which a child closes.
pub fn remember(descriptors: [RawFd; 3]) {
    for (place, fd) in DESCRIPTORS.iter().zip(descriptors) {
        place.store(fd, Relaxed);
    }
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
    PHASE.store(Phase::Child as u8, Release);
    for place in &DESCRIPTORS {
        let fd = place.swap(NONE, Relaxed);
        if fd != NONE {
            // SAFETY: a descriptor of the session, which this process never uses again.
            unsafe { libc::close(fd) };
        }
    }
}
