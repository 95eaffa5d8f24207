//! Sessions that wait for their data connection, by their one-time secret.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use gpupool_protocol::control::{Secret, Transport};
use tokio::sync::oneshot;

/// How long a secret is good for.
pub const SECRET_LIFE: Duration = Duration::from_secs(10);

/// A data connection on its way to a worker.
#[derive(Debug)]
pub struct DataConnection {
    /// The socket.
    pub fd: OwnedFd,
    /// What will run over it.
    pub transport: Transport,
}

#[derive(Debug)]
struct Waiting {
    expires: Instant,
    transports: Vec<Transport>,
    hand_over: oneshot::Sender<DataConnection>,
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
    /// Resolves to the data connection.
    pub arrival: oneshot::Receiver<DataConnection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.hash);
    }
}

/// A used-up secret: hands the connection over.
#[derive(Debug)]
pub struct Ticket(oneshot::Sender<DataConnection>);

impl Ticket {
    /// Gives the connection to the session; `false`: the session has ended.
    pub fn hand_over(self, connection: DataConnection) -> bool {
        self.0.send(connection).is_ok()
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
        let (hand_over, arrival) = oneshot::channel();
        let waiting = Waiting { expires: Instant::now() + SECRET_LIFE, transports, hand_over };
        self.lock().insert(hash, waiting);
        Ok((secret, Place { registry: Arc::clone(self), hash, arrival }))
    }

    /// Uses a secret up. The reason for a refusal is for the client.
    pub fn claim(&self, secret: &Secret, transport: Transport, now: Instant) -> Result<Ticket, String> {
        // Taken out whatever follows: a secret is good for one try.
        match self.lock().remove(&self.hash(secret)) {
            Some(waiting) if waiting.expires <= now => Err("the data connection came too late".into()),
            Some(waiting) if !waiting.transports.contains(&transport) => {
                Err(format!("this session may not use {transport}"))
            }
            Some(waiting) => Ok(Ticket(waiting.hand_over)),
            None => Err("the secret of the data connection is unknown or was used before".into()),
        }
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

    fn refused(registry: &Registry, secret: &Secret, transport: Transport, after: Duration) -> String {
        registry.claim(secret, transport, Instant::now() + after).unwrap_err()
    }

    #[test]
    fn a_secret_works_once_in_time_for_its_transports() {
        let registry = Registry::new().unwrap();
        let now = Duration::ZERO;

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        assert!(registry.claim(&secret, Transport::Shm, Instant::now()).is_ok());
        assert!(refused(&registry, &secret, Transport::Shm, now).contains("used before"));

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        assert!(refused(&registry, &secret, Transport::Tcp, now).contains("may not use tcp"));
        assert!(
            refused(&registry, &secret, Transport::Shm, now).contains("used before"),
            "a wrong try used it up"
        );

        let (secret, _place) = registry.enter(vec![Transport::Shm]).unwrap();
        assert!(refused(&registry, &secret, Transport::Shm, SECRET_LIFE).contains("too late"));

        let (secret, place) = registry.enter(vec![Transport::Shm]).unwrap();
        drop(place);
        assert!(
            refused(&registry, &secret, Transport::Shm, now).contains("unknown"),
            "the session has ended"
        );

        assert!(refused(&registry, &Secret::new([0; 32]), Transport::Shm, now).contains("unknown"));
    }
}
