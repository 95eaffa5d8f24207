//! Other sessions need device memory: what this one holds unused goes back, whatever the program is doing.
//!
//! The thread that has the control connection hears of it ([`super::watch`]) and must go on listening, while giving back may
//! have to wait for kernels. So it is done by a thread that lives for the occasion; one of them is enough, since it is nobody
//! else's turn until it has answered.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use gpupool_protocol::wire::threads::spawn_quiet;

use super::Session;
use super::watch::Bell;
use crate::calls::credit;
use crate::cx::{Cx, Enter};
use crate::log::say;
use crate::state::objects::lock;

/// What is asked and what there is to say, by the server's numbers of the devices.
#[derive(Default)]
pub struct Revocations {
    state: Mutex<State>,
    /// Wakes the thread that has the control connection.
    bell: OnceLock<Bell>,
}

#[derive(Default)]
struct State {
    /// Devices whose unused memory is to go back.
    wanted: BTreeSet<u32>,
    /// The thread that does it is there.
    runs: bool,
    news: News,
}

/// What the server is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Nothing of these devices' memory is unused.
    pub revoked: BTreeSet<u32>,
    /// Something of them is unused again.
    pub unused: BTreeSet<u32>,
}

impl Revocations {
    /// What to ring when there is news.
    pub fn with(bell: Bell) -> Self {
        Self { state: Mutex::default(), bell: bell.into() }
    }

    /// The server wants unused memory of a device. True: nothing is unused, which is the answer.
    pub fn asked(&self, session: &'static Session, device: u32) -> bool {
        let devices = session.devices.iter().filter(|d| d.pool.cast_unsigned() == device);
        // Without the optimisation it is asked once and then left alone.
        if !session.uses.revoke {
            return true;
        }
        let mut any = false;
        for device in devices {
            device.heap.say_nothing();
            any |= device.heap.unused() > 0;
        }
        if !any {
            return true;
        }
        let mut state = lock(&self.state);
        state.wanted.insert(device);
        if !state.runs {
            state.runs = spawn_quiet("gpupool-revoke", move || session.revocations.run(session)).is_ok();
        }
        // Without a thread nothing goes back.
        !state.runs && state.wanted.remove(&device)
    }

    fn run(&self, session: &'static Session) {
        loop {
            let device = {
                let mut state = lock(&self.state);
                let Some(device) = state.wanted.pop_first() else {
                    state.runs = false;
                    return;
                };
                device
            };
            if let Ok(cx) = Cx::enter(false) {
                say!(Debug, "unused memory of device {device} goes back to the server");
                let named = session.devices.iter().filter(|d| d.pool.cast_unsigned() == device);
                named.for_each(|device| credit::revoke(cx, device));
            }
            self.tell(|news| _ = news.revoked.insert(device));
        }
    }

    /// Memory of a device is unused, of which the server was told that there is none.
    #[cold]
    pub fn unused(&self, device: i32) {
        self.tell(|news| _ = news.unused.insert(device.cast_unsigned()));
    }

    fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut lock(&self.state).news);
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// Takes what there is to say.
    pub fn news(&self) -> News {
        std::mem::take(&mut lock(&self.state).news)
    }
}
