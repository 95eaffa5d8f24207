//! What a thread is like while it runs kernels: undisturbed, and with the floating-point arithmetic of a device.

/// Blocks all signals of this thread while it lives, and has it compute as kernels do: to nearest, with denormals. A
/// program built for fast mathematics flushes them in all its threads, ours among them.
pub(super) struct Quiet(libc::sigset_t, u32);

/// MXCSR with all exceptions masked, and nothing else.
const PLAIN_FLOATS: u32 = 0x1f80;

fn swap_float_control(new: u32) -> u32 {
    let mut old = 0u32;
    // SAFETY: reads and writes MXCSR, and memory on this stack; the value is one that masks all exceptions, or was there.
    unsafe {
        std::arch::asm!(
            "stmxcsr [{old}]", "ldmxcsr [{new}]",
            old = in(reg) &raw mut old, new = in(reg) &raw const new, options(nostack),
        );
    }
    old
}

impl Quiet {
    pub fn new() -> Quiet {
        // SAFETY: plain C calls on sets that live on this stack.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut old = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            Quiet(old, swap_float_control(PLAIN_FLOATS))
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        swap_float_control(self.1);
        // SAFETY: the set was filled by `pthread_sigmask`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
