//! Host callbacks, as the client takes them from the worker's queue.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::client::ClientLink;
use super::layout::{CALLBACKS, down, up};
use super::state::LinkError;
use crate::transport::{Piece, Point, When};

impl ClientLink {
    /// The next host callback that the worker asks for, if there is one.
    pub fn next_callback(&self) -> Result<Option<u64>, LinkError> {
        self.flush()?;
        self.transport.look()?;
        self.check()?;
        self.take_callback()
    }

    /// Waits for the next host callback. Such a wait may last for ever, so the long-wait hook is not called.
    /// One thread at a time.
    pub fn wait_callback(&self) -> Result<u64, LinkError> {
        loop {
            self.flush()?;
            self.check()?;
            if let Some(id) = self.take_callback()? {
                return Ok(id);
            }
            let taken = *self.callbacks_taken.lock().unwrap_or_else(PoisonError::into_inner);
            let queued = self.down.word64(down::CALLBACKS_QUEUED);
            let ready = || queued.load(Acquire) != taken || self.status_word() != 0;
            self.transport.wait(Point::Bell, &ready, None)?;
        }
    }

    fn take_callback(&self) -> Result<Option<u64>, LinkError> {
        let mut taken = self.callbacks_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.down.word64(down::CALLBACKS_QUEUED).load(Acquire);
        if queued == *taken {
            return Ok(None);
        }
        if queued.wrapping_sub(*taken) > u64::from(CALLBACKS) {
            return Err(self.broken_by(LinkError::protocol("more callbacks are queued than the queue holds")));
        }
        let id = self.down.word64(down::callback(*taken)).load(Relaxed);
        *taken += 1;
        self.transport.push(&[Piece::Word { offset: up::CALLBACKS_TAKEN, value: *taken }], When::Now)?;
        Ok(Some(id))
    }
}
