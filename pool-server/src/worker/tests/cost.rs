//! What a record costs between the ring and the driver, in instructions: unlike times, these do not depend on what else
//! the machine does. valgrind counts them; the driver's functions do nothing, so all of it is ours.

use std::ffi::c_void;
use std::process::Command;

use gpupool_protocol::api::numbers;
use gpupool_protocol::wire::{Head, Record};

use super::hostile::parcel;
use super::null::{self, BASE};
use super::{Body, handle, linked};
use crate::worker::code::Code;
use crate::worker::context::{Call, Cx};
use crate::worker::dispatch;

/// Records of each kind. What the ones before them cost is divided by this.
const TIMES: u64 = 20_000;
/// The most that a record may cost, of whichever kind: 300 from its decoding to the driver's function, and what comes after
/// that function returns, which this count cannot leave out.
const BAR: u64 = 310;

unsafe extern "C" fn no_set(_: u64, _: u32, _: usize, _: u64) -> Code {
    Code::SUCCESS
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn no_launch(
    _: u64,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u64,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Code {
    Code::SUCCESS
}

/// Two addresses and two numbers.
unsafe extern "C" fn four(_: u64, index: usize, offset: &mut usize, size: &mut usize) -> Code {
    let Some(&layout) = [(0, 8), (8, 8), (16, 4), (20, 4)].get(index) else { return Code::INVALID_VALUE };
    (*offset, *size) = layout;
    Code::SUCCESS
}

#[test]
#[ignore = "for callgrind"]
fn many_sets() {
    many(|stream| (numbers::cuMemsetD32Async, Body::words(&[BASE, 7, 4, stream])));
}

#[test]
#[ignore = "for callgrind"]
fn many_launches() {
    many(|stream| {
        let shape = [handle(0), 1, 1, 1, 32, 1, 1, 0, stream, 0];
        (numbers::launch, Body::words(&shape).put(Vec::<u8>::new()).put(vec![0u8; 24]))
    });
}

/// Carries out a post, which is made for a stream, again and again.
fn many(record: impl FnOnce(u64) -> (u16, Body)) {
    let (mut driver, _guard) = null::driver();
    driver.auto.cuMemsetD32Async = Some(no_set);
    driver.hand.cuLaunchKernel = Some(no_launch);
    driver.hand.cuFuncGetParamInfo = Some(four);
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
    let mut first = |cx: &mut Cx, head: Head, body: &Body| {
        position += 8;
        let record = Record { position, head, body: &body.0 };
        if let Some(task) = dispatch::dispatch(cx, record).unwrap() {
            dispatch::run_later(cx, *task).unwrap();
        }
    };
    first(&mut cx, head(numbers::primary_name, None, 0), &Body::words(&[handle(0), 0]));
    first(&mut cx, head(numbers::primary_retain, Some(0), 0), &Body::words(&[handle(0), 0]));
    first(&mut cx, head(numbers::parcel_put, None, 0), &Body::words(&parcel(1)));
    first(&mut cx, head(numbers::module_load, Some(0), handle(0)), &Body::words(&[handle(0), 1, 0]));
    first(&mut cx, head(numbers::module_function, None, handle(0)), &Body::words(&[handle(0), handle(0), 0]));
    first(&mut cx, head(numbers::stream_create, None, handle(0)), &Body::words(&[handle(0), 0, 0]));
    let (number, body) = record(handle(0));
    for _ in 0..TIMES {
        position += 8;
        let record = Record { position, head: head(number, None, handle(0)), body: &body.0 };
        assert!(dispatch::dispatch(&mut cx, record).unwrap().is_none());
    }
    assert!(
        session.post_errors.take(handle(0)).is_none(),
        "a record was refused, which costs something else"
    );
}

/// Instructions of a record in the test of this name, from its decoding to the driver and back.
fn count(test: &str) -> u64 {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("callgrind");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg("--toggle-collect=pool_server::worker::dispatch::execute")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--test-threads=1", &format!("worker::tests::cost::{test}")])
        .output()
        .expect("valgrind is installed (scripts/setup --valgrind)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")));
    let total: u64 = total.expect("callgrind writes a total").trim().parse().unwrap();
    assert!(
        total >= 20 * TIMES,
        "valgrind counted {total} instructions in {test}: the function was not found"
    );
    total / TIMES
}

/// Run by `scripts/count-instructions`.
#[test]
#[ignore = "needs valgrind, and optimised code"]
fn what_a_record_costs_in_instructions_is_bounded() {
    let counts = [("set", count("many_sets")), ("launch", count("many_launches"))];
    for (kind, instructions) in counts {
        eprintln!("{kind}: {instructions} instructions from the record to the driver and back");
    }
    for (kind, instructions) in counts {
        assert!(instructions <= BAR, "a {kind} costs {instructions} instructions, more than {BAR}");
    }
}
