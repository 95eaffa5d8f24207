//! The client's half: connect, probe, open, attach, and the heartbeat of an open session.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::time::Instant;

use bincode::Decode;

use super::address::ServerAddress;
use super::error::ConnectError;
use super::framing::{
    FrameBuffer, MESSAGE_MAX, PREAMBLE_LEN, PreambleError, decode, encode, frame_length, preamble,
    read_preamble,
};
use super::link::{DataSocket, Link, watch_tcp_peer};
use super::message::{
    Attach, CONNECTIONS_MAX, ClientMessage, Hello, Open, Opened, ProbeReply, ServerMessage, Transport,
};
use super::secret::host_key;
use crate::config::{ClientConfig, TransportChoice};

/// What may wait to be sent. A server that reads takes it at once.
const OUTGOING_MAX: usize = 4096;

/// A control connection. After [`Control::open`] it must live as long as the session: the server ends the session
/// when it closes.
#[derive(Debug)]
pub struct Control {
    link: Link,
    server: String,
    peer: Option<SocketAddr>,
    hello: Hello,
    incoming: FrameBuffer,
    outgoing: Vec<u8>,
}

/// What came over the control connection of an open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker's answer to [`Control::send_ping`].
    Pong {
        /// The number of the ping.
        n: u64,
    },
    /// Others need memory of this device. Answered by [`Control::send_revoked`].
    Revoke {
        /// The device's place in [`super::Snapshot::devices`].
        device: u32,
    },
    /// The session is over, for this reason.
    Closed {
        /// One line for the user.
        reason: String,
    },
}

/// A session's data connection, and why it is this one.
#[derive(Debug)]
pub struct DataPath {
    /// The socket; the worker is at its other end.
    pub socket: DataSocket,
    /// Further connections, for long bytes.
    pub more: Vec<DataSocket>,
    /// What runs over it.
    pub transport: Transport,
    /// One line for the log: why this transport.
    pub why: String,
}

/// Connects to the configured server and reads its [`Hello`]. Ends by `deadline` whatever the server does.
pub fn connect(config: &ClientConfig, deadline: Instant) -> Result<Control, ConnectError> {
    let address = config.server.as_ref().ok_or(ConnectError::NoServer)?;
    let server = address.to_string();
    let link = connect_link(address, deadline)?;
    let peer = match address {
        ServerAddress::Unix(_) => None,
        ServerAddress::Tcp { .. } => {
            let failed = |source| ConnectError::Broken { server: server.clone(), step: "greeting", source };
            watch_tcp_peer(&link).map_err(failed)?;
            link.peer().map_err(failed)?
        }
    };
    let hello = greet(&link, &server, deadline)?;
    Ok(Control { link, server, peer, hello, incoming: FrameBuffer::new(MESSAGE_MAX), outgoing: Vec::new() })
}

impl Control {
    /// Who the server says it is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The server's address, as configured.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Asks for the driver version. The server closes the connection after its answer.
    pub fn probe(self, deadline: Instant) -> Result<ProbeReply, ConnectError> {
        const STEP: &str = "answer to the version probe";
        send(&self.link, &self.server, &ClientMessage::Probe, STEP, deadline)?;
        match receive(&self.link, &self.server, STEP, deadline)? {
            ServerMessage::ProbeReply(reply) => Ok(reply),
            other => Err(unexpected(&self.server, STEP, other)),
        }
    }

    /// Asks for a session. The token goes out only over a Unix socket, to a loopback address, or where both sides say
    /// `insecure = true`.
    pub fn open(
        &mut self,
        config: &ClientConfig,
        open: &Open,
        deadline: Instant,
    ) -> Result<Opened, ConnectError> {
        const STEP: &str = "answer to the request for a session";
        if open.token.is_some() {
            self.token_may_go(config)?;
        }
        send(&self.link, &self.server, &ClientMessage::Open(Box::new(open.clone())), STEP, deadline)?;
        match receive(&self.link, &self.server, STEP, deadline)? {
            ServerMessage::Opened(opened) => Ok(*opened),
            other => Err(unexpected(&self.server, STEP, other)),
        }
    }

    fn token_may_go(&self, config: &ClientConfig) -> Result<(), ConnectError> {
        let plain = match self.peer {
            None => false,
            Some(peer) => !is_loopback(peer.ip()),
        };
        let missing = match (plain, config.insecure, self.hello.insecure) {
            (false, ..) | (true, true, true) => return Ok(()),
            (true, false, true) => "this client's configuration does not say `insecure = true`",
            (true, true, false) => "the server's configuration does not say `insecure = true`",
            (true, false, false) => "neither side says `insecure = true`",
        };
        Err(ConnectError::PlainToken { server: self.server.clone(), missing })
    }

    /// Makes the session's data connections over the transport that the configuration asks for, or the best that works.
    pub fn attach(
        &self,
        config: &ClientConfig,
        opened: &Opened,
        deadline: Instant,
    ) -> Result<DataPath, ConnectError> {
        let address = config.server.as_ref().ok_or(ConnectError::NoServer)?;
        let (link, transport, why) = self.data_link(config.transport, address, opened, deadline)?;
        let connections =
            if transport == Transport::Tcp { config.tcp_connections.clamp(1, CONNECTIONS_MAX) } else { 1 };
        let attach =
            |connection| Attach { secret: opened.secret.clone(), transport, connection, connections };
        let socket = self.attach_link(link, attach(0), deadline)?;
        let mut more = Vec::new();
        for connection in 1..connections {
            let link = self.same_daemon(address, deadline)?;
            more.push(self.attach_link(link, attach(connection), deadline)?);
        }
        Ok(DataPath { socket, more, transport, why })
    }

    /// Makes a greeted connection one of the session's.
    fn attach_link(&self, link: Link, attach: Attach, deadline: Instant) -> Result<DataSocket, ConnectError> {
        const STEP: &str = "answer to the data connection";
        send(&link, &self.server, &ClientMessage::Attach(attach), STEP, deadline)?;
        match receive(&link, &self.server, STEP, deadline)? {
            ServerMessage::Attached => {}
            other => return Err(unexpected(&self.server, STEP, other)),
        }
        let broken = |source| ConnectError::Broken { server: self.server.clone(), step: STEP, source };
        link.into_data_socket().map_err(broken)
    }

    /// A greeted connection to the same daemon, on which `Attach` can be said.
    fn data_link(
        &self,
        choice: TransportChoice,
        address: &ServerAddress,
        opened: &Opened,
        deadline: Instant,
    ) -> Result<(Link, Transport, String), ConnectError> {
        let refuse = |transport, reason: String| {
            Err(ConnectError::Transport { server: self.server.clone(), transport, reason })
        };
        let has = |t| opened.transports.contains(&t);
        if choice != TransportChoice::Tcp {
            match self.shared_memory_link(address, has(Transport::Shm), deadline) {
                Ok((link, why)) => return Ok((link, Transport::Shm, why)),
                Err(reason) if choice == TransportChoice::Shm => return refuse("shm", reason),
                Err(reason) if has(Transport::Tcp) && matches!(address, ServerAddress::Tcp { .. }) => {
                    let link = self.same_daemon(address, deadline)?;
                    return Ok((link, Transport::Tcp, format!("tcp, because {reason}")));
                }
                Err(reason) => return refuse("auto", reason),
            }
        }
        match address {
            ServerAddress::Unix(_) => refuse("tcp", "the server's address is a Unix socket".into()),
            _ if !has(Transport::Tcp) => refuse("tcp", "the server does not offer it".into()),
            _ => Ok((self.same_daemon(address, deadline)?, Transport::Tcp, "tcp, as configured".into())),
        }
    }

    /// A connection over the daemon's Unix socket, or the reason why shared memory cannot be used.
    fn shared_memory_link(
        &self,
        address: &ServerAddress,
        offered: bool,
        deadline: Instant,
    ) -> Result<(Link, String), String> {
        if !offered {
            return Err("the server does not offer shared memory".into());
        }
        if let ServerAddress::Unix(_) = address {
            let link = self.same_daemon(address, deadline).map_err(|e| e.to_string())?;
            return Ok((link, "shm, because the server's address is a Unix socket".into()));
        }
        let path = self.hello.unix_socket.as_deref().ok_or("the server has no Unix socket")?;
        match (host_key(), self.hello.host_key) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(_), Some(_)) => return Err("the server runs on another host".into()),
            _ => return Err("one side cannot read its boot id".into()),
        }
        if !Path::new(path).is_absolute() {
            return Err("the server's Unix socket has no absolute path".into());
        }
        // A server that has frozen must not use up the time that the connection over TCP still needs.
        let half = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        let unix = ServerAddress::Unix(path.into());
        let link = self.same_daemon(&unix, half).map_err(|e| e.to_string())?;
        Ok((link, format!("shm, because the server runs on this host and {unix} answers")))
    }

    fn same_daemon(&self, address: &ServerAddress, deadline: Instant) -> Result<Link, ConnectError> {
        let link = connect_link(address, deadline)?;
        let server = address.to_string();
        let hello = greet(&link, &server, deadline)?;
        if hello.server_id != self.hello.server_id {
            let reason = "another pool server, or a restarted one, answers there".into();
            return Err(ConnectError::Transport { server, transport: "for data", reason });
        }
        Ok(link)
    }

    /// Sends a ping without waiting. `false`: an earlier one has not left yet, so this one was not sent.
    pub fn send_ping(&mut self, n: u64) -> io::Result<bool> {
        let sent = self.outgoing.is_empty();
        if sent {
            self.queue(&ClientMessage::Ping { n })?;
        } else {
            self.flush()?;
        }
        Ok(sent)
    }

    /// Says that nothing of a device's memory is unused any more, without waiting.
    pub fn send_revoked(&mut self, device: u32) -> io::Result<()> {
        self.queue(&ClientMessage::Revoked { device })
    }

    /// Says that memory of a device is unused again, without waiting.
    pub fn send_unused(&mut self, device: u32) -> io::Result<()> {
        self.queue(&ClientMessage::Unused { device })
    }

    /// Whether some of what was said has not left yet: then poll for room too, and call [`Control::flush`].
    pub fn wants_to_send(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what goes without waiting.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.link.try_send(&self.outgoing)? {
                Some(n) => drop(self.outgoing.drain(..n)),
                None => break,
            }
        }
        Ok(())
    }

    fn queue(&mut self, message: &ClientMessage) -> io::Result<()> {
        if self.outgoing.len() > OUTGOING_MAX {
            return Err(io::Error::other("the server asks much and reads nothing"));
        }
        self.outgoing.extend(encode(message).map_err(io::Error::other)?);
        self.flush()
    }

    /// What has come, without waiting; `None`: nothing. The server's end of the connection is `UnexpectedEof`. Call it
    /// until `None` after each `poll` of this value's descriptor.
    pub fn receive(&mut self) -> io::Result<Option<Event>> {
        loop {
            let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
            match self.incoming.next_message::<ServerMessage>().map_err(invalid)? {
                Some(ServerMessage::Pong { n }) => return Ok(Some(Event::Pong { n })),
                Some(ServerMessage::Revoke { device }) => return Ok(Some(Event::Revoke { device })),
                Some(ServerMessage::Closed { reason }) => {
                    return Ok(Some(Event::Closed { reason: one_line(reason) }));
                }
                Some(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a message that no open session gets",
                    ));
                }
                None => {}
            }
            let mut chunk = [0; 4096];
            match self.link.try_receive(&mut chunk)? {
                None => return Ok(None),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(n) => self.incoming.extend(&chunk[..n]),
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl AsRawFd for Control {
    fn as_raw_fd(&self) -> RawFd {
        self.link.as_raw_fd()
    }
}

/// Loopback, also when it is written as an IPv4 address inside IPv6.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn connect_link(address: &ServerAddress, deadline: Instant) -> Result<Link, ConnectError> {
    let server = || address.to_string();
    let unreachable = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut => ConnectError::Silent { server: server(), step: "connection" },
        _ => ConnectError::Unreachable { server: server(), source },
    };
    if let ServerAddress::Unix(path) = address {
        return Link::connect_unix(path, deadline).map_err(unreachable);
    }
    let addresses = address.resolve().map_err(|source| ConnectError::Resolve { server: server(), source })?;
    let mut last = None;
    for (index, address) in addresses.iter().enumerate() {
        // Each address gets its part of what is left, so that a dead first one does not starve the others.
        let left = deadline.saturating_duration_since(Instant::now());
        let until = Instant::now() + left / u32::try_from(addresses.len() - index).unwrap_or(1);
        match Link::connect_tcp(*address, until) {
            Ok(link) => return Ok(link),
            Err(e) => last = Some(e),
        }
    }
    Err(unreachable(last.unwrap_or_else(|| io::Error::other("the name has no address"))))
}

/// Both preambles and the server's `Hello`.
fn greet(link: &Link, server: &str, deadline: Instant) -> Result<Hello, ConnectError> {
    const STEP: &str = "greeting";
    let failed = |e| transfer_failed(server, STEP, e);
    link.send_all(&preamble(), deadline).map_err(failed)?;
    let mut theirs = [0; PREAMBLE_LEN];
    link.receive_exact(&mut theirs, deadline).map_err(failed)?;
    match read_preamble(theirs) {
        Ok(()) => {}
        Err(PreambleError::NotOurs) => return Err(ConnectError::NotAPoolServer { server: server.into() }),
        Err(PreambleError::Version { theirs }) => {
            return Err(ConnectError::Version { server: server.into(), ours: crate::WIRE_VERSION, theirs });
        }
    }
    match receive(link, server, STEP, deadline)? {
        ServerMessage::Hello(hello) => Ok(hello),
        other => Err(unexpected(server, STEP, other)),
    }
}

fn send(
    link: &Link,
    server: &str,
    message: &ClientMessage,
    step: &'static str,
    deadline: Instant,
) -> Result<(), ConnectError> {
    let frame =
        encode(message).map_err(|source| ConnectError::Malformed { server: server.into(), step, source })?;
    match link.send_all(&frame, deadline) {
        // A server that refuses a connection says why and closes; the reason waits to be read.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| transfer_failed(server, step, e)),
    }
}

fn receive<M: Decode<()>>(
    link: &Link,
    server: &str,
    step: &'static str,
    deadline: Instant,
) -> Result<M, ConnectError> {
    let malformed = |source| ConnectError::Malformed { server: server.into(), step, source };
    let failed = |e| transfer_failed(server, step, e);
    let mut head = [0; 4];
    link.receive_exact(&mut head, deadline).map_err(failed)?;
    let mut body = vec![0; frame_length(head, MESSAGE_MAX).map_err(malformed)?];
    link.receive_exact(&mut body, deadline).map_err(failed)?;
    decode(&body).map_err(malformed)
}

fn transfer_failed(server: &str, step: &'static str, source: io::Error) -> ConnectError {
    match source.kind() {
        io::ErrorKind::TimedOut => ConnectError::Silent { server: server.into(), step },
        _ => ConnectError::Broken { server: server.into(), step, source },
    }
}

fn unexpected(server: &str, step: &'static str, message: ServerMessage) -> ConnectError {
    let server = server.into();
    match message {
        ServerMessage::Refused { reason, cuda_code } => {
            ConnectError::Refused { server, reason: one_line(reason), cuda_code }
        }
        ServerMessage::Closed { reason } => {
            ConnectError::Refused { server, reason: one_line(reason), cuda_code: 0 }
        }
        _ => ConnectError::Unexpected { server, step },
    }
}

/// A server's words as they may be shown on a terminal: one line, no control characters, not endless.
fn one_line(words: String) -> String {
    words.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
