//! The worker's end of the tie, and the thread that listens to it.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use gpupool_protocol::control::{CONNECTIONS_MAX, FrameBuffer, MESSAGE_MAX, encode};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

use super::others::Answers;
use crate::tie::{FromWorker, ToWorker};

/// The driver, the session, and its data connections.
const ORDERS: usize = 2 + CONNECTIONS_MAX as usize;

/// The sending half, for any thread.
pub(super) struct Tie {
    stream: Mutex<UnixStream>,
    /// Answers to what is asked of other sessions.
    pub others: Answers,
}

/// A message for the main thread, with the descriptor that came along.
pub(super) struct Order {
    pub message: ToWorker,
    pub fd: Option<OwnedFd>,
}

/// The main thread's end of the listening thread.
pub(super) struct Orders {
    queue: Receiver<Order>,
}

impl Tie {
    pub(super) fn send(&self, message: &FromWorker) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame)
    }
}

impl Orders {
    /// Waits for the next order. There is always a next one: at the tie's end the process ends.
    pub(super) fn next(&self) -> anyhow::Result<Order> {
        self.queue.recv().context("the thread that listens to the daemon has ended")
    }
}

/// Takes the tie from standard input, puts `/dev/null` in its place, and starts the listening thread.
pub(super) fn start() -> anyhow::Result<(Arc<Tie>, Orders)> {
    let stdin = io::stdin();
    if sockopt::socket_domain(&stdin) != Ok(rustix::net::AddressFamily::UNIX) {
        bail!("standard input is not a socket: workers are started by `pool-server serve`, not by hand");
    }
    let stream = UnixStream::from(stdin.as_fd().try_clone_to_owned().context("cannot take the tie")?);
    let null = std::fs::File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("cannot replace standard input")?;

    let listener = stream.try_clone().context("cannot share the tie")?;
    let tie = Arc::new(Tie { stream: Mutex::new(stream), others: Answers::default() });
    let (sender, queue) = sync_channel(ORDERS);
    let answer = Arc::clone(&tie);
    std::thread::Builder::new()
        .name("tie".into())
        .spawn(move || {
            let code = match listen(&listener, &answer, &sender) {
                Ok(()) => 0,
                Err(error) => {
                    tracing::error!("the tie to the daemon is broken: {error:#}");
                    1
                }
            };
            end_process(code)
        })
        .context("cannot start the thread that listens to the daemon")?;
    Ok((tie, Orders { queue }))
}

/// Answers pings and passes on what is for the main thread, until the daemon is gone or says `Shutdown`.
fn listen(stream: &UnixStream, answer: &Tie, orders: &SyncSender<Order>) -> anyhow::Result<()> {
    let mut frames = FrameBuffer::new(MESSAGE_MAX);
    let mut descriptors = VecDeque::new();
    loop {
        while let Some(message) = frames.next_message::<ToWorker>()? {
            match message {
                ToWorker::Ping { n } => answer.send(&FromWorker::Pong { n })?,
                ToWorker::Reclaimed { n } => answer.others.answered(n),
                ToWorker::Shutdown => return Ok(()),
                message => {
                    let fd = match message {
                        ToWorker::Data { .. } => descriptors.pop_front(),
                        _ => None,
                    };
                    // Never waits: the queue holds all that the daemon sends in a worker's life.
                    if orders.try_send(Order { message, fd }).is_err() {
                        bail!("more orders than a session has");
                    }
                }
            }
        }
        if !receive(stream, &mut frames, &mut descriptors)? {
            return Ok(());
        }
    }
}

/// One `recvmsg`: bytes and any descriptors with them. `false`: the daemon has closed the tie.
fn receive(
    stream: &UnixStream,
    frames: &mut FrameBuffer,
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let iov = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(stream, iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    frames.extend(&bytes[..received.bytes]);
    Ok(received.bytes > 0)
}

/// Ends the process at once, from any thread. Destructors and `atexit` handlers do not run: they could wait for a
/// thread that is inside the driver.
pub(super) fn end_process(code: i32) -> ! {
    #[allow(unsafe_code)]
    // SAFETY: _exit(2) may be called from any thread at any time and touches no memory of this process.
    unsafe {
        libc::_exit(code)
    }
}
