//! Sessions that wait for their data connections, by their secret.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use gpupool_protocol::control::{Attach, CONNECTIONS_MAX, Secret, Transport};
use tokio::sync::mpsc;

/// How long a secret is good for.
pub const SECRET_LIFE: Duration = Duration::from_secs(10);

/// A data connection on its way to a worker.
#[derive(Debug)]
pub struct DataConnection {
    /// The socket.
    pub fd: OwnedFd,
    /// What will run over it.
    pub transport: Transport,
    /// Which of them it is.
    pub connection: u8,
    /// How many the session will have.
    pub connections: u8,
}

#[derive(Debug)]
struct Waiting {
    expires: Instant,
    transports: Vec<Transport>,
    /// What the first connection was, and which ones have come (a bit each).
    begun: Option<(Transport, u8, u8)>,
    hand_over: mpsc::Sender<DataConnection>,
}

impl Waiting {
    /// Whether a connection is one that the session may still have; the reason why not is for the client. Notes that it has
    /// come. True: all have.
    fn admit(&mut self, attach: &Attach, now: Instant) -> Result<bool, String> {
        let Attach { transport, connection, connections, .. } = *attach;
        if self.expires <= now {
            return Err("the data connection came too late".into());
        }
        if !self.transports.contains(&transport) {
            return Err(format!("this session may not use {transport}"));
        }
        let most = if transport == Transport::Tcp { CONNECTIONS_MAX } else { 1 };
        if !(1..=most).contains(&connections) || connection >= connections {
            return Err(format!(
                "there is no data connection {connection} of {connections} over {transport}"
            ));
        }
        let (first, count, come) = self.begun.unwrap_or((transport, connections, 0));
        if (first, count) != (transport, connections) || come & 1 << connection != 0 {
            return Err("the secret of the data connection was used before, or for something else".into());
        }
        let come = come | 1 << connection;
        self.begun = Some((transport, connections, come));
        Ok(come.count_ones() == connections.into())
    }
}

/// The waiting sessions. Keys are hashes of the secrets under a key of this process, so that how long a look-up takes
/// says nothing about a secret.
#[derive(Debug)]
pub struct Registry {
    key: [u8; 32],
    waiting: Mutex<HashMap<[u8; 32], Waiting>>,
}

/// A session's place in the registry; dropping it voids the secret.
#[derive(Debug)]
pub struct Place {
    registry: Arc<Registry>,
    hash: [u8; 32],
    /// Gives the data connections; ends when no more can come.
    pub arrivals: mpsc::Receiver<DataConnection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.hash);
    }
}

/// The right to be one of a session's data connections: hands the connection over.
#[derive(Debug)]
pub struct Ticket(mpsc::Sender<DataConnection>);

impl Ticket {
    /// Gives the connection to the session; `false`: the session has ended.
    pub fn hand_over(self, connection: DataConnection) -> bool {
        // There is room for all that a session may have.
        self.0.try_send(connection).is_ok()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self { key: random()?, waiting: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, secret: &Secret) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, secret.expose()).as_bytes()
    }

    /// Makes a secret for a session that may use these transports.
    pub fn enter(self: &Arc<Self>, transports: Vec<Transport>) -> anyhow::Result<(Secret, Place)> {
        let secret = Secret::new(random()?);
        let hash = self.hash(&secret);
        let (hand_over, arrivals) = mpsc::channel(CONNECTIONS_MAX.into());
        let waiting = Waiting { expires: Instant::now() + SECRET_LIFE, transports, begun: None, hand_over };
        self.lock().insert(hash, waiting);
        Ok((secret, Place { registry: Arc::clone(self), hash, arrivals }))
    }

    /// Uses a secret for one of the session's connections. The reason for a refusal is for the client.
    pub fn claim(&self, attach: &Attach, now: Instant) -> Result<Ticket, String> {
        let mut waiting = self.lock();
        // Taken out whatever follows: a wrong try uses a secret up, and the last connection does.
        let hash = self.hash(&attach.secret);
        let Some(mut session) = waiting.remove(&hash) else {
            return Err("the secret of the data connection is unknown or was used before".into());
        };
        let all = session.admit(attach, now)?;
        let ticket = Ticket(session.hand_over.clone());
        if !all {
            waiting.insert(hash, session);
        }
        Ok(ticket)
    }
}

/// 32 random bytes.
fn random() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the system gives no random bytes")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(secret: &Secret, transport: Transport, connection: u8, connections: u8) -> Attach {
        Attach { secret: secret.clone(), transport, connection, connections }
    }

    fn claim(registry: &Registry, attach: &Attach) -> Result<Ticket, String> {
        registry.claim(attach, Instant::now())
    }

    fn refused(registry: &Registry, attach: &Attach, after: Duration) -> String {
        registry.claim(attach, Instant::now() + after).unwrap_err()
    }

    #[test]
    fn a_secret_works_once_in_time_for_its_transports() {
        let registry = Registry::new().unwrap();
        let now = Duration::ZERO;
        let shm = |secret: &Secret| attach(secret, Transport::Shm, 0, 1);

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        assert!(claim(&registry, &shm(&secret)).is_ok());
        assert!(refused(&registry, &shm(&secret), now).contains("used before"));

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        let tcp = attach(&secret, Transport::Tcp, 0, 1);
        assert!(refused(&registry, &tcp, now).contains("may not use tcp"));
        assert!(refused(&registry, &shm(&secret), now).contains("used before"), "a wrong try used it up");

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        assert!(refused(&registry, &shm(&secret), SECRET_LIFE).contains("too late"));

        let (secret, place) = registry.enter(vec![Transport::Shm]).unwrap();
        drop(place);
        assert!(refused(&registry, &shm(&secret), now).contains("unknown"), "the session has ended");

        assert!(refused(&registry, &shm(&Secret::new([0; 32])), now).contains("unknown"));
    }

    #[test]
    fn each_of_a_sessions_connections_comes_once() {
        let registry = Registry::new().unwrap();
        let (secret, mut place) = registry.enter(vec![Transport::Tcp]).unwrap();
        for connection in [1, 0, 2] {
            assert!(claim(&registry, &attach(&secret, Transport::Tcp, connection, 3)).is_ok());
        }
        let late = refused(&registry, &attach(&secret, Transport::Tcp, 2, 3), Duration::ZERO);
        assert!(late.contains("used before"), "all have come: {late}");
        assert_eq!(place.arrivals.try_recv().err(), Some(mpsc::error::TryRecvError::Disconnected));

        // What no client asks ends it: a connection twice, another number of them, one that is not among them, too many.
        for (first, second) in [((0, 2), (0, 2)), ((0, 2), (1, 3)), ((0, 2), (2, 2))] {
            let (secret, _place) = registry.enter(vec![Transport::Tcp]).unwrap();
            let one = attach(&secret, Transport::Tcp, first.0, first.1);
            let two = attach(&secret, Transport::Tcp, second.0, second.1);
            assert!(claim(&registry, &one).is_ok() && claim(&registry, &two).is_err(), "{second:?}");
            assert!(claim(&registry, &attach(&secret, Transport::Tcp, 1, 2)).is_err(), "it is void");
        }
        for (transport, count) in
            [(Transport::Tcp, 0), (Transport::Tcp, CONNECTIONS_MAX + 1), (Transport::Shm, 2)]
        {
            let (secret, _place) = registry.enter(vec![Transport::Tcp, Transport::Shm]).unwrap();
            let said = refused(&registry, &attach(&secret, transport, 0, count), Duration::ZERO);
            assert!(said.contains("there is no data connection"), "{said}");
        }
    }
}
