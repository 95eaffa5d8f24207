//! Images as compilers and linkers make them.

use super::*;
use std::ffi::CStr;

/// The 32-bit words at a device address.
pub fn words(address: u64, count: usize) -> Vec<u32> {
    read(address, count * 4).chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Loads with a log buffer: the result and what the log says.
pub fn load_with_log(image: &[u8]) -> (CUresult, String) {
    let mut log = [0u8; 256];
    let (mut names, mut module) = ([5u32, 6], 0);
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
    let result = cu!(cuModuleLoadDataEx(
        &mut module,
        image.as_ptr().cast(),
        2,
        names.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    (result, CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap().to_owned())
}

/// A fatbin of one entry.
pub fn fatbin(kind: u16, architecture: u32, payload: &[u8]) -> Vec<u8> {
    let padded = payload.len().next_multiple_of(8);
    let mut out = 0xba55_ed50u32.to_le_bytes().to_vec();
    out.extend([1, 0, 16, 0]);
    out.extend((64 + padded as u64).to_le_bytes());
    let mut entry = [0u8; 64];
    entry[..2].copy_from_slice(&kind.to_le_bytes());
    entry[4] = 64;
    entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
    entry[28..32].copy_from_slice(&architecture.to_le_bytes());
    out.extend(entry);
    out.extend(payload);
    out.resize(16 + 64 + padded, 0);
    out
}

/// An ELF file of these sections.
pub fn elf(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    out.resize(64, 0);
    let mut names = vec![0];
    let mut headers = vec![[0u8; 64]];
    let mut section = |out: &mut Vec<u8>, name: usize, content: &[u8]| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4..8].copy_from_slice(&1u32.to_le_bytes());
        header[24..32].copy_from_slice(&(out.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        headers.push(header);
        out.extend(content);
        out.resize(out.len().next_multiple_of(8), 0);
    };
    for (name, content) in sections {
        section(&mut out, names.len(), content);
        names.extend(name.bytes().chain([0]));
    }
    let own = names.len();
    names.extend(b".shstrtab\0");
    section(&mut out, own, &names);
    let table = out.len() as u64;
    out[40..48].copy_from_slice(&table.to_le_bytes());
    let count = headers.len() as u16;
    for (at, number) in [(52, 64u16), (58, 64), (60, count), (62, count - 1)] {
        out[at..at + 2].copy_from_slice(&number.to_le_bytes());
    }
    out.extend(headers.concat());
    out
}

/// An object as a host compiler makes one, with bytes in a section of a name.
pub fn object(section: &str, content: &[u8]) -> Vec<u8> {
    elf(&[(section, content.to_vec())])
}

/// A cubin as NVIDIA's assembler lays it out, without the code: a kernel `scale(u64, u32)`, a function `helper`, a variable `table`.
pub fn cubin() -> Vec<u8> {
    let names = b"\0scale\0helper\0table\0".to_vec();
    let symbol = |name: u32, info: u8, other: u8, size: u64| {
        let mut s = name.to_le_bytes().to_vec();
        s.extend([info, other, 7, 0]);
        s.extend([0, size].iter().flat_map(|w| w.to_le_bytes()));
        s
    };
    let symbols =
        [vec![0; 24], symbol(1, 0x12, 0x10, 128), symbol(7, 0x12, 0, 64), symbol(14, 0x01, 0, 40)].concat();
    let mut info = Vec::new();
    for (ordinal, offset, size) in [(1u16, 8u16, 4u32), (0, 0, 8)] {
        info.extend([4, 0x17, 12, 0, 0, 0, 0, 0]);
        info.extend([ordinal, offset].iter().flat_map(|w| w.to_le_bytes()));
        info.extend((size << 18 | 0x1f000).to_le_bytes());
    }
    elf(&[(".symtab", symbols), (".strtab", names), (".nv.info.scale", info)])
}

/// An archive of objects.
pub fn archive(members: &[&[u8]]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for member in members {
        out.extend(format!("{:<48}{:<10}`\n", "member.o/", member.len()).bytes());
        out.extend(*member);
        out.resize(out.len().next_multiple_of(2), b'\n');
    }
    out
}
