//! How values lie in a record's body: every value starts on an 8-byte boundary and takes a multiple of 8 bytes,
//! little-endian, padding zeroed, so that nothing of the sender's memory leaks and offsets need no thought.
//!
//! [`Writer`] fills ring memory that the peer may be looking at, through raw pointers only. [`Reader`] walks a
//! *private copy* of a record and trusts nothing in it.

use std::hint::cold_path;
use std::marker::PhantomData;

/// A record that its sender should not have been able to make. It ends that session only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// The body is shorter than its call's arguments.
    #[error("the record ends inside its arguments")]
    Truncated,
    /// A length, count or index in the body is beyond its limit.
    #[error("a length or index in the record is out of range")]
    OutOfRange,
    /// Bytes are left over after the last argument.
    #[error("the record is longer than its arguments")]
    TrailingBytes,
    /// A string is not NUL-free UTF-8.
    #[error("a string in the record is not valid")]
    BadString,
}

/// `n` rounded up to the next multiple of 8.
#[inline]
pub const fn padded(n: usize) -> usize {
    (n + 7) & !7
}

/// A bounds-checked cursor over memory that is being filled for the peer.
///
/// It never panics: what does not fit is not written, and [`Writer::finish`] says so. That is a defect of the caller,
/// whose lengths and contents disagree.
pub struct Writer<'a> {
    pub(super) at: *mut u8,
    pub(super) left: usize,
    pub(super) overrun: bool,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Writer<'a> {
    /// A writer over a private buffer.
    pub fn over(buffer: &'a mut [u8]) -> Self {
        Self { at: buffer.as_mut_ptr(), left: buffer.len(), overrun: false, memory: PhantomData }
    }

    /// A writer over `len` bytes of ring memory.
    ///
    /// # Safety
    /// `at` must be valid for writes of `len` bytes for `'a`, and no other thread of this process may touch them.
    #[inline(always)]
    pub unsafe fn new(at: *mut u8, len: usize) -> Self {
        Self { at, left: len, overrun: false, memory: PhantomData }
    }

    /// Two writers, over the first `at` bytes and over the rest. If there are fewer, the first has what there is and the
    /// second is overrun.
    #[inline(always)]
    pub fn split(self, at: usize) -> (Self, Self) {
        if at > self.left {
            cold_path();
            let rest = Self { at: self.at, left: 0, overrun: true, memory: PhantomData };
            return (self, rest);
        }
        // SAFETY: still within the bytes that are ours, or just behind them.
        let behind = unsafe { self.at.add(at) };
        let rest = Self { at: behind, left: self.left - at, overrun: self.overrun, memory: PhantomData };
        (Self { left: at, ..self }, rest)
    }

    /// Bytes that are still free.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Appends `bytes` and zeroes up to the next 8-byte boundary.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.block(bytes.len(), false, |mut block| {
            block.put(0, bytes);
            block
        });
    }

    /// Appends `len` bytes that consist of pieces, which `fill` puts into the block, and zeroes up to the next 8-byte
    /// boundary. `gaps`: not every byte belongs to a piece; then all are zeroed first. The block goes by value, so that
    /// neither it nor this writer needs a place in memory.
    #[inline(always)]
    pub fn block(&mut self, len: usize, gaps: bool, fill: impl FnOnce(Block<'a>) -> Block<'a>) {
        let whole = padded(len);
        // `len` again, since rounding up may wrap.
        if whole > self.left || len > whole {
            cold_path();
            self.overrun = true;
            return;
        }
        let at = self.at;
        // SAFETY: `whole` bytes from `at` are ours (checked above, `new`'s contract). The padding is within the last
        // word of them.
        unsafe {
            if gaps {
                std::ptr::write_bytes(at, 0, whole);
            } else if whole != len {
                at.add(whole - 8).cast::<u64>().write_unaligned(0);
            }
            self.at = at.add(whole);
        }
        self.left -= whole;
        self.overrun |= fill(Block { at, len, overrun: false, memory: PhantomData }).overrun;
    }

    /// Appends one 64-bit word.
    #[inline(always)]
    pub fn word(&mut self, word: u64) {
        self.words([word]);
    }

    /// Appends words.
    #[inline(always)]
    pub fn words<const N: usize>(&mut self, words: [u64; N]) {
        if self.left < 8 * N {
            cold_path();
            self.overrun = true;
            return;
        }
        // SAFETY: `8 * N` bytes from `at` are ours (checked above, `new`'s contract).
        unsafe {
            self.at.cast::<[u64; N]>().write_unaligned(words.map(u64::to_le));
            self.at = self.at.add(8 * N);
        }
        self.left -= 8 * N;
    }

    /// Zeroes what is left. Says whether everything fitted.
    #[inline(always)]
    pub fn finish(self) -> bool {
        if self.left > 0 {
            cold_path();
            // SAFETY: `left` bytes from `at` are ours (`new`'s contract).
            unsafe { std::ptr::write_bytes(self.at, 0, self.left) };
        }
        !self.overrun
    }
}

/// Bytes of a record that are put together from pieces. A piece that does not lie within them is not written, and its
/// record is overrun.
pub struct Block<'w> {
    at: *mut u8,
    len: usize,
    overrun: bool,
    memory: PhantomData<&'w mut [u8]>,
}

impl Block<'_> {
    /// There is no such piece: the record is overrun, as if the piece did not fit.
    #[cold]
    pub fn lacks(&mut self) {
        self.overrun = true;
    }

    /// Puts a piece at its offset.
    #[inline(always)]
    pub fn put(&mut self, offset: usize, piece: &[u8]) {
        if offset > self.len || piece.len() > self.len - offset {
            cold_path();
            self.overrun = true;
            return;
        }
        // SAFETY: `len` bytes from `at` belong to the block, and the piece lies within them (checked above); it cannot
        // overlap memory that only the writer may touch.
        unsafe {
            let to = self.at.add(offset);
            std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
        }
    }
}

/// A cursor over a private copy of a record's body.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `body`.
    #[inline]
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Takes `len` bytes and the padding behind them.
    #[inline(always)] // so that a record's cursor stays in registers
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        if len > self.rest.len() {
            return Err(BadRecord::Truncated);
        }
        // The last padding may be missing.
        let whole = padded(len).min(self.rest.len());
        // SAFETY: both ends are inside of the rest (checked above), and `len` is not above `whole`.
        let (bytes, rest) = unsafe { (self.rest.get_unchecked(..len), self.rest.get_unchecked(whole..)) };
        self.rest = rest;
        Ok(bytes)
    }

    /// Takes one 64-bit word.
    #[inline]
    pub fn word(&mut self) -> Result<u64, BadRecord> {
        let (head, rest) = self.rest.split_first_chunk::<8>().ok_or(BadRecord::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*head))
    }

    /// Checks once that `words` 64-bit words are left, so that taking them needs no further look at the length.
    #[inline]
    pub fn require(&self, words: usize) -> Result<(), BadRecord> {
        if self.rest.len() / 8 >= words { Ok(()) } else { Err(BadRecord::Truncated) }
    }

    /// Bytes not yet taken.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that nothing is left.
    #[inline]
    pub fn end(&self) -> Result<(), BadRecord> {
        if self.rest.is_empty() { Ok(()) } else { Err(BadRecord::TrailingBytes) }
    }
}

/// A value that can stand in a record's body.
pub trait Wire: Sized {
    /// Bytes that [`put`](Wire::put) appends: a multiple of 8.
    fn wire_len(&self) -> usize;
    /// Appends the value.
    fn put(&self, to: &mut Writer<'_>);
    /// Takes a value.
    fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord>;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            #[inline]
            fn wire_len(&self) -> usize {
                8
            }
            #[inline]
            fn put(&self, to: &mut Writer<'_>) {
                to.word(*self as u64);
            }
            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
                let word = from.word()?;
                if word > <$t>::MAX as u64 {
                    return Err(BadRecord::OutOfRange);
                }
                Ok(word as $t)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, usize);

macro_rules! signed {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            #[inline]
            fn wire_len(&self) -> usize {
                8
            }
            #[inline]
            fn put(&self, to: &mut Writer<'_>) {
                to.word(i64::from(*self) as u64);
            }
            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
                <$t>::try_from(from.word()? as i64).or(Err(BadRecord::OutOfRange))
            }
        }
    )*};
}
signed!(i8, i16, i32, i64);

impl Wire for f32 {
    fn wire_len(&self) -> usize {
        8
    }
    fn put(&self, to: &mut Writer<'_>) {
        to.word(u64::from(self.to_bits()));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
        u32::get(from).map(f32::from_bits)
    }
}

impl Wire for Vec<u8> {
    fn wire_len(&self) -> usize {
        8 + padded(self.len())
    }
    fn put(&self, to: &mut Writer<'_>) {
        to.word(self.len() as u64);
        to.bytes(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
        let len = usize::get(from)?;
        Ok(from.bytes(len)?.to_vec())
    }
}

impl Wire for String {
    fn wire_len(&self) -> usize {
        8 + padded(self.len())
    }
    fn put(&self, to: &mut Writer<'_>) {
        to.word(self.len() as u64);
        to.bytes(self.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
        let bytes = Vec::<u8>::get(from)?;
        if bytes.contains(&0) {
            return Err(BadRecord::BadString);
        }
        String::from_utf8(bytes).or(Err(BadRecord::BadString))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(value: T) {
        let mut buffer = vec![0xAA; value.wire_len()];
        let mut to = Writer::over(&mut buffer);
        value.put(&mut to);
        assert_eq!(to.left(), 0);
        let mut from = Reader::new(&buffer);
        assert_eq!(T::get(&mut from).unwrap(), value);
        from.end().unwrap();
    }

    #[test]
    fn values_come_back_as_they_went() {
        round_trip(u8::MAX);
        round_trip(usize::MAX);
        round_trip(i32::MIN);
        round_trip(-0.5f32);
        round_trip(String::from("seven b"));
        round_trip(vec![1u8; 9]);
        round_trip(Vec::<u8>::new());
    }

    #[test]
    fn a_short_or_lying_body_is_refused() {
        assert_eq!(u64::get(&mut Reader::new(&[0; 7])), Err(BadRecord::Truncated));
        assert_eq!(u8::get(&mut Reader::new(&256u64.to_le_bytes())), Err(BadRecord::OutOfRange));
        assert_eq!(Vec::<u8>::get(&mut Reader::new(&u64::MAX.to_le_bytes())), Err(BadRecord::Truncated));
        assert_eq!(i32::get(&mut Reader::new(&(1u64 << 40).to_le_bytes())), Err(BadRecord::OutOfRange));
        let mut nul = 1u64.to_le_bytes().to_vec();
        nul.extend([0; 8]);
        assert_eq!(String::get(&mut Reader::new(&nul)), Err(BadRecord::BadString));
    }

    #[test]
    fn what_does_not_fit_is_not_written_and_said() {
        let mut buffer = [0xEEu8; 24];
        let mut to = Writer::over(&mut buffer[..16]);
        to.words([1, 2, 3]);
        to.bytes(&[7; 17]);
        to.block(usize::MAX, true, |mut block| {
            block.put(0, &[7]);
            block
        });
        to.bytes(&[5; 3]);
        to.block(4, false, |mut block| {
            block.put(2, &[7; 3]);
            block
        });
        assert!(!to.finish());
        assert_eq!(buffer[..3], [5; 3]);
        assert_eq!(buffer[16..], [0xEE; 8]);
        let (mut first, rest) = Writer::over(&mut buffer[..16]).split(24);
        first.words([1, 2]);
        assert!(first.finish() && !rest.finish());
        let (first, rest) = Writer::over(&mut buffer).split(24);
        assert!(first.finish() && rest.finish());
    }

    #[test]
    fn padding_is_zeroed() {
        let mut buffer = [0xFFu8; 16];
        let mut to = Writer::over(&mut buffer);
        to.bytes(&[1, 2, 3]);
        assert!(to.finish());
        assert_eq!(buffer, [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
