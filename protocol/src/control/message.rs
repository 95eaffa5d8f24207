//! The messages. Fields are only ever added together with a new [`crate::WIRE_VERSION`], since bincode has no tags.

use std::collections::BTreeMap;
use std::fmt;

use bincode::{Decode, Encode};

use super::secret::{Secret, Token};

/// A CUDA driver result code (`CUresult` of cuda.h) as it crosses the wire.
pub type CuResult = u32;

/// What a client says on a connection.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum ClientMessage {
    /// Which driver version does the server stand for? Answered and closed; needs no credentials.
    Probe,
    /// Asks for a session.
    Open(Box<Open>),
    /// Turns this connection into the data connection of a session.
    Attach(Attach),
    /// Is the worker alive? Answered by the worker's control thread with the same number.
    Ping {
        /// Chosen by the client.
        n: u64,
    },
    /// Answer to [`ServerMessage::Revoke`]: what was unused of this device's memory has gone back, and nothing is unused
    /// until this client says [`ClientMessage::Unused`].
    Revoked {
        /// The device, as the server named it.
        device: u32,
    },
    /// There is unused memory of this device again, which was last said to be none.
    Unused {
        /// The device's place in [`Snapshot::devices`].
        device: u32,
    },
}

/// What a server says on a connection.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum ServerMessage {
    /// Always the first message.
    Hello(Hello),
    /// Answer to [`ClientMessage::Probe`].
    ProbeReply(ProbeReply),
    /// The session exists.
    Opened(Box<Opened>),
    /// The request was understood and not granted.
    Refused {
        /// One line for the user: what was refused and what to do.
        reason: String,
        /// The code that `cuInit` should return.
        cuda_code: CuResult,
    },
    /// Answer to [`ClientMessage::Attach`]: from here on the worker owns the connection.
    Attached,
    /// Answer to [`ClientMessage::Ping`].
    Pong {
        /// The number of the ping.
        n: u64,
    },
    /// Other sessions need memory of this device: give back what is unused, and say so ([`ClientMessage::Revoked`]).
    Revoke {
        /// The device's place in [`Snapshot::devices`].
        device: u32,
    },
    /// The session ended; the connection closes after it.
    Closed {
        /// One line for the user.
        reason: String,
    },
}

/// Who the server is. Sent before the client says anything but its preamble, so it holds nothing that needs trust.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// Version of the server's package, for messages only.
    pub server_version: String,
    /// Random, made at each start of the daemon: two connections reach the same daemon if and only if this agrees.
    pub server_id: [u8; 16],
    /// The operator said `insecure = true`: tokens may cross a plain network connection, if the client says so too.
    pub insecure: bool,
    /// [`super::host_key`] of the server's host.
    pub host_key: Option<[u8; 16]>,
    /// The Unix socket on which the same daemon listens.
    pub unix_socket: Option<String>,
}

/// Answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ProbeReply {
    /// What `cuDriverGetVersion` gives on the server, for example 13000.
    pub driver_version: u32,
    /// Version of the server's package.
    pub server_version: String,
}

/// Everything that a session may ask for. The wire version stands in the preamble before it.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
pub struct Open {
    /// Who asks; for the logs and the accounts, not for trust.
    pub client: ClientInfo,
    /// The credential, where the server wants one.
    pub token: Option<Token>,
    /// What is asked for.
    pub needs: Needs,
    /// Code that the program carries, in CUDA's spelling (`sm_90a`, `compute_80`); empty: not known yet.
    pub architectures: Vec<String>,
    /// Transports that the client can use.
    pub transports: Vec<Transport>,
}

/// Asks that this connection become a session's data connection.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Attach {
    /// From [`Opened`].
    pub secret: Secret,
    /// What the connection will carry.
    pub transport: Transport,
    /// Which of the session's data connections it is: 0 is the first one, the others carry long bytes only.
    pub connection: u8,
    /// How many data connections the session will have, all with the same secret: at most [`CONNECTIONS_MAX`], and one where
    /// memory is shared.
    pub connections: u8,
}

/// Data connections that a session has at most.
pub const CONNECTIONS_MAX: u8 = 8;

/// Who a client is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientInfo {
    /// Name of the program.
    pub program: String,
    /// Process id, as the client sees itself.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// [`super::host_key`] of the client's host.
    pub host_key: Option<[u8; 16]>,
    /// Version of the client's package.
    pub version: String,
}

/// What a session asks for. Zero or empty means that nothing is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Needs {
    /// Number of GPUs; 0: all that the server shows.
    pub gpus: u32,
    /// Device memory in bytes on each GPU.
    pub memory_bytes: u64,
    /// Share of each GPU's time in thousandths.
    pub share_permille: u32,
    /// How urgent its work is.
    pub class: Class,
    /// Where it should run.
    pub site: String,
    /// Free labels, such as model name and version.
    pub labels: BTreeMap<String, String>,
}

/// How urgent a session's work is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub enum Class {
    /// Takes what is free, gives way to others.
    #[default]
    Elastic,
    /// Small and urgent: inference.
    Latency,
}

/// How data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Transport {
    /// Shared memory, on one host.
    Shm,
    /// TCP.
    Tcp,
    /// InfiniBand or RoCE verbs.
    Verbs,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        })
    }
}

/// A granted session.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Opened {
    /// Names the session in logs on both sides.
    pub session: u64,
    /// For the data connections; good once for each of them, and for ten seconds.
    pub secret: Secret,
    /// Transports that this session may use, best first.
    pub transports: Vec<Transport>,
    /// How liveness is watched.
    pub heartbeat: Heartbeat,
    /// All about the devices that never changes.
    pub snapshot: Snapshot,
}

/// How liveness is watched. Nothing is sent while nobody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Heartbeat {
    /// A thread has waited this long: send a ping. Clients of this version ask after [`crate::wire::state::LONG_WAIT`].
    pub ping_after_ms: u32,
    /// No pong for this long after a ping: the session is broken.
    pub pong_within_ms: u32,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { ping_after_ms: 300, pong_within_ms: 1500 }
    }
}

/// What never changes in a session, so that asking for it never crosses the wire again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Snapshot {
    /// What `cuDriverGetVersion` gives in the worker.
    pub driver_version: u32,
    /// The devices of this session, in the order of their ordinals.
    pub devices: Vec<DeviceInfo>,
    /// Bit `n % 64` of word `n / 64`: the worker answers call number `n`.
    pub calls: Vec<u64>,
}

impl Snapshot {
    /// Does the worker answer this call number?
    pub fn answers(&self, call: u16) -> bool {
        crate::api::answered(&self.calls, call)
    }
}

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct DeviceInfo {
    /// `cuDeviceGetName`.
    pub name: String,
    /// `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// `cuDeviceTotalMem`, bytes.
    pub total_memory: u64,
    /// Pairs of `CUdevice_attribute` and value, for every attribute that the driver answered.
    pub attributes: Vec<(i32, i32)>,
    /// PCI domain, bus and device.
    pub pci: (i32, i32, i32),
}
