//! One line on stderr for what a program cannot see otherwise, if `SOFTCUDA_LOG` is set: faults of kernels with their
//! place, refused images, calls that this driver does not have.
#![forbid(unsafe_code)]

use std::sync::OnceLock;

/// Writes a line if asked to.
pub fn line(text: impl FnOnce() -> String) {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| std::env::var_os("SOFTCUDA_LOG").is_some_and(|v| !v.is_empty() && v != "0")) {
        eprintln!("softcuda: {}", text());
    }
}
