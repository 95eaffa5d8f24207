//! What one thread of the worker works with while it carries out a call.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpupool_protocol::api::kinds::{Context, Function, Stream};
use gpupool_protocol::wire::Head;

use super::answer::Answer;
use super::code::{Code, Fail};
use super::objects::{ContextState, Entry, Found, Fresh, Life, Memos, Object};
use super::session::Session;

/// The call that is being carried out: its header, and where it stands.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The record's header. Its context is the client's current one, its slot `None` for a post.
    pub head: Head,
    /// The record's position.
    pub position: u64,
}

impl Call {
    /// From a record's header.
    pub fn new(head: &Head, position: u64) -> Self {
        Self { head: *head, position }
    }

    /// The call's number in the call list.
    #[inline]
    pub fn number(&self) -> u16 {
        self.head.call
    }
}

impl Deref for Call {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl DerefMut for Call {
    #[inline]
    fn deref_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

/// A count of context changes that is never reached.
const NEVER: u64 = u64::MAX;

/// One thread's view of the session.
pub struct Cx {
    /// The session.
    pub session: Arc<Session>,
    /// The call that is being carried out.
    pub call: Call,
    /// What it answers.
    pub answer: Answer,
    /// A buffer for bytes on their way to the driver.
    pub scratch: Vec<u8>,
    /// Streams that were named before.
    pub streams: Memos<Stream>,
    /// Functions that were named before.
    pub functions: Memos<Function>,
    /// The context that is current to this thread.
    context: Option<Arc<ContextState>>,
    /// The client's handle of it, and the count of context changes when it was made current; [`NEVER`] for none.
    entered: (u64, u64),
}

impl Cx {
    /// The view of a thread that has carried out nothing yet.
    pub fn new(session: Arc<Session>, call: Call) -> Self {
        Self {
            session,
            call,
            answer: Answer::default(),
            scratch: Vec::new(),
            streams: Memos::default(),
            functions: Memos::default(),
            context: None,
            entered: (0, NEVER),
        }
    }

    /// Makes the call's context current to this thread. Without a context the driver says itself what needs one.
    #[inline]
    pub fn enter(&mut self) -> Result<(), Fail> {
        let changes = self.session.context_changes.load(Ordering::Acquire);
        if self.entered == (self.call.context, changes) { Ok(()) } else { self.enter_slowly(changes) }
    }

    #[cold]
    fn enter_slowly(&mut self, changes: u64) -> Result<(), Fail> {
        self.leave();
        let (state, native) = match self.call.context {
            0 => (None, 0),
            handle => {
                let state = self.find::<Context>(handle)?.parts;
                match state.native.load(Ordering::Acquire) {
                    0 => return Err(Code::INVALID_CONTEXT.into()),
                    native => (Some(state), native),
                }
            }
        };
        self.session.driver.hand.cuCtxSetCurrent(native).ok()?;
        self.context = state;
        self.entered = (self.call.context, changes);
        Ok(())
    }

    /// Forgets which context is current: something has changed it behind our back.
    pub fn leave(&mut self) {
        self.context = None;
        self.entered = (0, NEVER);
    }

    /// The life of what is created in the current context.
    pub fn context_life(&self) -> Arc<Life> {
        // Without a context the driver has refused before anybody asks.
        self.context.as_ref().map_or_else(Arc::default, |state| state.life())
    }

    /// The driver's handle of the current context, or 0.
    pub fn context_native(&self) -> u64 {
        self.context.as_ref().map_or(0, |state| state.native.load(Ordering::Acquire))
    }

    /// The driver's number of a device of the session.
    pub fn device(&self, ordinal: i32) -> Result<i32, Fail> {
        let device = usize::try_from(ordinal).ok().and_then(|ordinal| self.session.devices.get(ordinal));
        Ok(*device.ok_or(Code::INVALID_DEVICE)?)
    }

    /// The object that a handle names.
    #[inline]
    pub fn find<K: Object>(&mut self, bits: u64) -> Result<Found<K>, Fail> {
        let removals = self.session.removals.load(Ordering::Acquire);
        if let Some(memos) = K::memos(self)
            && let Some(found) = memos.get(bits, removals)
        {
            return Ok(found.clone());
        }
        self.look_up(bits, removals)
    }

    #[inline(never)]
    fn look_up<K: Object>(&mut self, bits: u64, removals: u64) -> Result<Found<K>, Fail> {
        if let Some(found) = K::special(self, bits) {
            return found;
        }
        let session = self.session.clone();
        let mut objects = session.objects();
        let (found, life) = objects.find(bits)?;
        if let Some(memos) = K::memos(self) {
            memos.keep(&found, life.clone(), removals);
        }
        Ok(found)
    }

    /// Takes an object off its table.
    pub fn remove<K: Object>(&mut self, bits: u64) -> Result<Found<K>, Fail> {
        let removed = self.session.objects().remove(bits);
        // Afterwards, so that whoever finds the new count finds the handle gone.
        self.session.removals.fetch_add(1, Ordering::AcqRel);
        removed
    }

    /// Takes a new handle into its table.
    pub fn fresh<K: Object>(&mut self, bits: u64) -> Result<Fresh, Fail> {
        self.session.objects().reserve::<K>(bits)
    }

    /// Gives a new handle its object.
    pub fn bind<K: Object>(&self, fresh: Fresh, native: u64, life: Arc<Life>, parts: K::Parts) {
        self.session.objects().bind::<K>(fresh, Entry { native, life, parts });
    }

    /// CUDA's default streams: the legacy one under 0 and 1, and a stream of the lane's own under 2.
    pub fn default_stream(&mut self, bits: u64) -> Option<Result<Found<Stream>, Fail>> {
        match bits {
            0 | 1 => Some(Ok(Found { handle: bits, native: bits, parts: 0 })),
            2 => Some(self.lane_stream().map(|native| Found { handle: bits, native, parts: 0 })),
            _ => None,
        }
    }

    fn lane_stream(&mut self) -> Result<u64, Fail> {
        let session = self.session.clone();
        let home = self.context_native();
        session.lanes.stream(&session, self.call.lane, home, || self.context_life())
    }
}
