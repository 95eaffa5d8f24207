//! Host functions. The client keeps the function and its argument; the driver gets a trampoline that asks the client to
//! run it and waits until the client says that it has, so that the stream's order holds.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpupool_protocol::wire::codec::BadRecord;
use gpupool_protocol::wire::{LinkError, Replier};

use super::code::{Code, Fail};
use super::driver::Driver;

/// Host functions that may be under way at the same time.
const OUTSTANDING_MAX: usize = 64 * 1024;
/// How often a full queue is looked at again.
const RETRY: Duration = Duration::from_micros(200);

/// The host functions of a session.
#[derive(Debug, Default)]
pub struct Callbacks {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Under way; true once the client has run it.
    outstanding: HashMap<u64, bool>,
    ended: bool,
}

/// What a trampoline is given.
struct Order {
    callbacks: Arc<Callbacks>,
    link: Arc<Replier>,
    id: u64,
}

impl Callbacks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the host function `id` into `stream`.
    ///
    /// # Errors
    /// [`BadRecord`] for an identifier that is under way already; CUDA's code when there are too many, or the driver's.
    pub fn launch(
        self: &Arc<Self>,
        driver: &Driver,
        link: &Arc<Replier>,
        stream: u64,
        id: u64,
    ) -> Result<(), Fail> {
        {
            let mut state = self.lock();
            if state.outstanding.contains_key(&id) {
                return Err(BadRecord::OutOfRange.into());
            }
            if state.outstanding.len() >= OUTSTANDING_MAX {
                return Err(Code::OUT_OF_MEMORY.into());
            }
            state.outstanding.insert(id, false);
        }
        let order = Box::into_raw(Box::new(Order { callbacks: self.clone(), link: link.clone(), id }));
        // SAFETY: the trampoline takes the order back, and the driver calls it at most once for this launch.
        let code = unsafe { driver.hand.cuLaunchHostFunc(stream, trampoline, order.cast()) };
        if code != Code::SUCCESS {
            // SAFETY: the driver has refused, so the trampoline is never called with it.
            drop(unsafe { Box::from_raw(order) });
            self.lock().outstanding.remove(&id);
        }
        code.ok()
    }

    /// The client has run `id`.
    ///
    /// # Errors
    /// [`BadRecord`] if it is not under way.
    pub fn done(&self, id: u64) -> Result<(), Fail> {
        let mut state = self.lock();
        *state.outstanding.get_mut(&id).ok_or(BadRecord::OutOfRange)? = true;
        drop(state);
        self.bell.notify_all();
        Ok(())
    }

    /// Whether any is under way.
    pub fn any(&self) -> bool {
        !self.lock().outstanding.is_empty()
    }

    /// The session is over: nobody will run them.
    pub fn end(&self) {
        self.lock().ended = true;
        self.bell.notify_all();
    }
}

impl Order {
    fn run(&self) {
        if self.ask() {
            let mut state = self.callbacks.lock();
            while !state.ended && state.outstanding.get(&self.id) == Some(&false) {
                state = self.callbacks.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.callbacks.lock().outstanding.remove(&self.id);
    }

    /// Queues it for the client; false if the session is over.
    fn ask(&self) -> bool {
        loop {
            match self.link.push_callback(self.id) {
                Ok(()) => return true,
                Err(LinkError::CallbacksFull) => {}
                Err(_) => return false,
            }
            let state = self.callbacks.lock();
            if state.ended {
                return false;
            }
            let _ = self.callbacks.bell.wait_timeout(state, RETRY);
        }
    }
}

unsafe extern "C" fn trampoline(order: *mut c_void) {
    // A panic must not cross into the driver; without the client's answer there is nothing to report it to.
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: `launch` made it for this one call.
        let order = unsafe { Box::from_raw(order.cast::<Order>()) };
        order.run();
    });
}
