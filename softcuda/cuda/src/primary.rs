//! Primary contexts: one a device, made at the first retain, under a handle that never changes.
#![forbid(unsafe_code)]

use crate::context::{self, Context};
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The primary context of one device.
pub struct Primary {
    /// Its handle, whether it is active or not.
    pub handle: usize,
    /// Held while a context is made or ends: they have the same handle, and what the old one takes out of the tables must
    /// not be the new one's.
    changing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    retained: u32,
    flags: u32,
    context: Option<Arc<Context>>,
}

impl Default for Primary {
    fn default() -> Self {
        Self::new()
    }
}

impl Primary {
    /// One that is not active.
    pub fn new() -> Self {
        Self { handle: TABLES.contexts.reserve(), changing: Mutex::default(), state: Mutex::default() }
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `cuDevicePrimaryCtxRetain`: the handle.
    pub fn retain(&self, device: &Arc<Device>) -> usize {
        {
            let mut state = self.lock();
            if state.context.is_some() {
                state.retained += 1;
                return self.handle;
            }
        }
        let _changing = self.change();
        let mut state = self.lock();
        state.retained += 1;
        if state.context.is_none() {
            state.context = Some(Context::new(self.handle, device, true, state.flags));
        }
        self.handle
    }

    /// `cuDevicePrimaryCtxRelease`: the last one ends the context.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` if nobody retains it.
    pub fn release(&self) -> Result {
        let _changing = self.change();
        let mut state = self.lock();
        state.retained = state.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let ended = if state.retained == 0 { state.context.take() } else { None };
        drop(state);
        if let Some(context) = ended {
            context.destroy();
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxReset`: ends the context whoever retains it; the next retain makes a new one.
    pub fn reset(&self) {
        let _changing = self.change();
        let ended = {
            let mut state = self.lock();
            state.retained = 0;
            state.context.take()
        };
        if let Some(context) = ended {
            context.destroy();
        }
    }

    /// `cuDevicePrimaryCtxGetState`: flags and whether it is active.
    pub fn state(&self) -> (u32, bool) {
        let state = self.lock();
        (state.flags, state.context.is_some())
    }

    /// `cuDevicePrimaryCtxSetFlags`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for unknown flags.
    pub fn set_flags(&self, flags: u32) -> Result {
        context::check_flags(flags)?;
        let mut state = self.lock();
        state.flags = flags;
        if let Some(context) = &state.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }
}
