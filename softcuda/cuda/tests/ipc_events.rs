//! Events of two processes.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::peer::{Peer, in_peer, tell, told};
use api::*;

const VARIABLE: &str = "SOFTCUDA_TEST_HANDLE";
/// `CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 6;
/// `CU_STREAM_NON_BLOCKING`: the default stream releases it.
const NON_BLOCKING: u32 = 1;

/// A stream that stands still until the word at the address is 1.
fn held_stream() -> (H, u64) {
    let (stream, word) = (stream(NON_BLOCKING), alloc(4));
    ok!(cuMemsetD32_v2(word, 0, 1));
    ok!(cuCtxSynchronize());
    ok!(cuStreamWaitValue32_v2(stream, word, 1, 0));
    (stream, word)
}

fn other_process() {
    let _context = context();
    let handle = Ipc::from_text(&std::env::var(VARIABLE).expect("a handle"));
    let mut event = 0;
    let mut forged = handle;
    forged.0[16] ^= 0x55;
    assert_eq!(cu!(cuIpcOpenEventHandle(&mut event, forged)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuIpcOpenEventHandle(&mut event, Ipc([0; 64]))), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuIpcOpenEventHandle(&mut event, handle));
    assert_eq!(cu!(cuEventQuery(event)), CUDA_ERROR_NOT_READY);
    assert_eq!(cu!(cuIpcGetEventHandle(&mut Ipc([0; 64]), event)), CUDA_ERROR_INVALID_HANDLE, "passed on");
    let behind = stream(NON_BLOCKING);
    ok!(cuStreamWaitEvent(behind, event, 0));
    assert_eq!(cu!(cuStreamQuery(behind)), CUDA_ERROR_NOT_READY);
    tell("waiting");
    ok!(cuStreamSynchronize(behind));
    ok!(cuEventSynchronize(event));
    ok!(cuEventQuery(event));

    let (stream, word) = held_stream();
    ok!(cuEventRecord(event, stream));
    tell("recorded");
    assert_eq!(told(), "go on");
    ok!(cuMemsetD32_v2(word, 1, 1));
    ok!(cuStreamSynchronize(stream));
    tell("passed");

    // A new recording is what the other process would wait for from now on.
    assert_eq!(told(), "again");
    let (stream, _) = held_stream();
    ok!(cuEventRecord(event, stream));
    tell("recorded for ever");
    told();
    unreachable!("it is killed");
}

#[test]
fn what_one_process_records_another_waits_for() {
    if in_peer() {
        return other_process();
    }
    let _context = context();
    let event = event(INTERPROCESS);
    ok!(cuEventQuery(event));
    let mut handle = Ipc([0; 64]);
    ok!(cuIpcGetEventHandle(&mut handle, event));
    assert_eq!(cu!(cuIpcOpenEventHandle(&mut 0, handle)), CUDA_ERROR_INVALID_CONTEXT, "one's own");
    let (stream, word) = held_stream();
    ok!(cuEventRecord(event, stream));

    let mut other =
        Peer::start("what_one_process_records_another_waits_for", &[(VARIABLE, &handle.to_text())]);
    other.expect("waiting");
    ok!(cuMemsetD32_v2(word, 1, 1));
    other.expect("recorded");
    assert_eq!(cu!(cuEventQuery(event)), CUDA_ERROR_NOT_READY, "the other process recorded it");
    let behind = api::stream(NON_BLOCKING);
    ok!(cuStreamWaitEvent(behind, event, 0));
    assert_eq!(cu!(cuStreamQuery(behind)), CUDA_ERROR_NOT_READY);
    other.say("go on");
    ok!(cuStreamSynchronize(behind));
    ok!(cuEventSynchronize(event));
    other.expect("passed");
    other.say("again");
    other.expect("recorded for ever");
    assert_eq!(cu!(cuEventQuery(event)), CUDA_ERROR_NOT_READY);
    other.kill();
    ok!(cuEventSynchronize(event));
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn only_events_that_are_made_for_it_go_to_another_process() {
    let _context = context();
    let mut handle = Ipc([0; 64]);
    assert_eq!(cu!(cuEventCreate(&mut 0, 4)), CUDA_ERROR_INVALID_VALUE, "with times");
    assert_eq!(cu!(cuIpcGetEventHandle(&mut handle, event(2))), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuIpcGetEventHandle(&mut handle, 0x77)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuEventElapsedTime_v2(&mut 0.0, event(6), event(0))), CUDA_ERROR_INVALID_HANDLE);
}
