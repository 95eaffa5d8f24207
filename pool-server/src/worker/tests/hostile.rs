//! Records that no honest client sends: never a panic, never memory of this process, always a code or the session's
//! end.

use gpupool_protocol::api::{CALLS, Class, numbers};
use gpupool_protocol::wire::layout::CHUNKS;
use gpupool_protocol::wire::{Head, Record};
use proptest::prelude::*;

use super::null::{self, BASE, IMAGE};
use super::{Body, handle, linked};
use crate::worker::context::{Call, Cx};
use crate::worker::dispatch;
use crate::worker::session::Broken;

/// Words that mean something: handles of all shapes, addresses, sizes and their neighbours.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u32..3, 0u32..3).prop_map(|(index, generation)| u64::from(index) | u64::from(generation) << 32),
        3 => 0u64..20,
        1 => prop::sample::select(vec![BASE, BASE + 100, u64::MAX, 1 << 63, i32::MIN as u64, u64::from(u32::MAX), 1 << 19]),
        1 => any::<u64>(),
    ]
}

fn record() -> impl Strategy<Value = (u16, Head, Vec<u8>)> {
    let number =
        prop_oneof![20 => prop::sample::select(CALLS).prop_map(|call| call.number), 1 => any::<u16>()];
    let head = (0u32..3, word(), prop::option::of(0..CHUNKS), prop::option::of(0..CHUNKS), any::<bool>());
    let body = (prop::collection::vec(word(), 0..16), 0usize..9);
    (number, head, body).prop_map(|(number, (lane, context, chunk_up, chunk_down, lie), (words, cut))| {
        let post = CALLS.iter().any(|call| call.number == number && call.class == Class::Post);
        // Mostly a slot where one belongs.
        let slot = (post == (lie && cut == 8)).then_some(lane);
        let mut body = Body::words(&words).0;
        body.truncate(body.len() - if cut < 8 { 0 } else { cut.min(body.len()) });
        let head =
            Head { length: 24 + body.len() as u32, call: number, chunk_up, chunk_down, lane, slot, context };
        (number, head, body)
    })
}

/// Words of a record that sends the image as one parcel.
pub fn parcel(number: u64) -> Vec<u64> {
    let length = IMAGE.len() as u64;
    let mut words = vec![number, 0, length, length, 0];
    words.extend(IMAGE.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    }));
    words
}

/// Carries out records one after the other until one ends the session. How many were carried out, and how many sets
/// came to the driver.
fn carry_out(records: &[(u16, Head, Vec<u8>)]) -> (usize, usize) {
    let (driver, _guard) = null::driver();
    let (_client, session, _receiver) = linked(driver);
    let nothing =
        Head { length: 0, call: 0, chunk_up: None, chunk_down: None, lane: 0, slot: None, context: 0 };
    let mut cx = Cx::new(session.clone(), Call::new(&nothing, 0));
    // Some objects that can be hit.
    let post = |number, words: &[u64], context| {
        let body = Body::words(words).0;
        let length = 24 + body.len() as u32;
        let head =
            Head { length, call: number, chunk_up: None, chunk_down: None, lane: 1, slot: None, context };
        (number, head, body)
    };
    let call = |number, words: &[u64], context| {
        let (number, head, body) = post(number, words, context);
        (number, Head { slot: Some(0), ..head }, body)
    };
    let first = [
        post(numbers::primary_name, &[handle(0), 0], 0),
        call(numbers::primary_retain, &[handle(0), 0], 0),
        post(numbers::stream_create, &[handle(0), 0, 0], handle(0)),
        post(numbers::event_create, &[handle(0), 0], handle(0)),
        post(numbers::parcel_put, &parcel(1), 0),
        call(numbers::module_load, &[handle(0), 1, 0], handle(0)),
        post(numbers::module_function, &[handle(0), handle(0), 0], handle(0)),
        post(numbers::parcel_put, &parcel(2), 0),
        call(numbers::library_load, &[handle(0), 2, 0], handle(0)),
        post(numbers::library_kernel, &[handle(1), handle(0), 0], handle(0)),
        // For records to take.
        post(numbers::parcel_put, &parcel(1), 0),
    ];
    for (done, (_, head, body)) in first.iter().chain(records).enumerate() {
        let record = Record { position: done as u64 * 8, head: *head, body };
        let result = match dispatch::dispatch(&mut cx, record) {
            Ok(Some(task)) => dispatch::run_later(&mut cx, *task),
            Ok(None) => Ok(()),
            Err(broken) => Err(broken),
        };
        match result {
            Ok(()) => {}
            Err(Broken::Record { .. }) if done >= first.len() => {
                return (done - first.len(), null::count("memset32"));
            }
            Err(other) => panic!("{other}"),
        }
    }
    (records.len(), null::count("memset32"))
}

proptest! {
    #[test]
    fn any_sequence_of_records_ends_well(records in prop::collection::vec(record(), 1..40)) {
        carry_out(&records);
    }
}

/// The strategy above must reach the bodies, or the test shows nothing.
#[test]
fn an_honest_prefix_is_carried_out() {
    let set = Body::words(&[BASE, 7, 4, handle(0)]).0;
    let head = Head {
        length: 24 + set.len() as u32,
        call: numbers::cuMemsetD32Async,
        chunk_up: None,
        chunk_down: None,
        lane: 1,
        slot: None,
        context: handle(0),
    };
    let good = (head.call, head, set.clone());
    let mut short = set.clone();
    short.pop();
    let mut long = set;
    long.push(0);
    assert_eq!(carry_out(&[good.clone(), good.clone()]), (2, 2));
    for bad in [short, long] {
        let head = Head { length: 24 + bad.len() as u32, ..head };
        assert_eq!(carry_out(&[good.clone(), (head.call, head, bad), good.clone()]), (1, 1));
    }
    let waits = Head { slot: Some(1), ..head };
    assert_eq!(carry_out(&[(head.call, waits, good.2.clone())]), (0, 0), "a post that waits");
    let beyond = Head { call: 1023, ..head };
    assert_eq!(carry_out(&[(1023, beyond, good.2)]), (0, 0), "no such call");
}
