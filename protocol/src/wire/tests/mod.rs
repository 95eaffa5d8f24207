//! Both ends of a link in one process, over every transport.

mod bulk;
mod hostile;
mod records;

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::codec::{Reader, Wire};
use super::layout::CHUNK_BYTES;
use super::{CallHead, ClientLink, LinkError, Receiver, Replier, WorkerLink};

#[derive(Debug, Clone, Copy)]
enum Over {
    Shm,
    Tcp,
    /// With two connections for long bytes.
    TcpBeside,
}
const ALL: [Over; 3] = [Over::Shm, Over::Tcp, Over::TcpBeside];

fn pair(over: Over) -> (Arc<ClientLink>, Receiver, Arc<Replier>) {
    match over {
        Over::Shm => {
            let (theirs, ours) = UnixStream::pair().unwrap();
            let (receiver, replier) = WorkerLink::shm(theirs).unwrap();
            (ClientLink::shm(ours).unwrap(), receiver, replier)
        }
        Over::Tcp => {
            let (theirs, ours) = tcp_pair();
            let (receiver, replier) = WorkerLink::tcp(theirs).unwrap();
            (ClientLink::tcp(ours).unwrap(), receiver, replier)
        }
        Over::TcpBeside => {
            let (theirs, ours) = tcp_pair();
            let (their_bulk, our_bulk) = (0..2).map(|_| tcp_pair()).unzip();
            let (receiver, replier) = WorkerLink::tcp_with(theirs, their_bulk).unwrap();
            (ClientLink::tcp_with(ours, our_bulk).unwrap(), receiver, replier)
        }
    }
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, ours)
}

/// Posts whose body is {number}: each lane's must come in order.
const COUNT: u16 = 1;
/// Calls answered with {lane, the number of COUNTs that came on the lane}.
const TOTAL: u16 = 2;
/// Calls answered with their own body.
const ECHO: u16 = 3;
/// Calls {length} answered with that many bytes of [`pattern`].
const BIG: u16 = 4;
/// Calls {length} with an up-chunk, answered with the checksum of its first bytes.
const SUM: u16 = 5;
/// As `SUM`, but posted: the sum is added up and `SUM`'s answer is not given.
const SUM_POST: u16 = 6;
/// Calls answered from another thread, the later the call the earlier.
const LATE: u16 = 7;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9).wrapping_add(seed) >> 7) as u8).collect()
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum, &byte| u64::wrapping_mul(sum, 31) ^ u64::from(byte))
}

/// A worker that carries out the calls above until the link ends; returns why, and how many posts came on each lane.
fn serve(mut receiver: Receiver, replier: Arc<Replier>) -> JoinHandle<(LinkError, Vec<u64>)> {
    std::thread::spawn(move || {
        let mut counts = vec![0u64; 64];
        let mut late = Vec::new();
        loop {
            let record = match receiver.next() {
                Ok(record) => record,
                Err(error) => return (error, counts),
            };
            let (head, mut body) = (record.head, Reader::new(record.body));
            let lane = head.lane as usize;
            let answer = |result, bytes: &[u8]| {
                replier
                    .reply_bytes(head.slot.unwrap(), record.position, result, head.chunk_down, bytes)
                    .unwrap();
            };
            let sum_of_chunk = |body: &mut Reader<'_>| {
                let chunk = head.chunk_up.unwrap();
                let mut bytes = vec![0; usize::get(body).unwrap()];
                replier.chunk_up_read(chunk, &mut bytes).unwrap();
                replier.release_chunk_up(chunk).unwrap();
                checksum(&bytes)
            };
            match head.call {
                COUNT => {
                    assert_eq!(u64::get(&mut body).unwrap(), counts[lane], "lane {lane} out of order");
                    counts[lane] += 1;
                }
                TOTAL => answer(0, &[(lane as u64).to_le_bytes(), counts[lane].to_le_bytes()].concat()),
                ECHO => answer(lane as i32, record.body),
                BIG => {
                    let len = usize::get(&mut body).unwrap();
                    assert!(len <= CHUNK_BYTES as usize);
                    answer(0, &pattern(record.position, len));
                }
                SUM => answer(0, &sum_of_chunk(&mut body).to_le_bytes()),
                SUM_POST => counts[lane] = counts[lane].wrapping_add(sum_of_chunk(&mut body)),
                LATE => {
                    late.push((head.slot.unwrap(), record.position));
                    if late.len() == 8 {
                        let replier = replier.clone();
                        let late = std::mem::take(&mut late);
                        std::thread::spawn(move || {
                            for (slot, position) in late.into_iter().rev() {
                                replier.reply(slot, position, 7, &position.to_le_bytes()).unwrap();
                            }
                        });
                    }
                }
                other => panic!("call {other}"),
            }
        }
    })
}

fn head(call: u16, lane: u32) -> CallHead<'static> {
    CallHead::new(call, lane, 0)
}

/// The number of posts that came on `lane`.
fn total(link: &ClientLink, lane: u32) -> u64 {
    link.call(
        head(TOTAL, lane),
        0,
        |_| (),
        |result, body| {
            assert_eq!((result, body.word()), (0, Ok(u64::from(lane))));
            let total = body.word().unwrap();
            body.end().unwrap();
            total
        },
    )
    .unwrap()
}

/// Waits until `done`, for at most 20 s: tests share their machine with others.
fn soon(done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 20, "it did not happen");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
