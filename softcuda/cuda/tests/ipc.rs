//! Memory of another process, by handle.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const VARIABLE: &str = "SOFTCUDA_TEST_HANDLE";

/// What the other process does: reads 42, writes 43 by a kernel, looks at every error.
fn other_process() {
    let context = context();
    let mut address = 0;
    let handle = Ipc::from_text(&std::env::var(VARIABLE).expect("a handle"));
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, handle, 0)), CUDA_ERROR_INVALID_VALUE);
    let mut forged = handle;
    forged.0[12] ^= 0x55;
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, forged, 1)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, Ipc([0; 64]), 1)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    let mut again = 0;
    ok!(cuIpcOpenMemHandle_v2(&mut again, handle, 1));
    assert_eq!(address, again);
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, address + 9));
    assert_eq!((base, size), (address, 1000));
    assert_eq!(read(address, 1000), [42; 1000]);
    let mine = alloc(4);
    ok!(cuMemsetD8_v2(mine, 43, 4));
    ok!(cuCtxSynchronize());
    assert_eq!(move_on(0, address + 8, mine), CUDA_SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE, "it is not this process's");
    ok!(cuIpcCloseMemHandle(address));
    assert_eq!(read(address, 4), [42; 4], "opened twice");
    ok!(cuIpcCloseMemHandle(address));
    assert_eq!(cu!(cuIpcCloseMemHandle(address)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(move_on(0, address, mine), CUDA_ERROR_ILLEGAL_ADDRESS);
    drop(context);
}

#[test]
fn another_process_shares_memory() {
    const NAME: &str = "another_process_shares_memory";
    if std::env::var_os(VARIABLE).is_some() {
        return other_process();
    }
    let _context = context();
    // A small allocation, which shares its part of the memory with others, and a large one.
    for bytes in [1000, 1000 + (4 << 20)] {
        let (neighbour, memory) = (alloc(bytes), alloc(bytes));
        ok!(cuMemsetD8_v2(neighbour, 7, bytes));
        ok!(cuMemsetD8_v2(memory, 42, bytes));
        let mut handle = Ipc([0; 64]);
        if bytes == 1000 {
            ok!(cuIpcGetMemHandle(&mut handle, memory + 5));
            assert_eq!(
                cu!(cuIpcOpenMemHandle_v2(&mut 0, handle, 1)),
                CUDA_ERROR_INVALID_CONTEXT,
                "one's own"
            );
            in_child(NAME, &[(VARIABLE, &handle.to_text())], Stdio::null(), || ());
            assert_eq!(read(memory, 12), [42, 42, 42, 42, 42, 42, 42, 42, 43, 43, 43, 43]);
        } else {
            ok!(cuIpcGetMemHandle(&mut handle, memory));
            assert_eq!(read(memory + bytes as u64 - 4, 4), [42; 4], "it stays where it is");
        }
        assert_eq!(read(neighbour, bytes), vec![7; bytes]);
        assert_eq!(move_on(0, memory, neighbour), CUDA_SUCCESS);
        ok!(cuMemFree_v2(memory));
        assert_eq!(cu!(cuIpcGetMemHandle(&mut handle, memory)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemFree_v2(neighbour));
        // The place is used again, by memory that nobody shares.
        let next = alloc(bytes);
        ok!(cuMemsetD8_v2(next, 1, bytes));
        assert_eq!(read(next, bytes), vec![1; bytes]);
        ok!(cuMemFree_v2(next));
    }
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 64, 0));
    assert_eq!(cu!(cuIpcGetMemHandle(&mut Ipc([0; 64]), pinned.addr() as u64)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFreeHost(pinned));
}

/// Each block counts in its own word, by plain accesses, until a word is set; then it writes into the next word how far it came.
const COUNTERS: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry counters(.param .u64 out, .param .u64 words) {
.reg .b64 %o, %w; .reg .b32 %b, %n, %m, %v; .reg .pred %p;
ld.param.u64 %o, [out]; ld.param.u64 %w, [words]; mov.u32 %b, %ctaid.x; mad.wide.u32 %o, %b, 8, %o; mov.u32 %n, 0;
st.global.u32 [%o], 0; red.global.add.u32 [%w], 1;
LOOP: ld.global.u32 %m, [%o]; add.u32 %m, %m, 1; st.global.u32 [%o], %m; add.u32 %n, %n, 1;
ld.volatile.global.u32 %v, [%w+4]; setp.eq.u32 %p, %v, 0; @%p bra LOOP;
st.global.u32 [%o+4], %n; ret; }";

const BLOCKS: u32 = 6;

/// Exports allocations in which the kernel on `device` counts, while it does, and looks whether a step was lost.
fn export_under(device: i32, allocations: &[u64]) {
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 64, 0));
    let words = unsafe { &*pinned.cast::<[AtomicU32; 16]>() };
    let counters = function(module(COUNTERS), "counters");
    let streams: Vec<H> = allocations.iter().map(|_| stream(1)).collect();
    for (memory, stream) in allocations.iter().zip(&streams) {
        assert_eq!(launch(counters, BLOCKS, 1, *stream, &[*memory, pinned.addr() as u64]), CUDA_SUCCESS);
    }
    while words[0].load(SeqCst) < BLOCKS * allocations.len() as u32 {
        std::thread::yield_now();
    }
    for memory in allocations {
        ok!(cuIpcGetMemHandle(&mut Ipc([0; 64]), *memory));
        assert_eq!(cu!(cuStreamQuery(streams[0])), CUDA_ERROR_NOT_READY, "device {device}");
    }
    words[1].store(1, SeqCst);
    ok!(cuCtxSynchronize());
    for memory in allocations {
        let counted = read(*memory, 8 * BLOCKS as usize);
        for pair in counted.chunks(8) {
            assert_eq!(pair[..4], pair[4..], "steps of device {device} were lost");
        }
    }
    ok!(cuMemFreeHost(pinned));
}

#[test]
fn an_export_waits_for_no_kernel_and_loses_no_store() {
    const NAME: &str = "an_export_waits_for_no_kernel_and_loses_no_store";
    let variables = [("SOFTCUDA_DEVICES", "2"), ("SOFTCUDA_MEMORY", "256M"), ("SOFTCUDA_WORKERS", "2")];
    in_child(NAME, &variables, Stdio::null(), || {
        let mut contexts = [0; 2];
        for (ordinal, context) in (0..).zip(&mut contexts) {
            ok!(cuCtxCreate_v2(context, 0, ordinal));
        }
        for device in [0, 1] {
            ok!(cuCtxSetCurrent(contexts[0]));
            let allocations: Vec<u64> = (0..4).map(|i| alloc(if i < 2 { 100 } else { 3 << 20 })).collect();
            ok!(cuCtxSetCurrent(contexts[device]));
            if device == 1 {
                ok!(cuCtxEnablePeerAccess(contexts[0], 0));
            }
            export_under(device as i32, &allocations);
        }
    });
}

/// Says that it runs, and then counts for years, with no access to memory and nothing to wait for.
const LONG: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry long(.param .u64 out, .param .u64 words) { .reg .b64 %o, %w, %n; .reg .pred %p;
ld.param.u64 %o, [out]; ld.param.u64 %w, [words]; mov.u64 %n, 1; red.global.add.u32 [%w], 1;
LOOP: mad.lo.u64 %n, %n, 3, 2; setp.ne.u64 %p, %n, 0; @%p bra LOOP;
st.global.u64 [%o], %n; ret; }";

#[test]
fn an_export_waits_for_no_loop_that_waits_for_nothing() {
    in_child("an_export_waits_for_no_loop_that_waits_for_nothing", &[], Stdio::null(), || {
        let context = context();
        let (memory, mut pinned) = (alloc(100), std::ptr::null_mut());
        ok!(cuMemHostAlloc(&mut pinned, 64, 0));
        let words = unsafe { &*pinned.cast::<[AtomicU32; 16]>() };
        let long = function(module(LONG), "long");
        // One block of one thread, one of a warp, and as many as take turns.
        for (blocks, threads) in [(1, 1), (1, 32), (40, 64)] {
            words[0].store(0, SeqCst);
            let stream = stream(1);
            assert_eq!(launch(long, blocks, threads, stream, &[memory, pinned.addr() as u64]), CUDA_SUCCESS);
            while words[0].load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            ok!(cuIpcGetMemHandle(&mut Ipc([0; 64]), memory));
            assert_eq!(cu!(cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        }
        // Ends them.
        drop(context);
    });
}
