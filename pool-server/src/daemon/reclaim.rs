//! Device memory that sessions hold and do not use, taken back for a session that found none.
//!
//! A client keeps what its program has freed, for its next allocations. When another session's allocation fails, its worker
//! says so, every other session of that device is asked to give back what it holds unused, and when all have answered the
//! allocation is tried once more. A client whose answer does not come in time (it is stopped, or does not want to) costs
//! that one allocation its time and no other: until it answers nobody waits for it again. One that has answered has nothing
//! unused until it says so itself, so that allocations which fail again and again do not keep others busy.
//!
//! Nothing here is believed further than that: an answer without a question changes nothing, and whether there is memory is
//! for the driver to say.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// How long an allocation waits for the answers.
pub const PATIENCE: Duration = Duration::from_millis(300);
/// So long after a question a session is not asked again: allocations that fail in a loop leave it time to use what it has.
const REST: Duration = Duration::from_millis(50);

/// The sessions, and what is known of their memory.
#[derive(Debug, Default)]
pub struct Reclaim {
    members: Mutex<HashMap<u64, Member>>,
    answered: Notify,
}

#[derive(Debug)]
struct Member {
    /// By the session's own count.
    devices: Vec<Device>,
    ask: mpsc::Sender<u32>,
    /// Its worker is being ended, by which all of its memory goes back.
    leaves: bool,
}

impl Member {
    /// Whether it may be worth the wait for what it gives back of a device.
    fn is_awaited(&self, at: usize) -> bool {
        self.leaves || self.devices[at].unused.is_awaited()
    }
}

#[derive(Debug)]
struct Device {
    /// The driver's ordinal.
    ordinal: u32,
    unused: Unused,
    /// When it may be asked again.
    rests_until: Instant,
}

impl Device {
    /// Whether it is worth a question, now or a little later.
    fn may_have_something(&self, ordinal: u32) -> bool {
        self.ordinal == ordinal && self.unused == Unused::Perhaps
    }
}

/// What a session may hold unused of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unused {
    /// Something, perhaps.
    Perhaps,
    /// It has been asked. `overdue`: nobody waits for the answer. `news`: it has said meanwhile that there is something.
    Asked { overdue: bool, news: bool },
    /// Nothing, as it says.
    Nothing,
}

impl Unused {
    fn is_awaited(self) -> bool {
        matches!(self, Self::Asked { overdue: false, .. })
    }
}

/// A session's part in it. Dropping it ends that: its memory has all gone back.
#[derive(Debug)]
pub struct Membership {
    reclaim: Arc<Reclaim>,
    session: u64,
    /// Devices (by the session's count) whose unused memory its client must be asked for.
    pub asked: mpsc::Receiver<u32>,
}

impl Reclaim {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins, with these devices of the driver.
    pub fn join(self: &Arc<Self>, session: u64, devices: &[u32]) -> Membership {
        // Of each device at most one question is under way.
        let (ask, asked) = mpsc::channel(devices.len().max(1));
        let rests_until = Instant::now();
        let new = |ordinal: &u32| Device { ordinal: *ordinal, unused: Unused::Perhaps, rests_until };
        let devices = devices.iter().map(new);
        self.lock().insert(session, Member { devices: devices.collect(), ask, leaves: false });
        Membership { reclaim: Arc::clone(self), session, asked }
    }

    /// Has the other sessions give back what they hold unused of a device that `session` counts as `device`. Takes no longer
    /// than [`PATIENCE`].
    pub async fn from_others(self: Arc<Self>, session: u64, device: u32) {
        let deadline = Instant::now() + PATIENCE;
        if let Some(rested) = self.when_rested(session, device) {
            tokio::time::sleep_until(rested).await;
        }
        let waited_for = self.ask(session, device);
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if !self.any_awaited(&waited_for) {
                return;
            }
            if tokio::time::timeout_at(deadline, answered).await.is_err() {
                return self.give_up(&waited_for);
            }
        }
    }

    /// The driver's ordinal of what `session` counts as `device`.
    fn ordinal(members: &HashMap<u64, Member>, session: u64, device: u32) -> Option<u32> {
        Some(members.get(&session)?.devices.get(device as usize)?.ordinal)
    }

    /// When everybody may be asked who may have something; `None`: now.
    fn when_rested(&self, session: u64, device: u32) -> Option<Instant> {
        let members = self.lock();
        let ordinal = Self::ordinal(&members, session, device)?;
        let others = members.iter().filter(|(id, member)| **id != session && !member.leaves);
        let devices = others.flat_map(|(_, member)| &member.devices);
        let asked = devices.filter(|device| device.may_have_something(ordinal));
        asked.map(|device| device.rests_until).max().filter(|until| *until > Instant::now())
    }

    /// Asks whoever may have something; whose answers are due.
    fn ask(&self, session: u64, device: u32) -> Vec<(u64, usize)> {
        let mut members = self.lock();
        let Some(ordinal) = Self::ordinal(&members, session, device) else { return Vec::new() };
        let now = Instant::now();
        let mut waited_for = Vec::new();
        for (id, member) in members.iter_mut().filter(|(id, _)| **id != session) {
            for at in 0..member.devices.len() {
                let device = &mut member.devices[at];
                if device.ordinal != ordinal {
                    continue;
                }
                let ask = !member.leaves && device.may_have_something(ordinal) && device.rests_until <= now;
                if ask && member.ask.try_send(at as u32).is_ok() {
                    device.unused = Unused::Asked { overdue: false, news: false };
                    device.rests_until = now + REST;
                }
                if member.is_awaited(at) {
                    waited_for.push((*id, at));
                }
            }
        }
        waited_for
    }

    fn any_awaited(&self, waited_for: &[(u64, usize)]) -> bool {
        let members = self.lock();
        // One that has gone has given all of it back.
        waited_for.iter().any(|(id, at)| members.get(id).is_some_and(|member| member.is_awaited(*at)))
    }

    fn give_up(&self, waited_for: &[(u64, usize)]) {
        let mut members = self.lock();
        for (id, at) in waited_for {
            if let Some(member) = members.get_mut(id)
                && let Unused::Asked { overdue, .. } = &mut member.devices[*at].unused
            {
                *overdue = true;
            }
        }
    }
}

impl Membership {
    /// Whose it is.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The client has given back what it had unused.
    pub fn revoked(&self, device: u32) {
        self.change(device, |unused| match unused {
            Unused::Asked { news: true, .. } => Unused::Perhaps,
            Unused::Asked { news: false, .. } => Unused::Nothing,
            // Nobody has asked.
            other => other,
        });
        self.reclaim.answered.notify_waiters();
    }

    /// The client holds something unused again.
    pub fn unused(&self, device: u32) {
        self.change(device, |unused| match unused {
            Unused::Asked { overdue, .. } => Unused::Asked { overdue, news: true },
            _ => Unused::Perhaps,
        });
    }

    /// The session is over, and its worker is about to be ended: there is nobody to ask any more, and all of its memory goes
    /// back. Until then (this is dropped) others wait for it, as for an answer.
    pub fn leave(&self) {
        if let Some(own) = self.reclaim.lock().get_mut(&self.session) {
            own.leaves = true;
        }
    }

    /// The client could not be asked; another time, perhaps.
    pub fn not_asked(&self, device: u32) {
        self.change(device, |_| Unused::Perhaps);
        self.reclaim.answered.notify_waiters();
    }

    fn change(&self, device: u32, to: impl FnOnce(Unused) -> Unused) {
        if let Some(own) = self.reclaim.lock().get_mut(&self.session)
            && let Some(device) = own.devices.get_mut(device as usize)
        {
            device.unused = to(device.unused);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.reclaim.lock().remove(&self.session);
        self.reclaim.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs to where it waits for something.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    fn start() -> (Arc<Reclaim>, Membership, Membership) {
        let reclaim = Arc::<Reclaim>::default();
        let (holder, asker) = (reclaim.join(1, &[4, 5]), reclaim.join(2, &[5]));
        (reclaim, holder, asker)
    }

    fn ask(reclaim: &Arc<Reclaim>) -> tokio::task::JoinHandle<Duration> {
        let reclaim = Arc::clone(reclaim);
        tokio::spawn(async move {
            let start = Instant::now();
            reclaim.from_others(2, 0).await;
            start.elapsed()
        })
    }

    #[tokio::test]
    async fn the_others_of_that_device_are_asked_and_waited_for() {
        let (reclaim, mut holder, mut asker) = start();
        let elsewhere = reclaim.join(3, &[4]);
        let asking = ask(&reclaim);
        settle().await;
        assert_eq!(holder.asked.try_recv(), Ok(1), "by its own count");
        assert!(holder.asked.try_recv().is_err() && asker.asked.try_recv().is_err());
        assert!(!asking.is_finished());
        holder.revoked(0);
        settle().await;
        assert!(!asking.is_finished(), "an answer about another device");
        holder.revoked(1);
        asking.await.unwrap();
        drop(elsewhere);
    }

    #[tokio::test]
    async fn who_has_answered_is_asked_again_only_after_it_has_said_so() {
        let (reclaim, mut holder, _asker) = start();
        let first = ask(&reclaim);
        settle().await;
        holder.asked.try_recv().unwrap();
        holder.revoked(1);
        first.await.unwrap();
        for _ in 0..1000 {
            assert!(ask(&reclaim).await.unwrap() < PATIENCE);
        }
        assert!(holder.asked.try_recv().is_err());
        holder.unused(1);
        let start = Instant::now();
        let again = ask(&reclaim);
        assert_eq!(holder.asked.recv().await, Some(1));
        // What comes up while it looks is not lost either.
        holder.unused(1);
        holder.revoked(1);
        again.await.unwrap();
        let asking = [ask(&reclaim), ask(&reclaim)];
        assert_eq!(holder.asked.recv().await, Some(1));
        // Who asks in a loop is not a session's only business.
        assert!(start.elapsed() >= REST, "{:?}", start.elapsed());
        holder.revoked(1);
        for asking in asking {
            asking.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_silent_one_is_waited_for_once() {
        let (reclaim, mut holder, _asker) = start();
        // Two at the same time wait for the same answer.
        let asking = [ask(&reclaim), ask(&reclaim)];
        for asking in asking {
            assert!(asking.await.unwrap() < 3 * PATIENCE);
        }
        assert!(ask(&reclaim).await.unwrap() < PATIENCE);
        assert_eq!((holder.asked.try_recv(), holder.asked.try_recv().is_err()), (Ok(1), true));
        // It comes back.
        holder.revoked(1);
        holder.unused(1);
        let again = ask(&reclaim);
        assert_eq!(holder.asked.recv().await, Some(1));
        drop(holder);
        assert!(again.await.unwrap() < PATIENCE, "one that is gone is not waited for");
    }

    #[tokio::test]
    async fn one_that_is_leaving_is_waited_for_until_its_memory_is_back() {
        let (reclaim, mut holder, _asker) = start();
        let first = ask(&reclaim);
        settle().await;
        holder.asked.try_recv().unwrap();
        holder.revoked(1);
        first.await.unwrap();
        // Nothing was unused, but what it used is about to be free.
        holder.leave();
        let second = ask(&reclaim);
        settle().await;
        assert!(!second.is_finished() && holder.asked.try_recv().is_err(), "there is nobody to ask");
        drop(holder);
        assert!(second.await.unwrap() < PATIENCE);
        // One whose worker does not die costs no more than one that does not answer; and who waits when it begins to leave
        // goes on waiting.
        let stuck = reclaim.join(1, &[5]);
        let third = ask(&reclaim);
        settle().await;
        stuck.leave();
        stuck.revoked(0);
        settle().await;
        assert!(!third.is_finished());
        assert!((PATIENCE..3 * PATIENCE).contains(&third.await.unwrap()));
    }

    #[tokio::test]
    async fn answers_that_nobody_asked_for_change_nothing() {
        let (reclaim, mut holder, _asker) = start();
        for device in [0, 1, 2, u32::MAX] {
            holder.revoked(device);
        }
        let asking = ask(&reclaim);
        settle().await;
        assert_eq!(holder.asked.try_recv(), Ok(1));
        holder.revoked(1);
        holder.revoked(1);
        asking.await.unwrap();
        // A session that is not there, and a device that it has not.
        Arc::clone(&reclaim).from_others(9, 0).await;
        reclaim.from_others(2, 1).await;
    }
}
