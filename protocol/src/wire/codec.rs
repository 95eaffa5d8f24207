//! How values lie in a record's body: every value starts on an 8-byte boundary and takes a multiple of 8 bytes,
//! little-endian, padding zeroed, so that nothing of the sender's memory leaks and offsets need no thought.
//!
//! [`Writer`] fills ring memory that the peer may be looking at, through raw pointers only. [`Reader`] walks a
//! *private copy* of a record and trusts nothing in it.

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
pub struct Writer<'a> {
    at: *mut u8,
    left: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Writer<'a> {
    /// A writer over a private buffer.
    pub fn over(buffer: &'a mut [u8]) -> Self {
        Self { at: buffer.as_mut_ptr(), left: buffer.len(), memory: PhantomData }
    }

    /// A writer over `len` bytes of ring memory.
    ///
    /// # Safety
    /// `at` must be valid for writes of `len` bytes for `'a`, and no other thread of this process may touch them.
    pub unsafe fn new(at: *mut u8, len: usize) -> Self {
        Self { at, left: len, memory: PhantomData }
    }

    /// Bytes that are still free.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Appends `bytes` and zeroes up to the next 8-byte boundary.
    ///
    /// # Panics
    /// When the record was reserved too small: a defect of the caller, whose `wire_len` and `put` disagree.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let whole = padded(bytes.len());
        assert!(whole <= self.left, "record reserved too small");
        // SAFETY: `whole` bytes from `at` are ours (checked above, `new`'s contract); `bytes` cannot overlap memory
        // that only this writer may touch.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, bytes.len());
            std::ptr::write_bytes(self.at.add(bytes.len()), 0, whole - bytes.len());
            self.at = self.at.add(whole);
        }
        self.left -= whole;
    }

    /// Appends one 64-bit word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        assert!(self.left >= 8, "record reserved too small");
        // SAFETY: eight bytes from `at` are ours (checked above, `new`'s contract).
        unsafe {
            self.at.cast::<u64>().write_unaligned(word.to_le());
            self.at = self.at.add(8);
        }
        self.left -= 8;
    }

    /// Zeroes what is left.
    pub fn finish(mut self) {
        let left = self.left;
        // SAFETY: `left` bytes from `at` are ours (`new`'s contract).
        unsafe { std::ptr::write_bytes(self.at, 0, left) };
        self.left = 0;
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
    fn padding_is_zeroed() {
        let mut buffer = [0xFFu8; 16];
        let mut to = Writer::over(&mut buffer);
        to.bytes(&[1, 2, 3]);
        to.finish();
        assert_eq!(buffer, [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
