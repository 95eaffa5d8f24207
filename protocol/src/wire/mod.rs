//! Records, the command ring, reply slots and the completion board.
//!
//! [`client::ClientLink`] and [`worker::WorkerLink`] are the two ends, over any [`crate::transport`]. Below them, each
//! with one subject: [`layout`] (all numbers), [`ring`] (arithmetic), [`producer`] and [`consumer`] (the two sides of
//! the ring), [`direct`] and [`landing`] (bytes that skip the region), [`sleep`] (the wake-up handshake), [`board`] (what the board's words say), [`memory`] (regions), [`state`] (errors, waits). Unsafe code is only in
//! [`memory`], [`direct`], [`landing`], [`codec`], [`pieces`] and [`threads`].

#![deny(unsafe_code)]

pub mod atomics;
pub mod board;
pub mod client;
pub mod client_callbacks;
pub mod client_calls;
pub mod client_chunks;
pub mod client_posts;
#[allow(unsafe_code)]
pub mod codec;
pub mod consumer;
pub mod direct;
mod flusher;
pub mod landing;
pub mod layout;
pub mod memory;
pub mod pieces;
pub mod pool;
pub mod producer;
pub mod ring;
pub mod sleep;
pub mod state;
pub mod threads;
pub mod worker;
mod worker_bulk;

pub use client::{CallHead, ClientLink};
pub use client_calls::{PendingCall, Reply};
pub use client_chunks::{DownChunk, UpChunk};
pub use client_posts::Post;
pub use layout::Head;
pub use state::{LinkError, LongWait, WaitKind};
pub use worker::{Receiver, Record, Replier, WorkerLink};

#[cfg(test)]
mod tests;
