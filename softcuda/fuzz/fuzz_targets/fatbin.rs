//! Any bytes, of known length or at an address as `cuModuleLoadData` gets them, are refused or give PTX texts: nothing panics,
//! and memory stays bounded. The reader is a private part of the driver library, so its sources are taken in here.
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

#[path = "place.rs"]
mod place;

/// What `cuModuleLoadData` reads: an image, or a wrapper around it, with the parts from which it was linked.
fn by_address(data: &[u8]) {
    /// Larger ones are the caller's word for memory that is not there.
    const LARGEST: u64 = 16 << 20;
    let (image, part) = data.split_at(data.len() / 2);
    for (first, second) in [(data, &data[..0]), (image, part)] {
        let [image, part] = place::put([first, second]);
        let readable = [image, part].iter().all(|p| {
            let read = |offset: u64, to: &mut [u8]| p.read(offset, to);
            let lengths = [image::fatbin::length(&read), image::container::length(&read)];
            lengths.into_iter().flatten().all(|length| length <= LARGEST)
        });
        if !readable {
            continue;
        }
        let list = [part.address(), std::ptr::null()];
        for version in [1u32, 2] {
            let wrapper = place::Wrapper {
                magic: 0x4662_43b1,
                version,
                data: image.address(),
                prelinked: list.as_ptr(),
            };
            for at in [image.address(), std::ptr::from_ref(&wrapper).cast()] {
                // SAFETY: the places are zero behind their bytes, for longer than any length that was found.
                let read = unsafe { image::read(at, 89) };
                let total: usize = read.map_or(0, |image| image.texts.iter().map(String::len).sum());
                assert!(total <= 64 << 20, "{} bytes became {total}", data.len());
            }
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let archive = image::host_object::texts_of_archive(data, 89).map(|members| members.concat());
    for texts in
        [image::read_slice(data, 89), image::host_object::texts(data, 89), archive].into_iter().flatten()
    {
        let total: usize = texts.iter().map(String::len).sum();
        assert!(total <= 64 << 20, "{} bytes became {total}", data.len());
    }
    by_address(data);
});
