//! From a record to the driver's call and back, for every call of the list: one arm each, made from the declaration.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::c_void;

#[allow(unused_imports)]
use gpupool_protocol::api::kinds::*;
use gpupool_protocol::api::{self, CALL_MAP_BITS, Class, numbers};
use gpupool_protocol::for_each_record;
use gpupool_protocol::wire::codec::{BadRecord, Reader};
use gpupool_protocol::wire::{Record, codec};

use super::args::{Awaited, Decode, NativeArg, Own, ServerArg};
use super::calls;
use super::code::{Code, Fail};
use super::context::{Call, Cx};
use super::objects::Fresh;
use super::session::Broken;
use super::watcher::Goal;

/// What is left of a call after its record has been decoded.
pub type Job = Box<dyn FnOnce(&mut Cx) -> Result<(), Fail> + Send>;

/// What decoding led to.
pub enum Step {
    /// It is done; the answer is in the [`Cx`].
    Done,
    /// It may take long.
    Later(Job, Option<Awaited>),
}

/// A call for another thread.
pub struct Task {
    /// Its header.
    pub call: Call,
    /// What it creates.
    pub fresh: Option<Fresh>,
    /// What it waits for, if that is one thing.
    pub awaited: Option<Awaited>,
    job: Job,
}

macro_rules! auto_field {
    (auto $($kind:ty),*) => { Option<unsafe extern "C" fn($(<$kind as NativeArg>::Native),*) -> Code> };
    (hand $($kind:ty),*) => { () };
}

macro_rules! auto_load {
    (auto $find:ident $name:ident $($kind:ty),*) => {
        // SAFETY: `load`'s caller says that this is the function of that name; the declaration repeats its prototype.
        $find(stringify!($name)).map(|address| unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($(<$kind as NativeArg>::Native),*) -> Code>(address)
        })
    };
    (hand $($any:tt)*) => { () };
}

macro_rules! auto_has {
    (auto $field:expr) => {
        $field.is_some()
    };
    (hand $field:expr) => {
        false
    };
}

macro_rules! tables {
    ($({ $number:literal $class:ident $pace:ident $body:ident $origin:ident $name:ident
         ($($param:ident: $kind:ty [$extent:expr]),*) })*) => {
        /// Addresses of the functions that records go to as they stand; `()` where there is a hand-written body.
        #[derive(Debug, Default, Clone)]
        pub struct AutoFunctions {
            $(#[allow(missing_docs)] pub $name: auto_field!($body $($kind),*),)*
        }

        impl AutoFunctions {
            /// Asks `find` for the address of every symbol.
            ///
            /// # Safety
            /// What `find` gives must be the function of that name of cuda.h, and stay loaded as long as this lives.
            pub unsafe fn load(find: impl Fn(&'static str) -> Option<*const c_void>) -> Self {
                Self { $($name: auto_load!($body find $name $($kind),*),)* }
            }

            /// Whether the driver has the function of this record.
            pub fn has(&self, number: u16) -> bool {
                match number {
                    $($number => auto_has!($body self.$name),)*
                    _ => false,
                }
            }
        }
    };
}
for_each_record!(tables);

macro_rules! body {
    (auto $name:ident $cx:ident ($($param:ident: $kind:ty),*)) => {
        match $cx.session.driver.auto.$name {
            // SAFETY: each argument has the type that the declaration, which repeats the driver's prototype, gives it;
            // pointers are to values that live until the answer is made.
            Some(function) => unsafe { function($(<$kind as NativeArg>::native(&mut $param)),*) }.ok()?,
            None => return Err(Code::NOT_SUPPORTED.into()),
        }
    };
    (hand $name:ident $cx:ident ($($param:ident: $kind:ty),*)) => {
        calls::$name($cx, $(<$kind as ServerArg>::lend(&mut $param)),*)?
    };
}

macro_rules! arm {
    (quick $body:ident $name:ident $cx:ident $from:ident $fresh:ident ($($param:ident: $kind:ty),*)) => {{
        $(#[allow(unused_mut)]
        let mut $param = <$kind as ServerArg>::take(&mut Decode { from: &mut $from, cx: $cx, fresh: $fresh })?;)*
        $from.end()?;
        body!($body $name $cx ($($param: $kind),*));
        $(<$kind as ServerArg>::answer(&$param, &mut $cx.answer);)*
        Ok(Step::Done)
    }};
    (slow $body:ident $name:ident $cx:ident $from:ident $fresh:ident ($($param:ident: $kind:ty),*)) => {{
        $(let $param = <$kind as ServerArg>::take(&mut Decode { from: &mut $from, cx: $cx, fresh: $fresh })?;)*
        $from.end()?;
        $(let $param = <$kind as Own>::own($param);)*
        let awaited = None::<Awaited>$(.or(<$kind as ServerArg>::awaited(&$param)))*;
        let job: Job = Box::new(move |cx| {
            $(#[allow(unused_mut)] let mut $param = $param;)*
            body!($body $name cx ($($param: $kind),*));
            $(<$kind as ServerArg>::answer(&$param, &mut cx.answer);)*
            Ok(())
        });
        Ok(Step::Later(job, awaited))
    }};
}

macro_rules! arms {
    ($({ $number:literal $class:ident $pace:ident $body:ident $origin:ident $name:ident
         ($($param:ident: $kind:ty [$extent:expr]),*) })*) => {
        $(#[allow(unused_mut, unused_variables)]
        #[inline(never)]
        fn $name(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<Step, Fail> {
            let mut from = Reader::new(body);
            arm!($pace $body $name cx from fresh ($($param: $kind),*))
        })*

        /// Decodes the record's body and carries it out, as far as it is quick.
        #[inline]
        fn carry_out(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<Step, Fail> {
            match cx.call.number {
                $($number => $name(cx, body, fresh),)*
                _ => Err(BadRecord::OutOfRange.into()),
            }
        }
    };
}
for_each_record!(arms);

/// Carries out a record on the ring's thread; what may take long is handed back.
///
/// # Errors
/// The record ends the session, or the link is broken.
pub fn dispatch(cx: &mut Cx, record: &Record<'_>) -> Result<Option<Box<Task>>, Broken> {
    cx.call = Call::new(&record.head, record.position);
    cx.answer.clear();
    let mut fresh = None;
    let step = start(cx, record.body, &mut fresh);
    if let Some(chunk) = cx.call.chunk_up {
        // Every body has copied what it needs, or has taken the chunk out of the call.
        cx.session.link.release_chunk_up(chunk)?;
    }
    match step {
        Ok(Step::Later(job, awaited)) => {
            let whole = (cx.call.number == numbers::context_synchronize)
                .then(|| Awaited::Context(cx.context_native()));
            let awaited = awaited.or(whole);
            Ok(Some(Box::new(Task { call: cx.call, fresh, awaited, job })))
        }
        Ok(Step::Done) => finish(cx, Ok(()), None).map(|()| None),
        Err(fail) => {
            if let Fail::Code(code) | Fail::Poisoned(code) = fail {
                failed_watch(cx, record.body, code)?;
            }
            finish(cx, Err(fail), fresh).map(|()| None)
        }
    }
}

#[inline]
fn start(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<Step, Fail> {
    let Some(declared) = api::call(cx.call.number) else { return Err(BadRecord::OutOfRange.into()) };
    if (declared.class == Class::Call) != cx.call.slot.is_some() {
        return Err(BadRecord::OutOfRange.into());
    }
    if needs_context(cx.call.number)
        && let Err(fail) = cx.enter()
    {
        skip(cx, body, fresh)?;
        return Err(fail);
    }
    carry_out(cx, body, fresh)
}

/// Carries out what [`dispatch`] has handed back, on any thread.
///
/// # Errors
/// As [`dispatch`].
pub fn run_later(cx: &mut Cx, task: Task) -> Result<(), Broken> {
    cx.call = task.call;
    cx.answer.clear();
    let entered = if needs_context(task.call.number) { cx.enter() } else { Ok(()) };
    let result = entered.and_then(|()| (task.job)(cx));
    cx.session.output.tell(&cx.session.link)?;
    finish(cx, result, task.fresh)
}

/// Answers a call, or keeps what a post has failed with.
fn finish(cx: &mut Cx, result: Result<(), Fail>, fresh: Option<Fresh>) -> Result<(), Broken> {
    let (call, session) = (cx.call, &cx.session);
    let mut code = match result {
        Ok(()) => Code::SUCCESS,
        Err(Fail::Bad(bad)) => return Err(Broken::at(&call, &bad.to_string())),
        Err(Fail::Code(code) | Fail::Poisoned(code)) => {
            if let Some(fresh) = fresh {
                session.objects().failed(fresh, code, call.slot.is_none());
            }
            code
        }
    };
    tracing::trace!(call = name(&call), lane = call.lane, record = call.position, code = code.0);
    let Some(slot) = call.slot else {
        if let Err(Fail::Code(code)) = result {
            tracing::debug!("the post {} (record {}) fails with {}", name(&call), call.position, code.0);
            session.post_errors.note(call.context, code);
        }
        return Ok(());
    };
    if code == Code::SUCCESS
        && tells_of_posts(call.number)
        && let Some(earlier) = session.post_errors.take(call.context)
    {
        code = earlier;
    }
    Ok(cx.answer.send(&session.link, slot, call.position, code, call.chunk_down)?)
}

fn name(call: &Call) -> &'static str {
    api::call(call.number).map_or("unknown", |declared| declared.name)
}

/// Calls that CUDA lets report what earlier work has failed with.
fn tells_of_posts(number: u16) -> bool {
    use numbers::*;
    matches!(number, n if n == stream_synchronize || n == context_synchronize || n == event_synchronize || n == copy_out)
}

/// Calls that work without a context: the session's own, and what makes and names contexts, libraries and pools.
fn needs_context(number: u16) -> bool {
    use numbers::*;
    const FREE: [bool; CALL_MAP_BITS] = {
        let calls = [
            parcel_put,
            parcel_get,
            take_output,
            callback_done,
            lane_end,
            primary_name,
            primary_retain,
            primary_release,
            primary_reset,
            primary_state,
            primary_set_flags,
            context_create,
            context_destroy,
            library_load,
            library_unload,
            library_kernel,
            pool_name,
        ];
        let mut free = [false; CALL_MAP_BITS];
        let mut i = 0;
        while i < calls.len() {
            free[calls[i] as usize] = true;
            i += 1;
        }
        free
    };
    !FREE.get(usize::from(number)).copied().unwrap_or(false)
}

/// A record that is not carried out at all, since its context is gone, may still make or delete a handle: its table follows,
/// so that the next one is in line. And it may name a parcel, which is dropped. Handles that are made or deleted stand
/// first in a record, a parcel comes next.
fn skip(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<(), Fail> {
    use numbers::*;
    let mut from = Reader::new(body);
    let mut word = || codec::Wire::get(&mut from);
    *fresh = match cx.call.number {
        n if n == stream_create => Some(cx.fresh::<Stream>(word()?)?),
        n if n == event_create => Some(cx.fresh::<Event>(word()?)?),
        n if n == module_load || n == library_module => Some(cx.fresh::<Module>(word()?)?),
        n if n == module_function => Some(cx.fresh::<Function>(word()?)?),
        _ => None,
    };
    // What it deletes has gone with its context; the client uses the place again all the same.
    match cx.call.number {
        n if n == stream_destroy => drop(cx.remove::<Stream>(word()?)),
        n if n == event_destroy => drop(cx.remove::<Event>(word()?)),
        n if n == module_unload => drop(cx.remove::<Module>(word()?)),
        _ => {}
    }
    if [module_load, link].contains(&cx.call.number) {
        cx.session.parcels.take(word()?)?;
    }
    Ok(())
}

/// A watch that could not be set up shows its error on the board, since the client waits there.
fn failed_watch(cx: &mut Cx, body: &[u8], code: Code) -> Result<(), Broken> {
    if ![numbers::stream_watch, numbers::event_watch].contains(&cx.call.number) {
        return Ok(());
    }
    let mut from = Reader::new(body);
    let goal = (|| {
        let _watched: u64 = codec::Wire::get(&mut from)?;
        Goal::word(codec::Wire::get(&mut from)?, codec::Wire::get(&mut from)?)
    })();
    match goal {
        Ok(goal) => Ok(goal.reach(&cx.session, code)?),
        Err(_) => Err(Broken::at(&cx.call, "a watch that cannot be decoded")),
    }
}
