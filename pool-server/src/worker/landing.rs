//! Copies from the device to memory that only the client has, without anybody waiting for them.
//!
//! The stream copies into page-locked memory of this process and then comes to a host function, which has the bytes sent
//! to the client's landing (`gpupool_protocol::wire::landing`) and only then lets the stream go on. So the bytes are with
//! the client before anything that tells it of the copy's completion, by whatever way. A long copy goes in pieces, with two
//! or three buffers in turn: while one is sent by a thread of its own, the stream fills the next one.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use gpupool_protocol::wire::Replier;

use super::args::Awaited;
use super::code::{Code, Fail};
use super::objects::{Home, Life};
use super::session::Session;

/// Pieces of a long copy, unless that were too many.
const PIECE: usize = 512 * 1024;
/// Pieces that a copy has at most: each takes two places in the driver's queue, and a full one would hold up the session.
const PIECES_MAX: usize = 128;
/// Buffers that a copy of several pieces uses in turn; with longer pieces one less, which is as good.
const DEPTH: usize = 3;
/// Up to here a copy is waited for, if its stream has nothing else to do.
const SHORT: usize = 64 * 1024;
/// How long.
const PATIENCE: Duration = Duration::from_micros(20);
const PAGE: usize = 4096;
/// Bytes of buffers without use that stay page-locked.
const KEPT_MAX: usize = 8 << 20;
/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
const PORTABLE: u32 = 1;

/// The buffers of a session, and which streams use them.
#[derive(Default)]
pub struct Landing {
    /// Work of one stream is done in order, so all its copies can use the same buffers.
    streams: Mutex<HashMap<(Home, u64), Weak<Set>>>,
    unused: Arc<Mutex<Vec<Memory>>>,
    sender: OnceLock<Option<Sender<Piece>>>,
}

/// Buffers of one stream. They are unused again when the last copy that uses them is over.
#[derive(Debug)]
struct Set {
    memory: Option<Memory>,
    piece: usize,
    depth: usize,
    home: Arc<Mutex<Vec<Memory>>>,
}

/// Page-aligned memory, page-locked if the driver can.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// Of the context in which it was page-locked.
    locked: Option<Arc<Life>>,
}

// SAFETY: plain memory that belongs to this value; what it holds is only reached by the driver and the host functions of
// one stream, one after the other.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(session: &Session, bytes: usize, life: Arc<Life>) -> Result<Self, Fail> {
        let layout = Layout::from_size_align(bytes, PAGE).or(Err(Code::OUT_OF_MEMORY))?;
        // SAFETY: `bytes` is not zero: a piece has at least a page.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Code::OUT_OF_MEMORY)?;
        // SAFETY: the memory lives until it is taken back in `give_up`.
        let code = unsafe { session.driver.hand.cuMemHostRegister_v2(base.as_ptr().cast(), bytes, PORTABLE) };
        Ok(Self { base, layout, locked: (code == Code::SUCCESS).then_some(life) })
    }

    /// On a thread that may call the driver.
    fn give_up(self, session: &Session) {
        if self.locked.as_ref().is_some_and(|life| life.check().is_ok()) {
            // SAFETY: it was page-locked in `new`, and no copy uses it. A failure leaves it to the context's end.
            let _ = unsafe { session.driver.hand.cuMemHostUnregister(self.base.as_ptr().cast()) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Set {
    /// Where the piece with this number stands.
    fn buffer(&self, number: usize) -> *mut u8 {
        let base = self.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.base.as_ptr());
        base.wrapping_add(self.piece * (number % self.depth))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // Often inside a host function, where the driver must not be called.
        self.home.lock().unwrap_or_else(PoisonError::into_inner).extend(self.memory.take());
    }
}

/// A copy under way.
struct Copy {
    link: Arc<Replier>,
    landing: u64,
    set: Arc<Set>,
    /// Pieces that have been sent.
    sent: Mutex<usize>,
    bell: Condvar,
    sender: Option<Sender<Piece>>,
}

/// A piece that stands in its buffer, or will when the stream has come to it.
#[derive(Clone)]
struct Piece {
    copy: Arc<Copy>,
    number: usize,
    at: u64,
    len: usize,
    last: bool,
}

impl Piece {
    fn send(&self) {
        // SAFETY: the stream has filled `len` bytes of the buffer and does not come to the piece that uses it next before
        // this one counts as sent.
        let bytes = unsafe { std::slice::from_raw_parts(self.copy.set.buffer(self.number), self.len) };
        // A broken link is found by the ring's thread.
        let _ = self.copy.link.land(self.copy.landing, self.at, bytes);
        *self.copy.lock() += 1;
        self.copy.bell.notify_all();
    }

    /// What the stream does at this piece's end.
    fn deliver(self) {
        let copy = self.copy.clone();
        let (next, last) = (self.number + 1, self.last);
        match &copy.sender {
            Some(sender) => {
                if let Err(unsent) = sender.send(self) {
                    unsent.into_inner().send();
                }
            }
            None => self.send(),
        }
        // The next piece's buffer must be free again.
        copy.wait_for(if last { next } else { (next + 1).saturating_sub(copy.set.depth) });
        if last {
            let _ = copy.link.land_over(copy.landing);
        }
    }
}

impl Copy {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, pieces: usize) {
        let mut sent = self.lock();
        while *sent < pieces {
            sent = self.bell.wait(sent).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Landing {
    fn streams(&self) -> MutexGuard<'_, HashMap<(Home, u64), Weak<Set>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a copy of `length` bytes to `landing` into the stream `native` of the context `home`, which is current.
    ///
    /// # Errors
    /// What the driver says; then the landing is over.
    pub fn copy(
        &self,
        session: &Session,
        (home, native): (Home, u64),
        life: impl FnOnce() -> Arc<Life>,
        (landing, source, length): (u64, u64, usize),
    ) -> Result<(), Fail> {
        let copied = self.enqueue(session, (home, native), life, (landing, source, length));
        if copied.is_err() {
            // What is under way may still use the stream's buffers: the next copy gets others.
            self.forget_stream(home, native);
            // What of it comes all the same goes nowhere.
            session.link.land_over(landing)?;
        }
        copied
    }

    fn enqueue(
        &self,
        session: &Session,
        stream: (Home, u64),
        life: impl FnOnce() -> Arc<Life>,
        (landing, source, length): (u64, u64, usize),
    ) -> Result<(), Fail> {
        let set = self.set(session, stream, life, length)?;
        let sender = if length > set.piece { self.sender() } else { None };
        // With nothing before it in its stream a short copy is over in a moment, and a host function would take longer.
        let quick = length <= SHORT && session.settled(Awaited::Stream(stream.1));
        let (sent, bell, piece) = (Mutex::new(0), Condvar::new(), set.piece);
        let copy = Arc::new(Copy { link: session.link.clone(), landing, set, sent, bell, sender });
        for (number, at) in (0..length).step_by(piece).enumerate() {
            let len = piece.min(length - at);
            let part = Piece { copy: copy.clone(), number, at: at as u64, len, last: at + len == length };
            let hand = &session.driver.hand;
            // SAFETY: `len` bytes of a buffer that lives as long as its set, which the piece holds until it was sent.
            unsafe {
                hand.cuMemcpyDtoHAsync_v2(copy.set.buffer(number).cast(), source + at as u64, len, stream.1)
            }
            .ok()?;
            if quick && settles(session, stream.1) {
                part.deliver();
                continue;
            }
            let order = Box::into_raw(Box::new(part));
            // SAFETY: the trampoline takes the order back, and the driver calls it at most once for this launch.
            let code = unsafe { hand.cuLaunchHostFunc(stream.1, trampoline, order.cast()) };
            if code != Code::SUCCESS {
                // The copy into the buffer may be under way, and nothing tells when it is over (to wait for it could last for
                // ever: this is the thread that hears of host functions). So the order, which the driver has refused, and with
                // it the buffers stay until the session ends.
                return code.ok();
            }
        }
        Ok(())
    }

    /// The buffers of a stream that suit a copy of `length` bytes.
    fn set(
        &self,
        session: &Session,
        stream: (Home, u64),
        life: impl FnOnce() -> Arc<Life>,
        length: usize,
    ) -> Result<Arc<Set>, Fail> {
        let whole = |bytes: usize| bytes.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY);
        let (piece, depth) = match length {
            ..=PIECE => (whole(length.next_power_of_two())?, 1),
            length if length / PIECES_MAX <= PIECE => (PIECE, DEPTH),
            length => (whole(length.div_ceil(PIECES_MAX))?, DEPTH - 1),
        };
        if length > PIECE * PIECES_MAX {
            // Buffers in proportion to the copy: not for more than the device can hold.
            let (mut free, mut total) = (0, 0);
            session.driver.hand.cuMemGetInfo_v2(&mut free, &mut total).ok()?;
            if length > total {
                return Err(Code::INVALID_VALUE.into());
            }
        }
        let mut streams = self.streams();
        if let Some(set) = streams.get(&stream).and_then(Weak::upgrade)
            && set.piece >= piece
            && (set.depth >= depth || length <= set.piece)
        {
            return Ok(set);
        }
        streams.retain(|_, set| set.strong_count() > 0);
        let memory = self.memory(session, piece * depth, life)?;
        let set = Arc::new(Set { memory: Some(memory), piece, depth, home: self.unused.clone() });
        streams.insert(stream, Arc::downgrade(&set));
        Ok(set)
    }

    fn memory(
        &self,
        session: &Session,
        bytes: usize,
        life: impl FnOnce() -> Arc<Life>,
    ) -> Result<Memory, Fail> {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |memory: &Memory| memory.locked.as_ref().is_none_or(|life| life.check().is_ok());
        unused.retain(usable);
        let mut kept: usize = unused.iter().map(|memory| memory.layout.size()).sum();
        let mut surplus = Vec::new();
        while kept > KEPT_MAX {
            let largest = (0..unused.len()).max_by_key(|at| unused[*at].layout.size());
            let Some(memory) = largest.map(|at| unused.swap_remove(at)) else { break };
            kept -= memory.layout.size();
            surplus.push(memory);
        }
        let fitting = (0..unused.len()).filter(|at| unused[*at].layout.size() >= bytes);
        let fitting = fitting.min_by_key(|at| unused[*at].layout.size()).map(|at| unused.swap_remove(at));
        // A host function that ends meanwhile wants to put its buffers there.
        drop(unused);
        surplus.into_iter().for_each(|memory| memory.give_up(session));
        match fitting {
            Some(memory) => Ok(memory),
            None => Memory::new(session, bytes, life()),
        }
    }

    /// The way to the thread that sends; without one the streams' host functions send themselves.
    fn sender(&self) -> Option<Sender<Piece>> {
        let start = || {
            let (sender, receiver) = unbounded::<Piece>();
            let thread = std::thread::Builder::new().name("landing".into());
            // It ends with the session, whose end takes the sender away.
            thread.spawn(move || receiver.iter().for_each(|piece| piece.send())).ok().map(|_| sender)
        };
        self.sender.get_or_init(start).clone()
    }

    /// A stream is about to be destroyed: another one may get its handle while its work is still under way.
    pub fn forget_stream(&self, home: Home, native: u64) {
        self.streams().remove(&(home, native));
    }

    /// A context is about to end.
    pub fn forget_context(&self, context: Home) {
        self.streams().retain(|(home, _), _| *home != context);
    }
}

/// Whether a stream has nothing to do any more within a moment.
fn settles(session: &Session, native: u64) -> bool {
    let until = Instant::now() + PATIENCE;
    while !session.settled(Awaited::Stream(native)) {
        if Instant::now() >= until {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

unsafe extern "C" fn trampoline(order: *mut c_void) {
    // A panic must not cross into the driver; there is nobody to report it to.
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: `enqueue` made it for this one call.
        let piece = unsafe { Box::from_raw(order.cast::<Piece>()) };
        piece.deliver();
    });
}
