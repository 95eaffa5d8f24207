//! One type for the sockets of the daemon, with reads that can be given up at any moment and writes that never make
//! a session wait for its peer.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bincode::{Decode, Encode};
use gpupool_protocol::control::{FrameBuffer, MESSAGE_MAX, encode, let_tcp_peer_stall};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A connected stream socket.
#[derive(Debug)]
pub enum Stream {
    /// A client on this host, or a worker.
    Unix(UnixStream),
    /// A client anywhere.
    Tcp(TcpStream),
}

impl Stream {
    async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.ready(interest).await.map(drop),
            Self::Tcp(s) => s.ready(interest).await.map(drop),
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.try_read(buffer),
            Self::Tcp(s) => s.try_read(buffer),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.try_write(bytes),
            Self::Tcp(s) => s.try_write(bytes),
        }
    }

    /// Waits for bytes and reads some. Giving it up loses none. 0: the stream has ended.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.ready(Interest::READABLE).await?;
            match self.try_read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Fills the buffer and reads nothing beyond it.
    pub async fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
        Ok(())
    }

    /// Writes everything.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.ready(Interest::WRITABLE).await?;
            match self.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes a frame whose first byte carries a descriptor.
    async fn write_with_fd(&self, bytes: &[u8], fd: &OwnedFd) -> io::Result<()> {
        let Self::Unix(stream) = self else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "descriptors pass over Unix sockets only",
            ));
        };
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                let fds = [fd.as_fd()];
                ancillary.push(SendAncillaryMessage::ScmRights(&fds));
                Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
            })
            .await?;
        self.write_all(&bytes[sent..]).await
    }

    /// The blocking socket, as a worker's data connection.
    pub fn into_data_fd(self) -> io::Result<OwnedFd> {
        let fd: OwnedFd = match self {
            Self::Unix(s) => s.into_std()?.into(),
            Self::Tcp(s) => {
                let_tcp_peer_stall(&s)?;
                s.into_std()?.into()
            }
        };
        rustix::io::ioctl_fionbio(&fd, false)?;
        Ok(fd)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        }
    }
}

/// The messages that come over a stream.
#[derive(Debug)]
pub struct Incoming {
    stream: Arc<Stream>,
    frames: FrameBuffer,
}

impl Incoming {
    /// Reads from here on.
    pub fn new(stream: Arc<Stream>) -> Self {
        Self { stream, frames: FrameBuffer::new(MESSAGE_MAX) }
    }

    /// The next message; `None`: the stream has ended. Giving it up loses nothing.
    pub async fn next<M: Decode<()>>(&mut self) -> io::Result<Option<M>> {
        loop {
            let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
            if let Some(message) = self.frames.next_message().map_err(invalid)? {
                return Ok(Some(message));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).await? {
                0 => return Ok(None),
                n => self.frames.extend(&chunk[..n]),
            }
        }
    }
}

struct Frame {
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// A bounded queue of messages that a task writes out, so that a peer which does not read delays nobody.
#[derive(Debug)]
pub struct Outgoing {
    queue: mpsc::Sender<Frame>,
    writer: JoinHandle<()>,
}

/// Messages that may wait to be written. Pings are the only frequent ones, and a peer that reads takes them at once.
const QUEUE: usize = 16;

impl Outgoing {
    /// Starts the task that writes.
    pub fn new(stream: Arc<Stream>) -> Self {
        let (queue, mut frames) = mpsc::channel::<Frame>(QUEUE);
        let writer = tokio::spawn(async move {
            while let Some(Frame { bytes, fd }) = frames.recv().await {
                let written = match fd {
                    Some(fd) => stream.write_with_fd(&bytes, &fd).await,
                    None => stream.write_all(&bytes).await,
                };
                // The reading side sees the broken stream as well and ends the session.
                if written.is_err() {
                    return;
                }
            }
        });
        Self { queue, writer }
    }

    /// Queues a message. `false`: the queue is full or the stream broken, and the message is dropped.
    pub fn send<M: Encode>(&self, message: &M) -> bool {
        self.queue_frame(message, None)
    }

    /// Queues a message with a descriptor.
    pub fn send_with_fd<M: Encode>(&self, message: &M, fd: OwnedFd) -> bool {
        self.queue_frame(message, Some(fd))
    }

    fn queue_frame<M: Encode>(&self, message: &M, fd: Option<OwnedFd>) -> bool {
        match encode(message) {
            Ok(bytes) => self.queue.try_send(Frame { bytes, fd }).is_ok(),
            Err(error) => {
                tracing::error!("a message was dropped: {error}");
                false
            }
        }
    }

    /// Writes what is queued, but does not wait longer than this.
    pub async fn finish(self, limit: Duration) {
        let Self { queue, mut writer } = self;
        drop(queue);
        if tokio::time::timeout(limit, &mut writer).await.is_err() {
            writer.abort();
        }
    }
}
