//! What a client sees of a session.

use gpupool_protocol::api::numbers::*;
use gpupool_protocol::image::{Contents, JitOption};
use gpupool_protocol::wire::board::FAILED;
use gpupool_protocol::wire::codec::Wire;
use gpupool_protocol::wire::layout::BOARD_WORDS;
use gpupool_protocol::wire::{Head, LinkError, Record};

use super::hostile::parcel;
use super::null::{self, BASE, IMAGE, REFUSAL, REFUSED};
use super::{Body, Pool, again, handle, linked};
use crate::worker::code::Code;
use crate::worker::context::{Call, Cx};
use crate::worker::dispatch;

const NOT_MINE: u64 = 0x1234;

/// Body of a 32-bit set of `n` elements.
fn memset(address: u64, n: u64, stream: u64) -> Body {
    Body::words(&[address, 7, n, stream])
}

fn synchronize(pool: &Pool, stream: u64) -> i32 {
    pool.call(stream_synchronize, Body::words(&[stream])).0
}

#[test]
fn copies_and_sets_reach_the_device_and_come_back() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(cuMemsetD32Async, memset(BASE, 4, 0));
    let (code, words) = pool.call(copy_out, Body::words(&[BASE, 8, 0]));
    assert_eq!((code, words), (0, vec![7 << 32 | 7]));
    // Inline, then by a chunk in each direction.
    pool.post(copy_in, Body::words(&[BASE, 8, 0, 0x0102_0304_0506_0708, 0]));
    assert_eq!(pool.call(copy_out, Body::words(&[BASE, 8, 0])), (0, vec![0x0102_0304_0506_0708]));
    let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    for _ in 0..40 {
        let mut chunk = pool.link.chunk_up().unwrap();
        chunk.write(&bytes).unwrap();
        let body = Body::words(&[BASE, bytes.len() as u64, 1 + u64::from(chunk.index()), 0]);
        let head = pool.head(copy_in).with_up(chunk);
        pool.link.post(head, 32, |to| to.bytes(&body.0)).unwrap();
    }
    let (code, back) = pool.call_long(copy_out, Body::words(&[BASE, bytes.len() as u64, 0]));
    assert_eq!(code, 0);
    assert_eq!(back, bytes);
    assert_eq!(pool.call(mem_info, Body::default()), (0, vec![1 << 20, 2 << 20]));
    let priorities = pool.call(cuCtxGetStreamPriorityRange, Body::default());
    assert_eq!(priorities, (0, vec![0, u64::from(-5i32 as u32)]));
    pool.end().unwrap();
}

#[test]
fn a_chunk_comes_back_when_its_stream_has_read_it_and_some_always_do() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    null::with(|state| state.held.insert(0));
    let sent = std::cell::Cell::new(0u8);
    let send = |n: usize| {
        for _ in 0..n {
            let mut chunk = pool.link.chunk_up().unwrap();
            let place = BASE + 64 * u64::from(sent.get());
            sent.set(sent.get() + 1);
            chunk.write(&[sent.get(); 64]).unwrap();
            let body = Body::words(&[place, 64, 1 + u64::from(chunk.index()), 0]);
            pool.link.post(pool.head(copy_in).with_up(chunk), 32, |to| to.bytes(&body.0)).unwrap();
        }
    };
    let free = || {
        // The posts before are carried out when this call is.
        assert_eq!(pool.call(mem_info, Body::default()).0, 0);
        let chunks: Vec<_> = std::iter::from_fn(|| pool.link.try_chunk_up().unwrap()).collect();
        chunks.len()
    };
    send(5);
    assert_eq!(free(), 11);
    // The stream does not get on, and still the client never runs out of chunks.
    send(100);
    assert_eq!(free(), 4);
    assert_eq!((null::count("to_device 64"), null::count("host_register")), (105, 1));
    null::let_go();
    let start = std::time::Instant::now();
    while free() < 16 {
        assert!(start.elapsed().as_secs() < 10, "chunks stay away");
    }
    // None was given back before it was read.
    let (code, bytes) = pool.call_long(copy_out, Body::words(&[BASE, 64 * 105, 0]));
    assert_eq!(code, 0);
    assert!(bytes.chunks(64).enumerate().all(|(i, part)| part == [i as u8 + 1; 64]));
    pool.end().unwrap();
}

#[test]
fn a_watch_stands_in_the_streams_own_context() {
    let (driver, _guard) = null::driver();
    let mut pool = Pool::start(driver);
    assert_eq!(pool.call(context_create, Body::words(&[handle(1), 0, 1])).0, 0);
    pool.context = handle(1);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    assert_eq!(pool.call(stream_query, Body::words(&[handle(0)])).0, 0);
    null::with(|state| {
        let entry = state.log.iter().find_map(|entry| entry.strip_prefix("stream 0x")).unwrap();
        state.held.insert(u64::from_str_radix(entry, 16).unwrap());
    });
    pool.context = handle(0);
    assert_eq!(pool.call(stream_query, Body::words(&[0])).0, 0);
    pool.post(stream_watch, Body::words(&[handle(0), 0, 1]));
    assert_eq!(pool.call(stream_query, Body::words(&[0])).0, 0);
    let currents: Vec<_> = null::with(|s| {
        s.log.iter().filter_map(|e| e.strip_prefix("set_current ")).map(str::to_owned).collect()
    });
    // The watcher's own thread may be among the later ones.
    let [other, first, watch, rest @ ..] = &currents[..] else { panic!("{currents:?}") };
    assert!(other != first && watch == other && rest.contains(first), "{currents:?}");
    null::let_go();
    pool.link.wait_board(0, 1).unwrap();
    pool.end().unwrap();
}

#[test]
fn a_word_is_watched_once_however_often_it_is_asked_for() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    assert_eq!(pool.call(stream_query, Body::words(&[handle(0)])).0, 0);
    null::with(|state| {
        let entry = state.log.iter().find_map(|entry| entry.strip_prefix("stream 0x")).unwrap();
        state.held.insert(u64::from_str_radix(entry, 16).unwrap());
    });
    // A program that asks after each of very many launches, while its stream stands.
    let times = u64::from(BOARD_WORDS) + 100;
    for value in 1..=times {
        pool.post(stream_watch, Body::words(&[handle(0), 3, value]));
    }
    assert_eq!(pool.call(mem_info, Body::default()).0, 0);
    null::let_go();
    pool.link.wait_board(3, times).unwrap();
    pool.end().unwrap();
}

#[test]
fn what_is_deleted_after_its_context_gives_its_place_back() {
    let (driver, _guard) = null::driver();
    let mut pool = Pool::start(driver);
    assert_eq!(pool.call(context_create, Body::words(&[handle(1), 0, 1])).0, 0);
    pool.context = handle(1);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    pool.post(event_create, Body::words(&[handle(0), 0]));
    pool.parcel(1, IMAGE);
    assert_eq!(pool.call(module_load, Body::words(&[handle(0), 1, 0])).1[0], 0);
    // Two threads of a program: one ends the context, the other what is in it.
    assert_eq!(pool.call(context_destroy, Body::words(&[handle(1)])).0, 0);
    pool.post(stream_destroy, Body::words(&[handle(0)]));
    pool.post(event_destroy, Body::words(&[handle(0)]));
    assert_eq!(pool.call(module_unload, Body::words(&[handle(0)])).0, Code::INVALID_CONTEXT.0);
    pool.context = handle(0);
    pool.post(stream_create, Body::words(&[again(0, 2), 0, 0]));
    pool.post(event_create, Body::words(&[again(0, 2), 0]));
    pool.parcel(2, IMAGE);
    assert_eq!(pool.call(module_load, Body::words(&[again(0, 2), 2, 0])).1[0], 0);
    assert_eq!(synchronize(&pool, again(0, 2)), 0);
    pool.end().unwrap();
}

#[test]
fn many_words_are_all_raised() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    assert_eq!(pool.call(stream_query, Body::words(&[handle(0)])).0, 0);
    null::with(|state| {
        let entry = state.log.iter().find_map(|entry| entry.strip_prefix("stream 0x")).unwrap();
        state.held.insert(u64::from_str_radix(entry, 16).unwrap());
    });
    // More than the watcher asks about in a row, up to the last word that there is.
    let words = (0..BOARD_WORDS).rev().step_by(100);
    for word in words.clone() {
        pool.post(stream_watch, Body::words(&[handle(0), u64::from(word), 1]));
    }
    assert_eq!(pool.call(mem_info, Body::default()).0, 0);
    assert_eq!(pool.link.board(BOARD_WORDS - 1).unwrap(), 0);
    null::let_go();
    for word in words {
        pool.link.wait_board(word, 1).unwrap();
    }
    pool.end().unwrap();
}

#[test]
fn a_context_that_is_idle_needs_no_other_thread() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_create, Body::words(&[handle(0), 1, 0]));
    assert_eq!(pool.call(context_synchronize, Body::default()).0, 0);
    assert_eq!(null::count("context_synchronize"), 1);
    pool.end().unwrap();
}

#[test]
fn a_failed_post_is_told_once_by_the_next_wait() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(cuMemsetD32Async, memset(NOT_MINE, 4, 0));
    pool.post(stream_destroy, Body::words(&[handle(9)]));
    assert_eq!(pool.call(mem_info, Body::default()).0, 0, "no wait");
    assert_eq!(synchronize(&pool, 0), Code::INVALID_VALUE.0);
    assert_eq!(synchronize(&pool, 0), 0);
    pool.post(cuMemsetD32Async, memset(BASE, u64::MAX, 0));
    let (code, bytes) = pool.call(copy_out, Body::words(&[BASE, 8, 0]));
    assert_eq!((code, bytes), (Code::INVALID_VALUE.0, vec![]));
    assert_eq!(pool.call(copy_out, Body::words(&[BASE, 8, 0])).0, 0);
    pool.end().unwrap();
}

#[test]
fn a_failed_posted_creation_poisons_its_handle() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_create, Body::words(&[handle(0), u64::from(REFUSED), 0]));
    // The creation's failure is told once, and what was posted to the stream is dropped without a word.
    pool.post(cuMemsetD32Async, memset(BASE, 4, handle(0)));
    assert_eq!(synchronize(&pool, 0), REFUSAL.0);
    assert_eq!(synchronize(&pool, 0), 0);
    assert_eq!(synchronize(&pool, handle(0)), REFUSAL.0);
    assert_eq!(null::count("memset32"), 0);
    // Destroyed, its place is used again.
    pool.post(stream_destroy, Body::words(&[handle(0)]));
    pool.post(stream_create, Body::words(&[again(0, 2), 0, 0]));
    pool.post(cuMemsetD32Async, memset(BASE, 4, again(0, 2)));
    assert_eq!(synchronize(&pool, again(0, 2)), 0);
    assert_eq!(synchronize(&pool, handle(0)), Code::INVALID_HANDLE.0);
    assert_eq!(null::count("memset32"), 1);
    pool.end().unwrap();
}

#[test]
fn a_handle_out_of_line_ends_the_session_and_no_other() {
    let (driver, _guard) = null::driver();
    let other = Pool::start(driver.clone());
    for bad in [handle(5), again(0, 0), 2] {
        let pool = Pool::start(driver.clone());
        pool.post(event_create, Body::words(&[bad, 0]));
        let call = pool.link.call(pool.head(mem_info), 0, |_| (), |code, _| code);
        assert!(matches!(call, Err(LinkError::Worker { .. } | LinkError::Closed)), "{call:?}");
        let error = pool.end().unwrap_err().to_string();
        assert!(error.contains("event_create"), "{error}");
    }
    assert_eq!(synchronize(&other, 0), 0);
    other.end().unwrap();
}

#[test]
fn a_slow_call_does_not_hold_up_another_lane() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    assert_eq!(synchronize(&pool, handle(0)), 0);
    let native = null::with(|state| {
        let entry = state.log.iter().find_map(|entry| entry.strip_prefix("stream 0x")).unwrap();
        u64::from_str_radix(entry, 16).unwrap()
    });
    null::with(|state| state.held.insert(native));
    // Many at once, so that every one needs a thread of its own.
    let waiting: Vec<_> = (10..40)
        .map(|lane| {
            let call = pool.lane(lane);
            std::thread::spawn(move || call(stream_synchronize, Body::words(&[handle(0)])).0)
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(pool.call(mem_info, Body::default()).0, 0);
    }
    assert!(waiting.iter().all(|thread| !thread.is_finished()));
    null::let_go();
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap() == 0));
    pool.end().unwrap();
}

#[test]
fn a_lane_has_a_default_stream_of_its_own_until_it_ends() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    let streams = || null::count("stream 0x");
    pool.post(cuMemsetD32Async, memset(BASE, 1, 2));
    pool.post(cuMemsetD32Async, memset(BASE, 1, 2));
    assert_eq!((synchronize(&pool, 2), streams()), (0, 1));
    let other = pool.lane(7);
    assert_eq!((other(stream_synchronize, Body::words(&[2])).0, streams()), (0, 2));
    // The null driver fails the test if a stream is used after its end.
    pool.post(lane_end, Body::default());
    assert_eq!((synchronize(&pool, 2), streams()), (0, 3));
    pool.end().unwrap();
}

#[test]
fn the_board_is_raised_when_the_work_is_done() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(stream_watch, Body::words(&[0, 3, 10]));
    pool.link.wait_board(3, 10).unwrap();
    null::with(|state| state.held.insert(0));
    pool.post(event_create, Body::words(&[handle(0), 0]));
    pool.post(event_record, Body::words(&[handle(0), 0, 0]));
    pool.post(stream_watch, Body::words(&[0, 3, 11]));
    pool.post(event_watch, Body::words(&[handle(0), 4, 1]));
    assert_eq!(pool.call(stream_query, Body::words(&[0])).0, Code::NOT_READY.0);
    assert_eq!((pool.link.board(3).unwrap(), pool.link.board(4).unwrap()), (10, 0));
    null::let_go();
    pool.link.wait_board(3, 11).unwrap();
    pool.link.wait_board(4, 1).unwrap();
    // What cannot be watched shows an error, or its client would wait for ever.
    pool.post(event_watch, Body::words(&[handle(1), 5, 1]));
    pool.link.wait_board(5, 1).unwrap();
    assert_eq!(pool.link.board(5).unwrap(), FAILED | Code::INVALID_HANDLE.0 as u64);
    pool.end().unwrap();
}

#[test]
fn a_destroyed_event_is_not_asked_about_and_its_word_serves_the_next() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    null::with(|state| state.held.insert(0));
    pool.post(event_create, Body::words(&[handle(0), 0]));
    pool.post(event_record, Body::words(&[handle(0), 0, 0]));
    pool.post(event_watch, Body::words(&[handle(0), 4, 1]));
    pool.post(event_destroy, Body::words(&[handle(0)]));
    assert_eq!(pool.call(mem_info, Body::default()).0, 0);
    null::let_go();
    assert_eq!(pool.link.board(4).unwrap(), 0, "who destroys it does not ask for it");
    // The word serves the next one in its place: an error on it would make each query of that a call.
    let next = again(0, 2);
    pool.post(event_create, Body::words(&[next, 0]));
    pool.post(event_record, Body::words(&[next, 0, 0]));
    pool.post(event_watch, Body::words(&[next, 4, 2]));
    pool.link.wait_board(4, 2).unwrap();
    assert_eq!(pool.link.board(4).unwrap(), 2);
    pool.end().unwrap();
}

#[test]
fn a_module_comes_with_its_contents_and_launches() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.parcel(1, IMAGE);
    let (code, words) = pool.call(module_load, Body::words(&[handle(0), 1, 0]));
    assert_eq!((code, words[0]), (0, 0));
    let (code, bytes) = pool.call_long(parcel_get, Body::words(&[words[1], 0]));
    assert_eq!(code, 0);
    let contents = Contents::from_bytes(&bytes[8..8 + words[2] as usize]).unwrap();
    let [kernel] = &contents.kernels[..] else { panic!("{contents:?}") };
    assert_eq!((kernel.name.as_str(), &kernel.attributes[..]), ("kernel", &[0, 10, 20][..]));
    assert_eq!(kernel.params.iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>(), [(0, 8), (8, 4)]);

    pool.post(module_function, Body::words(&[handle(0), handle(0), 0]));
    let shape = [handle(0), 3, 1, 1, 32, 1, 1, 0, 0, 0];
    let launch_with = |attributes: Vec<u8>, parameters: Vec<u8>| {
        pool.post(launch, Body::words(&shape).put(attributes).put(parameters));
    };
    launch_with(vec![], [0xABCDu64.to_le_bytes(), 5u64.to_le_bytes()].concat());
    launch_with(vec![], vec![0; 11]);
    assert_eq!(synchronize(&pool, 0), Code::INVALID_VALUE.0, "a parameter block that is too short");
    assert_eq!(null::count("launch 3 0xabcd 5"), 1);

    // Handles inside attributes are the driver's when they come to it.
    pool.post(event_create, Body::words(&[handle(0), 0]));
    let mut row = 7u64.to_le_bytes().to_vec();
    row.extend(handle(0).to_le_bytes());
    row.resize(72, 0);
    launch_with(row.clone(), vec![0; 16]);
    row[8..16].copy_from_slice(&handle(1).to_le_bytes());
    launch_with(row, vec![0; 16]);
    assert_eq!(synchronize(&pool, 0), Code::INVALID_HANDLE.0);
    let logged = null::with(|state| state.log.iter().find(|e| e.starts_with("launch_ex")).cloned()).unwrap();
    assert!(logged.starts_with("launch_ex 7=0x5"), "{logged}");

    // Unloaded, its functions are gone with it.
    assert_eq!(pool.call(module_unload, Body::words(&[handle(0)])).0, 0);
    launch_with(vec![], vec![0; 16]);
    assert_eq!(synchronize(&pool, 0), Code::INVALID_HANDLE.0);

    // The place of a handle that was ended is used again.
    pool.post(function_end, Body::words(&[handle(0)]));
    pool.parcel(2, IMAGE);
    assert_eq!(pool.call(module_load, Body::words(&[again(0, 2), 2, 0])).0, 0);
    pool.post(module_function, Body::words(&[again(0, 2), again(0, 2), 0]));
    assert_eq!(pool.call(function_get_attribute, Body::words(&[again(0, 2), 1, 0])), (0, vec![10]));
    pool.end().unwrap();
}

#[test]
fn an_image_that_does_not_load_says_so_and_frees_its_handle() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.parcel(1, b"not the image");
    let options = vec![JitOption { option: 6, value: 4096 }];
    let mut bytes = vec![0; options.wire_len()];
    options.put(&mut gpupool_protocol::wire::codec::Writer::over(&mut bytes));
    let (code, words) = pool.call(library_load, Body::words(&[handle(0), 1]).put(bytes));
    assert_eq!((code, words[0]), (0, 218));
    let (_, bytes) = pool.call_long(parcel_get, Body::words(&[words[1], 0]));
    assert_eq!(Contents::from_bytes(&bytes[8..8 + words[2] as usize]).unwrap().kernels.len(), 0);
    pool.parcel(2, IMAGE);
    let (_, words) = pool.call(library_load, Body::words(&[again(0, 2), 2, 0]));
    assert_eq!(words[0], 0);
    pool.post(library_kernel, Body::words(&[handle(0), again(0, 2), 0]));
    let (code, value) = pool.call(function_get_attribute, Body::words(&[handle(0), 2, 1]));
    assert_eq!((code, value), (0, vec![20]));
    pool.post(library_module, Body::words(&[handle(0), again(0, 2)]));
    pool.post(module_function, Body::words(&[handle(1), handle(0), 0]));
    assert_eq!(pool.call(function_get_attribute, Body::words(&[handle(1), 1, 0])), (0, vec![10]));
    let (code, words) = pool.call(library_global, Body::words(&[again(0, 2)]).put(String::from("variable")));
    assert_eq!((code, words), (0, vec![BASE, 4]));
    pool.end().unwrap();
}

#[test]
fn host_functions_run_in_order_and_hold_their_stream() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    pool.post(host_function, Body::words(&[0, 77]));
    assert_eq!(pool.link.wait_callback().unwrap(), 77);
    assert_eq!(pool.call(stream_query, Body::words(&[0])).0, Code::NOT_READY.0);
    let other = pool.lane(2);
    let waiting = std::thread::spawn(move || other(stream_synchronize, Body::words(&[0])).0);
    null::wait_for("synchronize");
    assert_eq!(null::count("host function ran"), 0);
    pool.post(callback_done, Body::words(&[77]));
    assert_eq!(waiting.join().unwrap(), 0);
    assert_eq!(null::count("host function ran"), 1);
    // One that is never answered holds nothing up at the session's end.
    pool.post(host_function, Body::words(&[0, 78]));
    assert_eq!(pool.link.wait_callback().unwrap(), 78);
    pool.end().unwrap();
    null::wait_for("host function ran");
}

#[test]
fn a_destroyed_context_takes_its_objects_with_it() {
    let (driver, _guard) = null::driver();
    let mut pool = Pool::start(driver);
    assert_eq!(pool.call(context_create, Body::words(&[handle(1), 0, 1])).0, 0);
    pool.context = handle(1);
    pool.post(stream_create, Body::words(&[handle(0), 0, 0]));
    assert_eq!(synchronize(&pool, handle(0)), 0);
    assert_eq!(pool.call(context_destroy, Body::words(&[handle(1)])).0, 0);
    assert_eq!(synchronize(&pool, 0), Code::INVALID_CONTEXT.0);
    // What is not carried out for want of its context makes its handle all the same, and drops its parcel.
    pool.parcel(1, IMAGE);
    let (code, _) = pool.call(module_load, Body::words(&[handle(0), 1, 0]));
    assert_eq!(code, Code::INVALID_CONTEXT.0);
    pool.parcel(1, IMAGE);
    pool.post(stream_create, Body::words(&[handle(1), 0, 0]));
    pool.context = handle(0);
    let (code, words) = pool.call(module_load, Body::words(&[again(0, 2), 1, 0]));
    assert_eq!((code, words[0]), (0, 0));
    assert_eq!(synchronize(&pool, handle(1)), Code::INVALID_CONTEXT.0);
    assert_eq!(synchronize(&pool, handle(0)), Code::CONTEXT_IS_DESTROYED.0);
    assert_eq!(pool.call(primary_release, Body::words(&[handle(0), 0])).0, 0);
    assert_eq!(pool.call(primary_retain, Body::words(&[handle(0), 0])).0, 0);
    assert_eq!(synchronize(&pool, 0), 0);
    pool.end().unwrap();
}

/// A context may end between a load's decoding and its turn on a helper thread. What was sent ahead must not stay.
#[test]
fn a_load_whose_context_has_ended_takes_its_parcel_along() {
    let (driver, _guard) = null::driver();
    let (_client, session, _receiver) = linked(driver);
    let head = |call, slot, context| Head {
        length: 0,
        call,
        chunk_up: None,
        chunk_down: None,
        lane: 1,
        slot,
        context,
    };
    let mut cx = Cx::new(session.clone(), Call::new(&head(0, None, 0), 0));
    let mut position = 0;
    let mut take = |cx: &mut Cx, head: Head, words: &[u64]| {
        position += 8;
        let body = Body::words(words);
        dispatch::dispatch(cx, Record { position, head, body: &body.0 }).unwrap()
    };
    let done = |cx: &mut Cx, task: Option<Box<dispatch::Task>>| {
        task.into_iter().for_each(|task| dispatch::run_later(cx, *task).unwrap());
    };
    take(&mut cx, head(primary_name, None, 0), &[handle(0), 0]);
    let task = take(&mut cx, head(primary_retain, Some(0), 0), &[handle(0), 0]);
    done(&mut cx, task);
    take(&mut cx, head(parcel_put, None, 0), &parcel(1));
    let load = take(&mut cx, head(module_load, Some(1), handle(0)), &[handle(0), 1, 0]);
    assert!(load.is_some(), "it waits for its turn");
    let task = take(&mut cx, head(primary_reset, Some(0), 0), &[handle(0), 0]);
    done(&mut cx, task);
    let task = take(&mut cx, head(context_destroy, Some(0), 0), &[handle(0)]);
    done(&mut cx, task);
    done(&mut cx, load);
    assert_eq!(null::count("load begins"), 0, "the context is gone");
    assert!(session.parcels.take(1).is_err(), "the parcel has stayed");
}
