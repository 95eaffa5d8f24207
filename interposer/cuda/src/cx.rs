//! What a call's body works with: the session, the calling thread's context, and the way to the worker.

use std::hint::cold_path;
use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api;
use gpupool_protocol::wire::codec::{BadRecord, Reader, Writer};
use gpupool_protocol::wire::{CallHead, DownChunk, LinkError, PendingCall, Post, UpChunk};

use crate::code::{Answer, CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, NOT_SUPPORTED, ensure, from_wire};
use crate::session::Session;
use crate::state::objects::Context;
use crate::{output, session, thread};

/// How a body is entered. A body that takes [`Bare`] may run before `cuInit`; one that takes [`Cx`] needs a session.
pub trait Enter: Sized {
    /// Checks that the body may run. `per_thread`: its null stream is the calling thread's own.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_INITIALIZED and the like.
    fn enter(per_thread: bool) -> Answer<Self>;
}

/// Needs nothing.
pub struct Bare;

impl Enter for Bare {
    #[inline]
    fn enter(_: bool) -> Answer<Self> {
        Ok(Self)
    }
}

/// A live session, seen from one call.
#[derive(Clone, Copy)]
pub struct Cx {
    /// The session.
    pub session: &'static Session,
    /// The calling thread's current context (a handle), or 0.
    pub context: u64,
    /// The object of that context, if it has not gone.
    pub context_object: Option<&'static Context>,
    /// The calling thread's lane.
    pub lane: u32,
    /// What null means as a stream: 0 (legacy) or 2 (the thread's own).
    pub null_stream: u64,
}

impl Enter for Cx {
    #[inline(always)]
    fn enter(per_thread: bool) -> Answer<Self> {
        let session = session::live()?;
        let (lane, context) = thread::enter()?;
        let context_object = session.contexts.get(context);
        Ok(Self { session, context, context_object, lane, null_stream: if per_thread { 2 } else { 0 } })
    }
}

impl Cx {
    /// The current context. CUDA_ERROR_INVALID_CONTEXT without one, CUDA_ERROR_CONTEXT_IS_DESTROYED if it has gone, and
    /// an error of its that stays.
    #[inline(always)]
    pub fn current(self) -> Answer<&'static Context> {
        let Some(context) = self.context_object else {
            cold_path();
            return Err(if self.context == 0 { INVALID_CONTEXT } else { CONTEXT_IS_DESTROYED });
        };
        ensure(context.active.load(Relaxed), CONTEXT_IS_DESTROYED)?;
        let sticky = context.sticky.load(Relaxed);
        ensure(sticky == 0, Code(sticky))?;
        Ok(context)
    }

    /// Checks that the device can touch `bytes` from `address` on: its own memory, or pinned memory that it sees.
    #[inline]
    pub fn reaches(self, address: u64, bytes: u64) -> Answer {
        match self.session.memory.check(address, bytes) {
            Err(_) if self.session.pinned.is_shared(address, bytes) => Ok(()),
            checked => checked,
        }
    }

    /// The same call in another context: that of the object that it is about.
    pub fn within(self, context: u64) -> Self {
        if context == self.context {
            return self;
        }
        Self { context, context_object: self.session.contexts.get(context), ..self }
    }

    /// A record's header.
    #[inline(always)]
    pub fn head(self, call: u16) -> CallHead<'static> {
        CallHead::new(call, self.lane, self.context)
    }

    /// Whether the worker answers this record. Else CUDA_ERROR_NOT_SUPPORTED.
    #[inline(always)]
    pub fn supports(self, call: u16) -> Answer {
        ensure(self.session.answers(call), NOT_SUPPORTED)
    }

    /// Begins to post a record of `len` bytes: gives what writes its body. Then comes [`Cx::end_post`], with nothing but
    /// writing in between.
    #[inline(always)]
    pub fn begin_post(self, call: u16, len: usize) -> Answer<(Post<'static>, Writer<'static>)> {
        self.supports(call)?;
        self.sent(self.session.link.begin_post(len))
    }

    /// Publishes a record whose body has been written.
    #[inline(always)]
    pub fn end_post(self, call: u16, post: Post<'static>, body: Writer<'static>) -> Answer {
        self.sent(post.end(body, call, self.lane, self.context))
    }

    #[inline(always)]
    fn sent<T>(self, result: Result<T, LinkError>) -> Answer<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                cold_path();
                Err(self.session.lost(&error))
            }
        }
    }

    /// Posts a record that may use a chunk.
    pub fn post_with(
        self,
        call: u16,
        up: Option<UpChunk<'static>>,
        len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Answer {
        self.supports(call)?;
        let mut head = self.head(call);
        head.up = up;
        self.session.link.post(head, len, fill).map(drop).map_err(|e| self.session.lost(&e))
    }

    /// Sends a record that has an answer, without waiting for it. `chunked`: the answer may need a chunk.
    pub fn begin(
        self,
        call: u16,
        chunked: bool,
        len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Answer<Pending> {
        let chunk = || self.session.link.chunk_down().map_err(|e| self.session.lost(&e));
        let chunk = if chunked { Some(chunk()?) } else { None };
        self.begin_with(call, chunk, len, fill)
    }

    /// As [`Cx::begin`], with the chunk that the caller has got for it.
    pub fn begin_with(
        self,
        number: u16,
        chunk: Option<DownChunk<'static>>,
        len: usize,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Answer<Pending> {
        self.supports(number)?;
        let mut head = self.head(number);
        head.down = chunk;
        let call = self.session.link.begin_call(head, len, fill).map_err(|e| self.session.lost(&e))?;
        Ok(Pending { cx: self, call, waits: api::is_slow(number) })
    }

    /// Sends a record whose body is `words`, and waits for an answer that is exactly the bytes for `to` and fits its slot.
    /// Kernels' text is not fetched.
    #[inline(always)]
    pub fn call_small<const N: usize>(self, call: u16, words: [u64; N], to: &mut [u8]) -> Answer {
        self.supports(call)?;
        let answer = self.session.link.call_small(call, self.lane, self.context, words, to);
        let (result, len) = self.sent(answer)?;
        if api::is_slow(call) {
            self.session.waits.over();
        }
        let code = result as u32;
        if code == 0 && len != to.len() {
            cold_path();
            return Err(self.session.bad_answer(BadRecord::Truncated));
        }
        self.result(code)
    }

    /// An answer's code, with errors that stay noted.
    pub fn result(self, code: u32) -> Answer {
        if is_sticky(code)
            && let Some(context) = self.context_object
        {
            context.sticky.store(code, Relaxed);
        }
        from_wire(code)
    }
}

/// A record whose answer was not taken yet.
pub struct Pending {
    cx: Cx,
    call: PendingCall<'static>,
    /// Its answer may mean that a wait for work is over.
    waits: bool,
}

impl Pending {
    /// Waits for the answer and lets `take` read the outputs that come with success.
    pub fn finish(self, take: impl FnOnce(&mut Reader<'_>) -> Result<(), BadRecord>) -> Answer {
        let cx = self.cx;
        let result = self.finish_quietly(take);
        output::take(cx);
        result
    }

    /// The same, but without a look for kernels' text.
    pub fn finish_quietly(self, take: impl FnOnce(&mut Reader<'_>) -> Result<(), BadRecord>) -> Answer {
        let Self { cx, call, waits } = self;
        let reply = call.wait().map_err(|e| cx.session.lost(&e))?;
        if waits {
            cx.session.waits.over();
        }
        let taken = if reply.result == 0 { reply.read(|_, from| take(from)) } else { Ok(()) };
        let code = reply.result as u32;
        drop(reply);
        taken.map_err(|bad| cx.session.bad_answer(bad))?;
        cx.result(code)
    }

    /// Waits for an answer that is exactly the bytes for `to`. Kernels' text is not fetched, since that needs a chunk and
    /// this thread may hold others: [`crate::output::take`] when all are back.
    pub fn finish_bytes(self, to: &mut [u8]) -> Answer {
        let Self { cx, call, waits } = self;
        let reply = call.wait().map_err(|e| cx.session.lost(&e))?;
        if waits {
            cx.session.waits.over();
        }
        let (code, len) = (reply.result as u32, reply.len());
        if code == 0 && (len != to.len() || reply.copy_to(to) != to.len()) {
            return Err(cx.session.bad_answer(BadRecord::Truncated));
        }
        cx.result(code)
    }
}

/// Errors after which, as cuda.h says, the context answers nothing else: ECC, faults of kernels, timeouts, assertions.
pub fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 911)
}
