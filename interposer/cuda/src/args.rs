//! What each kind of parameter is on the client: how it is checked, what goes into the record, what comes back.

use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::kinds::{
    Back, Bits, BulkIn, Context, Delete, DevicePtr, Elements, Event, Function, HandleKind, Library, Maybe,
    MemPool, Module, New, OptOut, Out, Pitch, Stream, Value, Within,
};
use gpupool_protocol::wire::UpChunk;
use gpupool_protocol::wire::codec::{BadRecord, Reader, Wire, Writer, padded};

use crate::code::{Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, ensure, there};
use crate::cptr::{FromC, Ptr, Raw};
use crate::cx::Cx;
use crate::parameters::Parameters;
use crate::session::Session;
use crate::state::objects;
use crate::state::watch::Progress;

/// A kind of parameter, as a body gives it to a record.
pub trait Field {
    /// What the body gives: a value for an input, a place for an output.
    type Arg<'a>;
    /// The answer needs a chunk.
    const CHUNKED: bool = false;
    /// A chunk may go with the record.
    const BULK: bool = false;
    /// Bytes in every record, or 0 where they depend on the value.
    const FIXED: usize = 0;
    /// Bytes that [`Field::put`] writes.
    fn len(_: &Self::Arg<'_>) -> usize {
        0
    }
    /// Writes an input into the record.
    fn put(_: &Self::Arg<'_>, _: &mut Writer<'_>) {}
    /// Takes an output from the answer.
    ///
    /// # Errors
    /// The answer is not what the worker owes.
    fn take(_: &mut Self::Arg<'_>, _: &mut Reader<'_>) -> Result<(), BadRecord> {
        Ok(())
    }
    /// The chunk that goes with the record.
    fn chunk(_: &mut Self::Arg<'_>) -> Option<UpChunk<'static>> {
        None
    }
}

/// Bytes of a record's fields up to the first one whose length depends on its value.
pub const fn leading(fixed: &[usize]) -> usize {
    let (mut bytes, mut at) = (0, 0);
    while at < fixed.len() && fixed[at] > 0 {
        bytes += fixed[at];
        at += 1;
    }
    bytes
}

/// A kind of parameter, as a program gives it to an exported function.
pub trait ClientArg: Field {
    /// Its type over the C ABI.
    type C: FromC + Copy;
    /// What is kept of it until the call is over.
    type Held;
    /// Checks it; `extent` is what the kind needs from the other parameters.
    ///
    /// # Errors
    /// CUDA's code for a wrong argument.
    fn check(cx: Cx, c: <Self::C as FromC>::Body, extent: usize) -> Answer<Self::Held>;
    /// Gives it to the record.
    fn arg(held: &mut Self::Held) -> Self::Arg<'_>;
    /// Hands an output to the program.
    fn store(_: Self::Held) {}
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Field for $t {
            type Arg<'a> = $t;
            const FIXED: usize = 8;
            #[inline(always)]
            fn len(_: &$t) -> usize {
                8
            }
            #[inline(always)]
            fn put(value: &$t, to: &mut Writer<'_>) {
                Wire::put(value, to);
            }
        }
        impl ClientArg for $t {
            type C = $t;
            type Held = $t;
            #[inline(always)]
            fn check(_: Cx, value: $t, _: usize) -> Answer<$t> {
                Ok(value)
            }
            #[inline(always)]
            fn arg(held: &mut $t) -> $t {
                *held
            }
        }
    )*};
}
integers!(u8, u16, u32, i32, u64, usize);

macro_rules! numbers {
    ($([$($g:ident),*] $kind:ty as $t:ty, $check:expr;)*) => {$(
        impl<$(const $g: u32),*> Field for $kind {
            type Arg<'a> = $t;
            const FIXED: usize = 8;
            #[inline(always)]
            fn len(_: &$t) -> usize {
                8
            }
            #[inline(always)]
            fn put(value: &$t, to: &mut Writer<'_>) {
                Wire::put(value, to);
            }
        }
        impl<$(const $g: u32),*> ClientArg for $kind {
            type C = $t;
            type Held = $t;
            #[inline(always)]
            fn check(cx: Cx, value: $t, extent: usize) -> Answer<$t> {
                let check: fn(Cx, $t, usize) -> bool = $check;
                ensure(check(cx, value, extent), INVALID_VALUE)?;
                Ok(value)
            }
            #[inline(always)]
            fn arg(held: &mut $t) -> $t {
                *held
            }
        }
    )*};
}
numbers! {
    [] DevicePtr as u64, |cx, address, extent| cx.reaches(address, extent as u64).is_ok();
    [BYTES] Elements<BYTES> as u64, |cx, address, extent| {
        address.is_multiple_of(u64::from(BYTES)) && cx.reaches(address, extent as u64).is_ok()
    };
    [] Pitch as usize, |_, pitch, least| pitch >= least;
    [FIRST, LAST] Within<FIRST, LAST> as u32, |_, value, _| (FIRST..=LAST).contains(&value);
    [MASK] Bits<MASK> as u32, |_, value, _| value & !MASK == 0;
}

macro_rules! handles {
    ($($kind:ident: $table:ident, $none:ident;)*) => {$(
        impl Field for $kind {
            type Arg<'a> = u64;
            const FIXED: usize = 8;
            #[inline(always)]
            fn len(_: &u64) -> usize {
                8
            }
            #[inline(always)]
            fn put(handle: &u64, to: &mut Writer<'_>) {
                to.word(*handle);
            }
        }
        impl ClientArg for $kind {
            type C = Raw<$kind>;
            type Held = u64;
            #[inline(always)]
            fn check(cx: Cx, handle: Raw<$kind>, _: usize) -> Answer<u64> {
                there(cx.session.$table.get(handle.0), $none)?;
                Ok(handle.0)
            }
            #[inline(always)]
            fn arg(held: &mut u64) -> u64 {
                *held
            }
        }
    )*};
}
handles! {
    Context: contexts, INVALID_CONTEXT;
    Event: events, INVALID_HANDLE;
    Module: modules, INVALID_HANDLE;
    Library: libraries, INVALID_HANDLE;
    Function: functions, INVALID_HANDLE;
    MemPool: pools, INVALID_VALUE;
}

/// A stream as a record takes it.
#[derive(Clone, Copy)]
pub struct StreamArg {
    /// What stands in the record: a handle, 0, 1 or 2.
    pub wire: u64,
    /// The program's stream, if it is one; what is posted with this counts as its work.
    pub object: Option<&'static objects::Stream>,
    /// Where the work counts as well that the context's legacy stream waits for: all but that of non-blocking streams.
    pub shared: Option<&'static Progress>,
}

impl StreamArg {
    /// One of the streams that need no creation, in the current context.
    #[inline]
    pub fn special(cx: Cx, wire: u64) -> Self {
        Self { wire, object: None, shared: cx.context_object.map(|context| &context.shared) }
    }

    /// The stream that stands for none in calls that take none.
    #[inline]
    pub fn of_none(cx: Cx) -> Self {
        Self::special(cx, cx.null_stream)
    }

    /// The same stream, in a record that adds no work to it.
    pub fn quiet(self) -> Self {
        Self { object: None, shared: None, ..self }
    }

    /// Whether it is the context's legacy stream.
    pub fn is_legacy(self) -> bool {
        self.wire < 2
    }

    /// What a synchronise of it waits for. None of a thread's own stream.
    pub fn awaited(self) -> Option<&'static Progress> {
        if self.is_legacy() { self.shared } else { self.object.map(|object| &object.progress) }
    }

    /// Whether a synchronise has waited for all of its work already.
    pub fn is_synchronised(self) -> bool {
        self.awaited().is_some_and(Progress::is_synchronised)
    }

    /// What was posted to it. Taken before a wait, [`StreamArg::synchronised`] is told it afterwards.
    pub fn posted(self) -> u64 {
        self.awaited().map_or(0, Progress::posted)
    }

    /// A wait for everything up to `posted` is over.
    pub fn synchronised(self, posted: u64) {
        if let Some(progress) = self.awaited() {
            progress.synchronised(posted);
        }
    }
}

/// The stream that an argument means. Else CUDA_ERROR_INVALID_HANDLE.
#[inline(always)]
pub fn named_stream(cx: Cx, stream: Raw<Stream>) -> Answer<StreamArg> {
    match stream.0 {
        0 => Ok(StreamArg::of_none(cx)),
        special @ (1 | 2) => Ok(StreamArg::special(cx, special)),
        handle => {
            let object = there(cx.session.streams.get(handle), INVALID_HANDLE)?;
            let blocking = object.flags.load(Relaxed) & NON_BLOCKING == 0;
            let context = if blocking { object.context_object.get() } else { None };
            let shared = context.map(|context| &context.shared);
            Ok(StreamArg { wire: handle, object: Some(object), shared })
        }
    }
}

/// As [`named_stream`], for work that is going to be posted to it: it comes after the copies that the program takes for
/// done ([`crate::state::order`]).
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE; an error of those copies.
#[inline(always)]
pub fn stream(cx: Cx, stream: Raw<Stream>) -> Answer<StreamArg> {
    let stream = named_stream(cx, stream)?;
    // Only non-blocking ones count nowhere else.
    if stream.object.is_some()
        && stream.shared.is_none()
        && let Some(copies) = cx.session.unordered.pending()
    {
        wait_for_copies(cx.session, cx.lane, cx.context, copies)?;
    }
    Ok(stream)
}

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: u32 = 1;

/// Waits for the copies that [`crate::state::order`] counted. An error of another context is not this one's, and says as
/// well that nothing is left to wait for there.
#[cold]
fn wait_for_copies(session: &'static Session, lane: u32, context: u64, copies: u64) -> Answer {
    // Not a `Cx`: given by reference, it would have to be put into memory by every call that comes by here.
    let cx = Cx { session, context, context_object: session.contexts.get(context), lane, null_stream: 0 };
    let contexts = &cx.session.contexts;
    let mut result = Ok(());
    for context in cx.session.unordered.contexts(|context| contexts.get(context).is_some()) {
        if contexts.get(context).is_some_and(|context| context.active.load(Relaxed)) {
            let legacy = StreamArg::special(cx, 0).quiet();
            let waited = crate::send::stream_synchronize(cx.within(context), legacy);
            if context == cx.context {
                result = waited;
            }
        }
    }
    cx.session.unordered.awaited(copies);
    result
}

impl Field for Stream {
    type Arg<'a> = StreamArg;
    const FIXED: usize = 8;
    #[inline(always)]
    fn len(_: &StreamArg) -> usize {
        8
    }
    #[inline(always)]
    fn put(stream: &StreamArg, to: &mut Writer<'_>) {
        if let Some(object) = stream.object {
            object.progress.post();
        }
        if let Some(shared) = stream.shared {
            shared.post();
        }
        to.word(stream.wire);
    }
}

impl ClientArg for Stream {
    type C = Raw<Stream>;
    type Held = StreamArg;
    #[inline(always)]
    fn check(cx: Cx, raw: Raw<Stream>, _: usize) -> Answer<StreamArg> {
        stream(cx, raw)
    }
    #[inline(always)]
    fn arg(held: &mut StreamArg) -> StreamArg {
        *held
    }
}

macro_rules! handle_words {
    ($($kind:ident),*) => {$(
        impl<K: HandleKind> Field for $kind<K> {
            type Arg<'a> = u64;
            const FIXED: usize = 8;
            #[inline(always)]
            fn len(_: &u64) -> usize {
                8
            }
            #[inline(always)]
            fn put(handle: &u64, to: &mut Writer<'_>) {
                to.word(*handle);
            }
        }
    )*};
}
handle_words!(New, Delete, Maybe);

/// Plain values as answers carry them.
pub trait Plain: Copy + Default {
    /// From the 8 bytes of an answer.
    fn from_word(word: u64) -> Self;
}

macro_rules! plain {
    ($($t:ty => $from:expr;)*) => {$(
        impl Plain for $t {
            #[inline]
            fn from_word(word: u64) -> $t {
                let from: fn(u64) -> $t = $from;
                from(word)
            }
        }
    )*};
}
plain! {
    u32 => |w| w as u32;
    i32 => |w| w as i32;
    u64 => |w| w;
    usize => |w| w as usize;
    f32 => |w| f32::from_bits(w as u32);
}

/// An output until it can be handed to the program.
pub struct Place<T> {
    at: Ptr<T>,
    value: T,
}

macro_rules! outputs {
    ($($kind:ident, $wanted:expr;)*) => {$(
        impl<T: Plain + 'static> Field for $kind<T> {
            type Arg<'a> = &'a mut T;
            #[inline(always)]
            fn take(place: &mut &mut T, from: &mut Reader<'_>) -> Result<(), BadRecord> {
                **place = T::from_word(from.word()?);
                Ok(())
            }
        }
        impl<T: Plain + 'static> ClientArg for $kind<T> {
            type C = *mut T;
            type Held = Place<T>;
            #[inline(always)]
            fn check(_: Cx, at: Ptr<T>, _: usize) -> Answer<Place<T>> {
                let wanted: bool = $wanted;
                ensure(!(wanted && at.is_null()), INVALID_VALUE)?;
                Ok(Place { at, value: T::default() })
            }
            #[inline(always)]
            fn arg(held: &mut Place<T>) -> &mut T {
                &mut held.value
            }
            #[inline]
            fn store(held: Place<T>) {
                held.at.set_if_wanted(held.value);
            }
        }
    )*};
}
outputs! {
    Out, true;
    OptOut, false;
}

/// A value that a body lends to a record.
pub trait Lend {
    /// What is lent.
    type Lent<'a>;
    /// Bytes in the record.
    fn len(lent: &Self::Lent<'_>) -> usize;
    /// Writes it as its `Wire` does.
    fn put(lent: &Self::Lent<'_>, to: &mut Writer<'_>);
}

/// Bytes that a body lends to a record.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// As they stand.
    Whole(&'a [u8]),
    /// Kernel parameters, gathered where the program has them.
    Parameters(Parameters<'a>),
}

impl Lend for Vec<u8> {
    type Lent<'a> = Bytes<'a>;
    #[inline(always)]
    fn len(lent: &Bytes<'_>) -> usize {
        match lent {
            Bytes::Whole(bytes) => 8 + padded(bytes.len()),
            Bytes::Parameters(parameters) => parameters.wire_len(),
        }
    }
    #[inline(always)]
    fn put(lent: &Bytes<'_>, to: &mut Writer<'_>) {
        match lent {
            Bytes::Whole([]) => to.word(0),
            Bytes::Whole(bytes) => {
                to.word(bytes.len() as u64);
                to.bytes(bytes);
            }
            Bytes::Parameters(parameters) => parameters.put(to),
        }
    }
}

impl Lend for String {
    type Lent<'a> = &'a str;
    fn len(lent: &&str) -> usize {
        <Vec<u8> as Lend>::len(&Bytes::Whole(lent.as_bytes()))
    }
    fn put(lent: &&str, to: &mut Writer<'_>) {
        <Vec<u8> as Lend>::put(&Bytes::Whole(lent.as_bytes()), to);
    }
}

impl<T: Lend> Field for Value<T> {
    type Arg<'a> = T::Lent<'a>;
    #[inline(always)]
    fn len(lent: &T::Lent<'_>) -> usize {
        T::len(lent)
    }
    #[inline(always)]
    fn put(lent: &T::Lent<'_>, to: &mut Writer<'_>) {
        T::put(lent, to);
    }
}

impl<T: Wire + 'static> Field for Back<T> {
    type Arg<'a> = &'a mut T;
    const CHUNKED: bool = true;
    fn take(place: &mut &mut T, from: &mut Reader<'_>) -> Result<(), BadRecord> {
        **place = T::get(from)?;
        Ok(())
    }
}

/// Bytes that go with a record: in it, or in a chunk that is filled already.
pub enum Bulk<'a> {
    /// A few.
    Inline(&'a [u8]),
    /// Many. The chunk is taken out when the record is begun.
    Chunk {
        /// Which chunk.
        index: u32,
        /// How many bytes of it.
        length: usize,
        /// The chunk.
        chunk: Option<UpChunk<'static>>,
    },
}

impl Bulk<'_> {
    /// The bytes of a filled chunk.
    pub fn filled(chunk: UpChunk<'static>) -> Self {
        Bulk::Chunk { index: chunk.index(), length: chunk.len(), chunk: Some(chunk) }
    }
}

impl Field for BulkIn {
    type Arg<'a> = Bulk<'a>;
    const BULK: bool = true;
    #[inline(always)]
    fn len(bulk: &Bulk<'_>) -> usize {
        match bulk {
            Bulk::Inline(bytes) => 16 + padded(bytes.len()),
            Bulk::Chunk { .. } => 16,
        }
    }
    #[inline(always)]
    fn put(bulk: &Bulk<'_>, to: &mut Writer<'_>) {
        match bulk {
            Bulk::Inline(bytes) => {
                to.word(bytes.len() as u64);
                to.word(0);
                to.bytes(bytes);
            }
            Bulk::Chunk { index, length, .. } => {
                to.word(*length as u64);
                to.word(1 + u64::from(*index));
            }
        }
    }
    fn chunk(bulk: &mut Bulk<'_>) -> Option<UpChunk<'static>> {
        match bulk {
            Bulk::Inline(_) => None,
            Bulk::Chunk { chunk, .. } => chunk.take(),
        }
    }
}

impl Field for gpupool_protocol::api::kinds::BulkOut {
    type Arg<'a> = &'a mut [u8];
    const CHUNKED: bool = true;
    fn take(place: &mut &mut [u8], from: &mut Reader<'_>) -> Result<(), BadRecord> {
        let bytes = from.bytes(place.len())?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}
