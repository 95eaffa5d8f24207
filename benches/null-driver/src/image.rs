//! What the headers of PTX text say: the entries and the layout of their parameters (PTX ISA, "Parameter State Space").

use std::ffi::CString;

use cuda_abi::sys::CUresult::{CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU};

use crate::Result;

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: CString,
    /// Offset and size of each parameter.
    pub params: Vec<(usize, usize)>,
}

/// Kernels that one image may have, so that their handles fit between two modules'.
const MOST: usize = 60_000;

/// The kernels of an image.
pub fn kernels(image: &[u8]) -> Result<Vec<Kernel>> {
    if image.starts_with(b"\x7fELF") || image.starts_with(&0xBA55_ED50u32.to_le_bytes()) {
        return Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let text = std::str::from_utf8(image).map_err(|_| CUDA_ERROR_INVALID_PTX)?;
    let text = without_comments(text);
    if !text.contains(".version") {
        return Err(CUDA_ERROR_INVALID_PTX);
    }
    let entries: Vec<Kernel> = text.split(".entry").skip(1).map(entry).collect::<Result<_>>()?;
    if entries.len() <= MOST { Ok(entries) } else { Err(CUDA_ERROR_INVALID_PTX) }
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        plain.push_str(&rest[..at]);
        plain.push(' ');
        let (end, skip) = if rest[at..].starts_with("//") { ("\n", 0) } else { ("*/", 2) };
        rest = rest[at + 2..].find(end).map_or("", |length| &rest[at + 2 + length + skip..]);
    }
    plain + rest
}

/// What follows `.entry`: a name, perhaps parameters in parentheses, and a body.
fn entry(text: &str) -> Result<Kernel> {
    let head = text.split(['{', ';']).next().unwrap_or_default();
    let (name, params) = match head.split_once('(') {
        Some((name, rest)) => (name, rest.split(')').next().unwrap_or_default()),
        None => (head.split_whitespace().next().unwrap_or_default(), ""),
    };
    let name = CString::new(name.trim()).map_err(|_| CUDA_ERROR_INVALID_PTX)?;
    let mut at = 0usize;
    let mut layout = Vec::new();
    for declared in params.split(',').filter(|declared| !declared.trim().is_empty()) {
        let (size, alignment) = param(declared).ok_or(CUDA_ERROR_INVALID_PTX)?;
        at = at.next_multiple_of(alignment);
        layout.push((at, size));
        at = at.checked_add(size).ok_or(CUDA_ERROR_INVALID_PTX)?;
    }
    Ok(Kernel { name, params: layout })
}

/// Size and alignment of a parameter, for example `.param .align 4 .b8 name[12]`.
fn param(declared: &str) -> Option<(usize, usize)> {
    let mut size = None;
    let mut alignment = None;
    let mut words = declared.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            ".align" => {
                let value =
                    words.next()?.parse().ok().filter(|n: &usize| n.is_power_of_two() && *n <= 4096)?;
                // One behind `.ptr` is the alignment of what the pointer leads to, and the size was said before.
                alignment = alignment.or(size.is_none().then_some(value));
            }
            word => size = size.or_else(|| type_bytes(word)),
        }
    }
    let element = size?;
    let elements = match declared.split_once('[') {
        Some((_, rest)) => rest.split(']').next()?.trim().parse().ok()?,
        None => 1usize,
    };
    Some((element.checked_mul(elements)?, alignment.unwrap_or(element)))
}

fn type_bytes(word: &str) -> Option<usize> {
    let bits = word.strip_prefix(['.']).and_then(|kind| kind.strip_prefix(['b', 's', 'u', 'f']))?;
    match bits {
        "8" => Some(1),
        "16" => Some(2),
        "32" => Some(4),
        "64" => Some(8),
        "128" => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets by the PTX manual: each parameter stands at the next multiple of its alignment.
    #[test]
    fn entries_and_layouts() {
        let text = "
            .version 8.0 // .entry no(.param .u64 x)
            .target sm_90
            .visible .entry first(.param .u64 a, .param .u32 b, .param .align 16 .b8 c[20], .param .u8 d) { ret; }
            /* .entry neither() */
            .entry second() { ret; }
            .entry third(
                .param .u64 .ptr .global .align 256 p,
                .param .f32 q
            )
            .maxntid 32, 1, 1
            { ret; }";
        let kernel = |name: &str, params: &[(usize, usize)]| Kernel {
            name: CString::new(name).unwrap(),
            params: params.to_vec(),
        };
        let expected = [
            kernel("first", &[(0, 8), (8, 4), (16, 20), (36, 1)]),
            kernel("second", &[]),
            kernel("third", &[(0, 8), (8, 4)]),
        ];
        assert_eq!(kernels(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_ptx_text_is_refused() {
        assert_eq!(kernels(b"\x7fELF..."), Err(CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(kernels(b"hello"), Err(CUDA_ERROR_INVALID_PTX));
        assert_eq!(kernels(b".version 8.0 .entry k(.param .what x)"), Err(CUDA_ERROR_INVALID_PTX));
        assert_eq!(
            kernels(b".version 8.0 .entry k(.param .b8 x[99999999999999999999])"),
            Err(CUDA_ERROR_INVALID_PTX)
        );
    }
}
