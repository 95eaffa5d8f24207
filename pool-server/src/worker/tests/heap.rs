//! Device memory that the client divides up: what may be asked, and what a driver that has no more leaves behind.

use gpupool_protocol::api::numbers::*;

use super::null::{self, BYTES, GRANULARITY};
use super::{Body, Pool};
use crate::worker::code::Code;

const HEAP: u64 = 0x3000_0000_0000;
const PIECE: u64 = GRANULARITY;

/// A session with a range of 64 pieces.
fn placed() -> (Pool, std::sync::MutexGuard<'static, ()>) {
    let (driver, guard) = null::driver();
    let pool = Pool::start(driver);
    null::with(|state| state.left = 20 * PIECE as usize);
    assert_eq!(pool.call(heap_place, Body::words(&[0, HEAP, 64 * PIECE])), (0, vec![PIECE]));
    (pool, guard)
}

/// Of the first device: address, least and most in pieces, and the size of a piece.
fn grow(pool: &Pool, address: u64, least: u64, most: u64, piece: u64) -> (i32, Vec<u64>) {
    pool.call(heap_grow, Body::words(&[0, address, least * piece, most * piece, piece]))
}

fn left() -> u64 {
    null::with(|state| state.left as u64) / PIECE
}

#[test]
fn a_range_that_the_driver_puts_elsewhere_is_given_back() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    let place = |base, bytes| pool.call(heap_place, Body::words(&[0, base, bytes])).0;
    assert_eq!(place((1 << 46) + PIECE, 64 * PIECE), Code::ALREADY_MAPPED.0);
    assert_eq!(null::count("unreserve"), 1);
    for (base, bytes) in
        [(0, PIECE), (1, PIECE), (HEAP, 0), (HEAP, 1), (HEAP, 1 << 47), (u64::MAX - PIECE + 1, PIECE)]
    {
        assert_eq!(place(base, bytes), Code::INVALID_VALUE.0, "{bytes:#x} at {base:#x}");
    }
    assert_eq!(grow(&pool, HEAP, 1, 1, PIECE).0, Code::INVALID_VALUE.0, "there is no range yet");
    assert_eq!((place(HEAP, 64 * PIECE), place(HEAP, 64 * PIECE)), (0, Code::ALREADY_MAPPED.0));
    pool.end().unwrap();
}

#[test]
fn credit_is_a_part_of_what_is_left_and_a_need_is_all_of_it() {
    let (pool, _guard) = placed();
    // The driver says that half of its memory is free: 16 pieces, of which an eighth is credit.
    let free = BYTES as u64 / 2;
    assert_eq!(grow(&pool, HEAP, 1, 10, PIECE), (0, vec![2 * PIECE, free]));
    assert_eq!(grow(&pool, HEAP + 2 * PIECE, 5, 5, PIECE), (0, vec![5 * PIECE, free]));
    assert_eq!(grow(&pool, HEAP + 7 * PIECE, 1, 1, 3 * PIECE), (0, vec![3 * PIECE, free]));
    assert_eq!(left(), 10);
    pool.end().unwrap();
}

#[test]
fn a_need_that_cannot_be_met_leaves_nothing_behind() {
    let (pool, _guard) = placed();
    assert_eq!(grow(&pool, HEAP, 21, 21, PIECE).0, Code::OUT_OF_MEMORY.0);
    assert_eq!((left(), null::with(|state| state.mapped.len())), (20, 0));
    assert_eq!(grow(&pool, HEAP, 20, 20, PIECE).0, 0, "the addresses are free again");
    pool.end().unwrap();
}

#[test]
fn only_whole_pieces_go_back_and_only_once() {
    let (pool, _guard) = placed();
    assert_eq!(grow(&pool, HEAP, 4, 4, PIECE).0, 0);
    assert_eq!(grow(&pool, HEAP + 4 * PIECE, 1, 1, 2 * PIECE).0, 0);
    let shrink = |address, pieces: u64| pool.call(heap_shrink, Body::words(&[0, address, pieces * PIECE])).0;
    for (address, pieces) in
        [(HEAP, 0), (HEAP + 1, 1), (HEAP, 5), (HEAP + 5 * PIECE, 1), (HEAP, 7), (HEAP, u64::MAX / PIECE)]
    {
        assert_eq!(shrink(address, pieces), Code::INVALID_VALUE.0, "{pieces} at {address:#x}");
    }
    assert_eq!((shrink(HEAP + PIECE, 5), shrink(HEAP + PIECE, 5)), (0, Code::INVALID_VALUE.0));
    assert_eq!((left(), shrink(HEAP, 1), left()), (19, 0, 20));
    pool.end().unwrap();
}

#[test]
fn what_no_client_asks_is_an_error_and_changes_nothing() {
    let (pool, _guard) = placed();
    for (address, least, most, piece) in [
        (HEAP, 0, 1, PIECE),
        (HEAP, 2, 1, PIECE),
        (HEAP, 1, 1, 1),
        (HEAP, 1, 1, 0),
        (HEAP + 1, 1, 1, PIECE),
        (HEAP - PIECE, 1, 1, PIECE),
        (HEAP + 63 * PIECE, 1, 2, PIECE),
        (HEAP + 64 * PIECE, 1, 1, PIECE),
        (u64::MAX - PIECE + 1, 1, 1, PIECE),
    ] {
        let code = grow(&pool, address, least, most, piece).0;
        assert_eq!(code, Code::INVALID_VALUE.0, "{least} to {most} of {piece:#x} at {address:#x}");
    }
    assert_eq!(grow(&pool, HEAP, 2, 2, PIECE).0, 0);
    assert_eq!(grow(&pool, HEAP + PIECE, 2, 2, PIECE).0, Code::ALREADY_MAPPED.0);
    assert_eq!(left(), 18);
    pool.end().unwrap();
}
