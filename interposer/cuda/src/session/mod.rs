//! The session: at most one a process, from `cuInit` to the end.

mod devices;
mod fork;
mod optimisations;
mod revoke;
mod start;
mod watch;

use std::hint::cold_path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use gpupool_protocol::api::CALL_MAP_BITS;
use gpupool_protocol::wire::codec::BadRecord;
use gpupool_protocol::wire::{ClientLink, LinkError};

pub use devices::{Device, Limits};
pub use optimisations::Optimisations;
pub use revoke::Revocations;

use crate::callbacks::Callbacks;
use crate::calls::link::Link;
use crate::code::{
    Answer, Code, DEINITIALIZED, DEVICE_UNAVAILABLE, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED,
    OUT_OF_MEMORY,
};
use crate::log;
use crate::output::Output;
use crate::state::arena::Arena;
use crate::state::memory::Memory;
use crate::state::objects::{Context, Event, Function, Known, Library, Module, Pool, Stream, lock};
use crate::state::order::Unordered;
use crate::state::pinned::Pinned;
use crate::state::table::Table;
use crate::state::watch::Waits;
use crate::thread;

/// What the process is to this library.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// No session yet.
    Fresh,
    /// A session.
    Live,
    /// The session is over and no other can begin.
    Broken,
    /// The child of a process with a session.
    Child,
    /// The process is ending.
    Exiting,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Fresh as u8);
static SESSION: OnceLock<Session> = OnceLock::new();
/// The session while it is [`Phase::Live`]: what every call asks for first, in one word.
static LIVE: Known<Session> = Known::none();

/// The process is from now on something else than one with a live session. Async-signal-safe.
fn leave_for(phase: Phase) {
    PHASE.store(phase as u8, SeqCst);
    LIVE.clear();
}

/// Everything that belongs to the session.
pub struct Session {
    /// The way to the worker.
    pub link: Arc<ClientLink>,
    /// Where the server is, for messages.
    pub server: String,
    /// The driver's version.
    pub driver_version: i32,
    /// The devices that the program sees.
    pub devices: Vec<Device>,
    /// What may be done in a quicker way.
    pub uses: Optimisations,
    calls: [u64; CALL_MAP_BITS / 64],
    /// Contexts by handle.
    pub contexts: Table<Context>,
    /// Streams by handle.
    pub streams: Table<Stream>,
    /// Events by handle.
    pub events: Table<Event>,
    /// Modules by handle.
    pub modules: Table<Module>,
    /// Libraries by handle.
    pub libraries: Table<Library>,
    /// Functions and kernels by handle.
    pub functions: Table<Function>,
    /// Memory pools by handle.
    pub pools: Table<Pool>,
    /// Links under way. They live in the client only.
    pub links: Table<Link>,
    /// Device memory.
    pub memory: Memory,
    /// Memory that client and worker share.
    pub arena: Arena,
    /// Pinned host memory.
    pub pinned: Pinned,
    /// Copies that non-blocking streams must wait for.
    pub unordered: Unordered,
    /// What other sessions want of this one's memory.
    pub revocations: Revocations,
    /// Kernels' text.
    pub output: Output,
    /// Host functions.
    pub callbacks: Callbacks,
    /// Waits for work that are over, in any thread.
    pub waits: Waits,
    ids: AtomicU64,
}

/// The live session.
///
/// # Errors
/// CUDA_ERROR_NOT_INITIALIZED before `cuInit` and in the child of a process that has a session, CUDA_ERROR_DEINITIALIZED
/// when the process is ending, and one code for ever when the session is broken.
#[inline(always)]
pub fn live() -> Answer<&'static Session> {
    match LIVE.get() {
        Some(session) => Ok(session),
        None => {
            cold_path();
            Err(refusal(PHASE.load(Acquire)))
        }
    }
}

/// What a broken session answers: the device that was there cannot be reached any more.
pub const BROKEN: Code = DEVICE_UNAVAILABLE;

#[cold]
fn refusal(phase: u8) -> Code {
    match phase {
        p if p == Phase::Broken as u8 => BROKEN,
        p if p == Phase::Exiting as u8 => DEINITIALIZED,
        _ => NOT_INITIALIZED,
    }
}

/// `cuInit`. A failure can be tried again.
pub fn init() -> Answer {
    static STARTING: Mutex<()> = Mutex::new(());
    if live().is_ok() {
        return Ok(());
    }
    let _starting = lock(&STARTING);
    match PHASE.load(Acquire) {
        p if p == Phase::Live as u8 => Ok(()),
        p if p == Phase::Fresh as u8 => {
            start::start()?;
            Ok(())
        }
        p => Err(refusal(p)),
    }
}

/// Makes the session the process's one. Only under `init`'s lock.
fn establish(session: Session) -> &'static Session {
    let session = SESSION.get_or_init(|| session);
    PHASE.store(Phase::Live as u8, SeqCst);
    LIVE.set(session);
    // Whoever ended it in between has found nothing to clear.
    if PHASE.load(SeqCst) != Phase::Live as u8 {
        LIVE.clear();
    }
    session
}

/// The driver version of the session, if there is one.
pub fn driver_version() -> Option<i32> {
    SESSION.get().map(|session| session.driver_version)
}

/// A thread has ended.
pub fn lane_ended(lane: u32) {
    use gpupool_protocol::api::numbers;
    use gpupool_protocol::wire::CallHead;
    if let Ok(session) = live()
        && session.answers(numbers::lane_end)
    {
        // On a broken link nobody keeps anything for the lane.
        let _ = session.link.post(CallHead::new(numbers::lane_end, lane, 0), 0, |_| ());
    }
}

/// The process begins to end: no call does anything any more.
extern "C" fn at_exit() {
    leave_for(Phase::Exiting);
}

impl Session {
    /// Whether the worker answers this record.
    #[inline(always)]
    pub fn answers(&self, call: u16) -> bool {
        gpupool_protocol::api::answered(&self.calls, call)
    }

    /// A number that nothing else in this session has.
    pub fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed) + 1
    }

    /// The device with this ordinal. Else CUDA_ERROR_INVALID_DEVICE.
    pub fn device(&self, ordinal: i32) -> Answer<&Device> {
        let device = usize::try_from(ordinal).ok().and_then(|at| self.devices.get(at));
        device.ok_or(crate::code::INVALID_DEVICE)
    }

    /// A record could not be sent, or its answer does not come.
    #[cold]
    pub fn lost(&self, error: &LinkError) -> Code {
        match error {
            LinkError::TooLong { .. } => INVALID_VALUE,
            LinkError::CallbacksFull => OUT_OF_MEMORY,
            other => {
                self.end(&other.to_string());
                refusal(PHASE.load(Acquire))
            }
        }
    }

    /// The worker sent what no worker sends.
    #[cold]
    pub fn bad_answer(&self, bad: BadRecord) -> Code {
        let reason = LinkError::Protocol(format!("an answer that is not one: {bad}"));
        self.link.break_with(reason.clone());
        self.lost(&reason)
    }

    /// The session is over: from now on every call answers one code.
    #[cold]
    pub fn end(&self, reason: &str) {
        let (live, broken) = (Phase::Live as u8, Phase::Broken as u8);
        if PHASE.compare_exchange(live, broken, Release, Relaxed).is_ok() {
            LIVE.clear();
            let text = format_args!(
                "the session with {} is broken: {reason}; every CUDA call of this process fails from now on, and a new process \
                 gets a new session",
                self.server
            );
            // Said unasked: the program knows a code only, and may not show that.
            if log::wants(log::LogLevel::Error) {
                log::line(log::LogLevel::Error, text)
            } else {
                log::fatal(text)
            }
        }
        // Also when the process is ending: a destructor of the program's may join a thread that waits here.
        self.link.break_with(LinkError::GivenUp(reason.into()));
        self.callbacks.give_up();
    }
}

/// CUDA_ERROR_NOT_SUPPORTED unless `condition`.
pub fn supported(condition: bool) -> Answer {
    if condition { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// Makes sure that host functions can be told apart from the program's threads.
pub fn inside_callback<R>(body: impl FnOnce() -> R) -> R {
    thread::set_in_callback(true);
    let result = body();
    thread::set_in_callback(false);
    result
}
