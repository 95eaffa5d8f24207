//! Start-up, symbols, contexts.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::{CStr, c_void};

#[test]
fn symbols_are_found_by_the_rule_and_refused_ones_are_not() {
    let find = |name: &CStr, version, flags| {
        let (mut function, mut status) = (std::ptr::null_mut::<c_void>(), 9);
        let result = cu!(cuGetProcAddress_v2(name.as_ptr(), &mut function, version, flags, &mut status));
        (result, function.addr(), status)
    };
    assert_eq!(find(c"cuMemAlloc", 12000, 0), (CUDA_SUCCESS, api().cuMemAlloc_v2 as *const () as usize, 0));
    let own = find(c"cuMemsetD8Async", 12000, 2);
    assert_eq!(own, (CUDA_SUCCESS, api().cuMemsetD8Async_ptsz as *const () as usize, 0));
    assert_ne!(own.1, find(c"cuMemsetD8Async", 12000, 1).1);
    assert_eq!(find(c"cuMemAlloc", 2000, 0), (CUDA_SUCCESS, 0, 1), "the 32-bit form");
    assert_eq!(find(c"cuNothing", 12000, 0), (CUDA_SUCCESS, 0, 1));
    assert_eq!(find(c"cuLibraryLoadData", 11000, 0), (CUDA_SUCCESS, 0, 2));
    assert_eq!(find(c"cuInit", 99990, 0).0, CUDA_ERROR_INVALID_VALUE);
    assert_ne!(find(c"cuProfilerStart", 12000, 0).1, 0);
    assert_eq!(cu!(cuMemAlloc()), CUDA_ERROR_NOT_SUPPORTED, "the 32-bit form");
    let mut name = std::ptr::null();
    ok!(cuGetErrorName(700, &mut name));
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(cu!(cuGetErrorName(12345, &mut name)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn devices() {
    let (mut count, mut value) = (0, 0);
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    // Compute capability 8.9, and what the programming guide says that its multiprocessors hold.
    let expected = [(75, 8), (76, 9), (39, 1536), (106, 24), (81, 100 << 10), (97, 99 << 10), (120, 0)];
    for (attribute, expected) in expected {
        ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
        assert_eq!(value, expected, "attribute {attribute}");
    }
    assert_eq!(cu!(cuDeviceGetAttribute(&mut value, 75, 1)), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGetAttribute(&mut value, 75, -1)), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGetAttribute(&mut value, 0, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuInit(1)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn the_stack_of_a_thread() {
    std::thread::spawn(|| {
        let mut current = 1;
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, 0);
        assert_eq!(cu!(cuMemFree_v2(0)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxPopCurrent_v2(&mut current)), CUDA_ERROR_INVALID_CONTEXT);
        let (mut a, mut b) = (0, 0);
        ok!(cuCtxCreate_v2(&mut a, 0, 0));
        ok!(cuCtxCreate_v2(&mut b, 0, 0));
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, b);
        ok!(cuCtxPopCurrent_v2(&mut current));
        assert_eq!(current, b);
        ok!(cuCtxPushCurrent_v2(b));
        ok!(cuCtxDestroy_v2(b));
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, a, "a destroyed current context is taken off");
        ok!(cuCtxPushCurrent_v2(a));
        ok!(cuCtxDestroy_v2(a));
        assert_eq!(cu!(cuMemFree_v2(0)), CUDA_ERROR_CONTEXT_IS_DESTROYED, "its second place on the stack");
        assert_eq!(cu!(cuCtxSetCurrent(a)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxDestroy_v2(a)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxSetCurrent(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
    })
    .join()
    .unwrap();
}

#[test]
fn a_context_takes_what_it_owns_with_it() {
    let first = context();
    let memory = alloc(1 << 20);
    let (stream, event) = (stream(0), event(0));
    let second = context();
    let kept = alloc(16);
    drop(first);
    ok!(cuCtxSetCurrent(second.0));
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuStreamQuery(stream)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuEventQuery(event)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuMemFree_v2(kept));
}

#[test]
fn an_event_and_a_stream_of_two_contexts_do_not_go_together() {
    let first = context();
    let event = event(0);
    let second = context();
    let stream = stream(0);
    assert_eq!(cu!(cuEventRecord(event, stream)), CUDA_ERROR_INVALID_HANDLE);
    drop((first, second));
}

#[test]
fn primary_contexts_are_counted() {
    std::thread::spawn(|| {
        let (mut a, mut b, mut flags, mut active) = (0, 0, 0, 9);
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 0);
        assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), CUDA_ERROR_INVALID_CONTEXT);
        ok!(cuDevicePrimaryCtxRetain(&mut a, 0));
        ok!(cuDevicePrimaryCtxRetain(&mut b, 0));
        assert_eq!(a, b);
        ok!(cuCtxSetCurrent(a));
        let memory = alloc(64);
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuMemFree_v2(memory));
        assert_eq!(cu!(cuCtxDestroy_v2(a)), CUDA_ERROR_INVALID_CONTEXT, "primary contexts are released");
        let memory = alloc(64);
        ok!(cuDevicePrimaryCtxReset_v2(0));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 0);
        assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        // It is still current, and its device is known, though it is not active.
        let mut device = 9;
        ok!(cuCtxGetDevice(&mut device));
        assert_eq!(device, 0);
        ok!(cuDevicePrimaryCtxRetain(&mut b, 0));
        assert_eq!(a, b);
        assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE, "the reset freed it");
        ok!(cuDevicePrimaryCtxRelease_v2(0));
    })
    .join()
    .unwrap();
}

#[test]
fn limits_are_read_back() {
    let _context = context();
    let mut value = 0;
    ok!(cuCtxGetLimit(&mut value, 0));
    assert_eq!(value, 1024);
    ok!(cuCtxSetLimit(1, 4 << 20));
    ok!(cuCtxGetLimit(&mut value, 1));
    assert_eq!(value, 4 << 20);
    assert_eq!(cu!(cuCtxGetLimit(&mut value, 3)), CUDA_ERROR_UNSUPPORTED_LIMIT);
    assert_eq!(cu!(cuCtxSetLimit(77, 0)), CUDA_ERROR_INVALID_VALUE);
}

/// A kernel that never ends and never waits cannot be stopped; the process can end all the same.
#[test]
fn a_process_ends_though_its_kernel_does_not() {
    const NAME: &str = "a_process_ends_though_its_kernel_does_not";
    in_child(NAME, &[], std::process::Stdio::null(), || {
        let context = context();
        let text = ".version 8.0 .target sm_80 .address_size 64 .visible .entry forever() { L: bra L; }";
        let kernel = function(module(text), "forever");
        assert_eq!(launch(kernel, 2, 64, stream(1), &[]), CUDA_SUCCESS);
        std::mem::forget(context);
        std::process::exit(0);
    });
}

/// What is set is what device code then has: see the engine's own tests of both.
#[test]
fn limits_of_printf_and_of_the_heap_hold() {
    in_child("limits_of_printf_and_of_the_heap_hold", &[], std::process::Stdio::null(), || {
        let _context = context();
        let text = ".version 8.0 .target sm_80 .address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 s);\n\
            .visible .entry take(.param .u64 out, .param .u64 bytes) { .reg .b64 o, b, p; .param .b64 s, r; ld.param.u64 o, [out]; ld.param.u64 b, [bytes];\n\
            st.param.b64 [s], b; call (r), malloc, (s); ld.param.b64 p, [r]; st.global.u64 [o], p; ret; }\n";
        let kernel = function(module(text), "take");
        let out = alloc(8);
        let take = |bytes: u64| {
            assert_eq!(launch(kernel, 1, 1, 0, &[out, bytes]), CUDA_SUCCESS);
            read(out, 8) != [0; 8]
        };
        assert!(!take((8 << 20) + 1), "8 MiB at first");
        ok!(cuCtxSetLimit(2, 16 << 20));
        assert!(take((8 << 20) + 1));
        assert!(!take(8 << 20));
    });
}

/// The heap of device code is a context's: its size, what is in it, and it goes with the context.
#[test]
fn each_context_has_a_heap_of_its_own() {
    const TAKE: &str = ".version 8.0 .target sm_80 .address_size 64
.extern .func (.param .b64 p) malloc(.param .b64 n);
.visible .entry take(.param .u64 out, .param .u64 bytes) { .reg .b64 %o; .reg .b64 %n; .reg .b64 %p; .param .b64 n; .param .b64 p;
ld.param.u64 %o, [out]; ld.param.u64 %n, [bytes]; st.param.b64 [n], %n; call (p), malloc, (n); ld.param.b64 %p, [p];
st.global.u64 [%o], %p; ret; }";
    const MIB: u64 = 1 << 20;
    // Whether a kernel of the current context gets so much.
    let take = |bytes: u64| {
        let (take, out) = (function(module(TAKE), "take"), alloc(8));
        assert_eq!(launch(take, 1, 1, 0, &[out, bytes]), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        read(out, 8) != [0; 8]
    };
    // As much as a process can see of what others take meanwhile: a test by itself.
    in_child("each_context_has_a_heap_of_its_own", &[], std::process::Stdio::null(), || {
        let free = || {
            let (mut free, mut total) = (0, 0);
            ok!(cuMemGetInfo_v2(&mut free, &mut total));
            free as u64
        };
        let _outer = context();
        let before = free();
        let first = context();
        assert!(take(6 * MIB) && !take(6 * MIB), "of 8 MiB");
        {
            let _second = context();
            assert!(take(6 * MIB), "the other one's heap is full, not this one's");
            ok!(cuCtxSetLimit(2, 7 * MIB as usize));
            assert!(!take(MIB + 4096));
            assert!(before - free() >= 12 * MIB);
        }
        assert!(take(MIB), "the limit was another context's");
        assert!(before - free() < 12 * MIB, "what the second one had is free again");
        drop(first);
        assert_eq!(free(), before);
    });
}
