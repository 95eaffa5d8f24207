//! Session set-up: the messages of the control connection, their framing, and the client's half of the conversation.
//!
//! A connection, control or data, begins the same way on both sides: 8 bytes (`GPUP`, then [`crate::WIRE_VERSION`] as
//! a little-endian `u32`). A server whose number differs sends its own and closes, so that the client can name both.
//! Then come messages, each a little-endian `u32` length and a bincode 2 body. The server speaks first: its
//! [`Hello`] says who it is and whether it takes tokens over a plain network, before any credential is sent.
//!
//! | the client sends | the server answers | then |
//! |---|---|---|
//! | [`ClientMessage::Probe`] | [`ServerMessage::ProbeReply`] | closed |
//! | [`ClientMessage::Open`] | [`ServerMessage::Opened`] or [`ServerMessage::Refused`] | lives as long as the session; `Ping`, `Pong`, `Revoke`, `Revoked`, `Unused`, `Closed` |
//! | [`ClientMessage::Attach`] (further connections) | [`ServerMessage::Attached`] or `Refused` | the socket belongs to the worker |
//!
//! This code runs inside other people's programs: it starts no thread, writes nothing to standard streams, raises no
//! `SIGPIPE` and never panics on what a peer sends. Everything that waits takes one deadline for the whole step.
#![deny(unsafe_code)]

mod address;
mod again;
mod client;
mod error;
mod framing;
mod link;
mod message;
mod probe;
mod secret;

pub use address::{AddressError, ServerAddress};
pub use again::open_session;
pub use client::{Control, DataPath, Event, connect};
pub use error::ConnectError;
pub use framing::{
    FIRST_MESSAGE_MAX, FrameBuffer, FrameError, MESSAGE_MAX, PREAMBLE_LEN, PreambleError, decode, encode,
    frame_length, preamble, read_preamble,
};
pub use link::{DataSocket, let_tcp_peer_stall, watch_tcp_peer};
pub use message::{
    Attach, CONNECTIONS_MAX, Class, ClientInfo, ClientMessage, CuResult, DeviceInfo, Heartbeat, Hello, Needs,
    Open, Opened, ProbeReply, ServerMessage, Snapshot, Transport,
};
pub use probe::{ProbeCache, driver_version, driver_version_via, probed_in_vain};
pub use secret::{Secret, Token, host_key};
