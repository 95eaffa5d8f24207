//! Arguments of C functions as the bodies of calls see them: pointers that can be read and written, handles as numbers.
//!
//! The bodies are safe code. What makes that possible is one promise, given where an exported function takes its
//! arguments ([`FromC::into_body`]): each pointer is null or is what the CUDA driver API manual demands of that argument.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;

use crate::code::{Answer, INVALID_VALUE};

/// A handle argument: a number that C sees as an opaque pointer.
#[repr(transparent)]
pub struct Raw<K>(pub u64, PhantomData<K>);

impl<K> Raw<K> {
    /// The handle with this number.
    pub const fn new(number: u64) -> Self {
        Self(number, PhantomData)
    }

    /// The null handle.
    pub const NULL: Self = Self::new(0);

    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl<K> Clone for Raw<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Raw<K> {}

impl<K> fmt::Debug for Raw<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A pointer argument: null, or valid for what the manual says of it.
pub struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Ptr<T> {
    /// A pointer that stood in memory that an argument points at: the same promise covers it.
    pub fn of_argument(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// A pointer to a local value, for one body that calls another.
    pub fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub fn addr(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Null is CUDA_ERROR_INVALID_VALUE.
    pub fn not_null(self) -> Answer<Self> {
        if self.is_null() { Err(INVALID_VALUE) } else { Ok(self) }
    }

    /// Stores an output. Null is CUDA_ERROR_INVALID_VALUE.
    pub fn set(self, value: T) -> Answer {
        self.not_null()?;
        // SAFETY: not null, hence a place for a T (the module's promise); C need not align it.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Stores an output that the caller may not want.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Stores the element at `index`. The pointer must not be null and the array that long.
    pub fn set_at(self, index: usize, value: T) {
        // SAFETY: an element of the array that the manual demands.
        unsafe { self.0.add(index).write_unaligned(value) };
    }
}

impl<T: Copy> Ptr<T> {
    /// Reads an input. Null is CUDA_ERROR_INVALID_VALUE.
    pub fn get(self) -> Answer<T> {
        self.not_null()?;
        // SAFETY: not null, hence a readable T (the module's promise).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads the element at `index`. The pointer must not be null and the array that long.
    pub fn at(self, index: usize) -> T {
        // SAFETY: an element of the array that the manual demands.
        unsafe { self.0.add(index).read_unaligned() }
    }
}

impl Ptr<c_char> {
    /// A string as UTF-8. Null is CUDA_ERROR_INVALID_VALUE; so is other text, since no name that we could look up has it.
    pub fn text(self) -> Answer<&'static str> {
        self.bytes()?.to_str().map_err(|_| INVALID_VALUE)
    }

    /// A string. It lives as long as the call.
    pub fn bytes(self) -> Answer<&'static CStr> {
        self.not_null()?;
        // SAFETY: not null, hence a NUL-terminated string; the bodies do not keep it.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// Stores a string with its NUL in a buffer of `len` bytes, cut where it does not fit.
    pub fn set_text(self, text: &str, len: usize) -> Answer {
        self.not_null()?;
        let room = len.checked_sub(1).ok_or(INVALID_VALUE)?;
        let taken = &text.as_bytes()[..text.len().min(room)];
        for (i, byte) in taken.iter().enumerate() {
            self.set_at(i, *byte as c_char);
        }
        self.set_at(taken.len(), 0);
        Ok(())
    }
}

impl Ptr<c_void> {
    /// The same address as another type.
    pub fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// How an argument of an exported function comes to its body.
pub trait FromC {
    /// What the body gets.
    type Body;
    /// # Safety
    /// The value is an argument as the CUDA driver API manual demands it.
    unsafe fn into_body(self) -> Self::Body;
}

macro_rules! themselves {
    ($($t:ty),*) => {$(
        impl FromC for $t {
            type Body = $t;
            unsafe fn into_body(self) -> $t {
                self
            }
        }
    )*};
}
themselves!(u8, u16, u32, i32, u64, usize);

impl<K> FromC for Raw<K> {
    type Body = Self;
    unsafe fn into_body(self) -> Self {
        self
    }
}

impl<F> FromC for Option<F> {
    type Body = Self;
    unsafe fn into_body(self) -> Self {
        self
    }
}

impl<T> FromC for *mut T {
    type Body = Ptr<T>;
    unsafe fn into_body(self) -> Ptr<T> {
        Ptr(self)
    }
}

impl<T> FromC for *const T {
    type Body = Ptr<T>;
    unsafe fn into_body(self) -> Ptr<T> {
        Ptr(self.cast_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_an_invalid_value() {
        let null = Ptr::<u32>(std::ptr::null_mut());
        assert_eq!((null.set(1), null.get()), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
        let mut place = 0u32;
        Ptr::to(&mut place).set(7).unwrap();
        assert_eq!(place, 7);
    }

    #[test]
    fn text_is_cut_with_its_nul() {
        let mut buffer = [1 as c_char; 4];
        let at = Ptr(buffer.as_mut_ptr());
        at.set_text("abcdef", 3).unwrap();
        assert_eq!(buffer.map(|b| b as u8), [b'a', b'b', 0, 1]);
        assert_eq!(at.set_text("x", 0), Err(INVALID_VALUE));
        at.set_text("", 1).unwrap();
        assert_eq!(at.text(), Ok(""));
    }
}
