//! Any bytes of known length are refused or give PTX texts: nothing panics, and memory stays bounded. The reader is a
//! private part of the driver library, so its sources are taken in here.
#![no_main]
#![allow(dead_code, unused_imports, missing_docs)]

/// Stands in for the driver's configuration: machine code is looked at, too.
mod config {
    pub struct Config {
        pub skip_machine_code: bool,
    }

    pub fn get() -> &'static Config {
        &Config { skip_machine_code: true }
    }
}
#[path = "../../cuda/src/error.rs"]
mod error;
#[path = "../../cuda/src/image/mod.rs"]
mod image;
#[path = "../../cuda/src/jit.rs"]
mod jit;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let archive = image::host_object::texts_of_archive(data, 89).map(|members| members.concat());
    for texts in
        [image::read_slice(data, 89), image::host_object::texts(data, 89), archive].into_iter().flatten()
    {
        let total: usize = texts.iter().map(String::len).sum();
        assert!(total <= 64 << 20, "{} bytes became {total}", data.len());
    }
});
