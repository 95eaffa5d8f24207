//! Fatbins: a header and entries, each one image for one architecture.
//!
//! Header: magic, version (u16), size of the header (u16), bytes that follow it (u64). Entry: kind (u16), version (u16),
//! size of its header (u32), padded payload (u64), compressed size (u32), offset of the options text (u32), a version (u32),
//! architecture (u32), bits (u32), …, flags (u64 at 40), …, uncompressed size (u64 at 56).
#![forbid(unsafe_code)]

use super::{Texts, container, decompress, u16_at, u32_at, u64_at};
use crate::error::*;
use softcuda_engine::Target;

/// Entries with PTX.
const PTX: u16 = 1;
/// Entries with an ELF.
const ELF: u16 = 2;
/// Entries that hold several images behind one another (nvcc 13.5 `--concat`).
const CONCATENATED: u16 = 0x100;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// The whole length, from the first 16 bytes.
pub fn length(read: super::Reader<'_>) -> Option<u64> {
    let mut header = [0; 16];
    read(0, &mut header);
    u64_at(&header, 8)?.checked_add(u64::from(u16_at(&header, 6)?))
}

/// One entry.
struct Entry<'a> {
    kind: u16,
    architecture: u32,
    flags: u64,
    compressed: u32,
    uncompressed: u64,
    payload: &'a [u8],
}

/// The PTX of the entry that fits a device best, whose architecture is given as a fatbin writes it (89): the newest
/// architecture that is not newer than the device.
///
/// # Errors
/// `CUDA_ERROR_NO_BINARY_FOR_GPU` if none fits, `CUDA_ERROR_INVALID_IMAGE` if the headers contradict the length or the
/// chosen payload is broken.
pub fn texts(bytes: &[u8], device: u32) -> Result<Texts> {
    texts_at(bytes, device, 0)
}

/// How deep a fatbin may lie inside another.
const DEEPEST: u32 = 4;

fn texts_at(bytes: &[u8], device: u32, depth: u32) -> Result<Texts> {
    let entries = entries(bytes).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    let mut fitting: Vec<&Entry> = Vec::new();
    for entry in &entries {
        match entry.kind {
            PTX if entry.architecture <= device => fitting.push(entry),
            // What our own linker made may come back inside a fatbin.
            ELF => {
                if let Some(texts) = entry.data().and_then(|data| container::texts(&data).ok()) {
                    return Ok(texts);
                }
            }
            CONCATENATED if depth < DEEPEST => {
                if let Ok(found) = texts_at(entry.payload, device, depth + 1) {
                    return Ok(found);
                }
            }
            _ => {}
        }
    }
    // The newest first; among the same the first. The header of an entry does not tell `sm_90a` from `sm_90`: its text does.
    fitting.sort_by_key(|entry| std::cmp::Reverse(entry.architecture));
    for entry in fitting {
        let text = entry.text()?;
        if Target::of(&text).is_none_or(|target| target.runs_on((device / 10, device % 10))) {
            return Ok(vec![text]);
        }
    }
    // Machine code, newest first, if it is to be skipped.
    let mut cubins: Vec<&Entry> = entries.iter().filter(|entry| entry.kind == ELF).collect();
    cubins.sort_by_key(|entry| (entry.architecture > device, std::cmp::Reverse(entry.architecture)));
    let stub = cubins.first().and_then(|entry| super::skipped(&entry.data()?));
    stub.ok_or(CUDA_ERROR_NO_BINARY_FOR_GPU)
}

fn entries(bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut at = usize::from(u16_at(bytes, 6)?);
    let end = usize::try_from(u64_at(bytes, 8)?).ok()?.checked_add(at)?;
    let bytes = bytes.get(..end)?;
    if u32_at(bytes, 0)? != super::FATBIN || at < 16 {
        return None;
    }
    let mut entries = Vec::new();
    while at < end {
        let header = usize::try_from(u32_at(bytes, at + 4)?).ok()?;
        let padded = usize::try_from(u64_at(bytes, at + 8)?).ok()?;
        let start = at.checked_add(header)?;
        let next = start.checked_add(padded)?;
        let payload = bytes.get(start..next)?;
        let entry = Entry {
            kind: u16_at(bytes, at)?,
            compressed: u32_at(bytes, at + 16)?,
            architecture: u32_at(bytes, at + 28)?,
            flags: u64_at(bytes, at + 40)?,
            uncompressed: u64_at(bytes, at + 56)?,
            payload,
        };
        if header < 64 || next <= at {
            return None;
        }
        entries.push(entry);
        at = next;
    }
    Some(entries)
}

impl Entry<'_> {
    /// The payload as PTX, up to the zero at its end.
    fn text(&self) -> Result<String> {
        let mut data = self.data().ok_or(CUDA_ERROR_INVALID_IMAGE)?;
        data.truncate(data.iter().position(|b| *b == 0).unwrap_or(data.len()));
        String::from_utf8(data).map_err(|_| CUDA_ERROR_INVALID_IMAGE)
    }

    /// The payload, decompressed.
    fn data(&self) -> Option<Vec<u8>> {
        let packed = || self.payload.get(..usize::try_from(self.compressed).ok()?);
        match self.flags & (FLAG_LZ4 | FLAG_ZSTD) {
            0 => Some(self.payload.to_vec()),
            FLAG_LZ4 => decompress::lz4(packed()?, self.uncompressed),
            FLAG_ZSTD => decompress::zstd(packed()?, self.uncompressed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u16, architecture: u32, flags: u64, data: &[u8], uncompressed: u64) -> Vec<u8> {
        let mut out = vec![0; 64];
        let padded = data.len().next_multiple_of(8);
        out[..2].copy_from_slice(&kind.to_le_bytes());
        out[2..4].copy_from_slice(&0x101u16.to_le_bytes());
        out[4..8].copy_from_slice(&64u32.to_le_bytes());
        out[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        out[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
        out[28..32].copy_from_slice(&architecture.to_le_bytes());
        out[40..48].copy_from_slice(&flags.to_le_bytes());
        out[56..64].copy_from_slice(&uncompressed.to_le_bytes());
        out.extend(data);
        out.resize(64 + padded, 0);
        out
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut out = super::super::FATBIN.to_le_bytes().to_vec();
        out.extend([1, 0, 16, 0]);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    fn plain(architecture: u32, text: &str) -> Vec<u8> {
        entry(PTX, architecture, 0x11, text.as_bytes(), 0)
    }

    #[test]
    fn the_newest_that_the_device_can_run() {
        let many = fatbin(&[
            plain(75, "a"),
            plain(90, "b"),
            plain(80, "c"),
            plain(100, "d"),
            entry(ELF, 90, 0, b"x", 0),
        ]);
        assert_eq!(texts(&many, 90), Ok(vec!["b".to_owned()]));
        let none = fatbin(&[plain(100, "d"), entry(ELF, 90, 0, b"\x7fELF", 0)]);
        assert_eq!(texts(&none, 90), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(texts(&fatbin(&[]), 90), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
        let read = |offset: u64, to: &mut [u8]| to.copy_from_slice(&many[offset as usize..][..to.len()]);
        assert_eq!(length(&read), Some(many.len() as u64));
    }

    #[test]
    fn a_text_for_one_device_alone_is_passed_over_on_others() {
        let alone = ".version 8.0\n.target sm_90a\n";
        let both = fatbin(&[plain(80, "older"), plain(90, alone)]);
        assert_eq!(texts(&both, 90), Ok(vec![alone.to_owned()]));
        assert_eq!(texts(&both, 120), Ok(vec!["older".to_owned()]));
        assert_eq!(texts(&fatbin(&[plain(90, alone)]), 100), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
    }

    #[test]
    fn compressed_payloads() {
        let text = ".version 8.0 ".repeat(50);
        let packed = lz4_flex::block::compress(text.as_bytes());
        let lz4 = entry(PTX, 75, 0x2011, &packed, text.len() as u64);
        assert_eq!(texts(&fatbin(&[lz4]), 90), Ok(vec![text.clone()]));
        let packed =
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        let zstd = entry(PTX, 75, 0x8011, &packed, text.len() as u64);
        assert_eq!(texts(&fatbin(&[zstd]), 90), Ok(vec![text.clone()]));
        let lying = entry(PTX, 75, 0x8011, &packed, text.len() as u64 + 1);
        assert_eq!(texts(&fatbin(&[lying]), 90), Err(CUDA_ERROR_INVALID_IMAGE));
    }

    #[test]
    fn concatenated_entries_are_looked_into() {
        let inner = fatbin(&[plain(75, "inner")]);
        let outer = fatbin(&[entry(ELF, 75, 0, b"x", 0), entry(CONCATENATED, 0, 0, &inner, 0)]);
        assert_eq!(texts(&outer, 90), Ok(vec!["inner".to_owned()]));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_survived() {
        let good = fatbin(&[plain(75, "first"), entry(ELF, 90, 0, b"\x7fELF....", 0), plain(80, "second")]);
        for cut in 0..good.len() {
            assert!(texts(&good[..cut], 90).is_err(), "cut at {cut}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = texts(&bad, 90);
            }
        }
    }
}
