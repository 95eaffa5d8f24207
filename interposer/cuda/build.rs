//! Linker arguments of a stand-in for libcuda, and the directory in which programs that look for a *file* find it.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The SONAME is what makes a preloaded library satisfy every later dlopen("libcuda.so.1").
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // References to our own cu* functions must not be resolved to another libcuda in the global scope.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // A runtime may dlclose() the library while its threads still run.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if let Err(error) = make_directory() {
        println!("cargo:warning=cannot make the directory for LD_LIBRARY_PATH: {error}");
    }
}

/// `target/<profile>/gpupool/` with `libcuda.so.1` and `libcuda.so`, links to the library beside it.
fn make_directory() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    // OUT_DIR is <profile>/build/<package>-<hash>/out.
    let profile = out.ancestors().nth(3).ok_or(io::ErrorKind::NotFound)?;
    let directory = profile.join("gpupool");
    fs::create_dir_all(&directory)?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        link(Path::new("../libgpupool_cuda.so"), &directory.join(name))?;
    }
    Ok(())
}

fn link(target: &Path, at: &Path) -> io::Result<()> {
    if fs::read_link(at).is_ok_and(|now| now == target) {
        return Ok(());
    }
    match fs::remove_file(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, at)
}
