//! The few things that need `unsafe`: signal masks, and what is done between fork and exec.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// A signal that this process was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal's number.
    pub number: i32,
    /// Sent by the kernel to the whole foreground process group (Ctrl-C, Ctrl-Z, a closed terminal), so the program got it too.
    pub by_terminal: bool,
}

/// Signals that are passed on to the program. SIGCHLD is waited for as well, and not passed on.
const FORWARDED: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// Signals that are blocked, so that they can be waited for in order, and the mask that was there before.
pub struct Signals {
    waited: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the forwarded signals and SIGCHLD in this thread; call it before any other thread starts.
    pub fn block() -> io::Result<Signals> {
        let mut waited = empty_set();
        // SAFETY: `waited` is an initialised set and the numbers are valid signals.
        unsafe {
            for number in FORWARDED {
                libc::sigaddset(&mut waited, number);
            }
            libc::sigaddset(&mut waited, libc::SIGCHLD);
        }
        let mut before = empty_set();
        // SAFETY: both sets are valid for the length of the call.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &waited, &mut before) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Signals { waited, before })
    }

    /// The next signal, or `None` when none came within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Received> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: set, info and timeout are valid for the length of the call.
        let number = unsafe { libc::sigtimedwait(&self.waited, info.as_mut_ptr(), &timeout) };
        if number <= 0 {
            return None; // nothing within the time, or interrupted: the caller looks again
        }
        // SAFETY: zeroed is a valid siginfo_t, and sigtimedwait has filled it.
        let info = unsafe { info.assume_init() };
        Some(Received { number, by_terminal: info.si_code == libc::SI_KERNEL })
    }

    /// Starts a child that dies when this process does: it gets `death_signal` then, and it starts with the signal mask
    /// that this process had before [`Signals::block`]. Call it from the main thread: the kernel watches the thread.
    pub fn spawn(&self, mut command: Command, death_signal: rustix::process::Signal) -> io::Result<Child> {
        let before = self.before;
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec only system calls are made: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(death_signal))?;
                // The parent may have died before the line above took effect.
                if rustix::process::getppid() != Some(parent) {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                match libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            });
        }
        command.spawn()
    }
}

/// Replaces this process by the program, with the signal mask left as it is; returns only when that failed.
pub fn become_program(mut command: Command) -> io::Error {
    let mut mask = empty_set();
    // SAFETY: a null set only reads the mask into `mask`, which is valid.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    // SAFETY: one system call on a copied set. std clears the mask before this; the program is to inherit it.
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
    command.exec()
}

/// Ends this process by `signal`, as the program was ended, and without a core of its own. Returns when the signal
/// does not end a process.
pub fn die_of(signal: i32) {
    let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, no_core);
    let mut set = empty_set();
    // SAFETY: the set is initialised; resetting a handler and unblocking a signal touch no memory of ours.
    unsafe {
        libc::sigaddset(&mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}
