//! Stream capture. One test at a time: a capture in GLOBAL mode concerns every thread of the process.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(stream: H, mode: u32) {
    ok!(cuStreamBeginCapture_v2(stream, mode));
}

fn end(stream: H) -> H {
    let mut graph = 0;
    ok!(cuStreamEndCapture(stream, &mut graph));
    graph
}

/// The code of an end that fails, which gives no graph.
fn fails(stream: H) -> CUresult {
    let mut graph = 1;
    let code = cu!(cuStreamEndCapture(stream, &mut graph));
    assert_eq!(graph, 0);
    code
}

fn status(stream: H) -> u32 {
    let mut status = 9;
    ok!(cuStreamIsCapturing(stream, &mut status));
    status
}

fn run(graph: H) {
    let mut exec = 0;
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
}

#[test]
fn work_becomes_nodes_and_is_not_done() {
    let _alone = alone();
    let _context = context();
    let (stream, memory) = (stream(0), alloc(16));
    let number = function(module(PTX), "number");
    ok!(cuMemsetD8_v2(memory, 9, 16));
    begin(stream, GLOBAL);
    assert_eq!(status(stream), 1);
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, GLOBAL)), CUDA_ERROR_ILLEGAL_STATE);
    ok!(cuMemsetD8Async(memory, 1, 16, stream));
    assert_eq!(launch(number, 1, 2, stream, &[memory, 5]), CUDA_SUCCESS);
    let graph = end(stream);
    assert_eq!(status(stream), 0);
    assert_eq!(read(memory, 16), [9; 16]);
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, null_mut(), &mut count));
    assert_eq!(count, 2);
    ok!(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut count));
    assert_eq!(count, 1);
    run(graph);
    assert_eq!(read(memory, 16), [5, 0, 0, 0, 6, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(fails(stream), CUDA_ERROR_ILLEGAL_STATE);
}

#[test]
fn events_fork_and_join() {
    let _alone = alone();
    let _context = context();
    let (one, two, memory) = (stream(1), stream(1), alloc(12));
    let (fork, join) = (event(2), event(2));
    begin(one, GLOBAL);
    ok!(cuMemsetD8Async(memory, 1, 4, one));
    ok!(cuEventRecord(fork, one));
    ok!(cuStreamWaitEvent(two, fork, 0));
    assert_eq!(status(two), 1);
    ok!(cuMemsetD8Async(memory + 4, 2, 4, two));
    ok!(cuMemsetD8Async(memory + 8, 3, 4, one));
    ok!(cuEventRecord(join, two));
    assert_eq!(cu!(cuStreamEndCapture(two, &mut 0)), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_eq!(fails(one), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    begin(one, GLOBAL);
    ok!(cuMemsetD8Async(memory, 1, 4, one));
    ok!(cuEventRecord(fork, one));
    ok!(cuStreamWaitEvent(two, fork, 0));
    ok!(cuMemsetD8Async(memory + 4, 2, 4, two));
    ok!(cuEventRecord(join, two));
    ok!(cuStreamWaitEvent(one, join, 0));
    ok!(cuMemsetD8Async(memory + 8, 3, 4, one));
    let graph = end(one);
    assert_eq!((status(one), status(two)), (0, 0));
    let mut edges = 0;
    ok!(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges));
    assert_eq!(edges, 3, "the last set waits for both");
    run(graph);
    assert_eq!(read(memory, 12), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    // The event belongs to a capture that is over.
    assert_eq!(cu!(cuEventQuery(fork)), CUDA_ERROR_CAPTURED_EVENT);
    assert_eq!(cu!(cuStreamWaitEvent(two, fork, 0)), CUDA_ERROR_CAPTURED_EVENT);
    ok!(cuEventRecord(fork, one));
    ok!(cuEventSynchronize(fork));
}

#[test]
fn a_branch_that_is_not_joined_is_an_error() {
    let _alone = alone();
    let _context = context();
    let (one, two, memory, fork) = (stream(1), stream(1), alloc(8), event(2));
    begin(one, RELAXED);
    ok!(cuMemsetD8Async(memory, 1, 4, one));
    ok!(cuEventRecord(fork, one));
    ok!(cuStreamWaitEvent(two, fork, 0));
    ok!(cuMemsetD8Async(memory + 4, 2, 4, two));
    assert_eq!(fails(one), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_eq!((status(one), status(two)), (0, 0));
}

#[test]
fn what_waits_for_captured_work_invalidates_the_capture() {
    let _alone = alone();
    let _context = context();
    let (stream, mark) = (stream(1), event(2));
    let cases: [(&str, &dyn Fn() -> CUresult, CUresult); 6] = [
        ("synchronise", &|| cu!(cuStreamSynchronize(stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        ("query", &|| cu!(cuStreamQuery(stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        ("context", &|| cu!(cuCtxSynchronize()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        ("event", &|| cu!(cuEventSynchronize(mark)), CUDA_ERROR_CAPTURED_EVENT),
        ("isolation", &|| cu!(cuStreamWaitEvent(stream, event(2), 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
        ("legacy", &|| cu!(cuStreamBeginCapture_v2(0, 2)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    ];
    for (name, call, code) in cases {
        begin(stream, RELAXED);
        ok!(cuEventRecord(mark, stream));
        assert_eq!(call(), code, "{name}");
        if name == "legacy" {
            end(stream);
            continue;
        }
        assert_eq!(status(stream), 2, "{name}");
        assert_eq!(cu!(cuMemsetD8Async(1, 0, 1, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuEventRecord(mark, stream)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(fails(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "{name}");
        ok!(cuStreamSynchronize(stream));
    }
}

#[test]
fn the_legacy_stream_is_out_of_bounds_while_a_blocking_stream_captures() {
    let _alone = alone();
    let _context = context();
    let (blocking, free, memory) = (stream(0), stream(1), alloc(4));
    begin(free, RELAXED);
    ok!(cuMemsetD8Async(memory, 1, 4, 0));
    end(free);
    begin(blocking, RELAXED);
    assert_eq!(cu!(cuMemsetD8Async(memory, 1, 4, 0)), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(fails(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn two_captures_cannot_be_merged() {
    let _alone = alone();
    let _context = context();
    let (one, two, mark) = (stream(1), stream(1), event(2));
    begin(one, RELAXED);
    begin(two, RELAXED);
    ok!(cuEventRecord(mark, one));
    assert_eq!(cu!(cuStreamWaitEvent(two, mark, 0)), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_eq!(fails(one), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(fails(two), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn modes_decide_which_threads_may_make_unsafe_calls() {
    let _alone = alone();
    let context = context();
    let stream = stream(1);
    // (mode of the capture, own thread may allocate, another one may)
    for (mode, own, other) in [(GLOBAL, false, false), (THREAD_LOCAL, false, true), (RELAXED, true, true)] {
        let allocates = || {
            let mut memory = 0;
            cu!(cuMemAlloc_v2(&mut memory, 64)) == CUDA_SUCCESS
        };
        begin(stream, mode);
        let elsewhere = std::thread::scope(|s| {
            let there = s.spawn(|| {
                ok!(cuCtxSetCurrent(context.0));
                allocates()
            });
            there.join().unwrap()
        });
        assert_eq!(elsewhere, other, "mode {mode}");
        cu!(cuStreamEndCapture(stream, &mut 0));
        begin(stream, mode);
        assert_eq!(allocates(), own, "mode {mode}");
        assert_eq!(cu!(cuStreamEndCapture(stream, &mut 0)) == CUDA_SUCCESS, own, "mode {mode}");
    }
    // A thread can take the risk on itself.
    begin(stream, GLOBAL);
    let mut thread_mode = RELAXED;
    ok!(cuThreadExchangeStreamCaptureMode(&mut thread_mode));
    assert_eq!(thread_mode, GLOBAL);
    alloc(64);
    ok!(cuThreadExchangeStreamCaptureMode(&mut thread_mode));
    assert_eq!(thread_mode, RELAXED);
    end(stream);
    let mut wrong = 3;
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&mut wrong)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_capture_ends_in_its_thread_unless_it_is_relaxed() {
    let _alone = alone();
    let context = context();
    let stream = stream(1);
    let elsewhere = || {
        std::thread::scope(|s| {
            let there = s.spawn(|| {
                ok!(cuCtxSetCurrent(context.0));
                cu!(cuStreamEndCapture(stream, &mut 0))
            });
            there.join().unwrap()
        })
    };
    begin(stream, GLOBAL);
    assert_eq!(elsewhere(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    end(stream);
    begin(stream, RELAXED);
    assert_eq!(elsewhere(), CUDA_SUCCESS);
}

#[test]
fn the_state_of_a_capture_can_be_read_and_changed() {
    let _alone = alone();
    let _context = context();
    let (stream, memory) = (stream(1), alloc(8));
    let mut graph = 0;
    ok!(cuGraphCreate(&mut graph, 0));
    let mut root = 0;
    ok!(cuGraphAddEmptyNode(&mut root, graph, std::ptr::null(), 0));
    ok!(cuStreamBeginCaptureToGraph(stream, graph, &root, std::ptr::null(), 1, RELAXED));
    let info = || {
        let (mut status, mut id, mut graph, mut nodes, mut count) = (9, 0, 0, std::ptr::null(), 0);
        ok!(cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
        assert_eq!(status, 1);
        assert_ne!(id, 0);
        (graph, unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
    };
    assert_eq!(info(), (graph, vec![root]));
    ok!(cuMemsetD8Async(memory, 1, 4, stream));
    let first = info().1[0];
    assert_ne!(first, root);
    ok!(cuStreamUpdateCaptureDependencies(stream, &root, 1, 1));
    assert_eq!(info().1, [root]);
    ok!(cuStreamUpdateCaptureDependencies(stream, &first, 1, 0));
    assert_eq!(info().1, [root, first]);
    assert_eq!(cu!(cuStreamUpdateCaptureDependencies(stream, &stream, 1, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(end(stream), graph);
}

#[test]
fn external_events_and_stream_memory_are_nodes() {
    let _alone = alone();
    let _context = context();
    let (stream, mark) = (stream(1), event(2));
    assert_eq!(cu!(cuEventRecordWithFlags(mark, stream, 1)), CUDA_ERROR_INVALID_VALUE, "not in a capture");
    begin(stream, GLOBAL);
    let mut memory = 0;
    ok!(cuMemAllocAsync(&mut memory, 64, stream));
    ok!(cuMemsetD8Async(memory, 3, 64, stream));
    ok!(cuEventRecordWithFlags(mark, stream, 1));
    ok!(cuStreamWaitEvent(stream, mark, 1));
    ok!(cuMemFreeAsync(memory, stream));
    let graph = end(stream);
    let mut nodes = [0; 8];
    let mut count = 8;
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    let kinds: Vec<u32> = nodes[..count]
        .iter()
        .map(|node| {
            let mut kind = 99;
            ok!(cuGraphNodeGetType(*node, &mut kind));
            kind
        })
        .collect();
    assert_eq!(kinds, [10, 2, 7, 6, 11]);
    run(graph);
    ok!(cuEventQuery(mark));
}

#[test]
fn pageable_memory_in_a_capture_is_read_at_the_launch() {
    let _alone = alone();
    let _context = context();
    let (stream, memory) = (stream(1), alloc(64));
    let mut source = [1u8; 64];
    begin(stream, GLOBAL);
    ok!(cuMemcpyHtoDAsync_v2(memory, source.as_ptr().cast(), 64, stream));
    let graph = end(stream);
    source.fill(2);
    run(graph);
    assert_eq!(read(memory, 64), [2; 64]);
}

#[test]
fn the_launch_of_a_graph_becomes_a_child_graph() {
    let _alone = alone();
    let _context = context();
    let (stream, memory) = (stream(0), alloc(4));
    ok!(cuMemsetD8_v2(memory, 0, 4));
    begin(stream, GLOBAL);
    ok!(cuMemsetD8Async(memory, 7, 2, stream));
    let inner = end(stream);
    let mut exec = 0;
    ok!(cuGraphInstantiateWithFlags(&mut exec, inner, 0));

    begin(stream, GLOBAL);
    ok!(cuMemsetD8Async(memory, 1, 4, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuMemsetD8Async(memory + 1, 9, 1, stream));
    let outer = end(stream);
    // The child is what the executable graph was then: it goes on without it.
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(inner));
    let (mut nodes, mut count) = ([0; 3], 3);
    ok!(cuGraphGetNodes(outer, nodes.as_mut_ptr(), &mut count));
    let kinds = nodes.map(|node| {
        let mut kind = 99;
        ok!(cuGraphNodeGetType(node, &mut kind));
        kind
    });
    // Memory set, child graph, memory set (CUgraphNodeType), one behind the other.
    assert_eq!((count, kinds), (3, [2, 4, 2]));
    for pair in nodes.windows(2) {
        let (mut before, mut one) = ([0], 1);
        ok!(cuGraphNodeGetDependencies(pair[1], before.as_mut_ptr(), &mut one));
        assert_eq!((one, before[0]), (1, pair[0]));
    }
    assert_eq!(read(memory, 4), [0; 4], "nothing was done yet");
    run(outer);
    assert_eq!(read(memory, 4), [7, 9, 1, 1]);
}

#[test]
fn a_graph_with_memory_of_its_own_cannot_be_launched_into_a_capture() {
    let _alone = alone();
    let _context = context();
    let (stream, mut address) = (stream(0), 0);
    begin(stream, GLOBAL);
    ok!(cuMemAllocAsync(&mut address, 64, stream));
    ok!(cuMemFreeAsync(address, stream));
    let inner = end(stream);
    let mut exec = 0;
    ok!(cuGraphInstantiateWithFlags(&mut exec, inner, 0));
    begin(stream, GLOBAL);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(fails(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
