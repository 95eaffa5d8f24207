//! Where the library lies that this is linked into.
#![allow(unsafe_code, reason = "a question to the loader")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of the library, links resolved; empty if the loader does not know.
pub fn directory() -> PathBuf {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = directory as *const () as *const libc::c_void;
    // SAFETY: the place is as large as the call writes; the address is one of this library.
    let found = unsafe { libc::dladdr(here, info.as_mut_ptr()) };
    // SAFETY: zeroed bytes are a value of the struct, whatever the call wrote.
    let name = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader's text, which stays as long as the library is loaded.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.parent().map(Path::to_owned).unwrap_or_default()
}
