//! Why there is no session, in one line that says what to do.

use std::io;

use thiserror::Error;

use super::framing::FrameError;
use super::message::CuResult;

/// CUDA_ERROR_NO_DEVICE of cuda.h.
const NO_DEVICE: CuResult = 100;
/// CUDA_ERROR_SYSTEM_NOT_READY of cuda.h.
const SYSTEM_NOT_READY: CuResult = 802;

/// Why there is no session. Each text is one line: what failed, at which address, what to do.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Nothing says where the server is.
    #[error(
        "no pool server is configured: set GPUPOOL_SERVER=HOST:PORT (or unix:/path), or `server` in {file}",
        file = crate::config::DEFAULT_FILE
    )]
    NoServer,
    /// The name does not resolve.
    #[error("cannot find the host of pool server {server}: {source}; check GPUPOOL_SERVER")]
    Resolve {
        /// The server's address.
        server: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No connection.
    #[error(
        "cannot connect to pool server {server}: {source}; check that pool-server runs there and that GPUPOOL_SERVER is right"
    )]
    Unreachable {
        /// The server's address.
        server: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server took too long.
    #[error(
        "pool server {server} gave no {step} in time; check that it is the pool's port and that the server is not stopped, or raise GPUPOOL_CONNECT_TIMEOUT_MS"
    )]
    Silent {
        /// The server's address.
        server: String,
        /// What was waited for.
        step: &'static str,
    },
    /// The connection ended or failed in the middle.
    #[error("pool server {server} broke the connection before its {step}: {source}; its log says why")]
    Broken {
        /// The server's address.
        server: String,
        /// What was waited for.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Something else listens there.
    #[error(
        "what answers at {server} is not a pool server; check the port in GPUPOOL_SERVER (pool-server's default is 7070)"
    )]
    NotAPoolServer {
        /// The server's address.
        server: String,
    },
    /// Another release.
    #[error(
        "pool server {server} speaks wire version {theirs}, this client speaks {ours}; install the same gpupool release on both sides"
    )]
    Version {
        /// The server's address.
        server: String,
        /// This side's number.
        ours: u32,
        /// The server's number.
        theirs: u32,
    },
    /// Bytes that are no message.
    #[error(
        "pool server {server} sent a malformed {step}: {source}; check that client and server are of the same release"
    )]
    Malformed {
        /// The server's address.
        server: String,
        /// What was waited for.
        step: &'static str,
        /// What is wrong with it.
        source: FrameError,
    },
    /// A message that does not belong here.
    #[error(
        "pool server {server} answered with another message than {step}; check that client and server are of the same release"
    )]
    Unexpected {
        /// The server's address.
        server: String,
        /// What was waited for.
        step: &'static str,
    },
    /// The server said no.
    #[error("pool server {server} refused: {reason}")]
    Refused {
        /// The server's address.
        server: String,
        /// The server's words.
        reason: String,
        /// The server's choice for `cuInit`.
        cuda_code: CuResult,
    },
    /// The token stays here.
    #[error(
        "the token is not sent to pool server {server} over a plain network connection: {missing}; use a Unix socket or an encrypted tunnel to a loopback port, or set `insecure = true` on both sides"
    )]
    PlainToken {
        /// The server's address.
        server: String,
        /// Which side has not agreed.
        missing: &'static str,
    },
    /// The transport asked for cannot be had.
    #[error(
        "transport {transport} to pool server {server} is not possible: {reason}; set GPUPOOL_TRANSPORT=auto to take what works"
    )]
    Transport {
        /// The server's address.
        server: String,
        /// The transport asked for.
        transport: &'static str,
        /// Why not.
        reason: String,
    },
}

impl ConnectError {
    /// What `cuInit` should return: NO_DEVICE where there is no pool to speak to, SYSTEM_NOT_READY where there is one
    /// that cannot serve now, and the server's own code where it gave one.
    pub fn cuda_code(&self) -> CuResult {
        match self {
            Self::Refused { cuda_code: 0, .. } | Self::Silent { .. } | Self::Broken { .. } => {
                SYSTEM_NOT_READY
            }
            Self::Refused { cuda_code, .. } => *cuda_code,
            _ => NO_DEVICE,
        }
    }
}
