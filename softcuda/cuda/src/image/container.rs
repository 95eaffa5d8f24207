//! ELF files as modules. A real cubin holds machine code that this device cannot run; what our own linker makes is an
//! ELF of the same type that holds PTX.
//!
//! Its length can be found from its header, as loaders do; its section is called `.softcuda.ptx` and holds texts, each
//! ended by a zero.
#![forbid(unsafe_code)]

use super::{Texts, u16_at, u32_at, u64_at};
use crate::error::*;

/// `EM_CUDA`.
const MACHINE: u16 = 190;
const SECTION: &[u8] = b".softcuda.ptx";
const HEADER: usize = 64;
const SECTION_HEADER: usize = 64;

/// The whole length: to the end of the tables or of the section that ends last.
pub fn length(read: super::Reader<'_>) -> Option<u64> {
    let mut header = [0; HEADER];
    read(0, &mut header);
    let table = |offset: usize, size: usize, count: usize| {
        let entries = u64::from(u16_at(&header, count)?);
        let bytes = u64::from(u16_at(&header, size)?).checked_mul(entries)?;
        if entries == 0 { Some(0) } else { u64_at(&header, offset)?.checked_add(bytes) }
    };
    let (programs, sections) = (table(32, 54, 56)?, table(40, 58, 60)?);
    let mut end = programs.max(sections).max(HEADER as u64);
    if end > super::LARGEST {
        return None;
    }
    let (start, size) = (u64_at(&header, 40)?, u64::from(u16_at(&header, 58)?));
    for index in 0..u64::from(u16_at(&header, 60)?) {
        let mut section = [0; SECTION_HEADER];
        if size < SECTION_HEADER as u64 {
            return None;
        }
        read(start.checked_add(index * size)?, &mut section);
        // SHT_NOBITS has no bytes in the file.
        if u32_at(&section, 4)? != 8 {
            end = end.max(u64_at(&section, 24)?.checked_add(u64_at(&section, 32)?)?);
        }
    }
    Some(end)
}

/// The texts of a container.
///
/// # Errors
/// `CUDA_ERROR_NO_BINARY_FOR_GPU` for another ELF (a cubin), `CUDA_ERROR_INVALID_IMAGE` for what is none.
pub fn texts(bytes: &[u8]) -> Result<Texts> {
    if bytes.len() < HEADER || &bytes[..4] != b"\x7fELF" {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    let section = section(bytes, SECTION).ok_or(CUDA_ERROR_NO_BINARY_FOR_GPU)?;
    let texts: Option<Texts> = section
        .split(|b| *b == 0)
        .filter(|t| !t.is_empty())
        .map(|t| String::from_utf8(t.to_vec()).ok())
        .collect();
    texts.filter(|t| !t.is_empty()).ok_or(CUDA_ERROR_INVALID_IMAGE)
}

/// The bytes of an ELF file's section of this name.
pub fn section<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let table = usize::try_from(u64_at(bytes, 40)?).ok()?;
    let size = usize::from(u16_at(bytes, 58)?);
    let count = usize::from(u16_at(bytes, 60)?);
    let header =
        |index: usize| bytes.get(table.checked_add(index.checked_mul(size)?)?..)?.get(..SECTION_HEADER);
    let content = |header: &[u8]| {
        let start = usize::try_from(u64_at(header, 24)?).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(u64_at(header, 32)?).ok()?)?)
    };
    let names = content(header(usize::from(u16_at(bytes, 62)?))?)?;
    (0..count).filter_map(header).find_map(|h| {
        let name = names.get(u32_at(h, 0)? as usize..)?;
        (name.starts_with(wanted) && name.get(wanted.len()) == Some(&0)).then(|| content(h)).flatten()
    })
}

/// The comment behind which a text says how many registers its kernels shall say that they use.
const MAX_REGISTERS: &str = "\n// softcuda: at most this many registers: ";

/// What [`make`] was told of registers.
pub fn max_registers(texts: &Texts) -> Option<u32> {
    let (_, number) = texts.first()?.rsplit_once(MAX_REGISTERS)?;
    number.trim().parse().ok()
}

/// A container of these texts, whose kernels shall say that they use at most so many registers.
pub fn make(texts: &[String], max_registers: Option<u32>, architecture: u32) -> Vec<u8> {
    let mut data = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        data.extend(text.bytes().filter(|b| *b != 0));
        if let Some(most) = max_registers.filter(|_| i == 0) {
            data.extend(format!("{MAX_REGISTERS}{most}\n").bytes());
        }
        data.push(0);
    }
    let names = [b"\0".as_slice(), SECTION, b"\0", b".shstrtab\0"].concat();
    let names_at = HEADER + data.len();
    let table = (names_at + names.len()).next_multiple_of(8);
    let mut out = Vec::with_capacity(table + 3 * SECTION_HEADER);
    // Identification: 64 bits, little-endian, version 1, the ABI byte that CUDA's own tools write.
    out.extend(b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0");
    out.extend(2u16.to_le_bytes());
    out.extend(MACHINE.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend([0u64, 0, table as u64].iter().flat_map(|w| w.to_le_bytes()));
    out.extend((architecture | architecture << 16).to_le_bytes());
    out.extend([HEADER as u16, 0, 0, SECTION_HEADER as u16, 3, 2].iter().flat_map(|w| w.to_le_bytes()));
    out.extend(&data);
    out.extend(&names);
    out.resize(table, 0);
    out.extend([0; SECTION_HEADER]);
    out.extend(section_header(1, 1, HEADER, data.len()));
    out.extend(section_header(2 + SECTION.len() as u32, 3, names_at, names.len()));
    out
}

fn section_header(name: u32, kind: u32, offset: usize, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTION_HEADER);
    out.extend([name, kind].iter().flat_map(|w| w.to_le_bytes()));
    out.extend([0u64, 0, offset as u64, size as u64, 0, 1, 0].iter().flat_map(|w| w.to_le_bytes()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_of(bytes: &[u8]) -> Option<u64> {
        length(&|offset, to| {
            for (i, b) in to.iter_mut().enumerate() {
                *b = bytes.get(offset as usize + i).copied().unwrap_or(0);
            }
        })
    }

    #[test]
    fn what_was_put_in_comes_out_and_the_length_is_found() {
        let input = vec![".version 8.0".to_owned(), "// two".to_owned()];
        let made = make(&input, None, 89);
        assert_eq!(length_of(&made), Some(made.len() as u64));
        assert_eq!(texts(&made), Ok(input.clone()));
        assert_eq!(max_registers(&input), None);
        assert_eq!(max_registers(&texts(&make(&input, Some(38), 89)).unwrap()), Some(38));
    }

    #[test]
    fn another_reader_agrees_that_it_is_an_elf() {
        use object::read::elf::ElfFile64;
        use object::{Object, ObjectSection};
        let made = make(&["x".to_owned()], None, 89);
        let file: ElfFile64 = ElfFile64::parse(&*made).unwrap();
        assert_eq!(file.section_by_name(".softcuda.ptx").unwrap().data().unwrap(), b"x\0");
        assert_eq!(file.elf_header().e_machine.get(object::Endianness::Little), object::elf::Machine(190));
    }

    #[test]
    fn a_cubin_is_for_another_device_and_damage_is_survived() {
        let made = make(&["x".to_owned(), "yy".to_owned()], Some(7), 89);
        let mut cubin = made.clone();
        let at = made.windows(SECTION.len()).position(|w| w == SECTION).unwrap();
        cubin[at + 1] = b'X';
        assert_eq!(texts(&cubin), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
        for cut in 0..made.len() {
            assert!(texts(&made[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..made.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = made.clone();
                bad[at] = value;
                let _ = (texts(&bad), length_of(&bad));
            }
        }
    }
}
