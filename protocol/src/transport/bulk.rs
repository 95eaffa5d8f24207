//! A connection that carries long bytes only. Its frames are those of the first connection, and each time a word follows
//! them by which the other side knows that they are complete.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Piece;
use super::frames::{FrameReader, Into, header};
use crate::wire::memory::{Part, Region, send_parts};
use crate::wire::state::{LONG_WAIT, LinkError, LinkState, LongWait, WaitKind};

/// One end of it.
pub struct Bulk {
    socket: TcpStream,
    /// Held by the thread that writes.
    writer: Mutex<()>,
    /// Held by the thread that reads, for all who wait for something.
    reader: Mutex<FrameReader>,
}

impl Bulk {
    /// Over a connected socket.
    pub fn new(socket: TcpStream, receive_timeout: Option<Duration>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(receive_timeout)?;
        Ok(Self { socket, writer: Mutex::default(), reader: Mutex::new(FrameReader::new()) })
    }

    /// Sends `bytes` and then a word of `outgoing`.
    pub fn send(
        &self,
        state: &LinkState,
        outgoing: &Region,
        bytes: Piece<'_>,
        (offset, value): (u32, u64),
    ) -> Result<(), LinkError> {
        let (head, body) = match bytes {
            Piece::Range { offset, len } => {
                (header(offset, len as usize), Part::Region(outgoing, offset, len as usize))
            }
            Piece::Bytes { offset, bytes } => (header(offset, bytes.len()), Part::Bytes(bytes)),
            Piece::Word { .. } => return Err(LinkError::protocol("a word where long bytes go")),
        };
        outgoing.word64(offset).store(value, Ordering::Relaxed);
        let mut word = [0; 16];
        word[..8].copy_from_slice(&header(offset, 8));
        word[8..].copy_from_slice(&value.to_le_bytes());
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.send_all(state, &[Part::Bytes(&head), body, Part::Bytes(&word)])
    }

    fn send_all(&self, state: &LinkState, parts: &[Part<'_>]) -> Result<(), LinkError> {
        let whole: usize = parts.iter().map(Part::len).sum();
        let (mut sent, start, mut listed) = (0, Instant::now(), false);
        let patience = Timespec::try_from(LONG_WAIT).ok();
        while sent < whole {
            state.check()?;
            match send_parts(self.socket.as_fd(), parts, sent) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
                    if poll(&mut fds, patience.as_ref()) == Ok(0) {
                        listed = true;
                        state.still_waiting(LongWait { kind: WaitKind::Send, since: start });
                    }
                }
                Err(e) => return Err(lost(e)),
            }
        }
        if listed {
            state.waited();
        }
        Ok(())
    }

    /// Reads until `ready`, for others as well. A thread that comes later waits for the one that reads, which takes as long as
    /// bytes that are on their way.
    pub fn pull(
        &self,
        state: &LinkState,
        into: Into<'_>,
        kind: WaitKind,
        ready: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        let (start, mut listed) = (Instant::now(), false);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready() {
            state.check()?;
            if !reader.pump(self.socket.as_fd(), into, true)? {
                listed = true;
                state.still_waiting(LongWait { kind, since: start });
            }
        }
        if listed {
            state.waited();
        }
        Ok(())
    }

    /// Ends it, here and at the peer.
    pub fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn lost(error: io::Error) -> LinkError {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            LinkError::Closed
        }
        _ => LinkError::system("writing to a data connection", error),
    }
}
