//! Streams, events, host functions, default-stream rules. No kernels: host functions stand in for work, as they can be
//! held.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A host function that waits until it is let go.
struct Gate(AtomicBool);

extern "C" fn wait_at(gate: *mut c_void) {
    let gate = unsafe { &*gate.cast::<Gate>() };
    while !gate.0.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Gate {
    fn closed() -> &'static Gate {
        Box::leak(Box::new(Gate(AtomicBool::new(false))))
    }
    fn block(&'static self, stream: H) {
        ok!(cuLaunchHostFunc(stream, wait_at, std::ptr::from_ref(self).cast_mut().cast()));
    }
    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_stream_works_beside_the_host_and_in_order() {
    let _context = context();
    let stream = stream(1);
    let memory = alloc(4);
    let gate = Gate::closed();
    gate.block(stream);
    for value in 1..=50 {
        ok!(cuMemsetD8Async(memory, value, 4, stream));
    }
    assert_eq!(cu!(cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamQuery(stream));
    assert_eq!(read(memory, 4), [50; 4]);
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(cu!(cuStreamQuery(stream)), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let _context = context();
    let (first, second) = (stream(1), stream(1));
    let (memory, ready) = (alloc(4), event(2));
    let gate = Gate::closed();
    gate.block(first);
    ok!(cuMemsetD8Async(memory, 1, 4, first));
    ok!(cuEventRecord(ready, first));
    ok!(cuStreamWaitEvent(second, ready, 0));
    ok!(cuMemsetD8Async(memory, 2, 4, second));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cu!(cuEventQuery(ready)), CUDA_ERROR_NOT_READY);
    assert_eq!(cu!(cuStreamQuery(second)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(second));
    ok!(cuEventQuery(ready));
    assert_eq!(read(memory, 4), [2; 4]);
}

#[test]
fn a_wait_is_for_the_recording_before_it() {
    let _context = context();
    let (first, second) = (stream(1), stream(1));
    let mark = event(2);
    // Never recorded: no wait.
    ok!(cuStreamWaitEvent(second, mark, 0));
    ok!(cuStreamSynchronize(second));
    ok!(cuEventRecord(mark, first));
    ok!(cuStreamSynchronize(first));
    ok!(cuStreamWaitEvent(second, mark, 0));
    let gate = Gate::closed();
    gate.block(first);
    ok!(cuEventRecord(mark, first));
    // The wait above is for the first recording.
    ok!(cuStreamSynchronize(second));
    assert_eq!(cu!(cuEventQuery(mark)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuEventSynchronize(mark));
}

#[test]
fn the_legacy_stream_orders_itself_with_blocking_streams_only() {
    let _context = context();
    let (blocking, free) = (stream(0), stream(1));
    let memory = alloc(8);
    let gate = Gate::closed();
    gate.block(blocking);
    ok!(cuMemsetD8Async(memory, 1, 4, blocking));
    // Behind the blocking stream, and so is what follows on it.
    ok!(cuMemsetD8Async(memory, 2, 4, 0));
    ok!(cuMemsetD8Async(memory, 3, 4, blocking));
    ok!(cuMemsetD8Async(memory + 4, 9, 4, free));
    ok!(cuStreamSynchronize(free));
    assert_eq!(cu!(cuStreamQuery(0)), CUDA_ERROR_NOT_READY);
    assert_eq!(cu!(cuStreamQuery(1)), CUDA_ERROR_NOT_READY);
    gate.open();
    assert_eq!(read(memory, 8), [3, 3, 3, 3, 9, 9, 9, 9]);
    ok!(cuStreamQuery(blocking));
}

#[test]
fn a_threads_own_stream_is_another_stream() {
    let current = context();
    let memory = alloc(4);
    let other = std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(current.0));
        let gate = Gate::closed();
        gate.block(2);
        ok!(cuMemsetD8Async_ptsz(memory, 5, 4, 0));
        assert_eq!(cu!(cuStreamQuery_ptsz(0)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(cuStreamQuery(2)), CUDA_ERROR_NOT_READY);
        (gate, current)
    });
    let (gate, current) = other.join().unwrap();
    // This thread's own stream has nothing to do.
    ok!(cuCtxSetCurrent(current.0));
    ok!(cuStreamQuery(2));
    gate.open();
    ok!(cuCtxSynchronize());
    assert_eq!(read(memory, 4), [5; 4]);
}

#[test]
fn callbacks_and_host_functions_come_in_order() {
    static SEEN: Mutex<Vec<(usize, CUresult)>> = Mutex::new(Vec::new());
    extern "C" fn callback(_: H, status: CUresult, number: *mut c_void) {
        SEEN.lock().unwrap().push((number.addr(), status));
    }
    extern "C" fn function(number: *mut c_void) {
        SEEN.lock().unwrap().push((number.addr(), CUDA_SUCCESS));
    }
    let _context = context();
    let stream = stream(0);
    for i in 0..20 {
        let argument = std::ptr::without_provenance_mut(i);
        if i % 2 == 0 {
            ok!(cuStreamAddCallback(stream, callback, argument, 0));
        } else {
            ok!(cuLaunchHostFunc(stream, function, argument));
        }
    }
    ok!(cuStreamSynchronize(stream));
    let seen = SEEN.lock().unwrap();
    assert_eq!(*seen, (0..20).map(|i| (i, CUDA_SUCCESS)).collect::<Vec<_>>());
}

#[test]
fn host_functions_may_not_call_the_driver() {
    static ANSWERS: Mutex<Vec<CUresult>> = Mutex::new(Vec::new());
    extern "C" fn calls(_: *mut c_void) {
        let answers = [cu!(cuCtxSynchronize()), cu!(cuMemFree_v2(0)), cu!(cuDriverGetVersion(&mut 0))];
        ANSWERS.lock().unwrap().extend(answers);
    }
    let _context = context();
    ok!(cuLaunchHostFunc(0, calls, std::ptr::null_mut()));
    ok!(cuCtxSynchronize());
    let not = CUDA_ERROR_NOT_PERMITTED;
    assert_eq!(*ANSWERS.lock().unwrap(), [not, not, CUDA_SUCCESS]);
}

#[test]
fn events_keep_time() {
    let _context = context();
    let stream = stream(0);
    let (start, end, plain) = (event(0), event(0), event(2));
    let mut milliseconds = -1.0;
    assert_eq!(cu!(cuEventElapsedTime_v2(&mut milliseconds, start, end)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuEventRecord(start, stream));
    extern "C" fn sleep(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(30));
    }
    ok!(cuLaunchHostFunc(stream, sleep, std::ptr::null_mut()));
    ok!(cuEventRecord(end, stream));
    ok!(cuEventRecord(plain, stream));
    assert_eq!(cu!(cuEventElapsedTime_v2(&mut milliseconds, start, end)), CUDA_ERROR_NOT_READY);
    let began = Instant::now();
    ok!(cuEventSynchronize(end));
    assert!(began.elapsed() > Duration::from_millis(15));
    ok!(cuEventElapsedTime_v2(&mut milliseconds, start, end));
    assert!((30.0..3000.0).contains(&milliseconds), "{milliseconds}");
    ok!(cuEventElapsedTime_v2(&mut milliseconds, end, start));
    assert!(milliseconds <= -30.0);
    ok!(cuEventSynchronize(plain));
    assert_eq!(cu!(cuEventElapsedTime_v2(&mut milliseconds, start, plain)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuEventDestroy_v2(end));
    assert_eq!(cu!(cuEventQuery(end)), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn pinned_copies_are_asynchronous_and_pageable_ones_are_read_at_once() {
    let _context = context();
    let stream = stream(0);
    let device = alloc(8192);
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 4096, 0));
    let pinned_bytes = unsafe { std::slice::from_raw_parts_mut(pinned.cast::<u8>(), 4096) };
    pinned_bytes.fill(1);
    let mut pageable = vec![7u8; 4096];
    let gate = Gate::closed();
    gate.block(stream);
    ok!(cuMemcpyHtoDAsync_v2(device, pinned, 4096, stream));
    ok!(cuMemcpyHtoDAsync_v2(device + 4096, pageable.as_ptr().cast(), 4096, stream));
    // The pinned buffer is read when the stream comes there; the other one has been read.
    pinned_bytes.fill(2);
    pageable.fill(8);
    gate.open();
    ok!(cuStreamSynchronize(stream));
    assert_eq!((read(device, 1)[0], read(device + 4096, 1)[0]), (2, 7));
    ok!(cuMemcpyDtoHAsync_v2(pageable.as_mut_ptr().cast(), device, 4096, stream));
    assert!(pageable.iter().all(|b| *b == 2), "a copy to pageable memory is over when the call returns");
    ok!(cuMemFreeHost(pinned));
}

#[test]
fn stream_ordered_memory_is_given_back_in_stream_order() {
    let _context = context();
    let stream = stream(1);
    let mut memory = 0;
    ok!(cuMemAllocAsync(&mut memory, 1 << 20, stream));
    let gate = Gate::closed();
    gate.block(stream);
    ok!(cuMemsetD8Async(memory, 3, 1 << 20, stream));
    ok!(cuMemFreeAsync(memory, stream));
    assert_eq!(cu!(cuMemFreeAsync(memory, stream)), CUDA_ERROR_INVALID_VALUE);
    gate.open();
    ok!(cuStreamSynchronize(stream));
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn many_streams_on_many_threads_lose_nothing() {
    let current = context();
    let total = AtomicU32::new(0);
    extern "C" fn add(total: *mut c_void) {
        unsafe { &*total.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                ok!(cuCtxSetCurrent(current.0));
                for _ in 0..10 {
                    let (a, b) = (stream(0), stream(0));
                    let mark = event(2);
                    for round in 0..10 {
                        ok!(cuLaunchHostFunc(a, add, std::ptr::from_ref(&total).cast_mut().cast()));
                        ok!(cuEventRecord(mark, a));
                        ok!(cuStreamWaitEvent(b, mark, 0));
                        ok!(cuLaunchHostFunc(
                            if round % 3 == 0 { 0 } else { b },
                            add,
                            std::ptr::from_ref(&total).cast_mut().cast()
                        ));
                    }
                    ok!(cuStreamDestroy_v2(a));
                    ok!(cuStreamSynchronize(b));
                    ok!(cuStreamDestroy_v2(b));
                }
            });
        }
    });
    ok!(cuCtxSynchronize());
    assert_eq!(total.load(Ordering::Relaxed), 800);
}

/// Each block draws a number when it has worked for some rounds.
const TICKETS: &str = ".version 7.0 .target sm_75 .address_size 64
.visible .entry draw(.param .u64 next, .param .u64 tickets, .param .u64 rounds) {
.reg .b64 %n, %t, %r, %i; .reg .b32 %v, %b; .reg .pred %p;
ld.param.u64 %n, [next]; ld.param.u64 %t, [tickets]; ld.param.u64 %r, [rounds];
mov.u64 %i, 1;
LOOP: mad.lo.u64 %i, %i, 3, 1; sub.u64 %r, %r, 1; setp.ne.u64 %p, %r, 0; @%p bra LOOP;
atom.global.add.u32 %v, [%n], 1;
setp.eq.u64 %p, %i, 0; @%p add.u32 %v, %v, 1;
mov.u32 %b, %ctaid.x; mad.wide.u32 %t, %b, 4, %t; st.global.u32 [%t], %v; ret; }";

#[test]
fn blocks_of_an_urgent_stream_start_before_those_of_others() {
    const LOW: u32 = 200_000;
    const HIGH: u32 = 20_000;
    let _context = context();
    let (mut least, mut greatest, mut urgent) = (9, 9, 0);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(greatest < least);
    ok!(cuStreamCreateWithPriority(&mut urgent, 1, greatest));
    let (plain, draw) = (stream(1), function(module(TICKETS), "draw"));
    let (next, tickets) = (alloc(4), alloc(4 * (LOW + HIGH) as usize));
    ok!(cuMemsetD32_v2(next, 0, 1));
    let high = tickets + 4 * u64::from(LOW);
    assert_eq!(launch(draw, LOW, 1, plain, &[next, tickets, 300]), CUDA_SUCCESS);
    assert_eq!(launch(draw, HIGH, 1, urgent, &[next, high, 300]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    let mut numbers: Vec<u32> =
        read(high, 4 * HIGH as usize).chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    numbers.sort_unstable();
    // Blocks of the other kernel that were drawn for meanwhile: those that had been claimed, 64 a thread, and no more.
    // Side by side it would be as many as of the urgent one. The last tenth does not count: when no urgent block is left to
    // start, the others go on, and one that has started may wait for a processor.
    let most = HIGH as usize * 9 / 10;
    let others = numbers[most - 1] - numbers[0] + 1 - most as u32;
    assert!(others <= 64 * 16, "{others} blocks of the other kernel came between");
}
