//! Threads of the driver in a process that belongs to somebody else.

/// Starts a thread that takes no signals: those are the program's.
///
/// # Errors
/// When the system refuses another thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let old = block_signals();
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    restore_signals(&old);
    spawned.map(drop)
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain memory that the calls fill; the mask is this thread's own and is put back.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is what the mask was before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}
