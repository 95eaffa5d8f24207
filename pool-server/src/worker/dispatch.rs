//! From a record to the driver's call and back, for every call of the list: one arm each, made from the declaration.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::c_void;

#[allow(unused_imports)]
use gpupool_protocol::api::kinds::*;
use gpupool_protocol::api::{self, CALL_MAP_BITS, CALLS, Class, numbers};
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

/// A call that may take long: what is left of it, and what it waits for.
struct Later {
    job: Job,
    awaited: Option<Awaited>,
}

/// What decoding led to: nothing is left, and the answer is in the [`Cx`]; or the rest may take long.
type Step = Option<Box<Later>>;

/// What is known of a record by its number alone.
#[derive(Clone, Copy)]
struct Facts(u8);

impl Facts {
    const WAITS: u8 = 1;
    const CONTEXT: u8 = 2;
    const SLOW: u8 = 4;

    /// Of the record with this number.
    #[inline]
    fn of(number: u16) -> Self {
        Self(FACTS.get(usize::from(number)).copied().unwrap_or(0))
    }

    /// Its client waits for an answer just if it has to.
    #[inline]
    fn fits(self, slot: Option<u32>) -> bool {
        (self.0 & Self::WAITS != 0) == slot.is_some()
    }

    /// It is declared slow: it may wait.
    #[inline]
    fn is_slow(self) -> bool {
        self.0 & Self::SLOW != 0
    }

    #[inline]
    fn needs_context(self) -> bool {
        self.0 & Self::CONTEXT != 0
    }
}

/// A call for another thread.
pub struct Task {
    /// Its header.
    pub call: Call,
    /// What it creates.
    pub fresh: Option<Fresh>,
    /// What it waits for, if that is one thing.
    pub awaited: Option<Awaited>,
    /// The parcel that it takes.
    parcel: Option<u64>,
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
        let mut excess = 0;
        $from.require(const { 0 $(+ <$kind as ServerArg>::WORDS)* })?;
        $(#[allow(unused_mut)]
        let mut $param = <$kind as ServerArg>::take(
            &mut Decode { from: &mut $from, cx: $cx, fresh: $fresh, excess: &mut excess }
        )?;)*
        complete(&$from, excess)?;
        body!($body $name $cx ($($param: $kind),*));
        $(<$kind as ServerArg>::answer(&$param, &mut $cx.answer);)*
        Ok(None)
    }};
    (slow $body:ident $name:ident $cx:ident $from:ident $fresh:ident ($($param:ident: $kind:ty),*)) => {{
        let mut excess = 0;
        $(#[allow(unused_mut)]
        let mut $param = <$kind as ServerArg>::take(
            &mut Decode { from: &mut $from, cx: $cx, fresh: $fresh, excess: &mut excess }
        )?;)*
        complete(&$from, excess)?;
        let awaited = None::<Awaited>$(.or(<$kind as ServerArg>::awaited(&$param)))*;
        let awaited = awaited.or_else(|| waits_for_all($cx));
        if awaited.is_some_and(|awaited| $cx.session.settled(awaited)) {
            // Nothing to wait for: it is quick.
            body!($body $name $cx ($($param: $kind),*));
            $(<$kind as ServerArg>::answer(&$param, &mut $cx.answer);)*
            return Ok(None);
        }
        $(let $param = <$kind as Own>::own($param);)*
        let job: Job = Box::new(move |cx| {
            $(#[allow(unused_mut)] let mut $param = $param;)*
            body!($body $name cx ($($param: $kind),*));
            $(<$kind as ServerArg>::answer(&$param, &mut cx.answer);)*
            Ok(())
        });
        Ok(Some(Box::new(Later { job, awaited })))
    }};
}

/// All was taken, and all values had room.
#[inline(always)]
fn complete(from: &Reader<'_>, excess: u64) -> Result<(), BadRecord> {
    from.end()?;
    if excess == 0 { Ok(()) } else { Err(BadRecord::OutOfRange) }
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
            match cx.call.number() {
                $($number => $name(cx, body, fresh),)*
                _ => Err(BadRecord::OutOfRange.into()),
            }
        }
    };
}
for_each_record!(arms);

/// A byte a number.
static FACTS: [u8; CALL_MAP_BITS] = {
    let mut facts = [0; CALL_MAP_BITS];
    let mut i = 0;
    while i < CALLS.len() {
        let call = &CALLS[i];
        let waits = if matches!(call.class, Class::Call) { Facts::WAITS } else { 0 };
        let context = if needs_context(call.number) { Facts::CONTEXT } else { 0 };
        let slow = if call.slow { Facts::SLOW } else { 0 };
        facts[call.number as usize] = waits | context | slow;
        i += 1;
    }
    facts
};

/// Carries out a record on the ring's thread; what may take long is handed back.
///
/// # Errors
/// The record ends the session, or the link is broken.
#[inline(always)] // the header goes part by part from the registers to its place, and nowhere else
pub fn dispatch(cx: &mut Cx, record: Record<'_>) -> Result<Option<Box<Task>>, Broken> {
    cx.call = Call { head: record.head, position: record.position };
    execute(cx, record.body)
}

/// Carries out the record whose header is in the [`Cx`].
#[inline(never)] // a name for tools that count what a record costs
fn execute(cx: &mut Cx, body: &[u8]) -> Result<Option<Box<Task>>, Broken> {
    let mut fresh = None;
    let step = start(cx, body, &mut fresh);
    if let (Ok(None), None, None) = (&step, cx.call.slot, cx.call.chunk_up) {
        trace(&cx.call, Code::SUCCESS);
        return Ok(None);
    }
    conclude(cx, body, step, fresh)
}

/// What follows all records but a post that came without a chunk and was carried out.
#[inline(never)]
fn conclude(
    cx: &mut Cx,
    body: &[u8],
    step: Result<Step, Fail>,
    fresh: Option<Fresh>,
) -> Result<Option<Box<Task>>, Broken> {
    if let Some(chunk) = cx.call.chunk_up {
        // Every body has copied what it needs, or has taken the chunk out of the call.
        cx.session.link.release_chunk_up(chunk)?;
    }
    match step {
        Ok(None) => {
            if Facts::of(cx.call.number()).is_slow() {
                cx.session.output.tell(&cx.session.link, false)?;
            }
            finish(cx, Ok(()), None).map(|()| None)
        }
        Ok(Some(later)) => {
            let Later { job, awaited } = *later;
            let parcel = parcel_of(cx.call.number(), body).ok().flatten();
            Ok(Some(Box::new(Task { call: cx.call, fresh, awaited, parcel, job })))
        }
        Err(fail) => {
            if let Fail::Code(code) | Fail::Poisoned(code) = fail {
                failed_watch(cx, body, code)?;
            }
            if Facts::of(cx.call.number()).is_slow() {
                cx.session.output.tell(&cx.session.link, true)?;
            }
            finish(cx, Err(fail), fresh).map(|()| None)
        }
    }
}

/// Calls that wait for their whole context, or that drivers let wait for it: an allocation or a release is short where
/// nothing is under way, and may last as long as the longest kernel otherwise.
fn waits_for_all(cx: &Cx) -> Option<Awaited> {
    use numbers::*;
    [context_synchronize, context_settle, mem_alloc, mem_free]
        .contains(&cx.call.number())
        .then(|| Awaited::Context(cx.context_native()))
}

#[inline]
fn start(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<Step, Fail> {
    let facts = Facts::of(cx.call.number());
    if !facts.fits(cx.call.slot) {
        return Err(BadRecord::OutOfRange.into());
    }
    if facts.needs_context()
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
    let entered = if Facts::of(task.call.number()).needs_context() { cx.enter() } else { Ok(()) };
    let result = match entered {
        Ok(()) => (task.job)(cx),
        Err(fail) => {
            // The context ended since the record was decoded; nobody else comes for what it had sent ahead.
            if let Some(parcel) = task.parcel {
                let _ = cx.session.parcels.take(parcel);
            }
            Err(fail)
        }
    };
    cx.session.output.tell(&cx.session.link, result.is_err())?;
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
    trace(&call, code);
    let Some(slot) = call.slot else {
        if let Err(Fail::Code(code)) = result {
            tracing::debug!("the post {} (record {}) fails with {}", name(&call), call.position, code.0);
            session.post_errors.note(call.context, code);
        }
        return Ok(());
    };
    if code == Code::SUCCESS
        && tells_of_posts(call.number())
        && let Some(earlier) = session.post_errors.take(call.context)
    {
        code = earlier;
    }
    let sent = cx.answer.send(&session.link, slot, call.position, code, call.chunk_down);
    cx.answer.clear();
    Ok(sent?)
}

#[inline]
fn trace(call: &Call, code: Code) {
    tracing::trace!(call = name(call), lane = call.lane, record = call.position, code = code.0);
}

fn name(call: &Call) -> &'static str {
    api::call(call.number()).map_or("unknown", |declared| declared.name)
}

/// Calls that CUDA lets report what earlier work has failed with.
fn tells_of_posts(number: u16) -> bool {
    use numbers::*;
    matches!(number, n if n == stream_synchronize || n == context_synchronize || n == event_synchronize || n == copy_out)
}

/// Calls that work without a context: the session's own, and what makes and names contexts, libraries and pools.
const fn needs_context(number: u16) -> bool {
    use numbers::*;
    let free = [
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
        heap_reclaim,
        heap_shrink,
    ];
    let mut i = 0;
    while i < free.len() {
        if free[i] == number {
            return false;
        }
        i += 1;
    }
    true
}

/// A record that is not carried out at all, since its context is gone, may still make or delete a handle: its table follows,
/// so that the next one is in line. And it may name a parcel, which is dropped. Handles that are made or deleted stand
/// first in a record, a parcel comes next.
fn skip(cx: &mut Cx, body: &[u8], fresh: &mut Option<Fresh>) -> Result<(), Fail> {
    use numbers::*;
    let mut from = Reader::new(body);
    let mut word = || codec::Wire::get(&mut from);
    *fresh = match cx.call.number() {
        n if n == stream_create => Some(cx.fresh::<Stream>(word()?)?),
        n if n == event_create => Some(cx.fresh::<Event>(word()?)?),
        n if n == module_load || n == library_module => Some(cx.fresh::<Module>(word()?)?),
        n if n == module_function => Some(cx.fresh::<Function>(word()?)?),
        _ => None,
    };
    // What it deletes has gone with its context; the client uses the place again all the same.
    match cx.call.number() {
        n if n == stream_destroy => drop(cx.remove::<Stream>(word()?)),
        n if n == event_destroy => drop(cx.remove::<Event>(word()?)),
        n if n == module_unload => drop(cx.remove::<Module>(word()?)),
        n if n == function_end => drop(cx.remove::<Function>(word()?)),
        _ => {}
    }
    if let Some(parcel) = parcel_of(cx.call.number(), body)? {
        cx.session.parcels.take(parcel)?;
    }
    Ok(())
}

/// The parcel that a record names: behind the handle that a load makes.
fn parcel_of(number: u16, body: &[u8]) -> Result<Option<u64>, BadRecord> {
    use numbers::*;
    let mut from = Reader::new(body);
    match number {
        n if n == module_load || n == library_load => from.word()?,
        n if n == link => return from.word().map(Some),
        _ => return Ok(None),
    };
    from.word().map(Some)
}

/// A watch that could not be set up shows its error on the board, since the client waits there.
fn failed_watch(cx: &mut Cx, body: &[u8], code: Code) -> Result<(), Broken> {
    if ![numbers::stream_watch, numbers::event_watch].contains(&cx.call.number()) {
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
