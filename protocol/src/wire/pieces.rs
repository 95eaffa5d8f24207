//! Blocks of small pieces: kernel parameters, gathered from where the program has each of them.
//!
//! Where the pieces lie is checked once, when a kernel becomes known. A launch then puts them into its record without a look
//! at any bound but the record's.

#![allow(unsafe_code)]

use std::hint::cold_path;

use super::codec::Writer;

/// Where pieces of 4 and of 8 bytes lie in a block.
#[derive(Debug)]
pub struct Pieces {
    /// Bytes of the block, and the same rounded up to 8. Each piece lies within the first.
    len: u32,
    whole: u32,
    /// Whether some bytes belong to no piece.
    gaps: bool,
    /// Those of 8 bytes, and those of 4.
    wide: Box<[Piece]>,
    narrow: Box<[Piece]>,
}

/// A piece's index and its place in the block.
#[derive(Debug, Clone, Copy)]
struct Piece {
    index: u32,
    offset: u32,
}

impl Pieces {
    /// Of offset and size of each piece, which are one behind the other; `None` where a piece has another size than 4 or 8 bytes,
    /// or where a sum leaves 32 bits.
    pub fn new(each: &[(u32, u32)]) -> Option<Self> {
        let (mut len, mut gaps) = (0u32, false);
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        for (&(offset, size), index) in each.iter().zip(0..) {
            let of_its_size = match size {
                4 => &mut narrow,
                8 => &mut wide,
                _ => return None,
            };
            gaps |= offset != len;
            len = len.max(offset.checked_add(size)?);
            of_its_size.push(Piece { index, offset });
        }
        let whole = len.checked_next_multiple_of(8)?;
        Some(Self { len, whole, gaps, wide: wide.into(), narrow: narrow.into() })
    }

    /// Bytes that [`Writer::pieces`] appends: a length and the block.
    #[inline(always)]
    pub fn wire_len(&self) -> usize {
        8 + self.whole as usize
    }
}

impl Writer<'_> {
    /// Appends the length of a block and the block, as bytes are appended. `four` and `eight` give the piece with an index;
    /// without one the record is overrun, as by a value that does not fit.
    #[inline(always)]
    pub fn pieces(
        &mut self,
        pieces: &Pieces,
        four: impl Fn(usize) -> Option<[u8; 4]>,
        eight: impl Fn(usize) -> Option<[u8; 8]>,
    ) {
        let len = pieces.wire_len();
        if self.left < len {
            cold_path();
            self.overrun = true;
            return;
        }
        // SAFETY: `len` bytes from `at` are ours (checked above, `Writer::new`'s contract).
        unsafe {
            if pieces.gaps {
                cold_path();
                std::ptr::write_bytes(self.at, 0, len);
            }
            self.overrun |= !write(self.at, pieces, four, eight);
            self.at = self.at.add(len);
        }
        self.left -= len;
    }
}

/// Writes the length and the block to `at`; whether all pieces were there. A function of its own that calls none: in the middle
/// of a long one its loops would find no register free.
///
/// # Safety
/// `pieces.wire_len()` bytes from `at` can be written, and nobody else touches them.
#[inline(never)]
unsafe fn write(
    at: *mut u8,
    pieces: &Pieces,
    four: impl Fn(usize) -> Option<[u8; 4]>,
    eight: impl Fn(usize) -> Option<[u8; 8]>,
) -> bool {
    // SAFETY: a word, and the block behind it, within which all pieces lie (`Pieces::new`).
    unsafe {
        // The padding, or what the last piece is written over; without pieces the length, which is zero too.
        at.add(pieces.whole as usize).cast::<u64>().write_unaligned(0);
        at.cast::<u64>().write_unaligned(u64::from(pieces.len).to_le());
        let block = at.add(8);
        for piece in &pieces.wide {
            let Some(bytes) = eight(piece.index as usize) else { return false };
            block.add(piece.offset as usize).cast::<[u8; 8]>().write_unaligned(bytes);
        }
        for piece in &pieces.narrow {
            let Some(bytes) = four(piece.index as usize) else { return false };
            block.add(piece.offset as usize).cast::<[u8; 4]>().write_unaligned(bytes);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in a record of `room` bytes behind pieces that are there where their index is below `there`, and whether all
    /// fitted.
    fn written(each: &[(u32, u32)], there: usize, room: usize) -> (Vec<u8>, bool) {
        let mut buffer = vec![0xEE; room];
        let mut to = Writer::over(&mut buffer);
        let byte = |index: usize| 1 + index as u8;
        let four = |index| (index < there).then_some([byte(index); 4]);
        let eight = |index| (index < there).then_some([byte(index); 8]);
        to.pieces(&Pieces::new(each).unwrap(), four, eight);
        let fine = to.finish();
        (buffer, fine)
    }

    #[test]
    fn pieces_stand_at_their_places_and_all_else_is_zero() {
        let zeros = |n| vec![0u8; n];
        let length = |n: u64| n.to_le_bytes().to_vec();
        let parts = [length(20), vec![1; 8], vec![2; 4], vec![3; 4], vec![4; 4], zeros(4), zeros(8)];
        assert_eq!(written(&[(0, 8), (8, 4), (12, 4), (16, 4)], 4, 40), (parts.concat(), true));
        let parts = [length(20), vec![1; 4], zeros(4), vec![2; 8], vec![3; 4], zeros(4)];
        assert_eq!(written(&[(0, 4), (8, 8), (16, 4)], 3, 32), (parts.concat(), true));
        assert_eq!(written(&[], 0, 8), (length(0), true));
    }

    #[test]
    fn what_does_not_fit_or_is_not_there_is_said() {
        assert_eq!(written(&[(0, 8), (8, 4)], 2, 16), (vec![0; 16], false));
        assert_eq!(written(&[], 0, 0), (vec![], false));
        assert!(!written(&[(0, 8), (8, 4)], 1, 24).1);
    }

    #[test]
    fn only_what_can_lie_so_is_taken() {
        assert!(Pieces::new(&[(0, 8), (8, 2)]).is_none());
        assert!(Pieces::new(&[(u32::MAX - 3, 8)]).is_none());
        assert!(Pieces::new(&[(u32::MAX - 6, 4)]).is_none(), "the padding");
        assert!(Pieces::new(&[(u32::MAX - 11, 4)]).is_some());
    }
}
