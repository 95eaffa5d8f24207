//! A function for each record, under its name: `send::module_unload(cx, module)?`. Inputs are given as values, outputs
//! as places that are filled when the answer is success. A few records are begun by hand, where several are under way at a
//! time or the record's place matters more than its answer; their functions here stay unused.

use gpupool_protocol::api::kinds::{
    Back, Bits, BulkIn, BulkOut, Context, Delete, DevicePtr, Elements, Event, Function, Library, Maybe,
    MemPool, Module, New, OptOut, Out, Pitch, Stream, Value, Within,
};
use gpupool_protocol::wire::UpChunk;

use crate::args::{Field, leading};
use crate::code::Answer;
use crate::cx::Cx;

macro_rules! senders {
    ($({ $number:literal $class:ident $pace:ident $body:ident $origin:ident $name:ident
         ($($param:ident: $kind:ty [$extent:expr]),*) })*) => {
        $(sender! { $class $number $name ($($param: $kind),*) })*
    };
}

macro_rules! sender {
    (post $number:literal $name:ident ($($param:ident: $kind:ty),*)) => {
        #[doc = concat!("Posts record ", stringify!($number), ".")]
        ///
        /// # Errors
        /// The session is broken, or the worker does not know the record.
        #[allow(non_snake_case, clippy::too_many_arguments, unused_mut, unused_assignments, unused_variables, dead_code)]
        #[inline(always)]
        pub fn $name(cx: Cx, $(mut $param: <$kind as Field>::Arg<'_>),*) -> Answer {
            let len = 0 $(+ <$kind as Field>::len(&$param))*;
            if !(false $(|| <$kind as Field>::BULK)*) {
                // What every record has is written through a writer of its own, whose room the compiler knows.
                const LEADING: usize = leading(&[$(<$kind as Field>::FIXED),*]);
                let (post, body) = cx.begin_post($number, len)?;
                let (mut fixed, mut rest) = body.split(LEADING);
                let mut at = 0;
                $(
                    <$kind as Field>::put(&$param, if at < LEADING { &mut fixed } else { &mut rest });
                    at += <$kind as Field>::FIXED;
                )*
                return cx.end_post($number, post, rest);
            }
            let mut up: Option<UpChunk<'static>> = None;
            $(if let Some(chunk) = <$kind as Field>::chunk(&mut $param) { up = Some(chunk); })*
            cx.post_with($number, up, len, |to| { $(<$kind as Field>::put(&$param, to);)* })
        }
    };
    (call $number:literal $name:ident ($($param:ident: $kind:ty),*)) => {
        #[doc = concat!("Sends record ", stringify!($number), " and waits for its answer.")]
        ///
        /// # Errors
        /// The answer's code; or the session is broken, or the worker does not know the record.
        #[allow(non_snake_case, clippy::too_many_arguments, unused_mut, unused_variables, dead_code)]
        pub fn $name(cx: Cx, $(mut $param: <$kind as Field>::Arg<'_>),*) -> Answer {
            let len = 0 $(+ <$kind as Field>::len(&$param))*;
            let chunked = false $(|| <$kind as Field>::CHUNKED)*;
            let pending = cx.begin($number, chunked, len, |to| { $(<$kind as Field>::put(&$param, to);)* })?;
            pending.finish(|from| {
                $(<$kind as Field>::take(&mut $param, from)?;)*
                from.end()
            })
        }
    };
}

gpupool_protocol::for_each_record!(senders);
