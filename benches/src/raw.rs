//! The bare transports: what no forwarding of calls over them can beat.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::measure::{Effort, times};
use crate::report::{COPY_BYTES, Measure, Run, Times};
use crate::shared::Page;

/// A record that asks for 4 bytes, and its answer, in words of 8 bytes: header of three words and three arguments there; the
/// result and its length, and the bytes, back.
pub(crate) const RECORD_WORDS: usize = 6;
const ANSWER_WORDS: usize = 2;
/// The same as frames of a connection: a head and the record, a head and the word that publishes it; and back.
const REQUEST: usize = 2 * 8 + RECORD_WORDS * 8 + 8;
const ANSWER: usize = 2 * 8 + ANSWER_WORDS * 8 + 8;
/// How long a waiting side looks before it sleeps, at the most: as long as the pool's on two processors.
pub(crate) const LOOK: Duration = Duration::from_micros(20);
/// The longest wait for a peer: one that has gone never answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// In the ping word: the peer may go.
pub(crate) const END: u64 = u64::MAX;
/// A TCP message that starts with this byte is a ping-pong's; other requests are `BULK` and the end of the connection.
const PING: u8 = 1;
/// Announces [`COPY_BYTES`] bytes.
const BULK: u8 = 2;

/// The bare transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bare {
    /// Two cache lines that two processes share and spin on.
    Shm,
    /// A loopback connection with `TCP_NODELAY`.
    Tcp,
}

impl Bare {
    /// The name of the transport on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bare::Shm => "shm",
            Bare::Tcp => "tcp",
        }
    }
}

/// Measures a bare transport once: a ping-pong, and 64 MiB one way.
pub fn measure(transport: Bare, quick: bool, connections: u16) -> anyhow::Result<Run> {
    let (ping_pong, bulk) = match transport {
        Bare::Shm => (shared_ping_pong(quick)?, memory_copy(quick)?),
        Bare::Tcp => tcp(quick, connections)?,
    };
    let mut run = Run::default();
    run.times.insert(Measure::PingPong, ping_pong);
    run.times.insert(Measure::Bulk, bulk);
    Ok(run)
}

/// Spins until the word differs from `last`, and gives what it is then.
fn spin_until_changed(word: &AtomicU64, last: u64) -> anyhow::Result<u64> {
    let mut start = None;
    loop {
        // The clock is read only now and then: it costs as much as a cache line's way across.
        for _ in 0..10_000 {
            let now = word.load(Acquire);
            if now != last {
                return Ok(now);
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            bail!("the peer of the shared-memory ping-pong does not answer");
        }
        // Where others keep both processors busy, the peer may be waiting for this one.
        std::thread::yield_now();
    }
}

/// What a side does that may have to wake the other: order its store before its look, and look. Here nobody ever sleeps.
fn nobody_sleeps(page: &Page) -> anyhow::Result<()> {
    fence(SeqCst);
    ensure!(page.sleepers().load(Relaxed) == 0, "somebody sleeps");
    Ok(())
}

fn shared_ping_pong(quick: bool) -> anyhow::Result<Times> {
    let page = Page::create()?;
    let fd = page.file.as_ref().context("no file of shared memory")?.as_raw_fd();
    let mut peer = peer(&["peer-shm", &fd.to_string()])?;
    // Not before: the peer would inherit it, and have no other processor to choose.
    bind_to_processor(0)?;
    let mut turn = 0;
    let mut ping_pong = || {
        turn += 1;
        (0..RECORD_WORDS).for_each(|word| page.record(turn, word).store(turn, Relaxed));
        page.ping().store(turn, Release);
        nobody_sleeps(&page)?;
        let answer = spin_until_changed(page.pong(), turn - 1)?;
        let sum: u64 = (0..ANSWER_WORDS).map(|word| page.answer(word).load(Relaxed)).sum();
        ensure!(answer == turn && sum == ANSWER_WORDS as u64 * turn, "the peer answered {answer} to {turn}");
        Ok(())
    };
    let result = times(Effort::calls(quick), 1, &mut ping_pong, || Ok(()));
    page.ping().store(END, Release);
    finish(&mut peer)?;
    result
}

/// The other side of the ping-pong: answers every number with the same number.
pub fn peer_shm(fd: i32) -> anyhow::Result<()> {
    bind_to_processor(1)?;
    let page = Page::inherited(fd)?;
    let mut last = 0;
    loop {
        last = spin_until_changed(page.ping(), last)?;
        if last == END {
            return Ok(());
        }
        let record: u64 = (0..RECORD_WORDS).map(|word| page.record(last, word).load(Relaxed)).sum();
        (0..ANSWER_WORDS).for_each(|word| page.answer(word).store(record / RECORD_WORDS as u64, Relaxed));
        page.pong().store(last, Release);
        nobody_sleeps(&page)?;
    }
}

fn memory_copy(quick: bool) -> anyhow::Result<Times> {
    let from = vec![1u8; COPY_BYTES];
    let mut to = vec![0u8; COPY_BYTES];
    let copy = || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        Ok(())
    };
    times(Effort::copies(quick), 1, copy, || Ok(()))
}

fn tcp(quick: bool, connections: u16) -> anyhow::Result<(Times, Times)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let mut peer = peer(&["peer-tcp", &listener.local_addr()?.to_string(), &connections.to_string()])?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let (socket, _) = listener.accept().context("cannot accept the peer")?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let mut socket = sockets[0].try_clone()?;
    socket.set_nonblocking(true)?;
    let (message, mut answer, mut look) = ([PING; REQUEST], [0; ANSWER], Look::default());
    let ping_pong = || {
        write_all(&mut socket, &message)?;
        look.read(&mut socket, &mut answer)
    };
    let ping_pong = times(Effort::calls(quick), 1, ping_pong, || Ok(()))?;
    for socket in &sockets {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    let bytes = vec![1u8; COPY_BYTES];
    let bulk = || {
        std::thread::scope(|scope| {
            let parts = sockets.iter().zip(bytes.chunks(COPY_BYTES.div_ceil(sockets.len())));
            let streams: Vec<_> =
                parts.map(|(socket, part)| scope.spawn(move || stream(socket, part))).collect();
            streams.into_iter().try_for_each(|stream| match stream.join() {
                Ok(result) => result,
                Err(_) => bail!("a stream's thread failed"),
            })
        })
    };
    let bulk = times(Effort::copies(quick), 1, bulk, || Ok(()))?;
    drop((socket, sockets));
    finish(&mut peer)?;
    Ok((ping_pong, bulk))
}

/// Sends a part of the bulk and waits until it is acknowledged.
fn stream(mut socket: &TcpStream, part: &[u8]) -> anyhow::Result<()> {
    socket.write_all(&[BULK])?;
    socket.write_all(&(part.len() as u64).to_le_bytes())?;
    socket.write_all(part)?;
    Ok(socket.read_exact(&mut [0])?)
}

/// Writes to a socket that may be in non-blocking mode. Messages here are far smaller than its buffer.
fn write_all(socket: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(socket.write_all(bytes)?)
}

/// Looks for bytes before it sleeps for them, as long as looking has paid lately: the pool's way of waiting.
#[derive(Default)]
struct Look {
    limit: Option<Duration>,
    waits: u32,
}

impl Look {
    fn read(&mut self, socket: &mut TcpStream, to: &mut [u8]) -> anyhow::Result<()> {
        let mut have = 0;
        while have < to.len() {
            match self.some(socket, &mut to[have..])? {
                0 => bail!("the peer is gone"),
                got => have += got,
            }
        }
        Ok(())
    }

    fn some(&mut self, socket: &mut TcpStream, to: &mut [u8]) -> anyhow::Result<usize> {
        self.waits += 1;
        let learned = self.limit.unwrap_or(LOOK);
        let limit = if self.waits.is_multiple_of(64) { LOOK } else { learned };
        let start = Instant::now();
        while start.elapsed() < limit {
            match socket.read(to) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                other => {
                    let enough = 2 * start.elapsed() + Duration::from_micros(1);
                    self.limit = Some(learned.max(enough.min(LOOK)));
                    return Ok(other?);
                }
            }
        }
        self.limit = Some(learned / 2);
        let mut fds = [PollFd::new(&*socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        ensure!(poll(&mut fds, Some(&patience))? > 0, "the peer does not answer");
        Ok(socket.read(to)?)
    }
}

/// The other side of the TCP measurements: answers messages, swallows bulk and acknowledges it.
pub fn peer_tcp(address: SocketAddr, connections: u16) -> anyhow::Result<()> {
    let sockets = (0..connections).map(|_| TcpStream::connect(address)).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            sockets.into_iter().map(|socket| scope.spawn(move || answer_tcp(socket))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a connection's thread failed"),
        })
    })
}

fn answer_tcp(mut socket: TcpStream) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let (mut message, mut look) = ([0u8; REQUEST], Look::default());
    let mut bulk = vec![0u8; COPY_BYTES];
    loop {
        socket.set_nonblocking(true)?;
        match look.some(&mut socket, &mut message[..1]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // It has nothing more to ask: a connection that only carries bulk waits long.
            Err(_) => {
                socket.set_nonblocking(false)?;
                if socket.read(&mut message[..1])? == 0 {
                    return Ok(());
                }
            }
        }
        match message[0] {
            PING => {
                look.read(&mut socket, &mut message[1..])?;
                write_all(&mut socket, &[PING; ANSWER])?;
            }
            BULK => {
                socket.set_nonblocking(false)?;
                let mut length = [0; 8];
                socket.read_exact(&mut length)?;
                let length = u64::from_le_bytes(length) as usize;
                let Some(part) = bulk.get_mut(..length) else { bail!("{length} bytes are announced") };
                socket.read_exact(part)?;
                socket.write_all(&[0])?;
            }
            other => bail!("unknown request {other}"),
        }
    }
}

/// Starts this program as the other side of a measurement.
pub(crate) fn peer(arguments: &[&str]) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where pool-bench itself lies")?;
    Command::new(own).args(arguments).stdin(Stdio::null()).spawn().context("cannot start the peer process")
}

/// Binds this process to one of its processors: the measuring process to the first, its peer to the second. Two that spin
/// and share one measure the scheduler's time slice. (Over TCP both are left to the scheduler, as the pool's are.)
fn bind_to_processor(number: usize) -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None).context("cannot ask for this process's processors")?;
    let processor = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).nth(number);
    // With a single processor there is nothing to choose.
    if let (2.., Some(processor)) = (allowed.count(), processor) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).context("cannot bind this process to a processor")?;
    }
    Ok(())
}

pub(crate) fn finish(peer: &mut Child) -> anyhow::Result<()> {
    let status = peer.wait()?;
    ensure!(status.success(), "the peer process ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_word_is_seen() {
        let word = AtomicU64::new(5);
        assert_eq!(spin_until_changed(&word, 4).unwrap(), 5);
    }

    #[test]
    fn tcp_peer_answers_and_acknowledges() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || peer_tcp(address, 1));
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&[PING; REQUEST]).unwrap();
        let mut answer = [0u8; ANSWER];
        Look::default().read(&mut socket, &mut answer).unwrap();
        assert_eq!(answer, [PING; ANSWER]);
        stream(&socket, &vec![0; 1000]).unwrap();
        drop(socket);
        peer.join().unwrap().unwrap();
    }
}
