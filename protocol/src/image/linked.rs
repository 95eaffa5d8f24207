//! Programs with relocatable device code (`nvcc -rdc=true`) hand over a wrapper of version 2: what was linked for some
//! architectures, and the parts that it was linked from, which a driver links anew for any other. Over the wire they are one
//! image, which begins as a wrapper does.
//!
//! {magic u32, version u32, count u64, lengths u64 × count}, then the fatbins, each at a multiple of 8 bytes: first the linked
//! one, then its parts.

use std::ops::Range;

use super::extent::{FATBIN, WRAPPER};

/// The version of a wrapper with parts.
pub const WITH_PARTS: u32 = 2;
/// Parts that one wrapper may have.
pub const MAX_PARTS: usize = 4096;
/// Bytes before the lengths.
const HEAD: usize = 16;

/// A linked fatbin and its parts as one image.
pub fn join(fatbins: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::new();
    all.extend_from_slice(&WRAPPER.to_le_bytes());
    all.extend_from_slice(&WITH_PARTS.to_le_bytes());
    all.extend_from_slice(&(fatbins.len() as u64).to_le_bytes());
    fatbins.iter().for_each(|fatbin| all.extend_from_slice(&(fatbin.len() as u64).to_le_bytes()));
    for fatbin in fatbins {
        all.resize(all.len().next_multiple_of(8), 0);
        all.extend_from_slice(fatbin);
    }
    all
}

/// Whether an image is what [`join`] makes.
pub fn is_joined(image: &[u8]) -> bool {
    image.starts_with(&WRAPPER.to_le_bytes())
}

/// Where the fatbins of a joined image lie; `None` if it is none. What they say of their own lengths is not looked at.
pub fn split(image: &[u8]) -> Option<Vec<Range<usize>>> {
    let word = |at: usize| image.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    if word(0)? != u64::from(WRAPPER) | u64::from(WITH_PARTS) << 32 {
        return None;
    }
    let count = usize::try_from(word(8)?).ok().filter(|count| (1..=MAX_PARTS + 1).contains(count))?;
    let mut end = HEAD + 8 * count;
    (0..count)
        .map(|i| {
            let start = end.checked_next_multiple_of(8)?;
            end = start.checked_add(usize::try_from(word(HEAD + 8 * i)?).ok()?)?;
            image.get(start..end)?.starts_with(&FATBIN.to_le_bytes()).then_some(start..end)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatbin(rest: &[u8]) -> Vec<u8> {
        [&FATBIN.to_le_bytes(), rest].concat()
    }

    #[test]
    fn what_is_joined_comes_apart_again() {
        let (linked, one, two) = (fatbin(b"linked for sm_75"), fatbin(b"1"), fatbin(b"two"));
        let all = join(&[&linked, &one, &two]);
        assert!(is_joined(&all) && !is_joined(&linked));
        let parts = split(&all).unwrap();
        assert!(parts.iter().all(|part| part.start.is_multiple_of(8)));
        let parts: Vec<_> = parts.into_iter().map(|part| all[part].to_vec()).collect();
        assert_eq!(parts, [linked, one, two]);
    }

    #[test]
    fn what_lies_is_none() {
        let good = join(&[&fatbin(b"x"), &fatbin(b"yz")]);
        assert!(split(&good).is_some());
        for cut in 0..good.len() {
            assert!(split(&good[..cut]).is_none(), "cut at {cut}");
        }
        // A count, a length, a version and a part's first word.
        for (at, value) in [(8, u64::MAX), (8, 0), (8, 5000), (16, u64::MAX), (16, 1 << 40), (4, 1), (32, 0)]
        {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
            if at != 4 && at != 32 {
                bad[at + 4..at + 8].copy_from_slice(&((value >> 32) as u32).to_le_bytes());
            }
            assert!(split(&bad).is_none(), "{value:#x} at {at}");
        }
    }
}
