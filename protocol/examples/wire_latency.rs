//! What a post, a call and bulk bytes cost over each transport, beside a raw ping-pong of the same kind, in one interleaved run.
//!
//!     cargo run --release -p gpupool-protocol --example wire_latency [ROUNDS]
//!
//! Both ends are threads of this process. The raw shared-memory ping-pong is two words that two spinning threads hand
//! to each other; the raw TCP one is 64 bytes each way between two blocking sockets.

#![allow(clippy::print_stdout)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpupool_protocol::wire::layout::CHUNK_BYTES;
use gpupool_protocol::wire::{CallHead, ClientLink, LinkError, PendingCall, Receiver, Replier, WorkerLink};

const POST: u16 = 1;
const CALL: u16 = 2;
const BULK_UP: u16 = 3;
const BULK_DOWN: u16 = 4;
const POSTS_A_ROUND: u32 = 1000;
const CALLS_A_ROUND: u32 = 200;
const BULK: usize = 64 * 1024 * 1024;

fn tcp_pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    theirs.set_nodelay(true)?;
    ours.set_nodelay(true)?;
    Ok((theirs, ours))
}

fn serve((mut receiver, replier): (Receiver, Arc<Replier>)) {
    std::thread::spawn(move || {
        let mut memory = vec![1; CHUNK_BYTES as usize];
        while let Ok(record) = receiver.next() {
            let (head, position) = (record.head, record.position);
            let fill = |to: *mut u8, len| {
                // SAFETY: `len` bytes of a chunk, which is at most as long as `memory` and elsewhere.
                unsafe { std::ptr::copy_nonoverlapping(memory.as_ptr(), to, len) }
            };
            let done = match (head.call, head.slot) {
                (CALL, Some(slot)) => replier.reply(slot, position, 0, &[1, 2, 3, 4]),
                (BULK_DOWN, Some(slot)) => {
                    replier.reply_chunk(slot, position, 0, head.chunk_down.unwrap_or(0), memory.len(), fill)
                }
                (BULK_UP, _) => {
                    let chunk = head.chunk_up.unwrap_or(0);
                    replier.chunk_up_read(chunk, &mut memory).and_then(|()| replier.release_chunk_up(chunk))
                }
                _ => Ok(()),
            };
            if done.is_err() {
                break;
            }
        }
    });
}

/// The time of moving `memory` to the worker and being told that it is there.
fn bulk_up(link: &ClientLink, memory: &[u8]) -> Result<Duration, LinkError> {
    let start = Instant::now();
    for piece in memory.chunks(CHUNK_BYTES as usize) {
        let mut chunk = link.chunk_up()?;
        chunk.write(piece)?;
        link.post(head(BULK_UP).with_up(chunk), 0, |_| ())?;
    }
    call(link);
    Ok(start.elapsed())
}

/// The time of fetching `memory` from the worker, some pieces under way.
fn bulk_down(link: &ClientLink, memory: &mut [u8]) -> Result<Duration, LinkError> {
    const UNDER_WAY: usize = 8;
    let start = Instant::now();
    let mut calls = VecDeque::new();
    let mut pieces = memory.chunks_mut(CHUNK_BYTES as usize);
    loop {
        let piece = pieces.next();
        if piece.is_none() || calls.len() == UNDER_WAY {
            let Some((call, piece)) = calls.pop_front() else { return Ok(start.elapsed()) };
            let call: PendingCall<'_> = call;
            call.wait()?.copy_to(piece);
        }
        if let Some(piece) = piece {
            let request = head(BULK_DOWN).with_down(link.chunk_down()?);
            calls.push_back((link.begin_call(request, 0, |_| ())?, piece));
        }
    }
}

fn head(call: u16) -> CallHead<'static> {
    CallHead::new(call, 0, 0)
}

fn call(link: &ClientLink) {
    let result = link.call(head(CALL), 16, |to| (0..2).for_each(|word| to.word(word)), |result, _| result);
    assert_eq!(result, Ok(0));
}

/// The time of one of `count` repetitions.
fn each(count: u32, mut what: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..count).for_each(|_| what());
    start.elapsed() / count
}

/// The time of one step as a training loop makes it: 300 posts and a call that waits for them.
fn step(link: &ClientLink) -> Duration {
    each(20, || {
        for word in 0..300 {
            link.post(head(POST), 24, |to| (0..3).for_each(|n| to.word(word + n))).expect("post");
        }
        call(link);
    })
}

fn raw_tcp() -> std::io::Result<TcpStream> {
    let (mut theirs, ours) = tcp_pair()?;
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while theirs.read_exact(&mut bytes).is_ok() && theirs.write_all(&bytes).is_ok() {}
    });
    Ok(ours)
}

/// One round of a ping-pong between two spinning threads.
fn raw_shm(rounds: u32) -> Duration {
    let words = Arc::new([const { AtomicU64::new(0) }; 16]);
    let theirs = words.clone();
    let pong = std::thread::spawn(move || {
        for round in 1..=u64::from(rounds) {
            while theirs[0].load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
            theirs[8].store(round, Ordering::Release);
        }
    });
    let mut round = 0;
    let time = each(rounds, || {
        round += 1;
        words[0].store(round, Ordering::Release);
        while words[8].load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
    });
    pong.join().expect("the other thread ends after its rounds");
    time
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(20), |n| n.parse())?;
    let (theirs, ours) = UnixStream::pair()?;
    serve(WorkerLink::shm(theirs)?);
    let shm = ClientLink::shm(ours)?;
    let (theirs, ours) = tcp_pair()?;
    serve(WorkerLink::tcp(theirs)?);
    let tcp = ClientLink::tcp(ours)?;
    let mut raw = raw_tcp()?;

    let names = [
        "post, shm",
        "call, shm",
        "raw ping-pong, two spinning threads",
        "300 posts + call, shm",
        "post, tcp",
        "call, tcp",
        "raw ping-pong, tcp",
        "300 posts + call, tcp",
        "call after 5 ms of rest, shm",
        "call after 5 ms of rest, tcp",
        "64 MiB to the worker, shm",
        "64 MiB to the worker, tcp",
        "64 MiB back, shm",
        "64 MiB back, tcp",
        "64 MiB copied once, in one thread",
    ];
    let (memory, mut other) = (vec![7u8; BULK], vec![0u8; BULK]);
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        let mut bytes = [0; 64];
        let mut note = |at: usize, time: Duration| times[at].push(time);
        for (first, link) in [(0, &shm), (4, &tcp)] {
            let post = || {
                link.post(head(POST), 24, |to| (0..3).for_each(|n| to.word(n))).expect("post");
            };
            note(first, each(POSTS_A_ROUND, post));
            call(link);
            note(first + 1, each(CALLS_A_ROUND, || call(link)));
            note(first + 3, step(link));
            std::thread::sleep(Duration::from_millis(5));
            note(8 + first / 4, each(1, || call(link)));
            note(10 + first / 4, bulk_up(link, &memory)?);
            note(12 + first / 4, bulk_down(link, &mut other)?);
        }
        note(14, each(1, || other.copy_from_slice(&memory)));
        note(2, raw_shm(CALLS_A_ROUND));
        let ping = || raw.write_all(&bytes).and_then(|()| raw.read_exact(&mut bytes)).expect("raw ping-pong");
        note(6, each(CALLS_A_ROUND, ping));
    }
    println!("{:<38} {:>12} {:>12}", "", "median", "best");
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort();
        println!("{name:<38} {:>12.2?} {:>12.2?}", times[times.len() / 2], times[0]);
    }
    Ok(())
}
