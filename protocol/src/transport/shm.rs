//! The transport for one host: both sides map the same two memfds.
//!
//! The worker makes them, seals them against any change of size, maps what it needs, seals `down` against new writable
//! mappings, and passes both over the Unix socket, together with the [host arena](super::arena). From then on the socket only tells each side that the other is gone.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::thread::futex;

use super::arena::ArenaFile;
use super::spin::Spin;
use super::{End, Piece, Point, Side, Transport, When};
use crate::wire::atomics::{Atomics, Real};
use crate::wire::layout::{SLOTS, down, up};
use crate::wire::memory::{Access, Region};
use crate::wire::sleep::{change_bell, nap_unless, naps, sleep_unless, someone_sleeps};
use crate::wire::state::{LinkError, LinkState};
use crate::wire::threads::spawn_quiet;

/// How long set-up waits for the peer.
const SETUP_TIMEOUT: Duration = Duration::from_secs(3);
/// A waiting client looks this often whether the worker is gone. (The worker has a thread that is told.)
const LIVENESS_SLICE: Duration = Duration::from_millis(100);
/// The same for a client thread that waits without limit (for host callbacks), if the thread that is told of the worker's
/// end could not be started.
const IDLE_SLICE: Duration = Duration::from_secs(1);
/// How often a broken link's sleepers are woken, 1 ms apart, until all have noticed.
const WAKES_MAX: u32 = 1000;
/// An answer from a worker that is awake takes less.
const SPIN_MIN: Duration = Duration::from_micros(2);
/// What goes with the file descriptors: a mark, the lengths of `up` and `down`, and (64 bits) that of the host arena.
const GREETING: [u32; 4] = [u32::from_le_bytes(*b"GPUM"), crate::WIRE_VERSION, up::BYTES, down::BYTES];
const GREETING_BYTES: usize = 24;
/// `up`, `down` and the host arena.
const FILES: usize = 3;

pub(crate) fn greeting(arena_len: u64) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    let (words, arena) = bytes.split_at_mut(16);
    for (to, word) in words.chunks_exact_mut(4).zip(GREETING) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    arena.copy_from_slice(&arena_len.to_le_bytes());
    bytes
}

/// One end of the shared memory.
pub struct Shm {
    side: Side,
    socket: UnixStream,
    incoming: Arc<Region>,
    outgoing: Arc<Region>,
    state: Arc<LinkState>,
    spin: Spin,
    started: Instant,
    /// When [`Transport::look`] last asked the socket, in ms since `started`.
    looked_ms: AtomicU64,
    /// On the client: whether a thread watches the socket. It is started by the first wait without limit.
    watched: OnceLock<bool>,
    this: Weak<Shm>,
}

/// Where the words of a sleeping point are, as seen by the side that sleeps: its count of sleepers in its outgoing
/// region and the word that the futex watches in its incoming region.
struct Words {
    sleepers: u32,
    bell: u32,
}

impl Words {
    fn of(sleeping: Side, point: Point) -> Self {
        match (sleeping, point) {
            // The low half of `done` changes with each answer, so it is its own bell.
            (Side::Client, Point::Slot(slot)) => {
                Words { sleepers: up::slot_sleep(slot), bell: down::slot(slot) }
            }
            (Side::Client, Point::Bell) => Words { sleepers: up::CLIENT_SLEEP, bell: down::CLIENT_BELL },
            (Side::Worker, _) => Words { sleepers: down::WORKER_SLEEP, bell: up::WORKER_BELL },
        }
    }
}

/// The worker's end: makes the memory and hands it over `socket`.
pub fn worker(socket: UnixStream) -> Result<End, LinkError> {
    let setup = |what: &'static str| move |error: io::Error| LinkError::system(what, error);
    prepare(&socket).map_err(setup("preparing the data socket"))?;
    let make = |name, len| make_memfd(name, len).map_err(setup("making shared memory"));
    let up_fd = make("gpupool-up", up::BYTES)?;
    let down_fd = make("gpupool-down", down::BYTES)?;
    let map = |fd: &OwnedFd, len, access| {
        Region::from_memfd(fd, len, access).map_err(setup("mapping shared memory"))
    };
    let incoming = map(&up_fd, up::BYTES, Access::ReadOnly)?;
    let outgoing = map(&down_fd, down::BYTES, Access::ReadWrite)?;
    // From here on nobody else can map `down` for writing.
    let _ = rustix::fs::fcntl_add_seals(&down_fd, SealFlags::FUTURE_WRITE);
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for fd in [&up_fd, &down_fd] {
        rustix::fs::fcntl_add_seals(fd, size).map_err(|e| LinkError::system("sealing shared memory", e))?;
    }
    let arena = ArenaFile::create().map_err(setup("making the host arena"))?;
    let files = [up_fd.as_fd(), down_fd.as_fd(), arena.descriptor()];
    send_fds(&socket, &files, arena.len()).map_err(setup("passing shared memory to the client"))?;
    // While the client does the same. Else the ring's first lap stops at each page, on both sides.
    incoming.populate(up::CHUNK_AREA);
    outgoing.populate(down::BOARD);
    Shm::end(Side::Worker, socket, incoming, outgoing, arena)
}

/// The client's end: receives the memory over `socket`.
pub fn client(socket: UnixStream) -> Result<End, LinkError> {
    let setup = |what: &'static str| move |error: io::Error| LinkError::system(what, error);
    prepare(&socket).map_err(setup("preparing the data socket"))?;
    let ([up_fd, down_fd, arena_fd], arena_len) = receive_fds(&socket)?;
    check_memfd(&up_fd, up::BYTES.into())?;
    check_memfd(&down_fd, down::BYTES.into())?;
    let arena = ArenaFile::received(arena_fd, arena_len)?;
    let map = |fd: &OwnedFd, len, access| {
        Region::from_memfd(fd, len, access).map_err(setup("mapping shared memory"))
    };
    let outgoing = map(&up_fd, up::BYTES, Access::ReadWrite)?;
    let incoming = map(&down_fd, down::BYTES, Access::ReadOnly)?;
    outgoing.populate(up::CHUNK_AREA);
    incoming.populate(down::BOARD);
    Shm::end(Side::Client, socket, incoming, outgoing, arena)
}

fn prepare(socket: &UnixStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SETUP_TIMEOUT))?;
    socket.set_write_timeout(Some(SETUP_TIMEOUT))
}

fn make_memfd(name: &str, len: u32) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, u64::from(len))?;
    Ok(fd)
}

/// A file that could shrink would let the peer end this process with SIGBUS.
pub(super) fn check_memfd(fd: &OwnedFd, len: u64) -> Result<(), LinkError> {
    let stat = rustix::fs::fstat(fd).map_err(|e| LinkError::system("looking at shared memory", e))?;
    if u64::try_from(stat.st_size) != Ok(len) {
        return Err(LinkError::protocol(format!("shared memory of {} bytes instead of {len}", stat.st_size)));
    }
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) if seals.contains(SealFlags::SHRINK) => Ok(()),
        _ => Err(LinkError::protocol("shared memory that is not sealed")),
    }
}

fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>; FILES], arena_len: u64) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the space is for as many descriptors");
    let bytes = greeting(arena_len);
    let sent = loop {
        let data = [io::IoSlice::new(&bytes)];
        match rustix::net::sendmsg(socket, &data, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    // The descriptors went with the first byte; the rest follows without them.
    io::Write::write_all(&mut &*socket, &bytes[sent..])
}

/// The files, and what the peer says of the arena's length.
fn receive_fds(socket: &UnixStream) -> Result<([OwnedFd; FILES], u64), LinkError> {
    let mut bytes = [0; GREETING_BYTES];
    let mut fds = Vec::new();
    let mut have = 0;
    while have < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [io::IoSliceMut::new(&mut bytes[have..])];
        let got = match rustix::net::recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => {
                let silent = "the worker gave none within 3 s";
                return Err(LinkError::system("waiting for shared memory", silent));
            }
            other => other.map_err(|e| LinkError::system("receiving shared memory", e))?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        if got.bytes == 0 {
            return Err(LinkError::Closed);
        }
        have += got.bytes;
    }
    let arena_len = bytes.last_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    if bytes != greeting(arena_len) {
        return Err(LinkError::protocol("shared memory of another version or size"));
    }
    let count = fds.len();
    let files = fds.try_into();
    let files =
        files.map_err(|_| LinkError::protocol(format!("{count} file descriptors instead of {FILES}")));
    Ok((files?, arena_len))
}

impl Shm {
    fn end(
        side: Side,
        socket: UnixStream,
        incoming: Region,
        outgoing: Region,
        arena: ArenaFile,
    ) -> Result<End, LinkError> {
        let (incoming, outgoing) = (Arc::new(incoming), Arc::new(outgoing));
        let shm = Arc::new_cyclic(|this| Self {
            side,
            socket,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            state: Arc::default(),
            spin: Spin::new(SPIN_MIN),
            started: Instant::now(),
            looked_ms: AtomicU64::new(0),
            watched: OnceLock::new(),
            this: this.clone(),
        });
        if side == Side::Worker {
            shm.watch_peer()?;
        }
        Ok(End { transport: shm, incoming, outgoing, arena: Some(arena) })
    }

    /// A thread that sleeps until the peer's end of the socket closes, or ours is shut down. The worker's ring thread, and
    /// the client's thread for host callbacks, can then sleep without ever looking.
    fn watch_peer(&self) -> Result<(), LinkError> {
        let socket =
            self.socket.try_clone().map_err(|e| LinkError::system("duplicating the data socket", e))?;
        let shm = self.this.clone();
        let watch = move || {
            while !peer_gone(&socket, None) {}
            if let Some(shm) = shm.upgrade() {
                shm.break_with(LinkError::Closed);
            }
        };
        let thread = spawn_quiet("gpupool-peer", watch);
        thread.map(drop).map_err(|e| LinkError::system("starting the thread that watches the client", e))
    }

    fn words_out(&self, point: Point) -> Words {
        Words::of(self.side, point)
    }

    /// Sleeps once on the point's bell while it reads `seen`, for at most `timeout`.
    fn sleep(&self, bell: u32, seen: u32, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        // No flags: the futex is shared with the other process. Whatever ends the sleep, the caller looks again.
        let _ = futex::wait(self.incoming.word32(bell), futex::Flags::empty(), seen, timeout.as_ref());
    }

    fn wake(&self, region: &Region, bell: u32) {
        let _ = futex::wake(region.word32(bell), futex::Flags::empty(), i32::MAX as u32);
    }
}

/// Whether the peer has closed, or sent what it never should. Waits at most `timeout`, without one until it has.
fn peer_gone(socket: &UnixStream, timeout: Option<Duration>) -> bool {
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    let mut fds = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    matches!(poll(&mut fds, timeout.as_ref()), Ok(n) if n > 0)
}

impl Transport for Shm {
    fn mapped(&self) -> bool {
        true
    }

    fn push(&self, pieces: &[Piece<'_>], _when: When) -> Result<(), LinkError> {
        for piece in pieces {
            match *piece {
                Piece::Range { .. } => {}
                Piece::Bytes { offset, bytes } => self.outgoing.copy_in(offset, bytes),
                Piece::Word { offset, value } => {
                    self.outgoing.word64(offset).store(value, std::sync::atomic::Ordering::Release)
                }
            }
        }
        self.state.check()
    }

    fn ring(&self, point: Point) {
        let peer = if self.side == Side::Client { Side::Worker } else { Side::Client };
        let words = Words::of(peer, point);
        let sleepers = self.incoming.word32(words.sleepers);
        let asleep = match peer {
            Side::Client => someone_sleeps::<Real>(sleepers),
            Side::Worker => naps(sleepers.load(Relaxed)),
        };
        if asleep {
            if matches!(point, Point::Bell) {
                change_bell::<Real>(self.outgoing.word32(words.bell));
            }
            self.wake(&self.outgoing, words.bell);
        }
    }

    fn wait(
        &self,
        point: Point,
        ready: &dyn Fn() -> bool,
        until: Option<Instant>,
    ) -> Result<bool, LinkError> {
        self.state.check()?;
        if self.spin.spin(&mut || ready()) {
            return Ok(true);
        }
        let words = self.words_out(point);
        let bell = || match point {
            Point::Bell => self.incoming.word32(words.bell).load(Acquire),
            Point::Slot(_) => self.incoming.word64(words.bell).load(Acquire) as u32,
        };
        let stop = || ready() || self.state.broken().is_some();
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(ready());
            }
            let slice = match self.side {
                Side::Client => match left {
                    Some(left) => Some(left.min(LIVENESS_SLICE)),
                    None if *self.watched.get_or_init(|| self.watch_peer().is_ok()) => None,
                    None => Some(IDLE_SLICE),
                },
                Side::Worker => left,
            };
            let sleepers = self.outgoing.word32(words.sleepers);
            let sleep = |seen| self.sleep(words.bell, seen, slice);
            let early = match self.side {
                Side::Client => sleep_unless::<Real>(sleepers, bell, &stop, sleep),
                Side::Worker => nap_unless::<Real>(sleepers, bell, &stop, sleep),
            };
            if early {
                self.state.check()?;
                return Ok(true);
            }
            if self.side == Side::Client && peer_gone(&self.socket, Some(Duration::ZERO)) {
                self.break_with(LinkError::Closed);
            }
        }
    }

    fn look(&self) -> Result<(), LinkError> {
        let now = self.started.elapsed().as_millis() as u64;
        let last = self.looked_ms.load(Relaxed);
        if now.saturating_sub(last) >= LIVENESS_SLICE.as_millis() as u64 {
            self.looked_ms.store(now, Relaxed);
            if peer_gone(&self.socket, Some(Duration::ZERO)) {
                self.break_with(LinkError::Closed);
            }
        }
        self.state.check()
    }

    fn break_with(&self, reason: LinkError) {
        self.state.break_with(reason);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        // Either a sleeper that announces itself now sees that the link is broken, or we see the sleeper.
        Real::fence();
        match self.side {
            // A thread that is just going to sleep on a slot, and so misses this, is caught by its next slice. One on the
            // bell may have none, and only the worker may change the bell: wake until all have noticed. The bound is for a
            // process whose threads were ended while they slept.
            Side::Client => {
                for slot in
                    (0..SLOTS).filter(|&slot| self.outgoing.word32(up::slot_sleep(slot)).load(Acquire) != 0)
                {
                    self.wake(&self.incoming, down::slot(slot));
                }
                let asleep = || self.outgoing.word32(up::CLIENT_SLEEP).load(Acquire) != 0;
                for _ in (0..WAKES_MAX).take_while(|_| asleep()) {
                    self.wake(&self.incoming, down::CLIENT_BELL);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            // The worker sleeps without slices, and may not write its bell: wake until it has noticed.
            Side::Worker => {
                while naps(self.outgoing.word32(down::WORKER_SLEEP).load(Acquire)) {
                    self.wake(&self.incoming, up::WORKER_BELL);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn state(&self) -> &Arc<LinkState> {
        &self.state
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // The watching thread holds a duplicate of the socket, so closing ours would tell the peer nothing.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}
