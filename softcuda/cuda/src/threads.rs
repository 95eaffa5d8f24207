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

/// Has the calling thread, one of the device's, run only when nothing else wants the processor: a program on a machine whose
/// cores are its device stays as quick as beside a card. Threads that it starts are not concerned. `SOFTCUDA_PRIORITY=normal`
/// leaves it as it is.
pub fn become_device() {
    if crate::config::get().idle {
        // SAFETY: the structure is plain memory that zeros make a valid value of; the call reads it and concerns this
        // thread only.
        unsafe {
            let parameters: libc::sched_param = std::mem::zeroed();
            // Where a sandbox forbids it, the thread works on as it is.
            libc::sched_setscheduler(0, libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK, &parameters);
        }
    }
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
