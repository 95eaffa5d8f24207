//! What kernels print goes to the program's own `stdout`, and what their failed assertions say to its `stderr`, at the calls at
//! which CUDA lets it appear.

use softcuda_engine::Realm;
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Writes out what a context's kernels have printed so far. Through the C library's buffer, so that it keeps its place
/// among what the program prints itself.
pub fn flush(realm: &Realm) {
    static ORDER: Mutex<()> = Mutex::new(());
    let _held = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the C library's own streams, which it sets before any program code runs.
    let (out, err) = unsafe { (stdout, stderr) };
    write(&realm.take_output(), out);
    write(&realm.take_complaints(), err);
}

fn write(text: &[u8], to: *mut libc::FILE) {
    if text.is_empty() {
        return;
    }
    // SAFETY: one of the C library's streams, valid until the process ends; the bytes are read only during the call. A
    // failure (a closed stream) leaves nothing to be done.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), to);
        libc::fflush(to);
    }
}
