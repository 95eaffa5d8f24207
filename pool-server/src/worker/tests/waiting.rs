//! Nothing that takes long holds up the ring: small calls of other threads go on.

use gpupool_protocol::api::numbers::*;

use super::hostile::parcel;
use super::null::{self, BASE};
use super::{Body, Pool, handle};

/// What a thread that has nothing to do with it does meanwhile: posts, small copies, queries, allocations. All of it would
/// hang if the ring waited, since what is held is let go only afterwards.
fn others_go_on(pool: &Pool) {
    pool.post(stream_create, Body::words(&[handle(7), 0, 0]));
    pool.post(event_create, Body::words(&[handle(7), 0]));
    for value in 0..100 {
        pool.post(cuMemsetD32Async, Body::words(&[BASE, value, 4, handle(7)]));
        pool.post(event_record, Body::words(&[handle(7), handle(7), 0]));
        assert_eq!(pool.call(event_synchronize, Body::words(&[handle(7)])).0, 0);
        assert_eq!(pool.call(copy_out, Body::words(&[BASE, 8, handle(7)])), (0, vec![value << 32 | value]));
        assert_eq!(pool.call(stream_query, Body::words(&[handle(7)])).0, 0);
        assert_eq!(pool.call(mem_info, Body::default()).0, 0);
    }
}

/// Streams 0 to 6, so that 7 is next in line.
fn streams(pool: &Pool) {
    for index in 0..7 {
        pool.post(stream_create, Body::words(&[handle(index), 0, 0]));
        pool.post(event_create, Body::words(&[handle(index), 0]));
    }
    assert_eq!(pool.call(stream_synchronize, Body::words(&[handle(0)])).0, 0);
}

fn first_stream() -> u64 {
    let entry = |entry: &String| u64::from_str_radix(entry.strip_prefix("stream 0x")?, 16).ok();
    null::with(|state| state.log.iter().find_map(entry)).unwrap()
}

#[test]
fn a_long_compilation_holds_up_no_other_thread() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    streams(&pool);
    pool.post(parcel_put, Body::words(&parcel(1)));
    null::with(|state| state.held.insert(null::LOADS));
    let load = pool.lane(2);
    let load = std::thread::spawn(move || load(module_load, Body::words(&[handle(0), 1, 0])));
    null::wait_for("load begins");
    others_go_on(&pool);
    assert!(!load.is_finished());
    null::let_go();
    let (code, words) = load.join().unwrap();
    assert_eq!((code, words[0]), (0, 0));
    pool.end().unwrap();
}

#[test]
fn a_stream_that_does_not_get_on_holds_up_no_other_thread() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    streams(&pool);
    let native = first_stream();
    null::with(|state| state.held.insert(native));
    // Everything that waits for it, each from a thread of its own.
    pool.post(event_record, Body::words(&[handle(0), handle(0), 0]));
    let waits = [
        (stream_synchronize, Body::words(&[handle(0)])),
        (event_synchronize, Body::words(&[handle(0)])),
        (context_synchronize, Body::default()),
        (copy_out, Body::words(&[BASE, 8, handle(0)])),
        (mem_alloc, Body::words(&[64, 0, 0, 0, 0])),
        (mem_free, Body::words(&[BASE])),
    ];
    let waits: Vec<_> = waits
        .into_iter()
        .zip(20..)
        .map(|((number, body), lane)| {
            let call = pool.lane(lane);
            std::thread::spawn(move || call(number, body).0)
        })
        .collect();
    null::wait_for("synchronize");
    others_go_on(&pool);
    null::let_go();
    assert!(waits.into_iter().all(|wait| wait.join().unwrap() == 0));
    pool.end().unwrap();
}

/// A copy out of stream 7 has nothing of its own to wait for, but the driver lets it wait behind the legacy stream's copy,
/// which waits for a stream that is let go on through the ring. So the ring's thread must not make that copy.
#[test]
fn a_copy_of_the_legacy_stream_holds_up_the_ring_by_no_other_stream() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    streams(&pool);
    let native = first_stream();
    null::with(|state| state.held.extend([native, null::LEGACY]));
    let whole = pool.lane(20);
    let whole = std::thread::spawn(move || whole(copy_out, Body::words(&[BASE, 8, null::LEGACY])).0);
    null::wait_for("legacy copy");
    pool.post(stream_create, Body::words(&[handle(7), 0, 0]));
    pool.post(cuMemsetD32Async, Body::words(&[BASE, 5, 4, handle(7)]));
    let behind = pool.lane(21);
    let behind = std::thread::spawn(move || behind(copy_out, Body::words(&[BASE, 8, handle(7)])));
    for _ in 0..100 {
        assert_eq!(pool.call(stream_query, Body::words(&[handle(7)])).0, 0);
        assert_eq!(pool.call(mem_info, Body::default()).0, 0);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!whole.is_finished() && !behind.is_finished());
    null::let_go();
    assert_eq!(whole.join().unwrap(), 0);
    assert_eq!(behind.join().unwrap(), (0, vec![5 << 32 | 5]));
    pool.end().unwrap();
}
