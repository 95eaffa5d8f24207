//! The daemon: accepts connections, knows who may come in, starts a worker process for each session and ends it.
//!
//! It never loads a driver and never touches a session's data; what a peer or a worker does wrong costs that session
//! and nothing else. [`auth`] has the rules of admission.

pub mod auth;
mod connection;
mod listen;
mod peer;
mod places;
pub mod pool;
pub mod process;
pub mod ready;
mod reclaim;
mod registry;
mod session;
mod stream;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, ensure};
use gpupool_protocol::control::{Hello, Snapshot, host_key, watch_tcp_peer};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use auth::{Authority, Peer};
use listen::UnixEndpoint;
use places::Places;
use pool::WorkerPool;
use process::{Spawner, WorkerProgram};
use reclaim::Reclaim;
use registry::Registry;
use stream::Stream;

/// Everything that a daemon needs to know.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// Absolute path of the driver's library.
    pub driver: PathBuf,
    /// Where to listen on this host.
    pub socket: Option<PathBuf>,
    /// Where to listen for the network.
    pub listen: Option<SocketAddr>,
    /// Who may come in, by token.
    pub token_file: Option<PathBuf>,
    /// Tokens may cross a plain network connection, where the client says so too.
    pub insecure: bool,
    /// Every user of this host may come in over loopback TCP.
    pub allow_anonymous_loopback: bool,
    /// Sessions at one time.
    pub max_sessions: usize,
    /// Workers that wait with their driver loaded.
    pub warm_workers: usize,
    /// What a worker is.
    pub worker: WorkerProgram,
}

/// How long sessions may take to end at shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// What all connections of a daemon share.
#[derive(Debug)]
struct Shared {
    authority: Authority,
    hello: Hello,
    inventory: Snapshot,
    registry: Arc<Registry>,
    reclaim: Arc<Reclaim>,
    pool: Arc<WorkerPool>,
    rooms: Arc<Semaphore>,
    max_sessions: usize,
    places: Arc<Places>,
    next_session: AtomicU64,
    shutdown: watch::Sender<bool>,
}

/// A daemon that listens.
#[derive(Debug)]
pub struct Daemon {
    shared: Arc<Shared>,
    unix: Option<UnixEndpoint>,
    tcp: Option<TcpListener>,
}

impl Daemon {
    /// Checks the settings, takes the inventory by way of a worker that serves nobody, and listens.
    pub async fn start(config: DaemonConfig) -> anyhow::Result<Self> {
        ensure!(
            config.socket.is_some() || config.listen.is_some(),
            "neither a socket nor an address to listen on"
        );
        auth::check_listen(config.listen, config.insecure, config.token_file.as_ref())?;
        let authority = Authority::new(config.token_file.as_deref(), config.allow_anonymous_loopback)?;
        let spawner = Spawner::start(config.worker).context("cannot start the thread that starts workers")?;
        let pool = WorkerPool::new(spawner, config.driver.clone(), config.warm_workers);

        let mut probe = pool.start().await.context("the devices cannot be listed")?;
        let inventory = std::mem::take(&mut probe.snapshot);
        probe.end().await;
        for (ordinal, device) in inventory.devices.iter().enumerate() {
            tracing::info!(ordinal, name = device.name, memory_mib = device.total_memory >> 20, "device");
        }
        ensure!(!inventory.devices.is_empty(), "the driver {} shows no device", config.driver.display());

        let unix =
            config.socket.as_deref().map(|p| UnixEndpoint::bind(p, authority.has_tokens())).transpose()?;
        let tcp = match config.listen {
            Some(address) => Some(listen::bind_tcp(address).await?),
            None => None,
        };
        let mut server_id = [0; 16];
        getrandom::fill(&mut server_id).context("the system gives no random bytes")?;
        let hello = Hello {
            server_version: env!("CARGO_PKG_VERSION").into(),
            server_id,
            insecure: config.insecure,
            host_key: host_key(),
            unix_socket: unix.as_ref().and_then(|u| u.path().to_str()).map(Into::into),
        };
        pool.keep_warm();
        let shared = Shared {
            authority,
            hello,
            inventory,
            registry: Registry::new()?,
            reclaim: Arc::default(),
            pool,
            rooms: Arc::new(Semaphore::new(config.max_sessions)),
            max_sessions: config.max_sessions,
            places: Places::new(),
            next_session: AtomicU64::new(1),
            shutdown: watch::Sender::new(false),
        };
        Ok(Self { shared: Arc::new(shared), unix, tcp })
    }

    /// The Unix socket's path.
    pub fn socket(&self) -> Option<&Path> {
        self.unix.as_ref().map(UnixEndpoint::path)
    }

    /// The TCP address, with the port that was really taken.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|t| t.local_addr().ok())
    }

    /// Serves until `stop` resolves, then ends all sessions and removes the socket.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                // Collects what has ended; a panic in a connection is that connection's end.
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!("a connection's task failed: {error}");
                    }
                    continue;
                }
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match self.shared.places.queue(&peer) {
                    Some(waiting) => {
                        connections.spawn(connection::serve(Arc::clone(&self.shared), stream, peer, waiting));
                    }
                    None => {
                        tracing::warn!(?peer, "connection dropped: too many peers have not said who they are")
                    }
                },
                Err(error) => {
                    // Out of descriptors, mostly; accepting again at once would only spin.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        self.shut_down(connections).await;
    }

    async fn shut_down(self, mut connections: JoinSet<()>) {
        let Self { shared, unix, tcp } = self;
        drop((unix, tcp));
        tracing::info!(connections = connections.len(), "shutting down");
        shared.shutdown.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_LIMIT, all).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        connections.shutdown().await;
        shared.pool.close().await;
    }

    /// The next connection and where it comes from.
    async fn accept(&self) -> std::io::Result<(Stream, Peer)> {
        loop {
            let identified = tokio::select! {
                stream = accept_unix(self.unix.as_ref()) => identify_unix(stream?),
                stream = accept_tcp(self.tcp.as_ref()) => identify_tcp(stream?),
            };
            match identified {
                Ok(known) => return Ok(known),
                // It went before it could be looked at, which is nobody else's trouble.
                Err(error) => tracing::debug!("a connection went at once: {error}"),
            }
        }
    }
}

async fn accept_unix(endpoint: Option<&UnixEndpoint>) -> std::io::Result<UnixStream> {
    match endpoint {
        Some(unix) => Ok(unix.listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

async fn accept_tcp(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(tcp) => Ok(tcp.accept().await?.0),
        None => std::future::pending().await,
    }
}

fn identify_unix(stream: UnixStream) -> std::io::Result<(Stream, Peer)> {
    let uid = stream.peer_cred()?.uid();
    Ok((Stream::Unix(stream), Peer::Unix { uid }))
}

fn identify_tcp(stream: TcpStream) -> std::io::Result<(Stream, Peer)> {
    stream.set_nodelay(true)?;
    watch_tcp_peer(&stream)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    Ok((Stream::Tcp(stream), Peer::Tcp { peer, local }))
}
