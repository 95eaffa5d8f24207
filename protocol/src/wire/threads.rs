//! Threads inside the program's process that its signals do not reach.

#![allow(unsafe_code)]

use std::io;
use std::thread::JoinHandle;

/// Starts a thread that has all signals blocked from its first instruction on: the program's handlers belong on the
/// program's threads, which also have the stacks for them. `name` has at most 15 bytes.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    debug_assert!(name.len() <= 15);
    // SAFETY: an all-zero signal set is valid memory for the calls that fill it; only this thread's mask changes, and
    // the new thread inherits it.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    // SAFETY: puts back the mask that was stored above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    thread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(status: &str) -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn the_new_thread_has_signals_blocked_and_the_old_one_has_not() {
        let mask = || blocked(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
        let before = mask();
        let theirs = spawn_quiet("quiet", mask).unwrap().join().unwrap();
        for signal in [libc::SIGINT, libc::SIGALRM, libc::SIGCHLD, libc::SIGUSR1, libc::SIGPROF] {
            assert_ne!(theirs & 1 << (signal - 1), 0, "signal {signal}");
        }
        assert_eq!(mask(), before);
    }
}
