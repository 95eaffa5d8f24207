//! Peers that lie, vanish or say nothing.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::*;
use crate::wire::layout::{CALLBACKS, CHUNK_BYTES, Head, REPLY_BY_BULK, REPLY_IN_CHUNK, down, up};
use proptest::prelude::*;

/// A link over TCP whose worker is played by the test: it sees raw bytes and sends raw frames.
fn client_and_raw_worker() -> (Arc<ClientLink>, TcpStream) {
    let (theirs, ours) = tcp_pair();
    (ClientLink::tcp(ours).unwrap(), theirs)
}

/// A worker over TCP whose client is played by the test.
fn worker_and_raw_client() -> (Receiver, TcpStream) {
    let (theirs, ours) = tcp_pair();
    (WorkerLink::tcp(theirs).unwrap().0, ours)
}

fn frame(offset: u32, bytes: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

fn word(offset: u32, value: u64) -> Vec<u8> {
    frame(offset, &value.to_le_bytes())
}

/// What a call gets when the worker sends `frames` instead of an honest answer.
fn call_answered_by(frames: &[Vec<u8>]) -> LinkError {
    let (link, mut worker) = client_and_raw_worker();
    worker.write_all(&frames.concat()).unwrap();
    let result = link.call(head(ECHO, 0), 0, |_| (), |result, _| result);
    let error = result.expect_err("no honest answer was sent");
    assert_eq!(link.broken(), Some(error.clone()));
    assert_eq!(link.post(head(COUNT, 0), 8, |to| to.word(0)), Err(error.clone()), "the error stays");
    error
}

fn is_protocol(error: &LinkError) -> bool {
    matches!(error, LinkError::Protocol(_))
}

#[test]
fn frames_outside_the_region_end_the_link() {
    for (offset, len) in
        [(0, 0), (down::BYTES, 8), (down::BYTES - 8, 9), (u32::MAX, u32::MAX), (0, down::BYTES + 1)]
    {
        let header = [offset.to_le_bytes(), len.to_le_bytes()].concat();
        assert!(is_protocol(&call_answered_by(&[header])), "{len} bytes at {offset}");
    }
}

#[test]
fn lying_answers_end_the_link() {
    let slot = down::slot(0);
    let answer = |length: u32| frame(slot + 8, &[0u32.to_le_bytes(), length.to_le_bytes()].concat());
    assert!(is_protocol(&call_answered_by(&[word(slot, 2)])), "an answer for a later record");
    assert!(is_protocol(&call_answered_by(&[word(slot, u64::MAX)])));
    assert!(is_protocol(&call_answered_by(&[answer(49), word(slot, 1)])), "longer than the slot");
    assert!(is_protocol(&call_answered_by(&[answer(u32::MAX), word(slot, 1)])));
    assert!(
        is_protocol(&call_answered_by(&[answer(8 | REPLY_IN_CHUNK), word(slot, 1)])),
        "in a chunk that it has not"
    );
}

#[test]
fn an_answer_longer_than_a_chunk_ends_the_link() {
    let (link, mut worker) = client_and_raw_worker();
    let request = head(BIG, 0).with_down(link.chunk_down().unwrap());
    let length = (CHUNK_BYTES + 1) | REPLY_IN_CHUNK;
    let lie = frame(down::slot(0) + 8, &[0u32.to_le_bytes(), length.to_le_bytes()].concat());
    worker.write_all(&[lie, word(down::slot(0), 1)].concat()).unwrap();
    let result = link.begin_call(request, 8, |to| to.word(0)).unwrap().wait();
    assert!(is_protocol(&result.map(|_| ()).unwrap_err()));
}

#[test]
fn an_answer_by_a_connection_that_is_not_there_ends_the_link() {
    let (link, mut worker) = client_and_raw_worker();
    let request = head(BIG, 0).with_down(link.chunk_down().unwrap());
    let lie =
        frame(down::slot(0) + 8, &[0, 8 | REPLY_IN_CHUNK | REPLY_BY_BULK].map(u32::to_le_bytes).concat());
    worker.write_all(&[lie, word(down::slot(0), 1)].concat()).unwrap();
    let result = link.begin_call(request, 8, |to| to.word(0)).unwrap().wait();
    assert!(is_protocol(&result.map(|_| ()).unwrap_err()));
}

#[test]
fn the_workers_sticky_status_reaches_every_caller() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..4)
                .map(|lane| {
                    scope.spawn({
                        let link = &link;
                        move || link.call(head(ECHO, lane), 0, |_| (), |_, _| ())
                    })
                })
                .collect();
            let position = (0..4).map(|_| receiver.next().unwrap().position).max().unwrap();
            replier.set_status(719, 3, position).unwrap();
            for call in calls {
                let expected = LinkError::Worker { code: 719, call: 3, position };
                assert_eq!(call.join().unwrap(), Err(expected), "{over:?}");
            }
        });
        assert!(matches!(link.board(0), Err(LinkError::Worker { code: 719, .. })));
    }
}

#[test]
fn a_worker_that_claims_to_have_read_more_than_there_is_ends_the_link() {
    let (link, mut worker) = client_and_raw_worker();
    worker.write_all(&word(down::CONSUMED, 1 << 40)).unwrap();
    let error = (0..1000).find_map(|_| link.post(head(COUNT, 0), 4096, |_| ()).err());
    assert!(is_protocol(&error.expect("the ring is never given free")));
}

#[test]
fn a_chunk_given_back_too_often_and_a_queue_too_long_end_the_link() {
    let (link, mut worker) = client_and_raw_worker();
    let spent: Vec<_> = (0..crate::wire::layout::CHUNKS).map(|_| link.chunk_up().unwrap()).collect();
    for chunk in spent {
        link.post(head(SUM_POST, 0).with_up(chunk), 8, |to| to.word(0)).unwrap();
    }
    worker.write_all(&word(down::release(5), 2)).unwrap();
    assert!(is_protocol(&link.chunk_up().map(|_| ()).unwrap_err()));

    let (link, mut worker) = client_and_raw_worker();
    worker.write_all(&word(down::CALLBACKS_QUEUED, u64::from(CALLBACKS) + 1)).unwrap();
    assert!(is_protocol(&link.wait_callback().unwrap_err()));
}

/// What the receiver says to these frames.
fn received(frames: &[Vec<u8>]) -> Result<Option<u64>, LinkError> {
    let (mut receiver, mut client) = worker_and_raw_client();
    client.write_all(&frames.concat()).unwrap();
    let next = receiver.next_within(Duration::from_millis(300));
    next.map(|record| record.map(|record| record.position))
}

#[test]
fn lying_records_end_the_session() {
    let record = |length: u32, call: u16| {
        let head = Head { length, call, chunk_up: None, chunk_down: None, lane: 0, slot: None, context: 0 };
        frame(up::RING, &head.encode())
    };
    let published = |at| word(up::PUBLISHED, at);
    assert_eq!(received(&[record(24, 1), published(24)]), Ok(Some(0)), "the honest one");
    let lies = [
        [record(0, 1), published(24)],
        [record(23, 1), published(24)],
        [record(25, 1), published(24)],
        [record(u32::MAX, 1), published(24)],
        [record(24, 1), published(20)],
        [record(24, 1), published(16)],
        [record(24, 1), published(u64::MAX)],
        [record(24, 1), published(u64::MAX - 7)],
        [record(24, 1), published(u64::from(crate::wire::layout::RING_BYTES) + 8)],
        [record(0, crate::wire::layout::PAD), published(24)],
        [record(12, crate::wire::layout::PAD), published(24)],
        [record(32, crate::wire::layout::PAD), published(24)],
    ];
    for (number, lie) in lies.iter().enumerate() {
        assert!(is_protocol(&received(lie).expect_err("a lie")), "lie {number}");
    }
    let slot_1024 = {
        let mut bytes = [0; 24];
        bytes[0] = 24;
        bytes[12..14].copy_from_slice(&1024u16.to_le_bytes());
        bytes
    };
    assert!(is_protocol(
        &received(&[frame(up::RING, &slot_1024), published(24)]).expect_err("a slot that is not")
    ));
}

#[test]
fn a_published_position_that_falls_back_ends_the_session() {
    let (mut receiver, mut client) = worker_and_raw_client();
    let head =
        Head { length: 24, call: 1, chunk_up: None, chunk_down: None, lane: 0, slot: None, context: 0 };
    client
        .write_all(
            &[frame(up::RING, &[head.encode(), head.encode()].concat()), word(up::PUBLISHED, 48)].concat(),
        )
        .unwrap();
    receiver.next().unwrap();
    receiver.next().unwrap();
    client.write_all(&word(up::PUBLISHED, 24)).unwrap();
    assert!(is_protocol(&receiver.next().unwrap_err()));
}

#[test]
fn callbacks_taken_before_they_were_queued_end_the_session() {
    let (theirs, mut client) = tcp_pair();
    let (mut receiver, replier) = WorkerLink::tcp(theirs).unwrap();
    client.write_all(&word(up::CALLBACKS_TAKEN, 3)).unwrap();
    assert!(receiver.next_within(Duration::from_millis(100)).unwrap().is_none());
    assert!(is_protocol(&replier.push_callback(1).unwrap_err()));
    assert!(is_protocol(&receiver.next().unwrap_err()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn garbage_to_the_worker_ends_in_an_error_or_in_waiting(
        words in proptest::collection::vec(
            prop_oneof![any::<u64>(), 0u64..200, Just(u64::from(up::RING) | 64 << 32), (0u64..64).prop_map(|o| (o * 8) | (8 << 32))], 1..80),
    ) {
        let (mut receiver, mut client) = worker_and_raw_client();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        client.write_all(&bytes).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let end = loop {
            match receiver.next_within(Duration::from_secs(5)) {
                Ok(Some(record)) => prop_assert!(record.body.len() < 1 << 16),
                Ok(None) => panic!("the closed connection was not noticed"),
                Err(error) => break error,
            }
        };
        prop_assert!(end == LinkError::Closed || is_protocol(&end), "{:?}", end);
    }

    #[test]
    fn any_ring_contents_on_shared_memory_are_survived(
        contents in proptest::collection::vec(prop_oneof![any::<u64>(), (0u64..100).prop_map(|n| n | (1 << 32)), (0u64..100).prop_map(|n| (n * 8) | (0xFFFF << 32))], 8..64),
        published in prop_oneof![any::<u64>(), (0u64..64).prop_map(|n| n * 8)],
    ) {
        let (link, mut receiver, _replier) = pair(Over::Shm);
        let (region, _) = link.regions();
        for (at, &value) in contents.iter().enumerate() {
            region.word64(up::RING + 8 * at as u32).store(value, Ordering::Relaxed);
        }
        region.word64(up::PUBLISHED).store(published, Ordering::Release);
        let mut taken = 0;
        let end = loop {
            match receiver.next_within(Duration::from_millis(1)) {
                Ok(Some(record)) => {
                    taken += record.body.len() as u64 + 24;
                    prop_assert!(taken <= published + 8);
                }
                other => break other.map(|_| ()),
            }
        };
        prop_assert!(end.is_ok() || is_protocol(&end.unwrap_err()));
    }
}

#[test]
fn whoever_waits_is_woken_when_the_worker_goes() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|lane| {
                    scope.spawn({
                        let link = &link;
                        move || match lane {
                            0 => link.call(head(ECHO, 0), 0, |_| (), |_, _| ()),
                            1 => link.wait_board(3, 1),
                            _ => (0..10_000)
                                .try_for_each(|_| link.post(head(COUNT, 9), 4096, |_| ()).map(drop)),
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            drop((receiver, replier));
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Err(LinkError::Closed), "{over:?}");
            }
            assert!(start.elapsed() < Duration::from_secs(1), "{over:?}: {:?}", start.elapsed());
        });
        assert_eq!(link.broken(), Some(LinkError::Closed));
    }
}

#[test]
fn a_client_that_polls_the_board_notices_that_the_worker_went() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        drop((receiver, replier));
        let start = Instant::now();
        while link.board(0).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(1), "{over:?}");
        }
        assert_eq!(link.broken(), Some(LinkError::Closed));
    }
}

#[test]
fn a_sleeping_worker_is_woken_when_the_client_goes() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        let sleeping = std::thread::spawn(move || receiver.next().map(|_| ()));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(replier.broken(), None);
        let start = Instant::now();
        drop(link);
        assert_eq!(sleeping.join().unwrap(), Err(LinkError::Closed));
        assert!(start.elapsed() < Duration::from_secs(1), "{over:?}");
        assert_eq!(replier.reply(0, 0, 0, &[]), Err(LinkError::Closed));
    }
}

#[test]
fn giving_a_link_up_wakes_its_own_threads_with_the_reason() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        let reason = LinkError::GivenUp("the server does not answer".into());
        std::thread::scope(|scope| {
            let call = scope.spawn(|| link.call(head(ECHO, 0), 0, |_| (), |_, _| ()));
            let board = scope.spawn(|| link.wait_board(1, 1));
            receiver.next().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            link.break_with(reason.clone());
            link.break_with(LinkError::Closed);
            assert_eq!(call.join().unwrap(), Err(reason.clone()), "{over:?}");
            assert_eq!(board.join().unwrap(), Err(reason.clone()), "{over:?}");
        });
        assert_eq!(link.broken(), Some(reason));
        let own = LinkError::GivenUp("the driver is gone".into());
        replier.break_with(own);
        assert!(receiver.next().is_err());
    }
}

#[test]
fn shared_memory_of_the_wrong_kind_is_refused() {
    use std::os::fd::AsFd;
    // Nothing but bytes: no descriptors.
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    theirs.write_all(&[0; 24]).unwrap();
    assert!(is_protocol(&ClientLink::shm(ours).map(|_| ()).unwrap_err()));
    // Closed at once.
    let (theirs, ours) = UnixStream::pair().unwrap();
    drop(theirs);
    assert_eq!(ClientLink::shm(ours).map(|_| ()).unwrap_err(), LinkError::Closed);
    // Real files, but not sealed: they could shrink under the client.
    for (len_up, len_down) in [(up::BYTES, down::BYTES), (4096, down::BYTES)] {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let make = |len: u32| {
            let fd = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, u64::from(len)).unwrap();
            fd
        };
        let fds = [make(len_up), make(len_down), make(1 << 16)];
        let borrowed = fds.each_ref().map(|fd| fd.as_fd());
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&borrowed)));
        let greeting = crate::transport::shm::greeting(1 << 16);
        let data = [std::io::IoSlice::new(&greeting)];
        rustix::net::sendmsg(&theirs, &data, &mut control, rustix::net::SendFlags::empty()).unwrap();
        assert!(is_protocol(&ClientLink::shm(ours).map(|_| ()).unwrap_err()));
    }
}

/// The client cannot be made to write the worker's region, nor the worker the client's.
#[test]
fn each_side_can_only_read_the_others_memory() {
    let (_link, _receiver, _replier) = pair(Over::Shm);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for name in ["gpupool-up", "gpupool-down"] {
        let access: Vec<_> =
            maps.lines().filter(|l| l.contains(name)).map(|l| l.split(' ').nth(1).unwrap()).collect();
        assert!(access.contains(&"rw-s") && access.contains(&"r--s"), "{name}: {access:?}");
    }
}
