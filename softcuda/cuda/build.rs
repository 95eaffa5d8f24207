//! Link arguments that make the library a `libcuda.so.1`.

fn main() {
    // The loader matches a preloaded library by this name, whatever its file is called.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Our own cu* references must not be resolved to another libcuda of the process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Stream threads run code of this library: it must never be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
