//! Device code in what a host compiler makes: objects (ELF) with fatbins in a section, and archives of such objects.
#![forbid(unsafe_code)]

use super::{Texts, container, fatbin, u32_at};
use crate::error::*;

/// The sections in which nvcc puts fatbins: of whole programs, and of relocatable device code.
const SECTIONS: [&[u8]; 2] = [b".nv_fatbin", b"__nv_relfatbin"];
const FATBIN: u32 = 0xba55_ed50;
const ARCHIVE: &[u8] = b"!<arch>\n";

/// The texts of an object's fatbins that fit a device best.
///
/// # Errors
/// `CUDA_ERROR_NO_BINARY_FOR_GPU` for an object without device code that this device can run, `CUDA_ERROR_INVALID_IMAGE` for
/// what is no object.
pub fn texts(object: &[u8], device: u32) -> Result<Texts> {
    if !object.starts_with(b"\x7fELF") {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    let mut all = Texts::new();
    for mut rest in SECTIONS.iter().filter_map(|name| container::section(object, name)) {
        // One fatbin behind the other, each at a multiple of 8.
        while u32_at(rest, 0) == Some(FATBIN) {
            let read = |at: u64, to: &mut [u8]| {
                let from = usize::try_from(at).ok().and_then(|at| rest.get(at..at + to.len()));
                to.copy_from_slice(from.unwrap_or(&vec![0; to.len()]));
            };
            let length = fatbin::length(&read).and_then(|n| usize::try_from(n).ok()).filter(|n| *n >= 16);
            let length = length.filter(|n| *n <= rest.len()).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
            all.extend(fatbin::texts(&rest[..length], device)?);
            bounded(&all)?;
            rest = &rest[length.next_multiple_of(8).min(rest.len())..];
        }
    }
    if all.is_empty() { Err(CUDA_ERROR_NO_BINARY_FOR_GPU) } else { Ok(all) }
}

/// `CUDA_ERROR_INVALID_IMAGE` where compressed texts, each of which has a bound, are too long together.
fn bounded<'t>(texts: impl IntoIterator<Item = &'t String>) -> Result {
    let length: usize = texts.into_iter().map(String::len).sum();
    if length as u64 <= super::decompress::LARGEST { Ok(()) } else { Err(CUDA_ERROR_INVALID_IMAGE) }
}

/// The texts of each member of an archive that has device code for a device; the others are passed over. All
/// are taken, also those that nothing needs.
///
/// # Errors
/// `CUDA_ERROR_INVALID_IMAGE` for what is no archive.
pub fn texts_of_archive(archive: &[u8], device: u32) -> Result<Vec<Texts>> {
    let mut rest = archive.strip_prefix(ARCHIVE).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    let mut all: Vec<Texts> = Vec::new();
    while !rest.is_empty() {
        // Name (16), date (12), owner (6), group (6), mode (8), size in decimal (10), an end mark (2).
        let header = rest.get(..60).filter(|h| h.ends_with(b"`\n")).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        let size = std::str::from_utf8(&header[48..58]).ok().and_then(|s| s.trim().parse::<usize>().ok());
        let end = size.and_then(|n| n.checked_add(60)).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        let member = rest.get(60..end).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        all.extend(texts(member, device).ok());
        bounded(all.iter().flatten())?;
        rest = &rest[end.next_multiple_of(2).min(rest.len())..];
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(members: &[&[u8]]) -> Vec<u8> {
        let mut out = ARCHIVE.to_vec();
        for member in members {
            out.extend(format!("{:<48}{:<10}`\n", "name/", member.len()).bytes());
            out.extend(*member);
            out.resize(out.len().next_multiple_of(2), b'\n');
        }
        out
    }

    #[test]
    fn archives_are_walked_to_their_end() {
        assert_eq!(texts_of_archive(&archive(&[b"one", b"\x7fELF", b"four"]), 89), Ok(vec![]));
        let whole = archive(&[b"abc", b"defg"]);
        for end in 0..whole.len() {
            // Cut between members it is an archive still.
            let expected =
                if end == 8 || end == 8 + 60 + 4 { Ok(vec![]) } else { Err(CUDA_ERROR_INVALID_IMAGE) };
            let cut = end == 8 + 60 + 3;
            assert!(cut || texts_of_archive(&whole[..end], 89) == expected, "{end}");
        }
        assert_eq!(texts(b"\x7fELF", 89), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(texts(b"!<arch>\n", 89), Err(CUDA_ERROR_INVALID_IMAGE));
    }
}
