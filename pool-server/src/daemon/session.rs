//! One session: a control connection, a worker, and what passes between them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;
use gpupool_protocol::control::{
    ClientMessage, Heartbeat, Needs, Open, Opened, ServerMessage, Snapshot, Transport,
};
use tracing::Instrument;

use super::Shared;
use super::auth::Peer;
use super::connection::{NO_DEVICE, NOT_READY, refuse};
use super::process::Worker;
use super::reclaim::Membership;
use super::registry::{DataConnection, Place, SECRET_LIFE};
use super::stream::{Incoming, Outgoing, Stream};
use crate::tie::{FromWorker, SessionSpec, ToWorker};

/// How long the last words to a client may take, and a worker's death.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Serves an admitted client to the end of its session.
pub async fn serve(shared: Arc<Shared>, stream: Stream, open: Open, tenant: String, peer: Peer) {
    let id = shared.next_session.fetch_add(1, Ordering::Relaxed);
    let client = &open.client;
    let span = tracing::info_span!(
        "session",
        id,
        tenant,
        program = client.program,
        pid = client.pid,
        host = client.host
    );
    serve_in_span(shared, stream, open, tenant, peer, id).instrument(span).await;
}

async fn serve_in_span(shared: Arc<Shared>, stream: Stream, open: Open, tenant: String, peer: Peer, id: u64) {
    let Ok(_room) = Arc::clone(&shared.rooms).try_acquire_owned() else {
        let most = shared.max_sessions;
        tracing::warn!("refused: {most} sessions run, which is the most allowed");
        let reason = format!("all {most} sessions of the server are taken; try again later");
        return refuse(&stream, reason, NOT_READY).await;
    };
    let devices = match place(&open.needs, &shared.inventory) {
        Ok(devices) => devices,
        Err(reason) => {
            tracing::info!("refused: {reason}");
            return refuse(&stream, reason, NO_DEVICE).await;
        }
    };
    let stream = Arc::new(stream);
    let mut client = Incoming::new(Arc::clone(&stream));
    // A client that gives up while its worker starts leaves none behind: dropping the future ends the process.
    let worker = tokio::select! {
        worker = shared.pool.take() => worker,
        _ = client.next::<ClientMessage>() => return tracing::info!("the client went while its worker started"),
    };
    let mut worker = match worker {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!("no worker: {error:#}");
            return refuse(&stream, format!("no worker could be started: {error:#}"), NOT_READY).await;
        }
    };
    let outgoing = Outgoing::new(stream);
    let transports = transports(&shared, &open, &peer);
    let Open { client: info, needs, architectures, .. } = open;
    let spec = SessionSpec { session: id, tenant, client: info, needs, devices, architectures };
    let mut membership = shared.reclaim.join(id, &spec.devices);
    let end = match begin(&shared, spec, transports, &worker, &outgoing) {
        Ok(place) => run(&shared, &mut client, &outgoing, &mut worker, place, &mut membership).await,
        Err(error) => End::Broken(format!("the session cannot begin: {error:#}")),
    };
    membership.leave();
    // The worker first: what it holds must not wait for a client that does not read.
    if tokio::time::timeout(LAST_WORDS, worker.end()).await.is_err() {
        tracing::error!(
            worker = worker.id(),
            "the worker was killed and does not die: it is inside the driver"
        );
    }
    // Only now is its memory back, which others may be waiting for.
    drop(membership);
    match end {
        End::ClientGone => tracing::info!("ended: the client is gone"),
        End::DataGone => {
            tracing::info!("ended: the data connection was closed");
            outgoing.send(&ServerMessage::Closed { reason: "the data connection was closed".into() });
        }
        End::Broken(reason) => {
            tracing::warn!("ended: {reason}");
            outgoing.send(&ServerMessage::Closed { reason });
        }
    }
    outgoing.finish(LAST_WORDS).await;
}

/// Which devices the session gets, or why none.
fn place(needs: &Needs, inventory: &Snapshot) -> Result<Vec<u32>, String> {
    let have = u32::try_from(inventory.devices.len()).unwrap_or(u32::MAX);
    let count = if needs.gpus == 0 { have } else { needs.gpus };
    if count > have || have == 0 {
        return Err(format!("{count} GPUs are asked for, the server has {have}"));
    }
    let granted = &inventory.devices[..count as usize];
    if let Some(small) = granted.iter().find(|d| d.total_memory < needs.memory_bytes) {
        return Err(format!(
            "{} MiB are asked for on each GPU, {} has {} MiB",
            needs.memory_bytes >> 20,
            small.name,
            small.total_memory >> 20
        ));
    }
    Ok((0..count).collect())
}

/// Tells the worker and the client of their session.
fn begin(
    shared: &Shared,
    spec: SessionSpec,
    transports: Vec<Transport>,
    worker: &Worker,
    client: &Outgoing,
) -> anyhow::Result<Place> {
    ensure!(!transports.is_empty(), "client and server have no transport in common");
    let (secret, place) = shared.registry.enter(transports.clone())?;
    let mut snapshot = worker.snapshot.clone();
    snapshot.devices.truncate(spec.devices.len());
    let session = spec.session;
    ensure!(worker.send(&ToWorker::Begin(Box::new(spec))), "the worker does not listen");
    let opened = Opened { session, secret, transports, heartbeat: Heartbeat::default(), snapshot };
    ensure!(client.send(&ServerMessage::Opened(Box::new(opened))), "the answer does not fit a message");
    tracing::info!(worker = worker.id(), "opened");
    Ok(place)
}

/// What both sides can do, best first. Shared memory needs the Unix socket, and TCP a TCP connection.
fn transports(shared: &Shared, open: &Open, peer: &Peer) -> Vec<Transport> {
    let mut both = Vec::new();
    if shared.hello.unix_socket.is_some() && open.transports.contains(&Transport::Shm) {
        both.push(Transport::Shm);
    }
    if matches!(peer, Peer::Tcp { .. }) && open.transports.contains(&Transport::Tcp) {
        both.push(Transport::Tcp);
    }
    both
}

/// How a session ends.
enum End {
    /// The usual way.
    ClientGone,
    /// Its client closed the data connection first, and the worker left.
    DataGone,
    /// Any other, with the reason for the client.
    Broken(String),
}

impl End {
    fn broken(reason: impl Into<String>) -> Self {
        Self::Broken(reason.into())
    }
}

/// What a worker waits for that has found no memory.
#[derive(Default)]
struct Shortage {
    /// The newest of its questions.
    n: u64,
    /// The device, and the wait for its memory.
    under_way: Option<(u32, Wait)>,
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Shortage {
    /// The worker asks. A question that comes before the last one is answered has the same answer; nobody waits for that
    /// any more, if it is about another device.
    fn begin(&mut self, n: u64, device: u32, reclaim: impl FnOnce() -> Wait) {
        self.n = n;
        if self.under_way.as_ref().is_none_or(|(of, _)| *of != device) {
            self.under_way = Some((device, reclaim()));
        }
    }

    /// Waits for the answer; the question's number. For ever while there is no question. Giving it up loses nothing.
    async fn end(&mut self) -> u64 {
        match &mut self.under_way {
            Some((_, under_way)) => under_way.as_mut().await,
            None => std::future::pending().await,
        }
        self.under_way = None;
        self.n
    }
}

/// Passes messages until something ends.
async fn run(
    shared: &Shared,
    client: &mut Incoming,
    to_client: &Outgoing,
    worker: &mut Worker,
    mut place: Place,
    memory: &mut Membership,
) -> End {
    let mut shutdown = shared.shutdown.subscribe();
    let mut shortage = Shortage::default();
    // Data connections that are still to come; how many is said by the first.
    let mut missing = None;
    let attach_limit = tokio::time::sleep(SECRET_LIFE);
    tokio::pin!(attach_limit);
    loop {
        tokio::select! {
            message = client.next::<ClientMessage>() => match message {
                // A frozen worker's queue fills; its pings are dropped and the client misses the answers, rightly.
                Ok(Some(ClientMessage::Ping { n })) => drop(worker.send(&ToWorker::Ping { n })),
                Ok(Some(ClientMessage::Revoked { device })) => memory.revoked(device),
                Ok(Some(ClientMessage::Unused { device })) => memory.unused(device),
                Ok(Some(_)) => return End::broken("the client sent a message that an open session does not have"),
                Err(e) if e.kind() == std::io::ErrorKind::InvalidData => return End::Broken(format!("the client sent garbage: {e}")),
                Ok(None) | Err(_) => return End::ClientGone,
            },
            message = worker.incoming.next::<FromWorker>() => match message {
                Ok(Some(FromWorker::Pong { n })) => drop(to_client.send(&ServerMessage::Pong { n })),
                Ok(Some(FromWorker::Short { n, device })) => shortage.begin(n, device, || {
                    Box::pin(Arc::clone(&shared.reclaim).from_others(memory.session(), device))
                }),
                Ok(Some(FromWorker::Failed { reason })) => return End::Broken(reason),
                Ok(Some(FromWorker::Ready { .. })) => return End::broken("the worker reported twice"),
                Ok(None) | Err(_) => {
                    memory.leave();
                    let ended = worker.end_by_itself().await;
                    return if ended.well && missing == Some(0) { End::DataGone } else { End::Broken(format!("the worker {}", ended.how)) };
                }
            },
            n = shortage.end() => drop(worker.send(&ToWorker::Reclaimed { n })),
            Some(device) = memory.asked.recv() => if !to_client.send(&ServerMessage::Revoke { device }) {
                memory.not_asked(device);
            },
            arrival = place.arrivals.recv(), if missing != Some(0) => {
                let Some(DataConnection { fd, transport, connection, connections }) = arrival else {
                    return End::broken("the secret of the data connection was used, and no connection came of it");
                };
                missing = Some(missing.unwrap_or(connections) - 1);
                tracing::info!(%transport, connection, connections, "data connection");
                if !worker.send_with_fd(&ToWorker::Data { transport, connection, connections }, fd) {
                    return End::broken("the worker does not take the data connection");
                }
            }
            () = &mut attach_limit, if missing != Some(0) => {
                return End::Broken(format!("no data connection came within {} s", SECRET_LIFE.as_secs()));
            }
            // The borrow of the flag must not live on.
            () = async { drop(shutdown.wait_for(|stop| *stop).await) } => return End::broken("the server is shutting down"),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpupool_protocol::control::DeviceInfo;

    use super::*;

    fn inventory(memory: &[u64]) -> Snapshot {
        let device = |m: &u64| DeviceInfo { name: "card".into(), total_memory: *m, ..DeviceInfo::default() };
        Snapshot { devices: memory.iter().map(device).collect(), ..Snapshot::default() }
    }

    #[tokio::test]
    async fn the_newest_question_is_answered_when_its_own_device_was_asked_for() {
        let never = || -> Wait { Box::pin(std::future::pending()) };
        let at_once = || -> Wait { Box::pin(std::future::ready(())) };
        let mut shortage = Shortage::default();
        shortage.begin(1, 0, at_once);
        shortage.begin(2, 0, never);
        assert_eq!(shortage.end().await, 2);
        shortage.begin(3, 0, never);
        shortage.begin(4, 1, at_once);
        assert_eq!(shortage.end().await, 4);
    }

    #[test]
    fn what_is_asked_for_is_granted_or_refused_with_the_reason() {
        let two = inventory(&[8 << 20, 4 << 20]);
        let needs = |gpus, memory_bytes| Needs { gpus, memory_bytes, ..Needs::default() };
        assert_eq!(place(&needs(0, 0), &two).unwrap(), [0, 1]);
        assert_eq!(place(&needs(1, 8 << 20), &two).unwrap(), [0]);
        assert_eq!(place(&needs(3, 0), &two).unwrap_err(), "3 GPUs are asked for, the server has 2");
        assert!(
            place(&needs(2, 5 << 20), &two)
                .unwrap_err()
                .contains("5 MiB are asked for on each GPU, card has 4 MiB")
        );
        assert!(place(&needs(0, 0), &inventory(&[])).is_err());
    }
}
