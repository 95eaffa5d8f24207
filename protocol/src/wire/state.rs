//! What all parts of one end of a link share: whether it is broken and why, and who has been waiting for long.

use std::hint::cold_path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A thread that waits calls the long-wait hook each time this has passed.
pub const LONG_WAIT: Duration = Duration::from_millis(300);

/// Why a link does not work (any more). The first reason stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The other side has gone.
    #[error("the connection was closed by the other side")]
    Closed,
    /// The other side did what no gpupool does.
    #[error("the other side broke the wire protocol: {0}")]
    Protocol(String),
    /// The system refused something.
    #[error("the link failed while {0}")]
    System(String),
    /// This side gave it up ([`LinkState::break_with`]).
    #[error("the link was given up: {0}")]
    GivenUp(String),
    /// The worker could not go on and said so.
    #[error("the worker stopped at call {call} (record {position}) with CUDA error {code}")]
    Worker {
        /// The CUDA error.
        code: u32,
        /// The call's number.
        call: u32,
        /// The record's position.
        position: u64,
    },
    /// A body or payload is longer than the wire carries. The link stays whole.
    #[error("{len} bytes do not fit where {max} can go")]
    TooLong {
        /// What was asked.
        len: usize,
        /// What is possible.
        max: usize,
    },
    /// The callback queue is full. The link stays whole.
    #[error("the host-callback queue is full")]
    CallbacksFull,
}

impl LinkError {
    /// A system error, with what was being done ("reading the data socket").
    pub fn system(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::System(format!("{doing}: {error}"))
    }

    /// A breach of the protocol.
    pub fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// The answer of a call.
    Reply {
        /// The call's number.
        call: u16,
        /// Its record's position.
        position: u64,
    },
    /// Room in the command ring.
    RingSpace,
    /// A free reply slot.
    Slot,
    /// A free staging chunk to the device.
    ChunkUp,
    /// A free staging chunk from the device.
    ChunkDown,
    /// A word of the completion board.
    Board {
        /// Which word.
        index: u32,
        /// The value that it must reach.
        at_least: u64,
    },
    /// A host callback.
    Callback,
    /// Room in the socket.
    Send,
}

/// A wait that has lasted for a while.
#[derive(Debug, Clone, Copy)]
pub struct LongWait {
    /// What for.
    pub kind: WaitKind,
    /// Since when.
    pub since: Instant,
}

impl LongWait {
    /// How long it has lasted.
    pub fn waited(&self) -> Duration {
        self.since.elapsed()
    }
}

impl std::fmt::Display for LongWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.waited().as_millis();
        match self.kind {
            WaitKind::Reply { call, position } => write!(f, "answer of call {call} (record {position})")?,
            WaitKind::RingSpace => write!(f, "room in the command ring")?,
            WaitKind::Slot => write!(f, "a free reply slot")?,
            WaitKind::ChunkUp => write!(f, "a free staging chunk to the device")?,
            WaitKind::ChunkDown => write!(f, "a free staging chunk from the device")?,
            WaitKind::Board { index, at_least } => write!(f, "board word {index} to reach {at_least}")?,
            WaitKind::Callback => write!(f, "a host callback")?,
            WaitKind::Send => write!(f, "room in the socket")?,
        }
        write!(f, ", for {ms} ms")
    }
}

/// What a thread that waits for long does, besides waiting.
pub type LongWaitHook = Box<dyn Fn(&LongWait) + Send + Sync>;

/// The shared state of one end.
#[derive(Default)]
pub struct LinkState {
    broken: OnceLock<LinkError>,
    hook: OnceLock<LongWaitHook>,
    long_waits: Mutex<Vec<(u64, LongWait)>>,
}

impl LinkState {
    /// Breaks the link, unless it is broken already. The caller wakes those who sleep (see `Transport::break_with`).
    pub fn break_with(&self, reason: LinkError) {
        let _ = self.broken.set(reason);
    }

    /// The reason, once the link is broken.
    #[inline]
    pub fn broken(&self) -> Option<&LinkError> {
        self.broken.get()
    }

    /// `Err` once the link is broken.
    #[inline(always)]
    pub fn check(&self) -> Result<(), LinkError> {
        match self.broken.get() {
            None => Ok(()),
            Some(reason) => {
                cold_path();
                Err(copy_of(reason))
            }
        }
    }

    /// Sets the hook; only the first one counts.
    pub fn on_long_wait(&self, hook: LongWaitHook) {
        let _ = self.hook.set(hook);
    }

    /// Says that `wait` still goes on: lists it and calls the hook.
    pub fn still_waiting(&self, wait: LongWait) {
        let id = thread_number();
        let mut waits = self.long_waits.lock().unwrap_or_else(PoisonError::into_inner);
        match waits.iter_mut().find(|(owner, _)| *owner == id) {
            Some(entry) => entry.1 = wait,
            None => waits.push((id, wait)),
        }
        drop(waits);
        if let Some(hook) = self.hook.get() {
            hook(&wait);
        }
    }

    /// Takes this thread's wait off the list, if it lasted so long that it came onto it.
    pub fn waited(&self) {
        let id = thread_number();
        self.long_waits.lock().unwrap_or_else(PoisonError::into_inner).retain(|(owner, _)| *owner != id);
    }

    /// The waits that have lasted longer than [`LONG_WAIT`], for a hang report.
    pub fn long_waits(&self) -> Vec<LongWait> {
        let waits = self.long_waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.iter().map(|(_, wait)| *wait).collect()
    }
}

#[cold]
fn copy_of(reason: &LinkError) -> LinkError {
    reason.clone()
}

/// A number of this thread's own.
fn thread_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}
