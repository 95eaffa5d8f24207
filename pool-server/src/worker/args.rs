//! What each kind of parameter is on the worker: how it is taken from a record, what the driver's function or the
//! hand-written body gets, and what it adds to the answer.

use std::borrow::Cow;

use gpupool_protocol::api::kinds::{
    Back, Bits, BulkIn, BulkOut, Context, Delete, DevicePtr, Elements, Event, Function, HandleKind, In,
    Library, Maybe, MemPool, Module, New, OptOut, Out, Pitch, Str, Stream, Value, Within,
};
use gpupool_protocol::wire::codec::{BadRecord, Reader, Wire};
use gpupool_protocol::wire::layout::CHUNK_BYTES;

use super::answer::{Answer, BulkTarget};
use super::code::{Code, Fail};
use super::context::Cx;
use super::objects::{Found, Fresh, Object};

/// A record that is being decoded.
pub struct Decode<'d, 'b> {
    /// The body's cursor, over a private copy.
    pub from: &'d mut Reader<'b>,
    /// Whose record it is, and the objects that it may name.
    pub cx: &'d mut Cx,
    /// What the record creates, so that a failure can be noted on it.
    pub fresh: &'d mut Option<Fresh>,
    /// Bits of words that had no room in their values: none in an honest record. Looked at once, when all is decoded.
    pub excess: &'d mut u64,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The driver's stream.
    Stream(u64),
    /// The driver's event.
    Event(u64),
    /// All streams of the driver's context.
    Context(u64),
}

impl Awaited {
    /// Whether a call that waits for this concerns more than the one stream: the legacy stream's work waits for all
    /// blocking streams, and they for it.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Stream(0 | 1) | Self::Context(_))
    }
}

/// A kind of parameter, seen from the worker.
pub trait ServerArg {
    /// What decoding leaves; a slow call takes it to another thread.
    type Held<'b>;
    /// What a hand-written body gets.
    type Lent<'h>;
    /// 64-bit words that it has in a record at the least.
    const WORDS: usize = 1;
    /// Takes the parameter from the record.
    fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Self::Held<'b>, Fail>;
    /// Hands it to a body.
    fn lend<'h>(held: &'h mut Self::Held<'_>) -> Self::Lent<'h>;
    /// Adds its result to the answer.
    #[inline]
    fn answer(_held: &Self::Held<'_>, _to: &mut Answer) {}
    /// What a call with this parameter waits for.
    #[inline]
    fn awaited(_held: &Self::Held<'_>) -> Option<Awaited> {
        None
    }
}

/// A kind of parameter that a slow call can have: what decoding leaves can be kept when the record is gone.
pub trait Own: ServerArg {
    /// Without what belongs to the record.
    fn own(held: Self::Held<'_>) -> Self::Held<'static>;
}

macro_rules! own {
    ($([$($generics:tt)*] $kind:ty;)*) => {$(
        impl<$($generics)*> Own for $kind {
            #[inline]
            fn own(held: Self::Held<'_>) -> Self::Held<'static> {
                held
            }
        }
    )*};
}

own! {
    [] u8;
    [] u16;
    [] u32;
    [] i32;
    [] u64;
    [] usize;
    [] f32;
    [] DevicePtr;
    [] Elements<2>;
    [] Elements<4>;
    [] Pitch;
    [] Context;
    [] Stream;
    [] Event;
    [] Module;
    [] Library;
    [] Function;
    [] MemPool;
    [] Str;
    [] BulkOut;
    [] Value<String>;
    [const FIRST: u32, const LAST: u32] Within<FIRST, LAST>;
    [const MASK: u32] Bits<MASK>;
    [K: HandleKind + Object] New<K>;
    [K: HandleKind + Object] Delete<K>;
    [K: HandleKind + Object] Maybe<K>;
    [T: Plain] Out<T>;
    [T: Plain] OptOut<T>;
    [T: zerocopy::FromBytes + Send + 'static] In<T>;
    [T: Wire + Default + 'static] Back<T>;
}

impl Own for Value<Vec<u8>> {
    fn own(held: Cow<'_, [u8]>) -> Cow<'static, [u8]> {
        Cow::Owned(held.into_owned())
    }
}

/// A kind of parameter that the driver's function takes as it stands.
pub trait NativeArg: ServerArg {
    /// Its type over the C ABI.
    type Native;
    /// Its value. A pointer is valid until `held` is dropped.
    fn native(held: &mut Self::Held<'_>) -> Self::Native;
}

/// Inputs that are copied as they are.
macro_rules! plain_inputs {
    (unsigned $decode:ident $t:ty) => {{
        let word = $decode.from.word()?;
        let value = word as $t;
        *$decode.excess |= word ^ value as u64;
        Ok(value)
    }};
    (other $decode:ident $t:ty) => { Ok(<$t as Wire>::get($decode.from)?) };
    ($($way:ident $kind:ty => $t:ty;)*) => {$(
        impl ServerArg for $kind {
            type Held<'b> = $t;
            type Lent<'h> = $t;
            #[inline(always)]
            fn take(decode: &mut Decode<'_, '_>) -> Result<$t, Fail> {
                plain_inputs!($way decode $t)
            }
            #[inline]
            fn lend(held: &mut $t) -> $t {
                *held
            }
        }
        impl NativeArg for $kind {
            type Native = $t;
            #[inline]
            fn native(held: &mut $t) -> $t {
                *held
            }
        }
    )*};
}

plain_inputs! {
    unsigned u8 => u8;
    unsigned u16 => u16;
    unsigned u32 => u32;
    other i32 => i32;
    unsigned u64 => u64;
    unsigned usize => usize;
    other f32 => f32;
    unsigned DevicePtr => u64;
    unsigned Elements<2> => u64;
    unsigned Elements<4> => u64;
    unsigned Pitch => usize;
}

impl<const FIRST: u32, const LAST: u32> ServerArg for Within<FIRST, LAST> {
    type Held<'b> = u32;
    type Lent<'h> = u32;
    #[inline]
    fn take(decode: &mut Decode<'_, '_>) -> Result<u32, Fail> {
        let value = u32::get(decode.from)?;
        if (FIRST..=LAST).contains(&value) { Ok(value) } else { Err(Code::INVALID_VALUE.into()) }
    }
    #[inline]
    fn lend(held: &mut u32) -> u32 {
        *held
    }
}

impl<const FIRST: u32, const LAST: u32> NativeArg for Within<FIRST, LAST> {
    type Native = u32;
    #[inline]
    fn native(held: &mut u32) -> u32 {
        *held
    }
}

impl<const MASK: u32> ServerArg for Bits<MASK> {
    type Held<'b> = u32;
    type Lent<'h> = u32;
    #[inline]
    fn take(decode: &mut Decode<'_, '_>) -> Result<u32, Fail> {
        let value = u32::get(decode.from)?;
        if value & !MASK == 0 { Ok(value) } else { Err(Code::INVALID_VALUE.into()) }
    }
    #[inline]
    fn lend(held: &mut u32) -> u32 {
        *held
    }
}

impl<const MASK: u32> NativeArg for Bits<MASK> {
    type Native = u32;
    #[inline]
    fn native(held: &mut u32) -> u32 {
        *held
    }
}

/// Objects that the record names.
macro_rules! objects {
    ($($kind:ident $(awaited $awaited:expr)?;)*) => {$(
        impl ServerArg for $kind {
            type Held<'b> = Found<$kind>;
            type Lent<'h> = &'h Found<$kind>;
            #[inline(always)]
            fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Found<$kind>, Fail> {
                let handle = u64::get(decode.from)?;
                decode.cx.find::<$kind>(handle)
            }
            #[inline]
            fn lend(held: &mut Found<$kind>) -> &Found<$kind> {
                held
            }
            $(#[inline]
            fn awaited(held: &Found<$kind>) -> Option<Awaited> {
                Some($awaited(held.native))
            })?
        }
        impl NativeArg for $kind {
            type Native = u64;
            #[inline]
            fn native(held: &mut Found<$kind>) -> u64 {
                held.native
            }
        }
    )*};
}

objects! {
    Context;
    Stream awaited Awaited::Stream;
    Event awaited Awaited::Event;
    Module;
    Library;
    Function;
    MemPool;
}

impl<K: HandleKind + Object> ServerArg for New<K> {
    type Held<'b> = Fresh;
    type Lent<'h> = Fresh;
    #[inline]
    fn take(decode: &mut Decode<'_, '_>) -> Result<Fresh, Fail> {
        let handle = u64::get(decode.from)?;
        let fresh = decode.cx.fresh::<K>(handle)?;
        *decode.fresh = Some(fresh);
        Ok(fresh)
    }
    #[inline]
    fn lend(held: &mut Fresh) -> Fresh {
        *held
    }
}

impl<K: HandleKind + Object> ServerArg for Delete<K> {
    type Held<'b> = Found<K>;
    type Lent<'h> = &'h Found<K>;
    #[inline]
    fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Found<K>, Fail> {
        let handle = u64::get(decode.from)?;
        decode.cx.remove::<K>(handle)
    }
    #[inline]
    fn lend(held: &mut Found<K>) -> &Found<K> {
        held
    }
}

impl<K: HandleKind + Object> ServerArg for Maybe<K> {
    type Held<'b> = Option<Found<K>>;
    type Lent<'h> = Option<&'h Found<K>>;
    #[inline]
    fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Option<Found<K>>, Fail> {
        match u64::get(decode.from)? {
            0 => Ok(None),
            handle => decode.cx.find::<K>(handle).map(Some),
        }
    }
    #[inline]
    fn lend(held: &mut Option<Found<K>>) -> Option<&Found<K>> {
        held.as_ref()
    }
}

impl<K: HandleKind + Object> NativeArg for Maybe<K> {
    type Native = u64;
    #[inline]
    fn native(held: &mut Option<Found<K>>) -> u64 {
        held.as_ref().map_or(0, |found| found.native)
    }
}

/// Values without pointers or padding, that any bytes make.
pub trait Plain: Copy + Default + Send + 'static {
    /// The value as little-endian bytes, zeroed behind.
    fn word(self) -> u64;
}

macro_rules! plain {
    ($($t:ty => $unsigned:ty),*) => {$(
        impl Plain for $t {
            #[inline]
            fn word(self) -> u64 {
                self as $unsigned as u64
            }
        }
    )*};
}
plain!(u8 => u8, u16 => u16, u32 => u32, i32 => u32, u64 => u64, usize => u64);

impl Plain for f32 {
    #[inline]
    fn word(self) -> u64 {
        u64::from(self.to_bits())
    }
}

macro_rules! outputs {
    ($($kind:ident),*) => {$(
        impl<T: Plain> ServerArg for $kind<T> {
            type Held<'b> = T;
            type Lent<'h> = &'h mut T;
            const WORDS: usize = 0;
            #[inline]
            fn take(_: &mut Decode<'_, '_>) -> Result<T, Fail> {
                Ok(T::default())
            }
            #[inline]
            fn lend(held: &mut T) -> &mut T {
                held
            }
            #[inline]
            fn answer(held: &T, to: &mut Answer) {
                to.word(held.word());
            }
        }
        impl<T: Plain> NativeArg for $kind<T> {
            type Native = *mut T;
            #[inline]
            fn native(held: &mut T) -> *mut T {
                held
            }
        }
    )*};
}
outputs!(Out, OptOut);

impl<T: zerocopy::FromBytes + Send + 'static> ServerArg for In<T> {
    type Held<'b> = T;
    type Lent<'h> = &'h T;
    #[inline]
    fn take(decode: &mut Decode<'_, '_>) -> Result<T, Fail> {
        let length = usize::get(decode.from)?;
        let bytes = decode.from.bytes(length)?;
        Ok(T::read_from_bytes(bytes).or(Err(BadRecord::OutOfRange))?)
    }
    #[inline]
    fn lend(held: &mut T) -> &T {
        held
    }
}

impl ServerArg for Str {
    type Held<'b> = std::ffi::CString;
    type Lent<'h> = &'h std::ffi::CStr;
    fn take(decode: &mut Decode<'_, '_>) -> Result<std::ffi::CString, Fail> {
        let text = String::get(decode.from)?;
        Ok(std::ffi::CString::new(text).or(Err(BadRecord::BadString))?)
    }
    fn lend(held: &mut std::ffi::CString) -> &std::ffi::CStr {
        held
    }
}

impl ServerArg for Value<Vec<u8>> {
    type Held<'b> = Cow<'b, [u8]>;
    type Lent<'h> = &'h [u8];
    #[inline(always)]
    fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Cow<'b, [u8]>, Fail> {
        let length = usize::get(decode.from)?;
        Ok(Cow::Borrowed(decode.from.bytes(length)?))
    }
    #[inline]
    fn lend<'h>(held: &'h mut Cow<'_, [u8]>) -> &'h [u8] {
        held
    }
}

impl ServerArg for Value<String> {
    type Held<'b> = String;
    type Lent<'h> = &'h str;
    fn take(decode: &mut Decode<'_, '_>) -> Result<String, Fail> {
        Ok(String::get(decode.from)?)
    }
    fn lend(held: &mut String) -> &str {
        held
    }
}

impl<T: Wire + Default + 'static> ServerArg for Back<T> {
    type Held<'b> = T;
    type Lent<'h> = &'h mut T;
    const WORDS: usize = 0;
    fn take(_: &mut Decode<'_, '_>) -> Result<T, Fail> {
        Ok(T::default())
    }
    fn lend(held: &mut T) -> &mut T {
        held
    }
    fn answer(held: &T, to: &mut Answer) {
        to.value(held);
    }
}

/// Bytes that came with a record.
#[derive(Debug, Clone, Copy)]
pub enum Bulk<'b> {
    /// In the record itself.
    Inline(&'b [u8]),
    /// At the start of the up-chunk that the header names.
    Chunk {
        /// Which.
        index: u32,
        /// How many bytes.
        length: usize,
    },
}

impl Bulk<'_> {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Bulk::Inline(bytes) => bytes.len(),
            Bulk::Chunk { length, .. } => *length,
        }
    }
}

impl ServerArg for BulkIn {
    type Held<'b> = Bulk<'b>;
    type Lent<'h> = Bulk<'h>;
    fn take<'b>(decode: &mut Decode<'_, 'b>) -> Result<Bulk<'b>, Fail> {
        let length = usize::get(decode.from)?;
        if length > CHUNK_BYTES as usize {
            return Err(BadRecord::OutOfRange.into());
        }
        match u64::get(decode.from)? {
            0 => Ok(Bulk::Inline(decode.from.bytes(length)?)),
            named => {
                let index = decode.cx.call.chunk_up.filter(|index| u64::from(*index) + 1 == named);
                Ok(Bulk::Chunk { index: index.ok_or(BadRecord::OutOfRange)?, length })
            }
        }
    }
    fn lend<'h>(held: &'h mut Bulk<'_>) -> Bulk<'h> {
        *held
    }
}

impl ServerArg for BulkOut {
    type Held<'b> = BulkTarget;
    type Lent<'h> = &'h mut BulkTarget;
    const WORDS: usize = 0;
    fn take(decode: &mut Decode<'_, '_>) -> Result<BulkTarget, Fail> {
        Ok(BulkTarget::new(decode.cx.call.chunk_down))
    }
    fn lend(held: &mut BulkTarget) -> &mut BulkTarget {
        held
    }
    fn answer(held: &BulkTarget, to: &mut Answer) {
        held.answer(to);
    }
}
