//! For counting instructions between a record and the driver: `valgrind --tool=callgrind` on this test, with
//! `--toggle-collect` on the function of `dispatch` that carries out the call. Not a measurement by itself.

use gpupool_protocol::api::numbers;
use gpupool_protocol::wire::{Head, Record};

use super::hostile::parcel;
use super::null::{self, BASE};
use super::{Body, handle, linked};
use crate::worker::context::{Call, Cx};
use crate::worker::dispatch;

const TIMES: u64 = 2000;

#[test]
#[ignore = "for callgrind"]
fn many_sets_and_launches() {
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
    let mut carry_out = |head: Head, body: &Body| {
        position += 8;
        let record = Record { position, head, body: &body.0 };
        if let Some(task) = dispatch::dispatch(&mut cx, &record).unwrap() {
            dispatch::run_later(&mut cx, *task).unwrap();
        }
    };
    carry_out(head(numbers::primary_name, None, 0), &Body::words(&[handle(0), 0]));
    carry_out(head(numbers::primary_retain, Some(0), 0), &Body::words(&[handle(0), 0]));
    carry_out(head(numbers::parcel_put, None, 0), &Body::words(&parcel(1)));
    carry_out(head(numbers::module_load, Some(0), handle(0)), &Body::words(&[handle(0), 1, 0]));
    carry_out(head(numbers::module_function, None, handle(0)), &Body::words(&[handle(0), handle(0), 0]));
    carry_out(head(numbers::stream_create, None, handle(0)), &Body::words(&[handle(0), 0, 0]));
    let set = Body::words(&[BASE, 7, 4, handle(0)]);
    let shape = [handle(0), 1, 1, 1, 32, 1, 1, 0, handle(0), 0];
    let launch = Body::words(&shape).put(Vec::<u8>::new()).put(vec![0u8; 16]);
    for _ in 0..TIMES {
        carry_out(head(numbers::cuMemsetD32Async, None, handle(0)), &set);
        carry_out(head(numbers::launch, None, handle(0)), &launch);
    }
    assert_eq!(null::count("memset32"), TIMES as usize);
    assert_eq!(null::count("launch 1"), TIMES as usize);
}
