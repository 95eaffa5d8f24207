//! The bare transports: what no forwarding of calls over them can beat.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::measure::{Effort, times};
use crate::report::{COPY_BYTES, Measure, Run, Times};
use crate::shared::Page;

/// The size of a ping-pong's messages.
const MESSAGE: usize = 64;
/// The longest wait for a peer: one that has gone never answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// In the ping word: the peer may go.
const END: u64 = u64::MAX;
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
pub fn measure(transport: Bare, quick: bool) -> anyhow::Result<Run> {
    let (ping_pong, bulk) = match transport {
        Bare::Shm => (shared_ping_pong(quick)?, memory_copy(quick)?),
        Bare::Tcp => tcp(quick)?,
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

fn shared_ping_pong(quick: bool) -> anyhow::Result<Times> {
    let page = Page::create()?;
    let fd = page.file.as_ref().context("no file of shared memory")?.as_raw_fd();
    let mut peer = peer(&["peer-shm", &fd.to_string()])?;
    let mut turn = 0;
    let mut ping_pong = || {
        turn += 1;
        page.ping().store(turn, Release);
        let answer = spin_until_changed(page.pong(), turn - 1)?;
        ensure!(answer == turn, "the peer answered {answer} to {turn}");
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
        page.pong().store(last, Release);
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

fn tcp(quick: bool) -> anyhow::Result<(Times, Times)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let mut peer = peer(&["peer-tcp", &listener.local_addr()?.to_string()])?;
    let (mut socket, _) = listener.accept().context("cannot accept the peer")?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut message = [PING; MESSAGE];
    let ping_pong = || {
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        Ok(())
    };
    let ping_pong = times(Effort::calls(quick), 1, ping_pong, || Ok(()))?;
    let bytes = vec![1u8; COPY_BYTES];
    let bulk = || {
        socket.write_all(&[BULK])?;
        socket.write_all(&bytes)?;
        socket.read_exact(&mut [0])?;
        Ok(())
    };
    let bulk = times(Effort::copies(quick), 1, bulk, || Ok(()))?;
    drop(socket);
    finish(&mut peer)?;
    Ok((ping_pong, bulk))
}

/// The other side of the TCP measurements: sends messages back, swallows bulk and acknowledges it.
pub fn peer_tcp(address: SocketAddr) -> anyhow::Result<()> {
    bind_to_processor(1)?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    answer_tcp(&mut socket)
}

fn answer_tcp(socket: &mut TcpStream) -> anyhow::Result<()> {
    let mut message = [0u8; MESSAGE];
    let mut bulk = vec![0u8; COPY_BYTES];
    loop {
        if socket.read(&mut message[..1])? == 0 {
            return Ok(());
        }
        match message[0] {
            PING => {
                socket.read_exact(&mut message[1..])?;
                socket.write_all(&message)?;
            }
            BULK => {
                socket.read_exact(&mut bulk)?;
                socket.write_all(&[0])?;
            }
            other => bail!("unknown request {other}"),
        }
    }
}

/// Starts this program as the other side of a measurement, and then binds this process to its own processor.
fn peer(arguments: &[&str]) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where pool-bench itself lies")?;
    let peer = Command::new(own)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the peer process")?;
    // Not before: the peer would inherit it, and have no other processor to choose.
    bind_to_processor(0)?;
    Ok(peer)
}

/// Binds this process to one of its processors: the measuring process to the first, its peer to the second. Left to the
/// scheduler, both at times share one, and then it is the scheduler's time slice that is measured.
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

fn finish(peer: &mut Child) -> anyhow::Result<()> {
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
    fn tcp_peer_echoes_and_acknowledges() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || answer_tcp(&mut TcpStream::connect(address)?));
        let (mut socket, _) = listener.accept().unwrap();
        let mut message = [PING; MESSAGE];
        message[63] = 77;
        socket.write_all(&message).unwrap();
        let mut answer = [0u8; MESSAGE];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message);
        socket.write_all(&[BULK]).unwrap();
        socket.write_all(&vec![0; COPY_BYTES]).unwrap();
        let mut acknowledgement = [9];
        socket.read_exact(&mut acknowledgement).unwrap();
        assert_eq!(acknowledgement, [0]);
        drop(socket);
        peer.join().unwrap().unwrap();
    }
}
