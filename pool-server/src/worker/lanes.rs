//! What is kept for each client thread: its own default stream (`CU_STREAM_PER_THREAD`), one in each context that it
//! has used it in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::{Code, Fail};
use super::objects::{Home, Life};
use super::session::Session;

/// Streams that lanes may have together. A program has a few threads; the rest would only fill the driver.
const STREAMS_MAX: usize = 4096;
/// As a per-thread default stream is: ordered with the legacy stream.
const BLOCKING: u32 = 0;

/// The lanes of a session.
#[derive(Debug, Default)]
pub struct Lanes {
    streams: Mutex<HashMap<(u32, Home), Own>>,
}

#[derive(Debug)]
struct Own {
    native: u64,
    life: Arc<Life>,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u32, Home), Own>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane's stream in the context `home`, which is current; made when it is first used.
    ///
    /// # Errors
    /// What the driver says when it makes one.
    pub fn stream(
        &self,
        session: &Session,
        lane: u32,
        home: Home,
        life: impl FnOnce() -> Arc<Life>,
    ) -> Result<u64, Fail> {
        let mut streams = self.lock();
        if let Some(own) = streams.get(&(lane, home))
            && own.life.check().is_ok()
        {
            return Ok(own.native);
        }
        streams.retain(|_, own| own.life.check().is_ok());
        if streams.len() >= STREAMS_MAX {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        let mut native = 0;
        session.driver.hand.cuStreamCreateWithPriority(&mut native, BLOCKING, 0).ok()?;
        session.streams.add(home, native);
        streams.insert((lane, home), Own { native, life: life() });
        Ok(native)
    }

    /// The lane's thread has ended: its streams go. Their work is still done.
    pub fn end(&self, session: &Session, lane: u32) {
        self.lock().retain(|(owner, home), own| {
            if *owner == lane && own.life.check().is_ok() {
                session.streams.remove(*home, own.native);
                session.landing.forget_stream(*home, own.native);
                // A failure is the context's, and is told elsewhere.
                let _ = session.driver.hand.cuStreamDestroy_v2(own.native);
            }
            *owner != lane
        });
    }
}
