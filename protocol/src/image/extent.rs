//! How long an image is. CUDA's load calls take a pointer and no length: a fatbin and a cubin say their size in their
//! headers, PTX ends with a NUL byte.

/// Reads the caller's memory; a trait, so that lying headers can be tested without reading past a buffer.
pub trait Memory {
    /// Copies `into.len()` bytes from `at` on; false if they cannot be read.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// Why an image's length could not be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The memory behind the pointer cannot be read.
    #[error("the image's memory cannot be read")]
    Unreadable,
    /// It is neither a fatbin, nor an ELF file, nor text.
    #[error("the image is neither a fatbin, nor a cubin, nor PTX")]
    Unknown,
    /// It claims more than [`super::MAX_IMAGE`].
    #[error("the image claims to be larger than 2 GiB")]
    TooLarge,
}

pub(super) const WRAPPER: u32 = 0x4662_43B1;
pub(super) const FATBIN: u32 = 0xBA55_ED50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

fn word<const N: usize>(memory: &dyn Memory, at: u64) -> Result<[u8; N], ImageError> {
    let mut bytes = [0; N];
    if memory.read(at, &mut bytes) { Ok(bytes) } else { Err(ImageError::Unreadable) }
}

fn u16_at(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    Ok(u16::from_le_bytes(word(memory, at)?).into())
}

fn u64_at(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    Ok(u64::from_le_bytes(word(memory, at)?))
}

/// Whether `at` points to the wrapper that nvcc puts around a fatbin (`.nvFatBinSegment`).
pub fn is_fatbin_wrapper(memory: &dyn Memory, at: u64) -> bool {
    word(memory, at).is_ok_and(|w| u32::from_le_bytes(w) == WRAPPER)
}

/// The address of the fatbin inside a wrapper {magic u32, version u32, fatbin, prelinked}.
pub fn fatbin_of_wrapper(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    u64_at(memory, at + 8)
}

/// The addresses of the fatbins that a wrapper's own was linked from: none but in a wrapper of version 2, whose fourth word
/// points to a list that ends with null.
pub fn parts_of_wrapper(memory: &dyn Memory, at: u64) -> Result<Vec<u64>, ImageError> {
    let (version, list) = (u32::from_le_bytes(word(memory, at + 4)?), u64_at(memory, at + 16)?);
    let mut parts = Vec::new();
    if version != super::linked::WITH_PARTS || list == 0 {
        return Ok(parts);
    }
    loop {
        match u64_at(memory, list + 8 * parts.len() as u64)? {
            0 => return Ok(parts),
            _ if parts.len() == super::linked::MAX_PARTS => return Err(ImageError::TooLarge),
            part => parts.push(part),
        }
    }
}

/// Length in bytes of the image at `at` (not a wrapper). PTX is counted with its NUL.
pub fn extent(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    let magic = match word::<4>(memory, at) {
        Ok(magic) => u32::from_le_bytes(magic),
        // A text shorter than four bytes at the end of a mapping.
        Err(_) => 0x2020_2020,
    };
    let length = match magic {
        FATBIN => u16_at(memory, at + 6)?.checked_add(u64_at(memory, at + 8)?).ok_or(ImageError::TooLarge)?,
        ELF => elf(memory, at)?,
        _ => text(memory, at)?,
    };
    if length > super::MAX_IMAGE { Err(ImageError::TooLarge) } else { Ok(length) }
}

/// The end of the last section, program header or table of an ELF64 file.
fn elf(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    let header: [u8; 64] = word(memory, at)?;
    if header[4] != 2 || header[5] != 1 {
        return Err(ImageError::Unknown);
    }
    let (phoff, shoff) = (u64_at(memory, at + 32)?, u64_at(memory, at + 40)?);
    let (phentsize, phnum) = (u16_at(memory, at + 54)?, u16_at(memory, at + 56)?);
    let (shentsize, shnum) = (u16_at(memory, at + 58)?, u16_at(memory, at + 60)?);
    let mut end = 64u64;
    let mut cover = |offset: u64, size: u64| match offset.checked_add(size) {
        Some(e) if e <= super::MAX_IMAGE => {
            end = end.max(e);
            Ok(())
        }
        _ => Err(ImageError::TooLarge),
    };
    cover(phoff, phentsize * phnum)?;
    cover(shoff, shentsize * shnum)?;
    const NOBITS: u32 = 8;
    for i in 0..shnum {
        let section = at + shoff + i * shentsize;
        if u32::from_le_bytes(word(memory, section + 4)?) != NOBITS {
            cover(u64_at(memory, section + 24)?, u64_at(memory, section + 32)?)?;
        }
    }
    for i in 0..phnum {
        let program = at + phoff + i * phentsize;
        cover(u64_at(memory, program + 8)?, u64_at(memory, program + 32)?)?;
    }
    Ok(end)
}

/// Bytes up to and with the first NUL. Anything but text before it is no PTX.
fn text(memory: &dyn Memory, at: u64) -> Result<u64, ImageError> {
    let mut length = 0u64;
    let mut chunk = [0u8; 256];
    while length <= super::MAX_IMAGE {
        // Small aligned steps near the end of what can be read, large ones before.
        let from = at + length;
        let step = (256 - from % 256) as usize;
        if !memory.read(from, &mut chunk[..step]) {
            let byte: [u8; 1] = word(memory, from)?;
            chunk[0] = byte[0];
            if let Some(done) = scan(&chunk[..1], length)? {
                return Ok(done);
            }
            length += 1;
            continue;
        }
        if let Some(done) = scan(&chunk[..step], length)? {
            return Ok(done);
        }
        length += step as u64;
    }
    Err(ImageError::TooLarge)
}

fn scan(bytes: &[u8], before: u64) -> Result<Option<u64>, ImageError> {
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            0 if before + i as u64 == 0 => return Err(ImageError::Unknown),
            0 => return Ok(Some(before + i as u64 + 1)),
            1..=8 | 14..=31 => return Err(ImageError::Unknown),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slice(Vec<u8>);
    impl Memory for Slice {
        fn read(&self, at: u64, into: &mut [u8]) -> bool {
            let Ok(at) = usize::try_from(at) else { return false };
            match self.0.get(at..).and_then(|rest| rest.get(..into.len())) {
                Some(bytes) => {
                    into.copy_from_slice(bytes);
                    true
                }
                None => false,
            }
        }
    }

    fn of(bytes: &[u8]) -> Result<u64, ImageError> {
        extent(&Slice(bytes.to_vec()), 0)
    }

    #[test]
    fn ptx_ends_with_its_nul() {
        let mut text = b".version 9.0\n".repeat(50);
        text.push(0);
        assert_eq!(of(&text), Ok(651));
        text.extend([7; 999]);
        assert_eq!(of(&text), Ok(651));
        assert_eq!(of(b"a\0"), Ok(2));
        assert_eq!(of(b".version 9.0"), Err(ImageError::Unreadable));
        assert_eq!(of(&[1, 2, 3, 4, 5]), Err(ImageError::Unknown));
        assert_eq!(of(&[0; 8]), Err(ImageError::Unknown));
    }

    #[test]
    fn a_fatbin_says_its_size() {
        let mut fatbin = FATBIN.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0]);
        fatbin.extend(1000u64.to_le_bytes());
        assert_eq!(of(&fatbin), Ok(1016));
        fatbin[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(of(&fatbin), Err(ImageError::TooLarge));
        assert_eq!(of(&fatbin[..9]), Err(ImageError::Unreadable));
    }

    #[test]
    fn an_elf_ends_with_its_last_part() {
        let mut elf = vec![0u8; 64 + 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[40..48].copy_from_slice(&64u64.to_le_bytes());
        elf[58..62].copy_from_slice(&[64, 0, 1, 0]);
        elf[64 + 24..64 + 32].copy_from_slice(&500u64.to_le_bytes());
        elf[64 + 32..64 + 40].copy_from_slice(&77u64.to_le_bytes());
        assert_eq!(of(&elf), Ok(577));
        elf[64 + 32..64 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(of(&elf), Err(ImageError::TooLarge));
        assert_eq!(of(&elf[..100]), Err(ImageError::Unreadable));
        elf[4] = 1;
        assert_eq!(of(&elf), Err(ImageError::Unknown));
    }
}
