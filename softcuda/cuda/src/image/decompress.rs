//! Payloads of fatbins may be compressed: by LZ4 as one block, or as ZSTD frames.
#![forbid(unsafe_code)]

use std::io::Read;

/// Nothing larger comes out: a header may lie about the size.
pub const LARGEST: u64 = 1 << 30;

/// One LZ4 block.
pub fn lz4(input: &[u8], size: u64) -> Option<Vec<u8>> {
    if size > LARGEST || size > 255 * (input.len() as u64 + 1) {
        return None; // more than LZ4 can make of so few bytes
    }
    lz4_flex::block::decompress(input, size as usize).ok().filter(|out| out.len() as u64 == size)
}

/// ZSTD frames, up to `size` bytes.
pub fn zstd(input: &[u8], size: u64) -> Option<Vec<u8>> {
    if size > LARGEST {
        return None;
    }
    let decoder = ruzstd::decoding::StreamingDecoder::new(input).ok()?;
    let mut out = Vec::new();
    // One byte more shows a payload that is longer than it says.
    decoder.take(size + 1).read_to_end(&mut out).ok()?;
    (out.len() as u64 == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lz4_of_the_right_size_only() {
        let text = b"abcabcabcabcabcabcabcabcabcabc".repeat(20);
        let packed = lz4_flex::block::compress(&text);
        assert_eq!(lz4(&packed, 600).as_deref(), Some(&text[..]));
        assert_eq!((lz4(&packed, 599), lz4(&packed, 601), lz4(&packed, u64::MAX)), (None, None, None));
        assert_eq!(lz4(&packed[..5], 600), None);
    }

    #[test]
    fn zstd_of_the_right_size_only() {
        let text = b"abcabcabcabcabcabcabcabcabcabc".repeat(20);
        let packed =
            ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert_eq!(zstd(&packed, 600).as_deref(), Some(&text[..]));
        assert_eq!((zstd(&packed, 599), zstd(&packed, 601), zstd(&packed, u64::MAX)), (None, None, None));
        assert_eq!(zstd(&packed[..packed.len() / 2], 600), None);
        assert_eq!(zstd(b"nothing", 7), None);
    }
}
