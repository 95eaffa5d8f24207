//! The worker's threads for connections that carry long bytes, two for each: one says what has come, one sends answers' bytes,
//! so that neither the ring's thread nor an answer that is short stands behind them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::layout::{CHUNKS, down, up};
use super::memory::Region;
use super::state::{LinkError, WaitKind};
use crate::transport::{Piece, Transport, When};

/// The bytes of an answer, which stand in its chunk.
pub struct Answer {
    /// The chunk.
    pub chunk: u32,
    /// How many bytes.
    pub len: u32,
    /// What the answer's `done` word is.
    pub done: u64,
}

/// The way to a connection's sending thread.
pub struct Sender(SyncSender<Answer>);

impl Sender {
    /// Has the bytes sent. Waits only where the client names chunks that are still on their way, which none of ours does.
    pub fn send(&self, answer: Answer) -> Result<(), LinkError> {
        self.0.send(answer).map_err(|_| LinkError::Closed)
    }
}

/// Starts the threads of all such connections. They end with the link.
pub fn start(transport: &Arc<dyn Transport>, up: &Arc<Region>) -> Result<Vec<Sender>, LinkError> {
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let failed = |e| LinkError::system("starting the threads of a data connection", e);
    let mut senders = Vec::new();
    for connection in 0..transport.bulk() {
        let (sender, answers) = sync_channel(CHUNKS as usize);
        let theirs = transport.clone();
        named("bulk-out").spawn(move || send(&*theirs, connection, &answers)).map_err(failed)?;
        let (theirs, up) = (transport.clone(), up.clone());
        // An error breaks the link, which the ring's thread notices.
        named("bulk-in").spawn(move || drop(receive(&*theirs, connection, &up))).map_err(failed)?;
        senders.push(Sender(sender));
    }
    Ok(senders)
}

fn send(transport: &dyn Transport, connection: u32, answers: &Receiver<Answer>) {
    for Answer { chunk, len, done } in answers {
        let bytes = Piece::Range { offset: down::chunk(chunk), len };
        if transport.push_bulk(connection, bytes, (down::delivered(chunk), done)).is_err() {
            return;
        }
    }
}

/// Takes what comes, and tells the client of each chunk that is complete.
fn receive(transport: &dyn Transport, connection: u32, up: &Region) -> Result<(), LinkError> {
    let mut told = [0; CHUNKS as usize];
    let sent = |chunk: usize| up.word64(up::sent(chunk as u32)).load(Acquire);
    loop {
        let own = (0..told.len()).filter(|chunk| *chunk as u32 % transport.bulk() == connection);
        let news = || own.clone().any(|chunk| sent(chunk) != told[chunk]);
        transport.pull_bulk(connection, WaitKind::ChunkUp, &news)?;
        for chunk in own.clone() {
            let value = sent(chunk);
            if value != told[chunk] {
                told[chunk] = value;
                let offset = down::arrived(chunk as u32);
                transport.push(&[Piece::Word { offset, value }], When::Now)?;
            }
        }
    }
}
