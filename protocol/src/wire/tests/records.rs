//! Posts and calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::wire::WaitKind;
use crate::wire::board::FAILED;
use crate::wire::layout::{BODY_BYTES_MAX, SLOT_PAYLOAD, SLOTS};
use proptest::prelude::*;

#[test]
fn a_million_posts_from_four_threads_arrive_in_each_threads_order() {
    const POSTS: u64 = 250_000;
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        std::thread::scope(|scope| {
            for lane in 0..4 {
                let link = &link;
                scope.spawn(move || {
                    for number in 0..POSTS {
                        // Bodies of different lengths, so that every kind of place at the ring's end comes up.
                        let len = 8 + (number * 31 + u64::from(lane)) as usize % 160;
                        link.post(head(COUNT, lane), len, |to| to.word(number)).unwrap();
                    }
                    assert_eq!(total(link, lane), POSTS, "{over:?}");
                });
            }
        });
        drop(link);
        assert_eq!(worker.join().unwrap().0, LinkError::Closed);
    }
}

#[test]
fn calls_and_posts_of_many_threads_interleave() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        std::thread::scope(|scope| {
            for lane in 0..6u32 {
                let link = &link;
                scope.spawn(move || {
                    for number in 0..2000u64 {
                        link.post(head(COUNT, lane), 8, |to| to.word(number)).unwrap();
                        let sent = [number, u64::from(lane), !number];
                        let words = sent.len().min(number as usize % 4);
                        let fill = |to: &mut crate::wire::codec::Writer<'_>| {
                            sent[..words].iter().for_each(|&w| to.word(w))
                        };
                        let came = link.call(head(ECHO, lane), 8 * words, fill, |result, body| {
                            assert_eq!(result, lane as i32);
                            std::iter::from_fn(|| body.word().ok()).collect::<Vec<_>>()
                        });
                        assert_eq!(came.unwrap(), sent[..words], "{over:?}");
                    }
                });
            }
        });
        drop(link);
        assert_eq!(worker.join().unwrap().1[..6], [2000; 6]);
    }
}

#[test]
fn answers_out_of_order_find_their_calls() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        for _ in 0..50 {
            let calls: Vec<_> = (0..8).map(|_| link.begin_call(head(LATE, 0), 0, |_| ()).unwrap()).collect();
            for call in calls {
                let position = call.position();
                let reply = call.wait().unwrap();
                reply.read(|result, body| assert_eq!((result, body.word()), (7, Ok(position))));
            }
        }
        drop(link);
        worker.join().unwrap();
    }
}

#[test]
fn a_full_ring_makes_the_poster_wait_and_loses_nothing() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let posted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..600u64 {
                    link.post(head(COUNT, 0), 4096, |to| to.word(number)).unwrap();
                    posted.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(total(&link, 0), 600, "{over:?}");
            });
            // Nobody reads: the poster must stop at 1 MiB.
            soon(|| link.long_waits().iter().any(|wait| wait.kind == WaitKind::RingSpace));
            let stopped_at = posted.load(Ordering::Relaxed);
            assert!((240..=255).contains(&stopped_at), "{stopped_at} posts of 4 KiB in a ring of 1 MiB");
            serve(receiver, replier);
        });
    }
}

#[test]
fn posts_go_out_soon_although_no_call_follows() {
    for over in ALL {
        let (link, mut receiver, _replier) = pair(over);
        for number in 0..20u64 {
            let start = Instant::now();
            link.post(head(COUNT, 0), 8, |to| to.word(number)).unwrap();
            let record = receiver.next_within(Duration::from_secs(5)).unwrap().expect("the post");
            assert_eq!(record.body, number.to_le_bytes());
            assert!(start.elapsed() < Duration::from_millis(500), "{over:?}: {:?}", start.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn bodies_of_every_length_come_whole_with_zeroed_padding() {
    for over in ALL {
        let (link, mut receiver, _replier) = pair(over);
        for len in (0..200).chain([4000, 30_000, BODY_BYTES_MAX]) {
            let body = pattern(len as u64, len);
            link.post(CallHead::new(9, 3, 0xC0FFEE), len, |to| to.bytes(&body)).unwrap();
            let record = receiver.next().unwrap();
            assert_eq!((record.head.call, record.head.lane, record.head.context), (9, 3, 0xC0FFEE));
            assert_eq!(record.head.slot, None);
            assert_eq!(record.body[..len], body);
            assert!(
                record.body[len..].iter().all(|&b| b == 0) && record.body.len() == len.next_multiple_of(8)
            );
        }
        let long = BODY_BYTES_MAX + 1;
        let error = link.post(head(9, 0), long, |_| ()).unwrap_err();
        assert_eq!(error, LinkError::TooLong { len: long, max: BODY_BYTES_MAX });
        assert_eq!(link.broken(), None);
    }
}

#[test]
fn a_body_that_panics_or_does_not_fit_holds_nobody_back() {
    for over in ALL {
        let (link, receiver, replier) = pair(over);
        let worker = serve(receiver, replier);
        for number in 0..100 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                link.post(head(COUNT, 0), 64, |_| panic!("a defect"))
            }));
            assert!(result.is_err());
            let long = link.post(head(COUNT, 0), 64, |to| to.bytes(&[1; 65]));
            assert_eq!(long, Err(LinkError::TooLong { len: 65, max: 64 }));
            let (post, mut body) = link.begin_post(8).unwrap();
            body.words([1, 2]);
            assert_eq!(post.end(body, COUNT, 0, 0), Err(LinkError::TooLong { len: 9, max: 8 }));
            link.post(head(COUNT, 0), 8, |to| to.word(number)).unwrap();
        }
        assert_eq!(total(&link, 0), 100);
        drop(link);
        worker.join().unwrap();
    }
}

#[test]
fn more_callers_than_slots_take_turns() {
    let (link, mut receiver, replier) = pair(Over::Shm);
    let calls: Vec<_> = (0..SLOTS).map(|_| link.begin_call(head(LATE, 0), 0, |_| ()).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| link.call(head(ECHO, 0), 0, |_| (), |result, _| result));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "there is no slot left");
        for _ in 0..SLOTS {
            let record = receiver.next().unwrap();
            replier.reply(record.head.slot.unwrap(), record.position, 0, &[]).unwrap();
        }
        for call in calls {
            assert_eq!(call.wait().unwrap().result, 0);
        }
        let record = receiver.next().unwrap();
        replier.reply(record.head.slot.unwrap(), record.position, 5, &[]).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 5);
    });
}

#[test]
fn board_words_callbacks_and_output_reach_the_client() {
    for over in ALL {
        let (link, _receiver, replier) = pair(over);
        assert_eq!(link.board(17).unwrap(), 0);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (1..4)
                .map(|n| {
                    (
                        n,
                        scope.spawn({
                            let link = &link;
                            move || link.wait_board(17, n)
                        }),
                    )
                })
                .collect();
            let callback = scope.spawn(|| link.wait_callback());
            std::thread::sleep(Duration::from_millis(30));
            for value in 1..4 {
                replier.board_set(17, value).unwrap();
            }
            replier.output_written(1234).unwrap();
            replier.push_callback(99).unwrap();
            for (n, waiter) in waiters {
                assert_eq!(waiter.join().unwrap(), Ok(()), "{over:?} {n}");
            }
            assert_eq!(callback.join().unwrap(), Ok(99));
        });
        assert_eq!(link.board(17).unwrap(), 3);
        // An answer that comes late takes nothing back, and a failure stays.
        let failed = FAILED | 400;
        for (step, (value, shown)) in (1..).zip([(2, 3), (failed, failed), (4, failed), (FAILED | 1, failed)])
        {
            replier.board_set(17, value).unwrap();
            // Words arrive in the order in which they are sent.
            replier.board_set(18, step).unwrap();
            link.wait_board(18, step).unwrap();
            assert_eq!(link.board(17).unwrap(), shown, "{over:?}");
        }
        assert_eq!(link.output_written(), 1234);
        assert_eq!(link.next_callback(), Ok(None));
        assert!(matches!(replier.board_set(u32::MAX, 1), Err(LinkError::Protocol(_))));
        assert!(matches!(
            replier.reply(0, 0, 0, &[0; SLOT_PAYLOAD as usize + 1]),
            Err(LinkError::TooLong { .. })
        ));
    }
}

/// A thread that waits for callbacks all the time neither misses one nor takes other threads' answers away.
#[test]
fn callbacks_come_while_other_threads_call() {
    const CALLBACKS: u64 = 300;
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        std::thread::scope(|scope| {
            let callbacks =
                scope.spawn(|| (0..CALLBACKS).for_each(|id| assert_eq!(link.wait_callback(), Ok(id))));
            scope.spawn(|| {
                // Each call's answer comes just before or behind a callback; some callbacks come alone.
                for number in 0..CALLBACKS {
                    let record = receiver.next().unwrap();
                    let (slot, position) = (record.head.slot.unwrap(), record.position);
                    if number % 2 == 0 {
                        replier.push_callback(number).unwrap();
                    }
                    replier.reply(slot, position, 0, &[]).unwrap();
                    if number % 2 == 1 {
                        replier.push_callback(number).unwrap();
                    }
                }
            });
            for number in 0..CALLBACKS {
                link.call(head(ECHO, 0), 0, |_| (), |_, _| ()).unwrap();
                if number % 16 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            callbacks.join().unwrap();
        });
    }
}

#[test]
fn the_callback_queue_is_bounded_and_keeps_its_order() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        let mut pushed = 0;
        while replier.push_callback(pushed).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, u64::from(crate::wire::layout::CALLBACKS));
        assert_eq!(replier.push_callback(0), Err(LinkError::CallbacksFull));
        for id in 0..pushed {
            assert_eq!(link.wait_callback(), Ok(id));
        }
        // On tcp the worker hears of it when it reads.
        assert!(receiver.next_within(Duration::from_millis(50)).unwrap().is_none());
        replier.push_callback(5).unwrap();
        assert_eq!(link.wait_callback(), Ok(5));
    }
}

#[test]
fn a_long_wait_calls_the_hook_and_has_a_name() {
    for over in ALL {
        let (link, mut receiver, replier) = pair(over);
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        link.on_long_wait(Box::new(move |wait| {
            assert!(wait.to_string().contains("answer of call 3"), "{wait}");
            count.fetch_add(1, Ordering::Relaxed);
        }));
        std::thread::scope(|scope| {
            scope.spawn(|| link.call(head(ECHO, 0), 0, |_| (), |_, _| ()).unwrap());
            let start = Instant::now();
            soon(|| calls.load(Ordering::Relaxed) == 3);
            assert!(start.elapsed() > Duration::from_millis(590), "{over:?}: {:?}", start.elapsed());
            assert_eq!(link.long_waits().len(), 1);
            let record = receiver.next().unwrap();
            replier.reply(record.head.slot.unwrap(), record.position, 0, &[]).unwrap();
        });
        assert!(link.long_waits().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_sequence_of_posts_and_calls_comes_through(
        ops in proptest::collection::vec((any::<bool>(), 0usize..48, any::<u64>()), 1..60), tcp: bool,
    ) {
        let (link, receiver, replier) = pair(if tcp { Over::Tcp } else { Over::Shm });
        let worker = serve(receiver, replier);
        let mut posts = 0;
        for (post, len, seed) in ops {
            if post {
                link.post(head(COUNT, 1), 8 + 16 * len, |to| to.word(posts)).unwrap();
                posts += 1;
            } else {
                let body = pattern(seed, len / 8 * 8);
                let came = link.call(head(ECHO, 2), body.len(), |to| to.bytes(&body), |_, r| r.bytes(r.left()).map(<[u8]>::to_vec));
                prop_assert_eq!(came.unwrap().unwrap(), body);
            }
        }
        prop_assert_eq!(total(&link, 1), posts);
        drop(link);
        prop_assert_eq!(worker.join().unwrap().0, LinkError::Closed);
    }
}
