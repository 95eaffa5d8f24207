//! The tie: the socketpair between the daemon and one worker. Its messages are framed like those of the control
//! connection, but never leave the host, and both ends are of one release.

use std::path::PathBuf;

use bincode::{Decode, Encode};
use gpupool_protocol::control::{ClientInfo, Needs, Snapshot, Transport};

/// What the daemon tells a worker.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum ToWorker {
    /// Always first: load this driver and say what it shows.
    Setup {
        /// Absolute path of the driver's library.
        driver: PathBuf,
    },
    /// The worker now belongs to this session.
    Begin(Box<SessionSpec>),
    /// One of the session's data connections. The socket's descriptor comes with this message.
    Data {
        /// What runs over it.
        transport: Transport,
        /// Which of them it is: 0 is the first one, the others carry long bytes.
        connection: u8,
        /// How many there will be.
        connections: u8,
    },
    /// Is the process alive? Answered by a thread of its own, whatever the driver is doing.
    Ping {
        /// Comes back in the answer.
        n: u64,
    },
    /// Other sessions have given back what they held unused: the answer to the `n`th [`FromWorker::Short`] and those before.
    Reclaimed {
        /// The question's number.
        n: u64,
    },
    /// End now.
    Shutdown,
}

/// What a worker tells the daemon.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum FromWorker {
    /// The driver is loaded; nothing is created yet.
    Ready {
        /// What it shows.
        snapshot: Snapshot,
    },
    /// The driver or the session failed; the worker ends after this.
    Failed {
        /// One line.
        reason: String,
    },
    /// Answer to a ping.
    Pong {
        /// The ping's number.
        n: u64,
    },
    /// There is no memory left on a device: have the other sessions give back what they hold unused.
    Short {
        /// Chosen by the worker, and growing.
        n: u64,
        /// The device's place in [`SessionSpec::devices`].
        device: u32,
    },
}

/// What a worker must know of its session.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct SessionSpec {
    /// Names the session in logs.
    pub session: u64,
    /// Whose it is, by the daemon's authentication.
    pub tenant: String,
    /// What the client says of itself.
    pub client: ClientInfo,
    /// What was asked for and granted.
    pub needs: Needs,
    /// Ordinals of the driver's devices that the session may use; the client's ordinal is the index here.
    pub devices: Vec<u32>,
    /// Architectures found in the program.
    pub architectures: Vec<String>,
}
