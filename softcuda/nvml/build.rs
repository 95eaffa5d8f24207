//! Link arguments that make the library a `libnvidia-ml.so.1`.

fn main() {
    // The loader matches a preloaded library by this name, whatever its file is called.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
