//! How a session begins: configuration, control connection, data connection.

use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::time::Instant;

use gpupool_protocol::config::{ClientConfig, ConfigError};
use gpupool_protocol::control::{
    ClientInfo, ConnectError, Control, DataSocket, Open, Opened, Transport, host_key, open_session,
    probed_in_vain,
};
use gpupool_protocol::handle::Kind;
use gpupool_protocol::wire::{ClientLink, LinkError};

use super::{Optimisations, Session, devices, establish, fork, watch};
use crate::code::{Answer, Code, NO_DEVICE, SYSTEM_NOT_READY};
use crate::log::{self, say};
use crate::state::arena::Arena;
use crate::state::memory::Memory;
use crate::state::objects::lock;
use crate::state::table::Table;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Connect(#[from] ConnectError),
    #[error("the data connection to pool server {server} failed: {source}; its log says why")]
    Data { server: String, source: LinkError },
    #[error("{0}; check the limits of this process (ulimit -u, ulimit -n)")]
    System(#[from] std::io::Error),
    #[error(
        "pool server {server} offers no device that CUDA_VISIBLE_DEVICES ({wanted:?}) names; unset it, or name one of 0 to {last}"
    )]
    NoneVisible { server: String, wanted: String, last: usize },
}

impl StartError {
    fn code(&self) -> Code {
        match self {
            Self::Connect(error) => crate::code::from_wire(error.cuda_code()).err().unwrap_or(NO_DEVICE),
            Self::Data { .. } | Self::System(_) => SYSTEM_NOT_READY,
            Self::Config(_) | Self::NoneVisible { .. } => NO_DEVICE,
        }
    }
}

/// Sets the session up. On failure one line on stderr says what to do, once for each reason.
pub fn start() -> Answer {
    set_up().map_err(|error| {
        static SAID: Mutex<String> = Mutex::new(String::new());
        let mut said = lock(&SAID);
        let text = error.to_string();
        // No device at all is what an empty list asks for.
        let asked_for = matches!(&error, StartError::NoneVisible { wanted, .. } if wanted.trim().is_empty());
        if *said != text && !asked_for {
            log::fatal(format_args!("{text}"));
            *said = text;
        }
        error.code()
    })
}

fn set_up() -> Result<(), StartError> {
    let config = ClientConfig::load()?;
    log::set(&config.log);
    // A version probe has waited for this server before, in vain: the program does not wait twice.
    let left = config.connect_timeout.saturating_sub(probed_in_vain(&config));
    let deadline = Instant::now() + left.max(config.connect_timeout / 10);
    let (control, opened) = open_session(&config, &request(&config), deadline)?;
    let server = control.server().to_owned();
    let wanted = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let devices = devices::visible(&opened.snapshot, wanted.as_deref(), false);
    if devices.is_empty() {
        let last = opened.snapshot.devices.len().saturating_sub(1);
        return Err(StartError::NoneVisible { server, wanted: wanted.unwrap_or_default(), last });
    }
    let data = control.attach(&config, &opened, deadline)?;
    say!(Info, "session {} at {server}: transport {}", opened.session, data.why);
    let mut descriptors = vec![control.as_raw_fd(), data.socket.as_raw_fd()];
    descriptors.extend(data.more.iter().map(AsRawFd::as_raw_fd));
    let link = match data.socket {
        DataSocket::Unix(socket) => ClientLink::shm(socket),
        DataSocket::Tcp(socket) => {
            ClientLink::tcp_with(socket, data.more.into_iter().filter_map(DataSocket::into_tcp).collect())
        }
    };
    let link = link.map_err(|source| StartError::Data { server: server.clone(), source })?;
    let bell = watch::Bell::new()?;
    descriptors.push(bell.descriptor());
    fork::remember(&descriptors);
    begin(config, server, control, opened, link, bell)
}

fn begin(
    config: ClientConfig,
    server: String,
    control: Control,
    opened: Opened,
    link: std::sync::Arc<ClientLink>,
    bell: watch::Bell,
) -> Result<(), StartError> {
    let uses = Optimisations::of(&config);
    let arena = Arena::new(link.take_arena().filter(|_| uses.host_arena));
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let session = Session {
        link,
        server,
        // What cuDriverGetVersion has said before must stay true.
        driver_version: config.driver_version.unwrap_or(opened.snapshot.driver_version) as i32,
        devices: devices::visible(&opened.snapshot, visible.as_deref(), arena.exists()),
        uses,
        calls: std::array::from_fn(|at| opened.snapshot.calls.get(at).copied().unwrap_or(0)),
        contexts: Table::of(Kind::Context),
        streams: Table::of(Kind::Stream),
        events: Table::of(Kind::Event),
        modules: Table::of(Kind::Module),
        libraries: Table::of(Kind::Library),
        functions: Table::of(Kind::Function),
        pools: Table::of(Kind::MemPool),
        links: Table::of(Kind::Link),
        memory: Memory::new(uses.recent_ranges),
        arena,
        pinned: Default::default(),
        unordered: Default::default(),
        revocations: super::Revocations::with(bell.clone()),
        output: Default::default(),
        callbacks: Default::default(),
        waits: Default::default(),
        ids: Default::default(),
    };
    // The thread waits for the session to be there; without a thread there is no session.
    let watcher = watch::Watcher::start(control, bell, opened.heartbeat)?;
    let session = establish(session);
    watcher.watch(session);
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(fork::watch);
    Ok(())
}

fn request(config: &ClientConfig) -> Open {
    let program = std::env::current_exe().ok();
    let program =
        program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    Open {
        client: ClientInfo {
            program: program.unwrap_or_default(),
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            host_key: host_key(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        token: config.token.clone(),
        needs: config.needs.clone(),
        architectures: Vec::new(),
        transports: vec![Transport::Shm, Transport::Tcp],
    }
}
