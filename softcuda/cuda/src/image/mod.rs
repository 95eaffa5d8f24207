//! What a program hands over as a module: a fatbin (in its wrapper or bare), PTX text, or an ELF container.
//!
//! CUDA passes no length. It is found as NVIDIA's driver must find it too: in a fatbin's or an ELF's header, or by the
//! zero at the end of a text. Whatever the headers then say is checked against that length.

pub mod container;
pub mod decompress;
pub mod fatbin;
pub mod host_object;
pub mod machine_code;

use crate::config;
use crate::error::*;
use std::ffi::{CStr, c_void};
use std::sync::Once;

/// Nothing that is larger is read: a wrong length word must not make us walk through the address space.
const LARGEST: u64 = 4 << 30;

const WRAPPER: u32 = 0x4662_43b1;
const FATBIN: u32 = 0xba55_ed50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

/// PTX texts that make up one module, in the order in which they were given.
pub type Texts = Vec<String>;

/// What an image holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its PTX.
    pub texts: Texts,
    /// Whether it came in the wrapper that the compiler makes and only NVIDIA's runtime hands over.
    pub wrapped: bool,
    /// What the linker was told by `CU_JIT_MAX_REGISTERS`.
    pub max_registers: Option<u32>,
}

impl Image {
    /// An image of these texts.
    pub fn new(texts: Texts, wrapped: bool) -> Image {
        let max_registers = container::max_registers(&texts);
        Image { texts, wrapped, max_registers }
    }

    /// The same, with the options of the call that loads it.
    #[must_use]
    pub fn with(mut self, options: &crate::jit::Options) -> Image {
        self.max_registers = options.max_registers.or(self.max_registers);
        self
    }
}

/// The PTX of an image at an address, for a device of an architecture (89).
///
/// # Errors
/// `CUDA_ERROR_NO_BINARY_FOR_GPU` (209) for an image without anything that this device can run, `CUDA_ERROR_INVALID_IMAGE`
/// (200) for what is no image, `CUDA_ERROR_INVALID_VALUE` for null.
///
/// # Safety
/// `image` is readable as far as its own headers say, as `cuModuleLoadData` demands.
pub unsafe fn read(image: *const c_void, device: u32) -> Result<Image> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: every image has at least 4 bytes; a text as short as that ends with a zero within them.
    let word = unsafe { first_word(image) };
    let wrapped = word == WRAPPER;
    let texts = match word {
        // SAFETY: the caller vouches for a wrapper with its fields.
        WRAPPER => unsafe { wrapper(image.cast(), device) },
        // SAFETY: the caller vouches for what the header says.
        FATBIN => fatbin::texts(unsafe { bytes(image, fatbin::length)? }, device),
        // SAFETY: as above.
        ELF => elf(unsafe { bytes(image, container::length)? }),
        word if looks_like_text(word) => {
            // SAFETY: a text ends with a zero, which the caller vouches for.
            let text = unsafe { CStr::from_ptr(image.cast()) };
            Ok(vec![text.to_str().map_err(|_| CUDA_ERROR_INVALID_IMAGE)?.to_owned()])
        }
        _ => Err(CUDA_ERROR_INVALID_IMAGE),
    }?;
    Ok(Image::new(texts, wrapped))
}

/// The PTX of an image whose length is known (a file), for a device of an architecture.
///
/// # Errors
/// As [`read`].
pub fn read_slice(image: &[u8], device: u32) -> Result<Texts> {
    match image.first_chunk().map(|word| u32::from_le_bytes(*word)) {
        Some(FATBIN) => fatbin::texts(image, device),
        Some(ELF) => elf(image),
        Some(word) if looks_like_text(word) => {
            let end = image.iter().position(|b| *b == 0).unwrap_or(image.len());
            let text = std::str::from_utf8(&image[..end]).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
            Ok(vec![text.to_owned()])
        }
        _ => Err(CUDA_ERROR_INVALID_IMAGE),
    }
}

/// What an ELF file holds: PTX, if our own linker made it.
///
/// # Errors
/// As [`container::texts`], unless machine code is to be skipped.
fn elf(bytes: &[u8]) -> Result<Texts> {
    container::texts(bytes).or_else(|error| skipped(bytes).ok_or(error))
}

/// With `SOFTCUDA_SASS=skip`, a cubin's kernels as ones that do nothing.
fn skipped(cubin: &[u8]) -> Option<Texts> {
    static SAID: Once = Once::new();
    let text = config::get().skip_machine_code.then(|| machine_code::stub(cubin))??;
    SAID.call_once(|| {
        eprintln!("softcuda: SOFTCUDA_SASS=skip: MACHINE CODE IS NOT RUN: ITS KERNELS DO NOTHING AND RESULTS ARE WRONG");
    });
    Some(vec![text])
}

/// The first four bytes, as far as they come before a zero: no byte after the end of a short text is touched.
///
/// # Safety
/// `image` is not null and its bytes are readable up to the fourth or the first zero.
unsafe fn first_word(image: *const c_void) -> u32 {
    let mut word = [0; 4];
    for (i, byte) in word.iter_mut().enumerate() {
        // SAFETY: no earlier byte was zero, and the caller vouches for this one.
        *byte = unsafe { image.cast::<u8>().add(i).read() };
        if *byte == 0 {
            break;
        }
    }
    u32::from_le_bytes(word)
}

/// PTX begins with a comment, white space or a directive; nothing but text has such bytes only.
fn looks_like_text(word: u32) -> bool {
    let bytes = word.to_le_bytes();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(4);
    end > 0 && bytes[..end].iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace())
}

/// `.nvFatBinSegment`: what the compiler puts in front of a fatbin.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    prelinked: *const *const c_void,
}

/// # Safety
/// `wrapper` is readable, and so is what its version says that it points at.
unsafe fn wrapper(wrapper: *const Wrapper, device: u32) -> Result<Texts> {
    // SAFETY: the caller vouches for it; a wrapper is not aligned by anything but the linker.
    let Wrapper { version, data, prelinked, .. } = unsafe { wrapper.read_unaligned() };
    if data.is_null() {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: the caller vouches for the fatbin.
    let inner = |fatbin: *const c_void| match unsafe { first_word(fatbin) } {
        // SAFETY: as above.
        FATBIN => fatbin::texts(unsafe { bytes(fatbin, fatbin::length)? }, device),
        _ => Err(CUDA_ERROR_INVALID_IMAGE),
    };
    match version {
        1 => inner(data),
        // Relocatable device code: `data` is the linked image, and the parts from which it was linked come as a list
        // that ends with null. The linked image is SASS only, so its PTX comes from the parts.
        2 => inner(data).or_else(|error| {
            let mut texts = Vec::new();
            if prelinked.is_null() {
                return Err(error);
            }
            for i in 0..4096 {
                // SAFETY: the list goes on until its null.
                let part = unsafe { prelinked.add(i).read_unaligned() };
                if part.is_null() {
                    break;
                }
                match inner(part) {
                    Ok(more) => texts.extend(more),
                    // Machine code only, as NVIDIA's device runtime is, which is linked in whether or not it is used. If
                    // it is used after all, the linker says by name what is missing.
                    Err(CUDA_ERROR_NO_BINARY_FOR_GPU) => {}
                    Err(error) => return Err(error),
                }
            }
            if texts.is_empty() { Err(error) } else { Ok(texts) }
        }),
        _ => Err(CUDA_ERROR_INVALID_IMAGE),
    }
}

/// Reads bytes of an image whose length is not known yet: (offset, where to).
pub(crate) type Reader<'a> = &'a dyn Fn(u64, &mut [u8]);

/// The bytes of an image whose header says how long it is.
///
/// # Safety
/// The image is readable for as long as it says.
unsafe fn bytes<'a>(image: *const c_void, length: fn(Reader<'_>) -> Option<u64>) -> Result<&'a [u8]> {
    let read = |offset: u64, to: &mut [u8]| {
        // SAFETY: the length functions read the header, and tables that the header places, which the caller vouches for.
        unsafe {
            std::ptr::copy_nonoverlapping(image.cast::<u8>().add(offset as usize), to.as_mut_ptr(), to.len())
        };
    };
    let length = length(&read).filter(|n| *n <= LARGEST).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    // SAFETY: the caller vouches for the length.
    Ok(unsafe { std::slice::from_raw_parts(image.cast(), length as usize) })
}

/// Little-endian numbers at an offset of a slice, `None` beyond its end.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

/// See [`u16_at`].
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// See [`u16_at`].
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_is_decides_the_error() {
        let read = |bytes: &[u8]| unsafe_read(bytes);
        assert_eq!(read(b".version 7.0\0"), Ok(vec![".version 7.0".to_owned()]));
        assert_eq!(read(b"a\0"), Ok(vec!["a".to_owned()]));
        assert_eq!(read(b"\0"), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(read(&[0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(read_slice(&[], 89), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(read_slice(b"//x", 89), Err(CUDA_ERROR_INVALID_IMAGE), "shorter than any image");
        assert_eq!(read_slice(b"// x", 89), Ok(vec!["// x".to_owned()]));
    }

    fn unsafe_read(bytes: &[u8]) -> Result<Texts> {
        // SAFETY: the tests' images end within themselves.
        unsafe { super::read(bytes.as_ptr().cast(), 89) }.map(|image| image.texts)
    }
}
