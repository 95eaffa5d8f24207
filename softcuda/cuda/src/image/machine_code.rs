//! Cubins as kernels that do nothing, for `SOFTCUDA_SASS=skip`: machine code for NVIDIA's processors is not run here, but a
//! program's calls can be exercised with what a cubin says of its kernels and variables.
//!
//! A kernel is a function symbol marked as an entry; its parameters are in the section `.nv.info.NAME`, in records {format (u8),
//! attribute (u8), …}: a format of 4 has a length (u16) and data, the others 2 bytes.
#![forbid(unsafe_code)]

use super::{container, u16_at, u32_at, u64_at};
use std::collections::HashSet;
use std::fmt::Write;

/// `st_other` of kernels.
const ENTRY: u8 = 0x10;
const FUNCTION: u8 = 2;
const OBJECT: u8 = 1;
const SYMBOL: usize = 24;
/// {index u32, ordinal u16, offset u16, bits u32 with the size in 14 of them from 18 on}.
const PARAMETER: u8 = 0x17;
/// The same of kernels with more than 4 KiB of parameters: {index u32, ordinal u16, offset u16, size u16, …}.
const WIDE_PARAMETER: u8 = 0x45;

/// Bytes of a stub at most: a damaged cubin may have thousands of kernels with the same thousands of parameters.
const LARGEST: usize = 16 << 20;

/// PTX for every device with the kernels and variables of a cubin; `None` for what is none, or far too large.
pub fn stub(cubin: &[u8]) -> Option<String> {
    let (symbols, names) = (container::section(cubin, b".symtab")?, container::section(cubin, b".strtab")?);
    let mut seen = HashSet::new();
    let mut text = ".version 7.0\n.target sm_30\n.address_size 64\n".to_owned();
    for symbol in symbols.chunks_exact(SYMBOL) {
        if text.len() > LARGEST {
            return None;
        }
        let name = names.get(u32_at(symbol, 0)? as usize..)?.split(|b| *b == 0).next()?;
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| is_identifier(name)) else { continue };
        let (kind, size) = (symbol[4] & 15, u64_at(symbol, 16)?);
        if kind == FUNCTION && symbol[5] & ENTRY != 0 && seen.insert(name) {
            let info = container::section(cubin, format!(".nv.info.{name}").as_bytes());
            kernel(&mut text, name, &parameters(info.unwrap_or_default()));
        } else if kind == OBJECT && size > 0 && u16_at(symbol, 6)? != 0 && seen.insert(name) {
            writeln!(text, ".visible .global .align 16 .b8 {name}[{size}];").ok()?;
        }
    }
    Some(text)
}

/// Whether PTX takes a name; symbols that only a linker needs have others.
fn is_identifier(name: &str) -> bool {
    let sign = |c: char| matches!(c, '_' | '$' | '%');
    let first =
        name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.starts_with(sign) && name.len() > 1;
    first && name.chars().all(|c| sign(c) || c.is_ascii_alphanumeric())
}

/// {offset, size} of each parameter, in order.
fn parameters(info: &[u8]) -> Vec<[u32; 2]> {
    let mut found = Vec::new();
    let mut at = 0;
    while let (Some(format), Some(attribute), Some(length)) =
        (info.get(at), info.get(at + 1), u16_at(info, at + 2))
    {
        if *format == 4 && matches!(*attribute, PARAMETER | WIDE_PARAMETER) {
            let wide = *attribute == WIDE_PARAMETER;
            let size = if wide {
                u16_at(info, at + 12).map(u32::from)
            } else {
                u32_at(info, at + 12).map(|bits| bits >> 18 & 0x3fff)
            };
            if let (Some(ordinal), Some(offset), Some(size)) =
                (u16_at(info, at + 8), u16_at(info, at + 10), size)
            {
                found.push((ordinal, [u32::from(offset), size]));
            }
        }
        at += 4 + if *format == 4 { usize::from(length) } else { 0 };
    }
    found.sort_unstable();
    found.into_iter().map(|(_, parameter)| parameter).collect()
}

fn kernel(text: &mut String, name: &str, parameters: &[[u32; 2]]) {
    let _ = write!(text, ".visible .entry {name}(");
    let mut end = 0u32;
    for (i, [offset, size]) in parameters.iter().enumerate() {
        // The alignment that puts the parameter where the cubin has it.
        let align = [1, 2, 4, 8, 16].into_iter().rev().find(|a| end.next_multiple_of(*a) == *offset);
        let separator = if i > 0 { ", " } else { "" };
        let _ = write!(text, "{separator}.param .align {} .b8 p{i}[{size}]", align.unwrap_or(1));
        end = offset.saturating_add(*size);
    }
    text.push_str(") { ret; }\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_from_their_records() {
        let mut info = vec![3, 0x19, 0x1c, 0];
        for (ordinal, offset, size) in [(2u16, 16u16, 4u32), (0, 0, 8), (1, 8, 8)] {
            info.extend([4, PARAMETER, 12, 0, 0, 0, 0, 0]);
            info.extend(ordinal.to_le_bytes());
            info.extend(offset.to_le_bytes());
            info.extend((size << 18 | 0x1f000).to_le_bytes());
        }
        info.extend([4, 0x0a, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parameters(&info), [[0, 8], [8, 8], [16, 4]]);
        let wide = [4, WIDE_PARAMETER, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x4e, 0, 0];
        assert_eq!(parameters(&wide), [[0, 20_000]]);
        assert_eq!(parameters(&[4, PARAMETER, 12, 0, 1]), Vec::<[u32; 2]>::new());
        let mut text = String::new();
        kernel(&mut text, "k", &[[0, 32], [32, 8], [40, 2], [42, 1], [48, 16]]);
        assert_eq!(
            text,
            ".visible .entry k(.param .align 16 .b8 p0[32], .param .align 16 .b8 p1[8], .param .align 8 .b8 p2[2], \
             .param .align 2 .b8 p3[1], .param .align 16 .b8 p4[16]) { ret; }\n"
        );
    }

    #[test]
    fn names_are_ptxs() {
        assert!(["k", "_Z1fv", "$str", "a$1_"].into_iter().all(is_identifier));
        assert!(!["", "_", "1k", ".text.k", "a.b", "é"].into_iter().any(is_identifier));
    }

    #[test]
    fn what_is_no_cubin_has_no_stub() {
        assert_eq!(stub(b"\x7fELF"), None);
        assert_eq!(stub(&[0; 64]), None);
    }
}
