//! The up-chunks as page-locked memory of the driver: then a copy to the device reads its chunk when the stream comes to
//! it, with no copy in between and without holding up the ring's thread. The client gets the chunk back when it was read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpupool_protocol::wire::layout::{CHUNK_BYTES, CHUNKS};

use super::code::Code;
use super::objects::Life;
use super::session::Session;

/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: the driver only reads, which is all that this process may do with memory that a
/// client on the same host writes. A driver that does not know the flag may take such memory all the same.
const READ_ONLY: u32 = 8;
/// Chunks that streams may hold at the same time. The others are copied and come back at once, so that streams which do
/// not get on cannot keep all chunks from other threads.
const HELD_MAX: u32 = CHUNKS - 4;

/// What a copy from a chunk does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The driver knows nothing of it and takes the bytes before it returns.
    Pageable,
    /// It is page-locked and counts as held: it comes back when the stream has read it.
    Held,
    /// It is page-locked, but streams hold enough: the bytes must be copied first.
    Copied,
}

/// Whether the driver has page-locked the chunks, and how many of them streams hold.
#[derive(Debug, Default)]
pub struct Staging {
    locked: Mutex<Option<Locked>>,
    held: AtomicU32,
}

#[derive(Debug)]
struct Locked {
    by_driver: bool,
    /// Of the context in which it was done.
    life: Arc<Life>,
}

impl Staging {
    /// What to do with the next chunk. A context is current, whose life is `life`.
    pub fn way(&self, session: &Session, life: impl FnOnce() -> Arc<Life>) -> Way {
        if !self.ready(session, life) {
            return Way::Pageable;
        }
        let room = |held: u32| (held < HELD_MAX).then_some(held + 1);
        match self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, room) {
            Ok(_) => Way::Held,
            Err(_) => Way::Copied,
        }
    }

    /// A held chunk was read.
    pub fn let_go(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    fn ready(&self, session: &Session, life: impl FnOnce() -> Arc<Life>) -> bool {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(locked) = &*locked
            && locked.life.check().is_ok()
        {
            return locked.by_driver;
        }
        let mut code = page_lock(session, PORTABLE | READ_ONLY);
        if code == Code::NOT_SUPPORTED {
            code = page_lock(session, PORTABLE);
        }
        let by_driver = code == Code::SUCCESS;
        if !by_driver {
            tracing::debug!(
                "the driver does not page-lock the chunks (CUDA error {}): copies are staged",
                code.0
            );
        }
        *locked = Some(Locked { by_driver, life: life() });
        by_driver
    }
}

fn page_lock(session: &Session, flags: u32) -> Code {
    let Ok(first) = session.link.chunk_up_ptr(0, CHUNK_BYTES as usize) else { return Code::NOT_SUPPORTED };
    let bytes = CHUNKS as usize * CHUNK_BYTES as usize;
    #[allow(unsafe_code)]
    // SAFETY: the chunks lie one behind the other in a region that stays mapped as long as the session.
    unsafe {
        session.driver.hand.cuMemHostRegister_v2(first.cast_mut().cast(), bytes, flags)
    }
}
