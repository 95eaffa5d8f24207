//! Other sessions need device memory: what this one holds unused goes back, whatever the program is doing.
//!
//! The thread that has the control connection hears of it ([`super::watch`]) and must go on listening, while giving back may
//! have to wait for kernels. So it is done by a thread that lives for the occasion, one for each device: the kernels of one do
//! not hold up the memory of another.

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
    /// Those of which a thread is there that does it.
    served: BTreeSet<u32>,
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
        // Without a thread nothing goes back.
        !session.revocations.begin(device, move |device| give_back(session, device))
    }

    /// Has a thread give back what is unused of a device; whether one does.
    fn begin(&'static self, device: u32, give_back: impl Fn(u32) + Send + 'static) -> bool {
        let mut state = lock(&self.state);
        if !state.served.contains(&device) {
            if spawn_quiet("gpupool-revoke", move || self.serve(device, give_back)).is_err() {
                return false;
            }
            state.served.insert(device);
        }
        state.wanted.insert(device);
        true
    }

    fn serve(&self, device: u32, give_back: impl Fn(u32)) {
        loop {
            {
                let mut state = lock(&self.state);
                if !state.wanted.remove(&device) {
                    state.served.remove(&device);
                    return;
                }
            }
            give_back(device);
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

fn give_back(session: &'static Session, device: u32) {
    if let Ok(cx) = Cx::enter(false) {
        say!(Debug, "unused memory of device {device} goes back to the server");
        let named = session.devices.iter().filter(|d| d.pool.cast_unsigned() == device);
        named.for_each(|device| credit::revoke(cx, device));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_device_that_is_busy_holds_up_no_other() {
        let revocations: &'static Revocations = Box::leak(Box::default());
        let (begun, has_begun) = channel();
        let (end, ended) = channel::<()>();
        let busy = move |device| {
            begun.send(device).unwrap();
            ended.recv().unwrap();
        };
        assert!(revocations.begin(0, busy));
        assert_eq!(has_begun.recv(), Ok(0));
        let (done, is_done) = channel();
        assert!(revocations.begin(1, move |device| done.send(device).unwrap()));
        assert_eq!(is_done.recv(), Ok(1));
        // The thread has gone when what it held has.
        assert!(is_done.recv().is_err());
        assert_eq!(revocations.news(), News { revoked: [1].into(), unused: [].into() });
        // Asked again before it has answered: it looks once more.
        assert!(revocations.begin(0, |_| unreachable!("there is a thread already")));
        end.send(()).unwrap();
        assert_eq!(has_begun.recv(), Ok(0));
        end.send(()).unwrap();
        assert!(has_begun.recv().is_err());
        assert_eq!(revocations.news().revoked, [0].into());
    }
}
