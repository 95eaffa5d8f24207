//! Places for peers that have not said who they are. One address has only some of them: whoever opens connections and says
//! nothing keeps nobody else out, and clients of one host that start together come in one after the other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::auth::Peer;

/// Unknown peers that are listened to at one time.
const ALL: usize = 512;
/// Of these, from one address.
const ONE_ADDRESS: usize = 192;
/// Connections that may wait for a place. More are dropped at once.
const WAITING: usize = 256;

/// Where a peer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    User(u32),
    Address(IpAddr),
}

impl Origin {
    fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Unix { uid } => Self::User(*uid),
            // A network hands out a /64 and more of IPv6 at once, so that is one address.
            Peer::Tcp { peer, .. } => Self::Address(match peer.ip().to_canonical() {
                IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
                v4 => v4,
            }),
        }
    }
}

/// The places.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    by_origin: Mutex<HashMap<Origin, Arc<Semaphore>>>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    origin: Origin,
    one: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// A connection that may wait for a place.
#[derive(Debug)]
pub struct Waiting {
    places: Arc<Places>,
    origin: Origin,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// All free.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(ALL)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            by_origin: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Arc<Semaphore>>> {
        self.by_origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a new connection wait for a place; `None` when too many wait.
    pub fn queue(self: &Arc<Self>, peer: &Peer) -> Option<Waiting> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        Some(Waiting { places: Arc::clone(self), origin: Origin::of(peer), _permit: permit })
    }
}

impl Waiting {
    /// Waits for a place.
    pub async fn place(self) -> Place {
        let Self { places, origin, _permit } = self;
        let own =
            places.lock().entry(origin).or_insert_with(|| Arc::new(Semaphore::new(ONE_ADDRESS))).clone();
        // Its own address's first: waiting for that must not take a place from others. The semaphores are never closed.
        let one = own.acquire_owned().await.ok();
        let all = loop {
            if let Ok(all) = Arc::clone(&places.all).acquire_owned().await {
                break all;
            }
        };
        Place { places, origin, one, _all: all }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.one.take());
        let mut by_origin = self.places.lock();
        // Nobody of that address is here or waits: the table and those who wait hold the semaphore.
        if let Some(own) = by_origin.get(&self.origin)
            && Arc::strong_count(own) == 1
        {
            by_origin.remove(&self.origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tcp(ip: &str) -> Peer {
        Peer::Tcp { peer: format!("{ip}:99").parse().unwrap(), local: "192.0.2.9:1".parse().unwrap() }
    }

    #[tokio::test]
    async fn one_address_keeps_nobody_else_out() {
        let places = Places::new();
        let loud = tcp("192.0.2.1");
        let mut held = Vec::new();
        for _ in 0..ONE_ADDRESS {
            held.push(places.queue(&loud).unwrap().place().await);
        }
        let mut one_more = Box::pin(places.queue(&loud).unwrap().place());
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut one_more).await.is_err(), "it waits");
        let other = places.queue(&tcp("192.0.2.2")).unwrap().place().await;
        drop(held.pop());
        let late = one_more.await;
        drop((held, other, late));
        assert!(places.lock().is_empty(), "nothing is kept for addresses that are gone");
        assert_eq!(places.all.available_permits(), ALL);
    }

    #[tokio::test]
    async fn those_who_wait_are_bounded() {
        let places = Places::new();
        let waiting: Vec<_> = (0..WAITING).map(|_| places.queue(&Peer::Unix { uid: 5 }).unwrap()).collect();
        assert!(places.queue(&Peer::Unix { uid: 6 }).is_none());
        drop(waiting);
        assert!(places.queue(&Peer::Unix { uid: 6 }).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let origin =
            |ip: &str| Origin::of(&Peer::Tcp { peer: ip.parse().unwrap(), local: ip.parse().unwrap() });
        assert_eq!(origin("[2001:db8::1]:5"), origin("[2001:db8::ffff:2]:6"));
        assert_ne!(origin("[2001:db8::1]:5"), origin("[2001:db8:0:1::1]:5"));
        assert_eq!(origin("[::ffff:192.0.2.1]:5"), origin("192.0.2.1:6"));
    }
}
