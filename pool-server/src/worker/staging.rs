//! The up-chunks as page-locked memory of the driver: then a copy to the device reads its chunk when the stream comes to
//! it, with no copy in between and without holding up the ring's thread. The client gets the chunk back when it was read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpupool_protocol::wire::layout::{CHUNK_BYTES, CHUNKS};

use super::code::Code;
use super::objects::Life;
use super::session::Session;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY`: for all contexts, and the driver only reads, which is
/// all that this process may do with memory that the client writes.
const FLAGS: u32 = 1 | 8;
/// Chunks that streams may hold at the same time. The others go the driver's way for pageable memory and come back at
/// once, so that streams which do not get on cannot keep all chunks from other threads.
const HELD_MAX: u32 = CHUNKS / 2;

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
    /// Whether a stream may hold one more chunk; then it counts as held. A context is current, whose life is `life`.
    pub fn hold(&self, session: &Session, life: impl FnOnce() -> Arc<Life>) -> bool {
        let room = |held: u32| (held < HELD_MAX).then_some(held + 1);
        if !self.ready(session, life) {
            return false;
        }
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok()
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
        let code = match session.link.chunk_up_ptr(0, CHUNK_BYTES as usize) {
            // SAFETY: the chunks lie one behind the other in a region that stays mapped as long as the session.
            #[allow(unsafe_code)]
            Ok(first) => unsafe {
                let bytes = CHUNKS as usize * CHUNK_BYTES as usize;
                session.driver.hand.cuMemHostRegister_v2(first.cast_mut().cast(), bytes, FLAGS)
            },
            Err(_) => Code::NOT_SUPPORTED,
        };
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
