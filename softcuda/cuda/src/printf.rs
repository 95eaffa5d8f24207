//! What kernels print goes to the program's own `stdout` at the calls at which CUDA lets it appear.

use softcuda_engine::Realm;
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Writes out what a context's kernels have printed so far. Through the C library's buffer, so that it keeps its place
/// among what the program prints itself.
pub fn flush(realm: &Realm) {
    static ORDER: Mutex<()> = Mutex::new(());
    let _held = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let text = realm.take_output();
    if text.is_empty() {
        return;
    }
    // SAFETY: `stdout` is the C library's, valid until the process ends; the bytes are read only during the call. A
    // failure (a closed stdout) leaves nothing to be done.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
