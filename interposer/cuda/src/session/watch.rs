//! The watcher: a thread that holds the control connection, started by `cuInit`. It sleeps until the connection says
//! something or a thread of the program has waited for long; then it asks whether the worker lives.
//!
//! Dead is not stopped. If *this* process was stopped (Ctrl-Z, a debugger), clocks went on without it: what has come
//! meanwhile is read before anything is concluded, and a wait that overran by far starts anew.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use gpupool_protocol::control::{Control, Event, Heartbeat};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Session;
use crate::log::say;
use gpupool_protocol::wire::threads::spawn_quiet;

/// A wait that lasted so much longer than asked was no wait: the process was stopped.
const STOPPED: Duration = Duration::from_millis(500);

/// What wakes the watcher: a thread that has waited for long, or news for the server.
#[derive(Clone)]
pub struct Bell {
    event: Arc<OwnedFd>,
    /// A thread has waited for long since the watcher looked last.
    waited: Arc<AtomicBool>,
}

impl Bell {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { event, waited: Arc::default() })
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// There is news for the server.
    pub fn ring(&self) {
        // The program may have closed it, and have a file of its own under the number.
        if !super::fork::is_ours(self.descriptor()) {
            return;
        }
        // Full means that it was rung already.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }

    fn ring_for_a_wait(&self) {
        self.waited.store(true, Release);
        self.ring();
    }

    /// Says whether a thread has waited for long.
    fn quiet(&self) -> bool {
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
        self.waited.swap(false, AcqRel)
    }
}

/// A started thread that does not yet know its session.
pub struct Watcher {
    session: SyncSender<&'static Session>,
    bell: Bell,
}

impl Watcher {
    /// Starts the thread.
    pub fn start(control: Control, bell: Bell, heartbeat: Heartbeat) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(1);
        let watch =
            Watch { control, bell: bell.clone(), pong_within: pong_within(heartbeat), ping: None, pings: 0 };
        spawn_quiet("gpupool-watch", move || watch.wait_for_session(&receiver))?;
        Ok(Self { session: sender, bell })
    }

    /// Gives it the session.
    pub fn watch(self, session: &'static Session) {
        let bell = self.bell.clone();
        session.link.on_long_wait(Box::new(move |_| bell.ring_for_a_wait()));
        let _ = self.session.send(session);
    }
}

/// How long the answer to a ping may take, within reason: no server may make this process wait for ever, or not at all.
fn pong_within(heartbeat: Heartbeat) -> Duration {
    Duration::from_millis(heartbeat.pong_within_ms.into()).clamp(STOPPED, Duration::from_secs(30))
}

struct Watch {
    control: Control,
    bell: Bell,
    pong_within: Duration,
    /// The number of the ping that is not answered, and when its answer is due.
    ping: Option<(u64, Instant)>,
    pings: u64,
}

impl Watch {
    fn wait_for_session(mut self, session: &Receiver<&'static Session>) {
        if let Ok(session) = session.recv() {
            let reason = self.run(session);
            session.end(&reason);
            self.leave();
        }
    }

    /// Closes the control connection, by which the server learns that the session is over.
    fn leave(self) {
        if !super::fork::is_ours(self.control.as_raw_fd()) {
            // The program has closed it, and may have another file under its number.
            std::mem::forget(self.control);
        }
    }

    /// Watches until the session is over; gives the reason.
    fn run(&mut self, session: &'static Session) -> String {
        loop {
            let asked = Instant::now();
            let timeout = self.ping.map(|(_, due)| due.saturating_duration_since(asked));
            let waited = match self.sleep(timeout) {
                Ok(waited) => waited,
                Err(error) => return format!("waiting on the control connection failed: {error}"),
            };
            if let Some(reason) = self.read(session) {
                return reason;
            }
            if let Err(error) = self.tell(session) {
                return format!("the control connection failed: {error}");
            }
            if let Some((_, due)) = &mut self.ping {
                let now = Instant::now();
                if now > asked + timeout.unwrap_or_default() + STOPPED {
                    *due = now + self.pong_within;
                } else if now >= *due {
                    return format!("the server gave no sign of life for {:?}", self.pong_within);
                }
            } else if waited && let Some(reason) = self.ask() {
                return reason;
            }
        }
    }

    /// Sleeps until something is to be read, somebody rings, or `timeout` is over. Says whether a thread has waited for long.
    fn sleep(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let sending = if self.control.wants_to_send() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [
            PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN | sending),
            PollFd::from_borrowed_fd(self.bell.event.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds[1].revents().contains(PollFlags::IN) && self.bell.quiet())
    }

    /// Tells the server what is to be told of memory.
    fn tell(&mut self, session: &Session) -> io::Result<()> {
        let news = session.revocations.news();
        news.revoked.iter().try_for_each(|device| self.control.send_revoked(*device))?;
        news.unused.iter().try_for_each(|device| self.control.send_unused(*device))?;
        self.control.flush()
    }

    /// Reads all that has come; the reason if it ends the session.
    fn read(&mut self, session: &'static Session) -> Option<String> {
        loop {
            match self.control.receive() {
                Ok(None) => return None,
                Ok(Some(Event::Pong { n })) => {
                    if self.ping.is_some_and(|(awaited, _)| awaited == n) {
                        self.ping = None;
                    }
                }
                Ok(Some(Event::Revoke { device })) => {
                    if session.revocations.asked(session, device)
                        && let Err(error) = self.control.send_revoked(device)
                    {
                        return Some(format!("the control connection failed: {error}"));
                    }
                }
                Ok(Some(Event::Closed { reason })) => return Some(format!("the server ended it: {reason}")),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Some("the server closed the control connection".into());
                }
                Err(error) => return Some(format!("the control connection failed: {error}")),
            }
        }
    }

    fn ask(&mut self) -> Option<String> {
        self.pings += 1;
        match self.control.send_ping(self.pings) {
            Ok(true) => {
                say!(Debug, "a thread has waited for long: ping {}", self.pings);
                self.ping = Some((self.pings, Instant::now() + self.pong_within));
                None
            }
            // An earlier ping has not even left: it counts as this one.
            Ok(false) => {
                self.ping = Some((self.pings - 1, Instant::now() + self.pong_within));
                None
            }
            Err(error) => Some(format!("the control connection failed: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_switch_the_heartbeat_off() {
        let of = |pong_within_ms| pong_within(Heartbeat { pong_within_ms, ..Heartbeat::default() });
        assert_eq!(of(1500), Duration::from_millis(1500));
        assert_eq!((of(0), of(u32::MAX)), (STOPPED, Duration::from_secs(30)));
    }
}
