//! Any bytes of known length are refused or give PTX texts: nothing panics, and memory stays bounded. The reader is a
//! private part of the driver library, so its sources are taken in here.
#![no_main]
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../../cuda/src/error.rs"]
mod error;
#[path = "../../cuda/src/image/mod.rs"]
mod image;
#[path = "../../cuda/src/jit.rs"]
mod jit;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(texts) = image::read_slice(data, 89) {
        let total: usize = texts.iter().map(String::len).sum();
        assert!(total <= 64 << 20, "{} bytes became {total}", data.len());
    }
});
