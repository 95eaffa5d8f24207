//! The transport that works everywhere: pieces go as frames {offset u32, length u32, bytes} over a TCP connection. Long bytes
//! may have connections of their own ([`super::bulk`]).
//!
//! There is no reading thread. The thread that waits reads the socket itself; if several wait, one holds the *baton*,
//! applies what comes for all of them, and passes the baton on when it leaves. So a call over TCP costs no hop from
//! thread to thread. A thread that cannot write because the peer's buffers are full reads meanwhile (two sides that
//! both only write would wait for each other for ever).

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::bulk::Bulk;
use super::frames::{Beyond, FrameReader, HEADER_BYTES, Into, header};
use super::spin::Spin;
use super::{End, Piece, Point, Side, Transport, When};
use crate::wire::direct::Places;
use crate::wire::landing::Landings;
use crate::wire::layout::{down, up};
use crate::wire::memory::{Part, Region, send_parts};
use crate::wire::state::{LONG_WAIT, LinkError, LinkState, LongWait, WaitKind};

/// Frames up to this length are gathered in a buffer; longer ones go straight from where they are.
const GATHER_MAX: usize = 16 * 1024;
/// Longer pieces are cut, so that other threads' small frames get their turn in between.
const FRAME_MAX: usize = 128 * 1024;
/// How long a thread that cannot write sleeps when another one reads.
const BLOCKED_SLICE: Duration = Duration::from_millis(1);

/// One end of the connection.
pub struct Tcp {
    side: Side,
    socket: TcpStream,
    incoming: Arc<Region>,
    outgoing: Arc<Region>,
    state: Arc<LinkState>,
    spin: Spin,
    /// How long a receiving call waits. A client's waits are cut in pieces of that length; a worker's are not.
    receive_timeout: Option<Duration>,
    /// Frames that are to be sent; whoever holds the lock is the only one that writes to the socket.
    writer: Mutex<Vec<u8>>,
    /// Whether some thread reads.
    baton: Mutex<bool>,
    changed: Condvar,
    /// Threads that wait for the baton's holder.
    waiters: AtomicU32,
    /// Used by the baton's holder only, so never contended.
    reader: Mutex<FrameReader>,
    places: Option<Places>,
    landings: Option<Landings>,
    /// Connections for long bytes.
    bulk: Vec<Bulk>,
    /// Whether [`Transport::attend`]'s thread waits for the baton, and what wakes it when the baton lies there.
    attends: AtomicU32,
    passed: Condvar,
    /// Threads in [`Tcp::wait_idly`], and what wakes them when another thread has applied something.
    idle: AtomicU32,
    idle_bell: OnceLock<OwnedFd>,
}

/// An end over connected sockets: one for everything, and perhaps others for long bytes.
pub fn end(side: Side, socket: TcpStream, bulk: Vec<TcpStream>) -> Result<End, LinkError> {
    let setup = |error: io::Error| LinkError::system("preparing the data connection", error);
    socket.set_nodelay(true).map_err(setup)?;
    socket.set_nonblocking(false).map_err(setup)?;
    let receive_timeout = (side == Side::Client).then_some(LONG_WAIT);
    socket.set_read_timeout(receive_timeout).map_err(setup)?;
    let bulk = bulk.into_iter().map(|socket| Bulk::new(socket, receive_timeout)).collect::<Result<_, _>>();
    let bulk = bulk.map_err(setup)?;
    let region = |len| Region::private(len).map(Arc::new).map_err(|e| LinkError::system("getting memory", e));
    let (incoming, outgoing) = match side {
        Side::Client => (region(down::BYTES)?, region(up::BYTES)?),
        Side::Worker => (region(up::BYTES)?, region(down::BYTES)?),
    };
    let transport = Arc::new(Tcp {
        side,
        socket,
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        state: Arc::default(),
        spin: Spin::new(Duration::ZERO),
        receive_timeout,
        writer: Mutex::default(),
        baton: Mutex::new(false),
        changed: Condvar::new(),
        waiters: AtomicU32::new(0),
        reader: Mutex::new(FrameReader::new()),
        places: (side == Side::Client).then(Places::default),
        landings: (side == Side::Client).then(Landings::default),
        bulk,
        attends: AtomicU32::new(0),
        passed: Condvar::new(),
        idle: AtomicU32::new(0),
        idle_bell: OnceLock::new(),
    });
    Ok(End { transport, incoming, outgoing, arena: None })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tcp {
    /// Sends all of `parts`; `what is gathered` is part of them. Only with the writer's lock.
    fn send(&self, parts: &[Part<'_>]) -> Result<(), LinkError> {
        let whole: usize = parts.iter().map(Part::len).sum();
        let mut sent = 0;
        let mut blocked = None;
        while sent < whole {
            self.state.check()?;
            match send_parts(self.socket.as_fd(), parts, sent) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.read_while_blocked(&mut blocked),
                Err(e) => return Err(self.lost("writing to the data connection", e)),
            }
        }
        if blocked.is_some() {
            self.state.waited();
        }
        Ok(())
    }

    /// The peer takes nothing: wait until it does, and take what it sends meanwhile.
    fn read_while_blocked(&self, since: &mut Option<(Instant, Instant)>) {
        let now = Instant::now();
        let (start, report) = since.get_or_insert((now, now + LONG_WAIT));
        if now >= *report {
            *report = now + LONG_WAIT;
            self.state.still_waiting(LongWait { kind: WaitKind::Send, since: *start });
        }
        let mut baton = lock(&self.baton);
        if *baton {
            drop(baton);
            self.poll(PollFlags::OUT, Some(BLOCKED_SLICE));
            return;
        }
        *baton = true;
        drop(baton);
        let ready = self.poll(PollFlags::IN | PollFlags::OUT, Some(LONG_WAIT));
        if ready.contains(PollFlags::IN) {
            self.take_incoming(false);
        }
        self.pass_baton();
    }

    /// Waits until the socket is ready for `what`, and says for which part of it. No flags: not yet.
    fn poll(&self, what: PollFlags, timeout: Option<Duration>) -> PollFlags {
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let mut fds = [PollFd::new(&self.socket, what)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(n) if n > 0 => fds[0].revents(),
            _ => PollFlags::empty(),
        }
    }

    /// Reads once, waiting for the socket or not, and applies what came. Only with the baton. Returns whether anything
    /// came.
    fn take_incoming(&self, wait: bool) -> bool {
        let into = self.into(0, self.landings.as_ref());
        let pumped = lock(&self.reader).pump(self.socket.as_fd(), into, wait);
        match pumped {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => {
                self.break_with(error);
            }
        }
        // As in the sleep handshake: what was applied, then a look for waiters; they count themselves, then look.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            drop(lock(&self.baton));
            self.changed.notify_all();
        }
        if self.idle.load(Ordering::Relaxed) != 0
            && let Some(bell) = self.idle_bell.get()
        {
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        true
    }

    /// A connection for long bytes; a peer may speak of one that is not there.
    fn connection(&self, number: u32) -> Result<&Bulk, LinkError> {
        let missing = || LinkError::protocol("bytes that come over another connection, and there is none");
        self.bulk.get(number as usize).ok_or_else(missing)
    }

    /// Where what comes over a connection goes.
    fn into<'a>(&'a self, reader: usize, landings: Option<&'a Landings>) -> Into<'a> {
        let outside = self.places.as_ref().map(|places| Beyond { places, reader, landings });
        Into { region: &self.incoming, outside }
    }

    fn pass_baton(&self) {
        *lock(&self.baton) = false;
        if self.attends.load(Ordering::SeqCst) != 0 {
            self.passed.notify_all();
        }
        if self.waiters.load(Ordering::SeqCst) != 0 {
            self.changed.notify_all();
        }
    }

    /// A client thread that may wait for ever (for host callbacks). It must not hold the baton meanwhile, or every call
    /// of the other threads would be answered through it. So it waits for the socket without reading from it, and is
    /// told when another thread has read.
    fn wait_idly(&self, ready: &dyn Fn() -> bool) -> Result<bool, LinkError> {
        let bell = match self.idle_bell.get() {
            Some(bell) => bell,
            None => {
                let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
                let new = eventfd(0, flags).map_err(|e| LinkError::system("making an eventfd", e))?;
                self.idle_bell.get_or_init(|| new)
            }
        };
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            if !ready() && self.state.broken().is_none() {
                let mut fds = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
                let _ = poll(&mut fds, None);
            }
            self.idle.fetch_sub(1, Ordering::SeqCst);
            let _ = rustix::io::read(bell, &mut [0; 8]);
            self.state.check()?;
            let mut baton = lock(&self.baton);
            if !*baton {
                *baton = true;
                drop(baton);
                self.take_incoming(false);
                self.pass_baton();
            } else if !ready() {
                // Somebody reads, and says so when something has come.
                self.waiters.fetch_add(1, Ordering::SeqCst);
                std::sync::atomic::fence(Ordering::SeqCst);
                if !ready() && self.state.broken().is_none() {
                    drop(self.changed.wait(baton).unwrap_or_else(PoisonError::into_inner));
                }
                self.waiters.fetch_sub(1, Ordering::SeqCst);
            }
            if ready() {
                return Ok(true);
            }
        }
    }

    /// The baton's holder reads until it is ready or its time has come.
    fn read_until(&self, ready: &dyn Fn() -> bool, until: Option<Instant>) {
        let stop = || ready() || self.state.broken().is_some();
        let mut look = || stop() || (self.take_incoming(false) && stop());
        if self.spin.spin(&mut look) {
            return;
        }
        while !stop() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return;
            }
            // One system call where the socket's own time-out does; two where it would be too long or too short.
            if left == self.receive_timeout
                || left.zip(self.receive_timeout).is_some_and(|(l, t)| l > t * 9 / 10)
            {
                self.take_incoming(true);
            } else if self.poll(PollFlags::IN, left).is_empty() {
                return;
            } else {
                self.take_incoming(false);
            }
        }
    }

    fn lost(&self, doing: &str, error: io::Error) -> LinkError {
        let reason = match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
                LinkError::Closed
            }
            _ => LinkError::system(doing, error),
        };
        self.break_with(reason.clone());
        self.state.broken().cloned().unwrap_or(reason)
    }

    /// One piece above [`GATHER_MAX`] or its part: what was gathered before it goes first, in the same call.
    fn send_long(&self, part: Part<'_>, offset: u32) -> Result<(), LinkError> {
        let mut gathered = lock(&self.writer);
        let head = header(offset, part.len());
        let result = self.send(&[Part::Bytes(&gathered), Part::Bytes(&head), part]);
        gathered.clear();
        result
    }

    fn push_long(&self, piece: &Piece<'_>) -> Result<(), LinkError> {
        match *piece {
            Piece::Range { offset, len } => {
                for at in (0..len).step_by(FRAME_MAX) {
                    let part = Part::Region(&self.outgoing, offset + at, FRAME_MAX.min((len - at) as usize));
                    self.send_long(part, offset + at)?;
                }
            }
            Piece::Bytes { offset, bytes } => {
                for (number, part) in bytes.chunks(FRAME_MAX).enumerate() {
                    self.send_long(Part::Bytes(part), offset + (number * FRAME_MAX) as u32)?;
                }
            }
            Piece::Word { .. } => {}
        }
        Ok(())
    }

    fn gather(&self, into: &mut Vec<u8>, piece: &Piece<'_>) {
        match *piece {
            Piece::Range { offset, len } => {
                into.extend(header(offset, len as usize));
                let at = into.len();
                into.resize(at + len as usize, 0);
                self.outgoing.copy_out(offset, &mut into[at..]);
            }
            Piece::Bytes { offset, bytes } => {
                into.extend(header(offset, bytes.len()));
                into.extend(bytes);
            }
            Piece::Word { offset, value } => {
                self.outgoing.word64(offset).store(value, Ordering::Relaxed);
                into.extend(header(offset, 8));
                into.extend(value.to_le_bytes());
            }
        }
    }
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Range { len, .. } => *len as usize,
            Piece::Bytes { bytes, .. } => bytes.len(),
            Piece::Word { .. } => 8,
        }
    }
}

impl Transport for Tcp {
    fn mapped(&self) -> bool {
        false
    }

    fn push(&self, pieces: &[Piece<'_>], when: When) -> Result<(), LinkError> {
        self.state.check()?;
        let mut gathered = lock(&self.writer);
        for piece in pieces.iter().filter(|piece| piece.len() > 0) {
            if piece.len() > GATHER_MAX {
                drop(gathered);
                self.push_long(piece)?;
                gathered = lock(&self.writer);
            } else {
                self.gather(&mut gathered, piece);
            }
        }
        if gathered.is_empty() || (when == When::Later && gathered.len() < GATHER_MAX) {
            return Ok(());
        }
        let result = self.send(&[Part::Bytes(&gathered)]);
        gathered.clear();
        result
    }

    /// Nothing: a peer that sleeps sleeps in the socket.
    fn ring(&self, _point: Point) {}

    fn wait(
        &self,
        _point: Point,
        ready: &dyn Fn() -> bool,
        until: Option<Instant>,
    ) -> Result<bool, LinkError> {
        if until.is_none() && self.side == Side::Client {
            return self.wait_idly(ready);
        }
        let mut baton = lock(&self.baton);
        loop {
            if ready() {
                return Ok(true);
            }
            self.state.check()?;
            if !*baton {
                *baton = true;
                drop(baton);
                self.read_until(ready, until);
                self.pass_baton();
                self.state.check()?;
                return Ok(ready());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.waiters.fetch_add(1, Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            if !ready() && self.state.broken().is_none() {
                baton = match left {
                    Some(left) => {
                        self.changed.wait_timeout(baton, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.changed.wait(baton).unwrap_or_else(PoisonError::into_inner),
                };
            }
            self.waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn look(&self) -> Result<(), LinkError> {
        let mut baton = lock(&self.baton);
        if !*baton {
            *baton = true;
            drop(baton);
            while self.take_incoming(false) && self.state.broken().is_none() {}
            self.pass_baton();
        }
        self.state.check()
    }

    fn break_with(&self, reason: LinkError) {
        self.state.break_with(reason);
        // Ends every poll on the socket, here and at the peer.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.bulk.iter().for_each(Bulk::end);
        drop(lock(&self.baton));
        self.changed.notify_all();
        self.passed.notify_all();
        if let Some(landings) = &self.landings {
            landings.end();
        }
    }

    fn landings(&self) -> Option<&Landings> {
        self.landings.as_ref()
    }

    fn attend(&self) {
        let Some(landings) = &self.landings else { return };
        while landings.wait_for_overdue() {
            // Not with the baton: whoever waits for an answer shall read it without a hop from thread to thread.
            self.poll(PollFlags::IN, None);
            let mut baton = lock(&self.baton);
            self.attends.store(1, Ordering::SeqCst);
            while *baton && self.state.broken().is_none() {
                baton = self.passed.wait(baton).unwrap_or_else(PoisonError::into_inner);
            }
            self.attends.store(0, Ordering::SeqCst);
            if self.state.broken().is_some() {
                return;
            }
            *baton = true;
            drop(baton);
            while !landings.none() && self.take_incoming(false) && self.state.broken().is_none() {}
            self.pass_baton();
        }
    }

    fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    fn bulk(&self) -> u32 {
        self.bulk.len() as u32
    }

    fn push_bulk(&self, connection: u32, bytes: Piece<'_>, word: (u32, u64)) -> Result<(), LinkError> {
        let sent = self.connection(connection).and_then(|c| c.send(&self.state, &self.outgoing, bytes, word));
        sent.inspect_err(|error| self.break_with(error.clone()))
    }

    fn pull_bulk(&self, connection: u32, kind: WaitKind, ready: &dyn Fn() -> bool) -> Result<(), LinkError> {
        // The first connection's reader is number 0.
        let into = self.into(1 + connection as usize, None);
        let pulled = self.connection(connection).and_then(|c| c.pull(&self.state, into, kind, ready));
        pulled.inspect_err(|error| self.break_with(error.clone()))
    }

    fn state(&self) -> &Arc<LinkState> {
        &self.state
    }
}

const _: () = assert!(HEADER_BYTES == 8);
