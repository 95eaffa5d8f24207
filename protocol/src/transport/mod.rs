//! How ranges of memory get to the peer, and how a thread waits for the peer's.
//!
//! Each side owns one region that it writes (*outgoing*) and looks at a copy of the other's (*incoming*). A transport
//! puts pieces into the peer's copy in order, wakes the peer, and lets a thread wait until something incoming may have
//! changed. That is all: records, slots and chunks are known only to [`crate::wire`].

#![deny(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use crate::wire::direct::Places;
use crate::wire::landing::Landings;
use crate::wire::memory::Region;
use crate::wire::state::{LinkError, LinkState, WaitKind};

pub mod arena;
mod bulk;
mod frames;
pub mod shm;
mod spin;
pub mod tcp;

/// Something that the peer shall see. Pieces of one push, and pushes of one thread, become visible in order.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Bytes that already stand in the outgoing region.
    Range {
        /// Where.
        offset: u32,
        /// How many.
        len: u32,
    },
    /// Bytes from elsewhere, for this place of the peer's copy. They need not come to stand in our own.
    Bytes {
        /// Where.
        offset: u32,
        /// What.
        bytes: &'a [u8],
    },
    /// One 64-bit word, stored atomically (Release) after all that was pushed before it.
    Word {
        /// Where, a multiple of 8.
        offset: u32,
        /// What.
        value: u64,
    },
}

/// When pieces must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// With the next push that is `Now`.
    Later,
    /// At once.
    Now,
}

/// On what a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The side's bell, for everything but replies.
    Bell,
    /// A reply slot of the client, so that one answer does not wake every thread.
    Slot(u32),
}

/// One end of a link.
pub trait Transport: Send + Sync {
    /// Whether the peer maps the same pages: then what this side stores in its region is seen at once, and only
    /// [`Transport::ring`] remains to be done.
    fn mapped(&self) -> bool;

    /// Makes `pieces` visible to the peer.
    fn push(&self, pieces: &[Piece<'_>], when: When) -> Result<(), LinkError>;

    /// Wakes the peer's threads that sleep at `point`, if any. Between their news and this call the client has made a
    /// sequentially consistent fence.
    fn ring(&self, point: Point);

    /// Waits until `ready` holds, the link breaks (`Err`), or `until` has come (`Ok(false)`). `ready` looks only at
    /// the incoming region and does not call the transport.
    fn wait(&self, point: Point, ready: &dyn Fn() -> bool, until: Option<Instant>)
    -> Result<bool, LinkError>;

    /// Takes what has come in, without waiting, for those who poll words of the incoming region; notices a peer that
    /// has gone.
    fn look(&self) -> Result<(), LinkError>;

    /// Breaks the link for good and wakes everybody here and, as the connection ends, there.
    fn break_with(&self, reason: LinkError);

    /// Where bytes for down-chunks can go instead of into the region, if they are received and this is the client.
    fn places(&self) -> Option<&Places> {
        None
    }

    /// Where bytes that nobody waits for can land, if they are received and this is the client.
    fn landings(&self) -> Option<&Landings> {
        None
    }

    /// Takes what comes in for others while landings are open and no thread waits for something of its own. For a thread
    /// that does nothing else; returns when the link is broken. Where nothing is received there is nothing to do.
    fn attend(&self) {}

    /// Connections for long bytes, beside the one for everything else, so that nothing short stands behind them.
    fn bulk(&self) -> u32 {
        0
    }

    /// Sends `bytes` over one of them (below [`Transport::bulk`]) and then a word, stored as a [`Piece::Word`]. Nothing that goes
    /// another way is ordered by it. Returns when the system has taken them.
    fn push_bulk(
        &self,
        _connection: u32,
        bytes: Piece<'_>,
        (offset, value): (u32, u64),
    ) -> Result<(), LinkError> {
        self.push(&[bytes, Piece::Word { offset, value }], When::Now)
    }

    /// Takes what comes over one of them until `ready`, as in [`Transport::wait`], or the link breaks. `kind`: what for.
    fn pull_bulk(
        &self,
        _connection: u32,
        _kind: WaitKind,
        _ready: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        Err(LinkError::protocol("bytes that come over another connection, and there is none"))
    }

    /// The shared state of this end.
    fn state(&self) -> &Arc<LinkState>;
}

/// A transport with the two regions that it works on.
pub struct End {
    /// The transport.
    pub transport: Arc<dyn Transport>,
    /// What the peer writes.
    pub incoming: Arc<Region>,
    /// What this side writes.
    pub outgoing: Arc<Region>,
    /// Memory that both sides can map at the same address; only on one host.
    pub arena: Option<arena::ArenaFile>,
}

/// Which side of the link this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The interposer.
    Client,
    /// The worker.
    Worker,
}
