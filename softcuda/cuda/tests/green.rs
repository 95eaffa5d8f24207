//! Green contexts, and events of whole contexts.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const MULTIPROCESSORS: u32 = 1;

fn nothing() -> sys::CUdevResource {
    unsafe { std::mem::zeroed() }
}

/// How many multiprocessors a resource has; it must be one of them.
fn count(resource: &sys::CUdevResource) -> u32 {
    assert_eq!(resource.type_ as u32, MULTIPROCESSORS);
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

fn whole() -> sys::CUdevResource {
    let mut all = nothing();
    ok!(cuDeviceGetDevResource(0, &mut all, MULTIPROCESSORS));
    all
}

fn describe(parts: &[sys::CUdevResource]) -> H {
    let mut description = 0;
    ok!(cuDevResourceGenerateDesc(&mut description, parts.as_ptr(), parts.len() as u32));
    description
}

fn green(description: H) -> H {
    let mut green = 0;
    ok!(cuGreenCtxCreate(&mut green, description, 0, 1));
    green
}

/// A host function that waits until it is let go.
extern "C" fn hold(open: *mut c_void) {
    let open = unsafe { &*open.cast_const().cast::<AtomicBool>() };
    while !open.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// Holds a stream until the flag is set.
fn held(stream: H) -> &'static AtomicBool {
    let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    ok!(cuLaunchHostFunc(stream, hold, std::ptr::from_ref(open).cast_mut().cast()));
    open
}

#[test]
fn multiprocessors_are_divided() {
    api();
    let all = whole();
    let total = count(&all);
    assert!(total >= 2, "the tests' device has several");
    let mut wanted = 99;
    ok!(cuDevSmResourceSplitByCount(null_mut(), &mut wanted, &all, null_mut(), 0, 1));
    assert_eq!(wanted, total);
    let (mut groups, mut rest, mut made) = ([nothing()], nothing(), 1);
    ok!(cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut made, &all, &mut rest, 0, 1));
    assert_eq!((made, count(&groups[0]), count(&rest)), (1, 1, total - 1));
    // What is a part is not divided again, and parts of two splits make no green context.
    let split_again =
        cu!(cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut made, &rest, null_mut(), 0, 1));
    assert_eq!(split_again, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    let mut other = [nothing()];
    ok!(cuDevSmResourceSplitByCount(other.as_mut_ptr(), &mut made, &all, null_mut(), 0, 1));
    let mut description = 0;
    let mixed = [groups[0], other[0]];
    let code = cu!(cuDevResourceGenerateDesc(&mut description, mixed.as_ptr(), 2));
    assert_eq!(code, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    let code = cu!(cuDevSmResourceSplitByCount(null_mut(), &mut wanted, &all, null_mut(), 0, total + 1));
    assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuDeviceGetDevResource(0, &mut rest, 7)), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    // The other way: sizes are found where 0 is asked for, and nothing remains.
    let mut parameters = [[0u32; 16]; 2];
    parameters[0][0] = 1;
    let (mut two, mut rest) = ([nothing(); 2], nothing());
    ok!(cuDevSmResourceSplit(two.as_mut_ptr(), 2, &all, &mut rest, 0, parameters.as_mut_ptr()));
    assert_eq!((count(&two[0]), count(&two[1]), parameters[1][0]), (1, total - 1, total - 1));
    assert_eq!(rest.type_ as u32, 0);
}

#[test]
fn a_green_context_is_the_primary_one_with_less() {
    api();
    let mut primary = 0;
    ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
    let all = whole();
    let (mut part, mut made) = ([nothing()], 1);
    ok!(cuDevSmResourceSplitByCount(part.as_mut_ptr(), &mut made, &all, null_mut(), 0, 1));
    let green = green(describe(&part));
    let (mut context, mut id) = (0, 0u64);
    ok!(cuCtxFromGreenCtx(&mut context, green));
    ok!(cuGreenCtxGetId(green, &mut id));
    assert!(context != primary && context != green && id != 0);
    ok!(cuCtxSetCurrent(context));
    let mut current = 0;
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, context);
    let mut found = nothing();
    ok!(cuCtxGetDevResource(context, &mut found, MULTIPROCESSORS));
    assert_eq!(count(&found), 1);
    ok!(cuCtxGetDevResource(primary, &mut found, MULTIPROCESSORS));
    assert_eq!(count(&found), count(&all));
    // Streams: made in it by name, or because it is current.
    let (mut named, plain) = (0, stream(1));
    assert_eq!(cu!(cuGreenCtxStreamCreate(&mut named, green, 0, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGreenCtxStreamCreate(&mut named, green, 1, -99));
    let (mut of, mut priority, mut regular) = (0, 9, 0);
    for stream in [named, plain, 0] {
        ok!(cuStreamGetGreenCtx(stream, &mut of));
        assert_eq!(of, green);
        ok!(cuStreamGetCtx_v2(stream, &mut regular, &mut of));
        assert_eq!((regular, of), (primary, green));
    }
    ok!(cuStreamGetPriority(named, &mut priority));
    let (mut least, mut greatest) = (9, 9);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert_eq!((least, priority), (0, greatest));
    ok!(cuStreamGetDevResource(named, &mut found, MULTIPROCESSORS));
    assert_eq!(count(&found), 1);
    // What is of the primary context is of this one: a module that one loads, another launches.
    ok!(cuCtxSetCurrent(primary));
    let (number, memory) = (function(module(PTX), "number"), alloc(8));
    ok!(cuCtxSetCurrent(context));
    let five = 5u32;
    let mut values =
        [std::ptr::from_ref(&memory).cast_mut().cast(), std::ptr::from_ref(&five).cast_mut().cast()];
    ok!(cuLaunchKernel(number, 1, 1, 1, 2, 1, 1, 0, named, values.as_mut_ptr(), null_mut()));
    ok!(cuStreamSynchronize(named));
    assert_eq!(read(memory, 8), [5, 0, 0, 0, 6, 0, 0, 0]);
    ok!(cuStreamDestroy_v2(named));
    ok!(cuGreenCtxDestroy(green));
    assert_eq!(cu!(cuGreenCtxDestroy(green)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_CONTEXT_IS_DESTROYED, "its handle is gone with it");
    ok!(cuCtxSetCurrent(primary));
    ok!(cuCtxSynchronize());
    ok!(cuDevicePrimaryCtxRelease_v2(0));
}

/// A reset of the primary context has taken what the green context retained: its end takes nothing of those who came later.
#[test]
fn a_green_context_of_before_a_reset_ends_alone() {
    // The other tests' primary context is not to be reset.
    in_child("a_green_context_of_before_a_reset_ends_alone", &[], std::process::Stdio::null(), ends_alone);
}

fn ends_alone() {
    ok!(cuInit(0));
    let green = green(describe(&[whole()]));
    ok!(cuDevicePrimaryCtxReset_v2(0));
    let mut later = 0;
    ok!(cuDevicePrimaryCtxRetain(&mut later, 0));
    ok!(cuGreenCtxDestroy(green));
    let (mut flags, mut active) = (0, 0);
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 1, "the context that was retained after the reset");
    ok!(cuDevicePrimaryCtxRelease_v2(0));
}

#[test]
fn an_event_of_a_context_is_for_all_its_streams() {
    let context = context();
    let (one, two, done) = (stream(1), stream(1), event(2));
    let (first, second) = (held(one), held(two));
    ok!(cuCtxRecordEvent(context.0, done));
    first.store(true, Ordering::Release);
    ok!(cuStreamSynchronize(one));
    assert_eq!(cu!(cuEventQuery(done)), CUDA_ERROR_NOT_READY, "the other stream works on");
    second.store(true, Ordering::Release);
    ok!(cuEventSynchronize(done));

    // A wait of the whole context holds the streams that it has and those that are made later.
    let gate = held(one);
    ok!(cuEventRecord(done, one));
    ok!(cuCtxWaitEvent(context.0, done));
    let (memory, later) = (alloc(4), stream(1));
    ok!(cuMemsetD8Async(memory, 1, 1, two));
    ok!(cuMemsetD8Async(memory + 1, 1, 1, later));
    for stream in [two, later] {
        assert_eq!(cu!(cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
    }
    gate.store(true, Ordering::Release);
    ok!(cuCtxSynchronize());
    assert_eq!(read(memory, 2), [1, 1]);

    // An event of another context is none of this one's; a stream that captures forbids both.
    ok!(cuStreamBeginCapture_v2(two, 2));
    assert_eq!(cu!(cuCtxRecordEvent(context.0, done)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(two, &mut graph)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
