//! What a parameter of a remoted call can be.
//!
//! These are names for meanings: they hold nothing. The interposer says for each what the C argument is, how it is
//! checked and what goes into the record; the worker says what is taken from the record and handed to the driver.
//! Plain integers (`u8`, `u16`, `u32`, `i32`, `u64`, `usize`) and `f32` stand for themselves.

use std::marker::PhantomData;

use cudarc::driver::sys;

use crate::handle::Kind;

/// A kind of object that the client names by handle.
pub trait HandleKind: 'static {
    /// The table that it lives in.
    const KIND: Kind;
    /// Its type in cuda.h.
    type C: Copy + 'static;
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident: $c:ty),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
        impl HandleKind for $name {
            const KIND: Kind = Kind::$name;
            type C = $c;
        }
    )*};
}

handles! {
    /// A context, primary or created.
    Context: sys::CUcontext,
    /// A stream. As a parameter it may also be null, 1 (legacy) or 2 (the thread's own).
    Stream: sys::CUstream,
    /// An event.
    Event: sys::CUevent,
    /// A module.
    Module: sys::CUmodule,
    /// A library.
    Library: sys::CUlibrary,
    /// A `CUfunction` or a `CUkernel`: CUDA takes either where it takes a function.
    Function: sys::CUfunction,
    /// A memory pool.
    MemPool: sys::CUmemoryPool,
}

/// An output parameter in which the client stores a handle that it makes itself.
pub struct New<K>(PhantomData<K>);

/// A handle that ends with this call.
pub struct Delete<K>(PhantomData<K>);

/// A handle that may be null (then the driver gets null).
pub struct Maybe<K>(PhantomData<K>);

/// A device address; the extent is the number of bytes from there on that the call touches, all of which must lie in
/// one allocation, or 0 where the call decides itself.
pub struct DevicePtr;

/// As [`DevicePtr`], and a multiple of the size of its elements; else CUDA_ERROR_INVALID_VALUE.
pub struct Elements<const BYTES: u32>;

/// Bytes from one row to the next of a 2D operation; the extent is the least that it may be ([`row`]); below it is
/// CUDA_ERROR_INVALID_VALUE.
pub struct Pitch;

/// A pointer to a `T` that the call reads: plain data without pointers or handles.
pub struct In<T>(PhantomData<T>);

/// A pointer that the answer is stored through. Null is CUDA_ERROR_INVALID_VALUE.
pub struct Out<T>(PhantomData<T>);

/// As [`Out`], but null is allowed and means that the caller does not want it.
pub struct OptOut<T>(PhantomData<T>);

/// A NUL-terminated string that the call reads.
pub struct Str;

/// A 32-bit value (often a C enum) that must lie between the two, ends included; else CUDA_ERROR_INVALID_VALUE.
pub struct Within<const FIRST: u32, const LAST: u32>;

/// A 32-bit value with no bit set outside of the mask; else CUDA_ERROR_INVALID_VALUE.
pub struct Bits<const MASK: u32>;

/// Only in a `record`: a value with its own encoding ([`crate::wire::codec::Wire`]) that the call reads.
pub struct Value<T>(PhantomData<T>);

/// Only in a `record`: a value with its own encoding that the answer carries. The whole answer must fit a staging
/// chunk; what may be larger goes by parcel.
pub struct Back<T>(PhantomData<T>);

/// Only in a `record`: bytes that the call reads, at most a staging chunk of them; a few travel in the record itself.
pub struct BulkIn;

/// Only in a `record`: bytes that the answer carries, at most a staging chunk of them.
pub struct BulkOut;

/// The least pitch of `height` rows of `width` bytes: a single row has none.
pub fn row(width: usize, height: usize) -> usize {
    if height > 1 { width } else { 0 }
}

/// Bytes from the first to the last that a 2D operation touches: `height` rows of `width` bytes, `pitch` bytes apart.
/// Saturates, so that a product beyond the address space is beyond every allocation too.
pub fn plane(pitch: usize, width: usize, height: usize) -> usize {
    match height {
        0 => 0,
        rows => pitch.saturating_mul(rows - 1).saturating_add(width),
    }
}
