//! What ends while work goes on that never ends by itself: contexts, devices, the process.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Sets a word, and ends when the next one is set, which nobody does.
const ENDLESS: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry endless(.param .u64 words) { .reg .b64 %w; .reg .b32 %v; .reg .pred %p;
ld.param.u64 %w, [words]; st.volatile.global.u32 [%w], 1;
LOOP: ld.volatile.global.u32 %v, [%w+4]; setp.eq.u32 %p, %v, 0; @%p bra LOOP; ret; }";

/// Pinned words that the host sees.
fn pinned_words() -> &'static [AtomicU32; 16] {
    let mut words = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut words, 64, 0));
    unsafe { &*words.cast::<[AtomicU32; 16]>() }
}

/// Starts a kernel that never ends in a stream, and returns when it runs.
fn start_endless(stream: H) {
    let words = pinned_words();
    let address = words.as_ptr().addr() as u64;
    assert_eq!(launch(function(module(ENDLESS), "endless"), 3, 64, stream, &[address]), CUDA_SUCCESS);
    while words[0].load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// That a device and new contexts on it are as before.
fn all_is_well() {
    let context = context();
    let memory = alloc(64);
    ok!(cuMemsetD8_v2(memory, 7, 64));
    assert_eq!(move_on(0, memory, memory + 4), CUDA_SUCCESS);
    assert_eq!(read(memory, 4), [7; 4]);
    drop(context);
}

#[test]
fn a_kernel_that_never_ends_does_not_keep_its_context() {
    let context = context();
    let (first, second) = (stream(1), stream(0));
    start_endless(first);
    start_endless(second);
    let memory = alloc(4);
    let synchronized = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ok!(cuCtxSetCurrent(context.0));
            cu!(cuStreamSynchronize(first))
        });
        std::thread::sleep(Duration::from_millis(20));
        ok!(cuCtxDestroy_v2(context.0));
        waiter.join().unwrap()
    });
    assert_eq!(synchronized, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_CONTEXT);
    std::mem::forget(context);
    all_is_well();
}

#[test]
fn what_a_stream_waits_for_in_vain_does_not_keep_its_context() {
    let other = context();
    let holding = stream(1);
    start_endless(holding);
    let never = event(0);
    ok!(cuEventRecord(never, holding));
    let ended = context();
    let (by_word, by_event, by_stream) = (stream(1), stream(1), stream(0));
    let word = alloc(4);
    ok!(cuMemsetD32_v2(word, 0, 1));
    ok!(cuStreamWaitValue32_v2(by_word, word, 1, 0));
    ok!(cuStreamWaitEvent(by_event, never, 0));
    ok!(cuMemsetD8Async(word, 1, 4, by_event));
    ok!(cuStreamWaitEvent(by_stream, never, 0));
    // The default stream waits for all blocking ones.
    ok!(cuMemsetD8Async(word, 1, 4, 0));
    ok!(cuCtxDestroy_v2(ended.0));
    std::mem::forget(ended);
    ok!(cuCtxSetCurrent(other.0));
    assert_eq!(cu!(cuStreamQuery(holding)), CUDA_ERROR_NOT_READY, "the other context works on");
    drop(other);
    all_is_well();
}

#[test]
fn a_primary_context_is_reset_whatever_runs_in_it() {
    in_child("a_primary_context_is_reset_whatever_runs_in_it", &[], Stdio::null(), || {
        let mut primary = 0;
        for release in [false, true] {
            ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
            ok!(cuCtxSetCurrent(primary));
            start_endless(0);
            if release {
                ok!(cuDevicePrimaryCtxRelease_v2(0));
            } else {
                ok!(cuDevicePrimaryCtxReset_v2(0));
            }
        }
        all_is_well();
    });
}

#[test]
fn a_process_exits_whatever_runs_on_its_device() {
    in_child("a_process_exits_whatever_runs_on_its_device", &[], Stdio::null(), || {
        std::mem::forget(context());
        start_endless(0);
        // As `main` returns: functions of `atexit` are called.
        std::process::exit(0);
    });
}

/// Each of `n` blocks adds up a number of its own, with none of its threads waiting for anything.
const SUM: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry sum(.param .u64 out, .param .u64 rounds) { .reg .b64 %o, %n, %i; .reg .b32 %b; .reg .pred %p;
ld.param.u64 %o, [out]; ld.param.u64 %n, [rounds]; mov.u32 %b, %ctaid.x; cvt.u64.u32 %i, %b;
LOOP: mad.lo.u64 %i, %i, 3, 1; sub.u64 %n, %n, 1; setp.ne.u64 %p, %n, 0; @%p bra LOOP;
mad.wide.u32 %o, %b, 8, %o; st.global.u64 [%o], %i; ret; }";

#[test]
fn work_that_gets_on_is_done_before_its_context_ends() {
    // Some thirty of them take turns, so a block of them is done every now and then only.
    const BLOCKS: u32 = 4096;
    const ROUNDS: u64 = 1_000_000;
    let context = context();
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 8 * BLOCKS as usize, 0));
    // The results are looked at by a host function, behind the kernel and before the context's end takes the memory.
    extern "C" fn look(results: *mut std::ffi::c_void) {
        let results = unsafe { std::slice::from_raw_parts(results.cast::<u64>(), BLOCKS as usize) };
        let (factor, summand) = repeated(ROUNDS);
        for (block, result) in (0u64..).zip(results) {
            let expected = factor.wrapping_mul(block).wrapping_add(summand);
            RIGHT.fetch_add(u32::from(*result == expected), SeqCst);
        }
    }
    let began = Instant::now();
    assert_eq!(
        launch(function(module(SUM), "sum"), BLOCKS, 1, 0, &[pinned.addr() as u64, ROUNDS]),
        CUDA_SUCCESS
    );
    ok!(cuLaunchHostFunc(0, look, pinned));
    drop(context);
    assert_eq!(RIGHT.load(SeqCst), BLOCKS, "after {:?}", began.elapsed());
}

static RIGHT: AtomicU32 = AtomicU32::new(0);

/// The factor and the summand of `x -> 3 x + 1`, done n times.
fn repeated(mut n: u64) -> (u64, u64) {
    let then =
        |(a, b): (u64, u64), (c, d): (u64, u64)| (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d));
    let (mut all, mut step) = ((1, 0), (3, 1));
    while n > 0 {
        if n % 2 == 1 {
            all = then(all, step);
        }
        step = then(step, step);
        n /= 2;
    }
    all
}
