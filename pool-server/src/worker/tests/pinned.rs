//! The host arena: what a client shares of its memory is copied from and to directly, and nothing else of this process is.

use std::ptr::with_exposed_provenance_mut;

use gpupool_protocol::api::numbers::*;
use gpupool_protocol::transport::arena::ArenaMap;

use super::null::{self, BASE};
use super::{Body, Pool};
use crate::worker::code::Code;

const PIECE: u64 = 64 * 1024;

/// The arena, mapped in the worker too; both sides are one process here, so the client's mapping is elsewhere.
fn placed(pool: &Pool) -> (ArenaMap, u64) {
    let mut client = pool.link.take_arena().expect("there is one on shm");
    assert_eq!(pool.call(arena_place, Body::words(&[client.base()])).0, Code::ALREADY_MAPPED.0);
    let base = client.base();
    client.relocate(base + client.len()).unwrap();
    assert_eq!(pool.call(arena_place, Body::words(&[base])).0, 0);
    assert_eq!(pool.call(arena_place, Body::words(&[base])).0, Code::ALREADY_MAPPED.0, "once");
    (client, base)
}

fn synchronize(pool: &Pool) -> i32 {
    pool.call(stream_synchronize, Body::words(&[0])).0
}

fn word(map: &ArenaMap, offset: u64) -> *mut u64 {
    with_exposed_provenance_mut((map.base() + offset) as usize)
}

#[test]
fn copies_use_the_clients_own_bytes() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    let (client, base) = placed(&pool);
    client.open(PIECE, PIECE).unwrap();
    let (code, device) = pool.call(host_lock, Body::words(&[base + PIECE, PIECE, 0]));
    assert_eq!((code, device), (0, vec![base + PIECE]));
    // SAFETY: a piece that is open.
    unsafe { word(&client, PIECE + 8).write_volatile(0x0102_0304) };
    pool.post(copy_from_host, Body::words(&[BASE + 32, base + PIECE + 8, 8, 0]));
    pool.post(copy_to_host, Body::words(&[base + PIECE + 4096, BASE + 32, 8, 0]));
    assert_eq!(synchronize(&pool), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { word(&client, PIECE + 4096).read_volatile() }, 0x0102_0304);
    assert_eq!(pool.call(host_unlock, Body::words(&[base + PIECE])).0, 0);
    assert_eq!(null::count("host_unregister"), 1);
    pool.end().unwrap();
}

#[test]
fn what_is_not_locked_is_not_touched() {
    let (driver, _guard) = null::driver();
    let pool = Pool::start(driver);
    let (_client, base) = placed(&pool);
    for (address, bytes) in
        [(base + 1, PIECE), (base, 0), (base, 100), (base - PIECE, PIECE), (u64::MAX - 4095, 4096)]
    {
        let locked = pool.call(host_lock, Body::words(&[address, bytes, 0])).0;
        assert_eq!(locked, Code::INVALID_VALUE.0, "{bytes:#x} at {address:#x}");
    }
    assert_eq!(pool.call(host_lock, Body::words(&[base + PIECE, PIECE, 0])).0, 0);
    for (address, bytes) in [(base + PIECE, PIECE), (base, 2 * PIECE), (base + 2 * PIECE - 4096, 8192)] {
        let again = pool.call(host_lock, Body::words(&[address, bytes, 0])).0;
        assert_eq!(again, Code::HOST_MEMORY_ALREADY_REGISTERED.0, "{bytes:#x} at {address:#x}");
    }
    // Memory of this process, the arena around the piece, what begins in it and ends outside.
    let own = [0u64; 8];
    let own = own.as_ptr().expose_provenance() as u64;
    for (address, bytes) in [
        (own, 8),
        (base, 8),
        (base + 2 * PIECE, 8),
        (base + 2 * PIECE - 4, 8),
        (base + PIECE - 1, 8),
        (base + PIECE, u64::MAX),
        (0, 8),
    ] {
        for record in [[BASE, address, bytes, 0], [address, BASE, bytes, 0]] {
            let number = if record[0] == BASE { copy_from_host } else { copy_to_host };
            pool.post(number, Body::words(&record));
            assert_eq!(synchronize(&pool), Code::INVALID_VALUE.0, "{bytes:#x} at {address:#x}");
        }
    }
    assert_eq!((null::count("to_host"), null::count("to_device")), (0, 0));
    let unlock = |address| pool.call(host_unlock, Body::words(&[address])).0;
    assert_eq!(unlock(base), Code::HOST_MEMORY_NOT_REGISTERED.0);
    assert_eq!((unlock(base + PIECE), unlock(base + PIECE)), (0, Code::HOST_MEMORY_NOT_REGISTERED.0));
    pool.post(copy_from_host, Body::words(&[BASE, base + PIECE, 8, 0]));
    assert_eq!(synchronize(&pool), Code::INVALID_VALUE.0, "no longer locked");
    pool.end().unwrap();
}
