//! Chunks and large answers.

use super::*;
use crate::wire::layout::CHUNKS;
use std::time::Duration;

#[test]
fn large_answers_come_through_a_down_chunk() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        for len in [0, 1, 47, 48, 49, 1000, 16 * 1024, 16 * 1024 + 1, 100_000, CHUNK_BYTES as usize] {
            let request = head(BIG, 0).with_down(link.chunk_down().unwrap());
            let call = link.begin_call(request, 8, |to| to.word(len as u64)).unwrap();
            let expected = pattern(call.position(), len);
            let reply = call.wait().unwrap();
            assert_eq!(reply.len(), len);
            assert!(reply.read(|_, body| body.bytes(len) == Ok(&expected)), "{over:?} {len}");
            let mut out = vec![0; len + 3];
            assert_eq!(reply.copy_to(&mut out), len);
            assert_eq!(out[..len], expected);
        }
        drop(link);
        worker.join().unwrap();
    }
}

#[test]
fn chunks_to_the_device_are_used_up_and_come_back() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        std::thread::scope(|scope| {
            for lane in 0..3u32 {
                let link = &link;
                scope.spawn(move || {
                    let mut sum = 0u64;
                    for number in 0..40u64 {
                        let bytes = pattern(number, (number as usize * 13_001) % CHUNK_BYTES as usize);
                        let mut chunk = link.chunk_up().unwrap();
                        match number % 2 {
                            0 => bytes.chunks(100_000).for_each(|part| chunk.write(part).unwrap()),
                            _ => chunk.send(&bytes).unwrap(),
                        }
                        sum = sum.wrapping_add(checksum(&bytes));
                        let request = head(SUM_POST, lane).with_up(chunk);
                        link.post(request, 8, |to| to.word(bytes.len() as u64)).unwrap();
                    }
                    assert_eq!(total(link, lane), sum, "{over:?}");
                });
            }
        });
        drop(link);
        worker.join().unwrap();
    }
}

#[test]
fn no_chunk_is_lent_twice() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        let mut unused: Vec<_> = (0..CHUNKS).map(|_| link.chunk_up().unwrap()).collect();
        assert!(link.try_chunk_up().unwrap().is_none());
        drop(unused.pop());
        let again = link.try_chunk_up().unwrap().expect("an unused chunk is free again");
        link.post(head(SUM_POST, 0).with_up(again), 8, |to| to.word(0)).unwrap();
        assert!(link.try_chunk_up().unwrap().is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| link.chunk_up().map(drop));
            let record = receiver.next().unwrap();
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished());
            replier.release_chunk_up(record.head.chunk_up.unwrap()).unwrap();
            waiting.join().unwrap().unwrap();
        });
        let lent: Vec<_> = (0..CHUNKS).map(|_| link.chunk_down().unwrap()).collect();
        assert!(link.try_bulk_down().is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| link.chunk_down().map(drop));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished());
            drop(lent);
            waiting.join().unwrap().unwrap();
        });
        let mut chunk = unused.pop().unwrap();
        chunk.write(&[0; CHUNK_BYTES as usize - 1]).unwrap();
        assert_eq!(chunk.write(&[0; 2]), Err(LinkError::TooLong { len: 2, max: 1 }));
    }
}

/// Both sides write far more than the sockets hold, and each side's only threads are writing: without reading while
/// blocked this would never end.
#[test]
fn bulk_in_both_directions_at_once_does_not_lock_up() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        for _ in 0..4 {
            let mut back = Vec::new();
            let full = vec![7; CHUNK_BYTES as usize];
            for _ in 0..8 {
                let request = head(BIG, 0).with_down(link.chunk_down().unwrap());
                back.push(link.begin_call(request, 8, |to| to.word(u64::from(CHUNK_BYTES))).unwrap());
                let mut chunk = link.chunk_up().unwrap();
                chunk.send(&full).unwrap();
                link.post(head(SUM_POST, 1).with_up(chunk), 8, |to| to.word(u64::from(CHUNK_BYTES))).unwrap();
            }
            for call in back {
                let expected = checksum(&pattern(call.position(), CHUNK_BYTES as usize));
                let mut out = vec![0; CHUNK_BYTES as usize];
                assert_eq!(call.wait().unwrap().copy_to(&mut out), out.len());
                assert_eq!(checksum(&out), expected);
            }
        }
        drop(link);
        worker.join().unwrap();
    }
}

/// Small calls of some threads beside bulk of others: no frame is torn, no word comes before its bytes.
#[test]
fn bulk_of_one_thread_does_not_tear_anothers_records() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        std::thread::scope(|scope| {
            for lane in 0..2u32 {
                let link = &link;
                scope.spawn(move || {
                    for number in 0..30u64 {
                        let bytes = pattern(number, CHUNK_BYTES as usize - lane as usize);
                        let mut chunk = link.chunk_up().unwrap();
                        chunk.send(&bytes).unwrap();
                        let request = head(SUM, lane).with_up(chunk);
                        let sum =
                            link.call(request, 8, |to| to.word(bytes.len() as u64), |_, body| body.word());
                        assert_eq!(sum.unwrap(), Ok(checksum(&bytes)), "{over:?}");
                    }
                });
            }
            for lane in 2..4u32 {
                let link = &link;
                scope.spawn(move || {
                    for number in 0..1000u64 {
                        let fill = |to: &mut crate::wire::codec::Writer<'_>| {
                            (0..5).for_each(|n| to.word(number ^ n))
                        };
                        let same = link.call(head(ECHO, lane), 40, fill, |_, body| {
                            (0..5).all(|n| body.word() == Ok(number ^ n))
                        });
                        assert_eq!(same, Ok(true), "{over:?}");
                    }
                });
            }
        });
        drop(link);
        worker.join().unwrap();
    }
}

#[test]
#[allow(unsafe_code)]
fn bytes_come_to_their_place_from_several_calls_of_several_threads() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let link = &link;
                scope.spawn(move || {
                    let mut to = vec![0xEE; CHUNK_BYTES as usize];
                    for len in
                        (0..40).map(|round| (round * 13_577 + thread * 1000) % CHUNK_BYTES as usize + 100)
                    {
                        let mut chunk = link.bulk_down().unwrap();
                        // SAFETY: the bytes live until the answer is dropped, and are looked at afterwards.
                        unsafe { chunk.receive_into(to.as_mut_ptr(), len) };
                        let body = (len as u64).to_le_bytes();
                        let call =
                            link.begin_call(head(BIG, 0).with_down(chunk), 8, |to| to.bytes(&body)).unwrap();
                        let position = call.position();
                        let reply = call.wait().unwrap();
                        assert_eq!(reply.copy_to(&mut to[..len]), len);
                        drop(reply);
                        assert!(to[..len] == pattern(position, len), "{len} bytes over {over:?}");
                        assert_eq!(to[len], 0xEE, "{len} bytes over {over:?}");
                        to.fill(0xEE);
                    }
                });
            }
        });
        drop(link);
        worker.join().unwrap();
    }
}

/// A chunk's bytes come by another way than its record, and the record never before them; a chunk that is given back unused
/// is not used again while bytes for it are on their way.
#[test]
fn a_record_never_overtakes_the_bytes_of_its_chunk() {
    let (link, receiver, replier) = pair(Over::TcpBeside);
    let worker = serve(receiver, replier);
    for number in 0..200u64 {
        let bytes = pattern(number, CHUNK_BYTES as usize - number as usize);
        let mut chunk = link.chunk_up().unwrap();
        chunk.send(&bytes).unwrap();
        if number % 7 == 3 {
            continue;
        }
        let sum = link.call(
            head(SUM, 0).with_up(chunk),
            8,
            |to| to.word(bytes.len() as u64),
            |_, body| body.word(),
        );
        assert_eq!(sum.unwrap(), Ok(checksum(&bytes)));
    }
    drop(link);
    worker.join().unwrap();
}

/// The point of it: a peer that takes no long bytes at all holds up none of the short ones.
#[test]
fn short_calls_do_not_stand_behind_long_bytes() {
    let (theirs, ours) = tcp_pair();
    let (their_bulk, our_bulk) = tcp_pair();
    let (receiver, replier) = WorkerLink::tcp(theirs).unwrap();
    let link = ClientLink::tcp_with(ours, vec![our_bulk]).unwrap();
    let worker = serve(receiver, replier);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| -> Result<(), LinkError> {
            // Nobody reads at the other end, so this one never gets on.
            let mut held = Vec::new();
            while let Some(mut chunk) = link.try_chunk_up()? {
                chunk.send(&vec![7; CHUNK_BYTES as usize])?;
                held.push(chunk);
            }
            let first = head(SUM_POST, 1).with_up(held.remove(0));
            link.post(first, 8, |to| to.word(1)).map(drop)
        });
        for number in 0..500u64 {
            let same = link.call(head(ECHO, 2), 8, |to| to.word(number), |_, body| body.word());
            assert_eq!(same, Ok(Ok(number)));
        }
        assert!(!stuck.is_finished());
        // The end of one connection is the end of the link.
        drop(their_bulk);
        link.break_with(LinkError::Closed);
        assert!(stuck.join().unwrap().is_err());
    });
    drop(link);
    worker.join().unwrap();
}

/// The end of a connection for long bytes is the end of the link, on both sides.
#[test]
fn a_lost_connection_for_long_bytes_is_noticed() {
    let (link, receiver, replier) = pair(Over::TcpBeside);
    let worker = serve(receiver, replier);
    link.transport
        .push_bulk(0, crate::transport::Piece::Bytes { offset: u32::MAX - 8, bytes: &[1; 8] }, (0, 0))
        .unwrap();
    let (error, _) = worker.join().unwrap();
    assert!(matches!(&error, LinkError::Protocol(what) if what.contains("outside")), "{error}");
    soon(|| link.call(head(ECHO, 0), 0, |_| (), |_, _| ()).is_err());
}
