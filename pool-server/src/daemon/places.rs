//! Places for peers that have not said who they are. One address has only some of them, and where all are taken the peer
//! that has been silent longest makes room: whoever opens connections and says nothing keeps nobody else out, not even
//! programs of its own address, and clients of one host that start together come in one after the other.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use super::auth::Peer;

/// Unknown peers that are listened to at one time.
const ALL: usize = 512;
/// Of these, from one address.
const ONE_ADDRESS: usize = 192;
/// Connections that may wait for a place. More are dropped at once.
const WAITING: usize = 256;
/// So long nobody's silence costs it its place. An honest client speaks as soon as it is connected.
const PATIENCE: Duration = Duration::from_secs(1);
/// With so many waiting, half as long; with twice as many, a third: behind a crowd that says nothing a client gets in before it
/// gives up. Not less than a third, since hundreds of honest programs may start together on a busy machine.
const CROWD: usize = 16;

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
    /// [`PATIENCE`].
    patience: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_origin: HashMap<Origin, Own>,
    next: u64,
}

/// What one origin has.
#[derive(Debug)]
struct Own {
    places: Arc<Semaphore>,
    /// Those that have a place and have said nothing yet, the oldest first.
    silent: VecDeque<Silent>,
}

#[derive(Debug)]
struct Silent {
    number: u64,
    since: Instant,
    /// Takes the place away.
    end: oneshot::Sender<()>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    origin: Origin,
    number: u64,
    ended: oneshot::Receiver<()>,
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
        Self::with(PATIENCE)
    }

    fn with(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(ALL)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            patience,
            known: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a new connection wait for a place; `None` when too many wait.
    pub fn queue(self: &Arc<Self>, peer: &Peer) -> Option<Waiting> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        Some(Waiting { places: Arc::clone(self), origin: Origin::of(peer), _permit: permit })
    }

    /// How long a peer may be silent now.
    fn patience(&self) -> Duration {
        let waiting = WAITING - self.waiting.available_permits().min(WAITING);
        self.patience / (1 + waiting / CROWD).min(3) as u32
    }

    /// A permit of `from`. If there is none, the peer that has been silent longest loses its place: of `origin`, or of the
    /// origin that has most. Everybody who waits takes one peer's place at a time: it may go to another who waits, and is then
    /// taken from the next one after a while.
    async fn permit(&self, from: Arc<Semaphore>, origin: Option<Origin>) -> Option<OwnedSemaphorePermit> {
        let permit = from.acquire_owned();
        tokio::pin!(permit);
        loop {
            let patience = self.patience();
            let due = self.lock().shed(origin, patience);
            let later = async {
                match due {
                    // More may be waiting by then, and it be due earlier.
                    Some(Shed::At(due)) => {
                        tokio::time::sleep_until(due.min(Instant::now() + self.patience / 10)).await;
                    }
                    // Nobody is silent: all are about to give their places back. Or the place is free, and may have gone to
                    // another who waits.
                    Some(Shed::Done) | None => tokio::time::sleep(patience).await,
                }
            };
            tokio::select! {
                biased;
                permit = &mut permit => return permit.ok(),
                () = later => {}
            }
        }
    }
}

/// What became of taking a place away.
#[derive(Debug, PartialEq, Eq)]
enum Shed {
    /// Somebody's place is free at once.
    Done,
    /// Nobody has been silent long enough before then.
    At(Instant),
}

impl Known {
    fn shed(&mut self, origin: Option<Origin>, patience: Duration) -> Option<Shed> {
        let own = match origin {
            Some(origin) => self.by_origin.get_mut(&origin),
            None => self.by_origin.values_mut().max_by_key(|own| own.silent.len()),
        }?;
        let due = own.silent.front()?.since + patience;
        if due > Instant::now() {
            return Some(Shed::At(due));
        }
        let oldest = own.silent.pop_front()?;
        // If it has just ended by itself, its place is free as well.
        let _ = oldest.end.send(());
        Some(Shed::Done)
    }

    /// Counts a new silent peer.
    fn enter(&mut self, origin: Origin) -> (u64, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        self.next += 1;
        let number = self.next;
        if let Some(own) = self.by_origin.get_mut(&origin) {
            own.silent.push_back(Silent { number, since: Instant::now(), end });
        }
        (number, ended)
    }

    /// That peer is not silent any more, or gone.
    fn heard(&mut self, origin: Origin, number: u64) {
        if let Some(own) = self.by_origin.get_mut(&origin)
            && let Ok(at) = own.silent.binary_search_by_key(&number, |silent| silent.number)
        {
            own.silent.remove(at);
        }
    }
}

impl Waiting {
    /// Waits for a place.
    pub async fn place(self) -> Place {
        let Self { places, origin, _permit } = self;
        let own = {
            let mut known = places.lock();
            let new = || Own { places: Arc::new(Semaphore::new(ONE_ADDRESS)), silent: VecDeque::new() };
            Arc::clone(&known.by_origin.entry(origin).or_insert_with(new).places)
        };
        // Its own address's first: waiting for that must not take a place from others. The semaphores are never closed.
        let one = match Arc::clone(&own).try_acquire_owned() {
            Ok(free) => Some(free),
            Err(_) => places.permit(own, Some(origin)).await,
        };
        let all = loop {
            if let Ok(free) = Arc::clone(&places.all).try_acquire_owned() {
                break free;
            }
            if let Some(all) = places.permit(Arc::clone(&places.all), None).await {
                break all;
            }
        };
        let (number, ended) = places.lock().enter(origin);
        Place { places, origin, number, ended, one, _all: all }
    }
}

impl Place {
    /// Listens to the peer; `None` when somebody else has got the place before anything was heard.
    pub async fn listen<T>(&mut self, first: impl Future<Output = T>) -> Option<T> {
        let heard = tokio::select! {
            biased;
            heard = first => Some(heard),
            Ok(()) = &mut self.ended => None,
        };
        self.places.lock().heard(self.origin, self.number);
        heard
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.one.take());
        let mut known = self.places.lock();
        known.heard(self.origin, self.number);
        // Nobody of that address is here or waits: the table and those who wait hold the semaphore.
        if let Some(own) = known.by_origin.get(&self.origin)
            && Arc::strong_count(&own.places) == 1
        {
            known.by_origin.remove(&self.origin);
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
        assert!(places.lock().by_origin.is_empty(), "nothing is kept for addresses that are gone");
        assert_eq!(places.all.available_permits(), ALL);
    }

    #[tokio::test]
    async fn who_is_silent_longest_makes_room_and_nobody_else() {
        let patience = Duration::from_millis(20);
        let places = Places::with(patience);
        let peer = tcp("192.0.2.1");
        let mut held = Vec::new();
        for _ in 0..ONE_ADDRESS {
            held.push(places.queue(&peer).unwrap().place().await);
        }
        assert_eq!(held[0].listen(async { "spoke" }).await, Some("spoke"));
        let waiting = places.queue(&peer).unwrap();
        let (mut held, late) = tokio::join!(
            async {
                // The second is the oldest that says nothing.
                assert_eq!(held[1].listen(std::future::pending::<()>()).await, None);
                drop(held.remove(1));
                held
            },
            waiting.place(),
        );
        assert!(held.iter_mut().all(|place| place.ended.try_recv().is_err()), "one more than needed lost it");
        drop((held, late));
        assert!(places.lock().by_origin.is_empty());
    }

    #[tokio::test]
    async fn behind_a_silent_crowd_nobody_waits_for_long() {
        let places = Places::new();
        let peer = tcp("192.0.2.1");
        let listen = |waiting: Waiting| async {
            let mut place = waiting.place().await;
            place.listen(std::future::pending::<()>()).await
        };
        let mut crowd = Vec::new();
        while crowd.len() < ONE_ADDRESS + 208 {
            // Whoever has got a place has given back its right to wait.
            match places.queue(&peer) {
                Some(waiting) => crowd.push(tokio::spawn(listen(waiting))),
                None => tokio::task::yield_now().await,
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let late = places.queue(&peer).unwrap();
        let start = Instant::now();
        let place = late.place().await;
        // So long it would be, if it did not depend on how many wait.
        assert!(start.elapsed() < 2 * PATIENCE, "{:?}", start.elapsed());
        drop(place);
        crowd.into_iter().for_each(|one| one.abort());
    }

    #[tokio::test]
    async fn nobody_loses_a_place_before_patience_is_at_its_end() {
        let places = Places::new();
        let mut place = places.queue(&tcp("192.0.2.1")).unwrap().place().await;
        let since = places.lock().by_origin[&place.origin].silent[0].since;
        let shed = places.lock().shed(Some(place.origin), Duration::from_secs(3600));
        assert_eq!(shed, Some(Shed::At(since + Duration::from_secs(3600))));
        assert!(place.ended.try_recv().is_err());
        assert_eq!(places.lock().shed(None, Duration::ZERO), Some(Shed::Done));
        assert_eq!(place.listen(std::future::pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn who_speaks_within_a_third_of_a_second_keeps_its_place_in_any_crowd() {
        let places = Places::new();
        let _waiting: Vec<_> = (0..WAITING).map(|_| places.queue(&Peer::Unix { uid: 5 }).unwrap()).collect();
        assert!(places.patience() >= Duration::from_millis(300));
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
