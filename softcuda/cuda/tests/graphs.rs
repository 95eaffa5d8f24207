//! Graphs that are built node by node: what they do, in which order, and what can be changed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

const KERNEL: u32 = 0;
const SET: u32 = 2;

fn graph() -> H {
    let mut graph = 0;
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

fn exec(graph: H) -> H {
    let mut exec = 0;
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

fn pointer(handle: H) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(handle)
}

/// The description of `number<<<1, 4>>>(out, a)`.
struct Number {
    values: Box<(u64, u32)>,
    pointers: Box<[*mut c_void; 2]>,
    function: H,
}

impl Number {
    fn new(function: H, out: u64, a: u32) -> Self {
        let values = Box::new((out, a));
        let pointers =
            Box::new([(&raw const values.0).cast_mut().cast(), (&raw const values.1).cast_mut().cast()]);
        Number { values, pointers, function }
    }
    fn params(&self) -> sys::CUDA_KERNEL_NODE_PARAMS {
        let _ = &self.values;
        let mut p: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        p.func = pointer(self.function).cast();
        (p.gridDimX, p.gridDimY, p.gridDimZ) = (1, 1, 1);
        (p.blockDimX, p.blockDimY, p.blockDimZ) = (4, 1, 1);
        p.kernelParams = self.pointers.as_ptr().cast_mut();
        p
    }
}

fn set(address: u64, value: u32, width: usize) -> sys::CUDA_MEMSET_NODE_PARAMS {
    sys::CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width, height: 1 }
}

fn copy(to: u64, from: u64, bytes: usize) -> sys::CUDA_MEMCPY3D {
    let mut c = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    let p = c.as_mut_ptr();
    unsafe {
        // Of the fields only these two have no value for 0.
        (&raw mut (*p).srcMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        (&raw mut (*p).dstMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        ((*p).srcDevice, (*p).dstDevice) = (from, to);
        ((*p).WidthInBytes, (*p).Height, (*p).Depth) = (bytes, 1, 1);
        c.assume_init()
    }
}

fn words(address: u64, count: usize) -> Vec<u32> {
    read(address, 4 * count).chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note(number: *mut c_void) {
    SEEN.lock().unwrap().push(number.addr());
}

#[test]
fn nodes_of_every_kind_run_in_their_order_at_every_launch() {
    let context = context();
    let function = function(module(PTX), "number");
    let (a, b) = (alloc(16), alloc(16));
    let graph = graph();
    let (mut first, mut second, mut third, mut fourth, mut last) = (0, 0, 0, 0, 0);
    let number = Number::new(function, a, 10);
    ok!(cuGraphAddMemsetNode(&mut first, graph, null(), 0, &set(a, 7, 4), context.0));
    ok!(cuGraphAddKernelNode_v2(&mut second, graph, &first, 1, &number.params()));
    ok!(cuGraphAddMemcpyNode(&mut third, graph, &second, 1, &copy(b, a, 16), context.0));
    ok!(cuGraphAddMemsetNode(&mut fourth, graph, &third, 1, &set(a, 1, 2), context.0));
    let host = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(note), userData: pointer(77) };
    ok!(cuGraphAddHostNode(&mut last, graph, [third, fourth].as_ptr(), 2, &host));
    let exec = exec(graph);
    ok!(cuGraphDestroy(graph));
    assert_eq!(cu!(cuGraphGetNodes(graph, null_mut(), &mut 0)), CUDA_ERROR_INVALID_VALUE);
    let stream = stream(1);
    for round in 1..=3 {
        ok!(cuMemsetD32_v2(b, 0, 4));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((words(a, 4), words(b, 4)), (vec![1, 1, 12, 13], vec![10, 11, 12, 13]));
        assert_eq!(SEEN.lock().unwrap().iter().filter(|n| **n == 77).count(), round);
    }
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn structure_is_what_was_built() {
    let context = context();
    let graph = graph();
    let memory = alloc(4);
    let (mut a, mut b, mut c) = (0, 0, 0);
    ok!(cuGraphAddEmptyNode(&mut a, graph, null(), 0));
    ok!(cuGraphAddMemsetNode(&mut b, graph, &a, 1, &set(memory, 0, 1), context.0));
    ok!(cuGraphAddEmptyNode(&mut c, graph, [a, b].as_ptr(), 2));
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, null_mut(), &mut count));
    assert_eq!(count, 3);
    let (mut nodes, mut room) = ([0; 5], 5);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut room));
    assert_eq!((nodes, room), ([a, b, c, 0, 0], 3));
    let mut room = 5;
    ok!(cuGraphGetRootNodes(graph, nodes.as_mut_ptr(), &mut room));
    assert_eq!((nodes[0], room), (a, 1));
    let (mut from, mut to, mut room) = ([0; 4], [0; 4], 4);
    ok!(cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut room));
    assert_eq!((from, to, room), ([a, a, b, 0], [b, c, c, 0], 3));
    let mut room = 1;
    ok!(cuGraphNodeGetDependencies(c, nodes.as_mut_ptr(), &mut room));
    assert_eq!((nodes[0], room), (a, 1), "as many as fit");
    let mut room = 5;
    ok!(cuGraphNodeGetDependentNodes(a, nodes.as_mut_ptr(), &mut room));
    assert_eq!((&nodes[..2], room), (&[b, c][..], 2));
    let mut kind = 99;
    ok!(cuGraphNodeGetType(b, &mut kind));
    assert_eq!(kind, SET);

    ok!(cuGraphRemoveDependencies(graph, &a, &c, 1));
    assert_eq!(cu!(cuGraphRemoveDependencies(graph, &a, &c, 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphAddDependencies(graph, &a, &c, 1));
    assert_eq!(cu!(cuGraphAddDependencies(graph, &a, &c, 1)), CUDA_ERROR_INVALID_VALUE, "it is there");
    assert_eq!(cu!(cuGraphAddDependencies(graph, &a, &a, 1)), CUDA_ERROR_INVALID_VALUE);

    // A cycle shows when the graph is made executable.
    ok!(cuGraphAddDependencies(graph, &c, &a, 1));
    let mut params: sys::CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { std::mem::zeroed() };
    assert_eq!(cu!(cuGraphInstantiateWithParams(&mut 0, graph, &mut params)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(params.result_out as u32, 2, "invalid structure");
    assert!([a, b, c].contains(&params.hErrNode_out.addr()));
    ok!(cuGraphRemoveDependencies(graph, &c, &a, 1));
    ok!(cuGraphDestroyNode(b));
    let mut room = 5;
    ok!(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut room));
    assert_eq!(room, 1);
    assert_eq!(cu!(cuGraphNodeGetType(b, &mut kind)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphDestroy(graph));
    assert_eq!(cu!(cuGraphNodeGetType(a, &mut kind)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn edges_keep_their_data_and_old_queries_do_not_lose_it() {
    let _context = context();
    let function = function(module(PTX), "number");
    let (graph, memory) = (graph(), alloc(16));
    let number = Number::new(function, memory, 0);
    let (mut a, mut b) = (0, 0);
    ok!(cuGraphAddKernelNode_v2(&mut a, graph, null(), 0, &number.params()));
    ok!(cuGraphAddKernelNode_v2(&mut b, graph, null(), 0, &number.params()));
    let programmatic = [1, 0, 1, 0, 0, 0, 0, 0];
    ok!(cuGraphAddDependencies_v2(graph, &a, &b, &programmatic, 1));
    let (mut node, mut data, mut room) = (0, [9; 8], 1);
    assert_eq!(cu!(cuGraphNodeGetDependencies(b, &mut node, &mut room)), CUDA_ERROR_LOSSY_QUERY);
    ok!(cuGraphNodeGetDependencies_v2(b, &mut node, &mut data, &mut room));
    assert_eq!((node, data), (a, programmatic));
    ok!(cuGraphLaunch(exec(graph), 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 4), [0, 1, 2, 3]);
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    let context = context();
    let (original, memory) = (graph(), alloc(8));
    let (mut a, mut b) = (0, 0);
    ok!(cuGraphAddMemsetNode(&mut a, original, null(), 0, &set(memory, 1, 1), context.0));
    ok!(cuGraphAddMemsetNode(&mut b, original, &a, 1, &set(memory + 4, 2, 1), context.0));
    let (mut clone, mut twin) = (0, 0);
    ok!(cuGraphClone(&mut clone, original));
    ok!(cuGraphNodeFindInClone(&mut twin, b, clone));
    assert!(twin != b && twin != 0);
    assert_eq!(cu!(cuGraphNodeFindInClone(&mut twin, b, original)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphDestroy(original));
    let mut room = 0;
    ok!(cuGraphGetEdges(clone, null_mut(), null_mut(), &mut room));
    assert_eq!(room, 1);
    ok!(cuGraphLaunch(exec(clone), 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 2), [1, 2]);
}

#[test]
fn child_graphs_are_clones_and_can_be_changed_where_they_are() {
    let context = context();
    let (child, parent, memory) = (graph(), graph(), alloc(8));
    let (mut inner, mut node, mut after) = (0, 0, 0);
    ok!(cuGraphAddMemsetNode(&mut inner, child, null(), 0, &set(memory, 5, 2), context.0));
    ok!(cuGraphAddChildGraphNode(&mut node, parent, null(), 0, child));
    ok!(cuGraphAddMemsetNode(&mut after, parent, &node, 1, &set(memory, 6, 1), context.0));
    assert_eq!(cu!(cuGraphAddChildGraphNode(&mut 0, parent, null(), 0, parent)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphDestroy(child));
    let (mut embedded, mut twin) = (0, 0);
    ok!(cuGraphChildGraphNodeGetGraph(node, &mut embedded));
    assert_eq!(cu!(cuGraphDestroy(embedded)), CUDA_ERROR_INVALID_VALUE, "it is part of the node");
    ok!(cuGraphNodeFindInClone(&mut twin, inner, embedded));
    let exec = exec(parent);
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 2), [6, 5]);
    ok!(cuGraphExecMemsetNodeSetParams(exec, twin, &set(memory, 8, 2), context.0));
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 2), [6, 8]);
}

#[test]
fn executable_graphs_take_new_parameters_and_switch_nodes_off() {
    let context = context();
    let function = function(module(PTX), "number");
    let (graph, memory) = (graph(), alloc(32));
    let number = Number::new(function, memory, 1);
    let (mut kernel, mut fill) = (0, 0);
    ok!(cuGraphAddKernelNode_v2(&mut kernel, graph, null(), 0, &number.params()));
    ok!(cuGraphAddMemsetNode(&mut fill, graph, &kernel, 1, &set(memory + 16, 3, 4), context.0));
    let exec = exec(graph);
    let other = Number::new(function, memory, 100);
    ok!(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &other.params()));
    ok!(cuGraphNodeSetEnabled(exec, fill, 0));
    let mut enabled = 9;
    ok!(cuGraphNodeGetEnabled(exec, fill, &mut enabled));
    assert_eq!(enabled, 0);
    ok!(cuMemsetD32_v2(memory, 0, 8));
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 8), [100, 101, 102, 103, 0, 0, 0, 0]);
    // The graph itself is as it was, and tells its parameters.
    let mut told: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    ok!(cuGraphKernelNodeGetParams_v2(kernel, &mut told));
    let value = unsafe { *(*told.kernelParams.add(1)).cast::<u32>() };
    assert_eq!((told.func.addr(), told.blockDimX, value), (function, 4, 1));
    let mut told: sys::CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
    ok!(cuGraphMemsetNodeGetParams(fill, &mut told));
    assert_eq!((told.dst, told.value, told.elementSize, told.width), (memory + 16, 3, 4, 4));
    // A node of another kind, or of another graph, is an error.
    assert_eq!(cu!(cuGraphExecMemsetNodeSetParams(exec, kernel, &told, context.0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuGraphNodeSetEnabled(exec, graph, 0)), CUDA_ERROR_INVALID_VALUE);
    let mut kind = 99;
    ok!(cuGraphNodeGetType(kernel, &mut kind));
    assert_eq!(kind, KERNEL);
}

#[test]
fn an_update_takes_parameters_and_says_what_does_not_fit() {
    let context = context();
    let memory = alloc(8);
    let make = |value, edge: bool, kind: u32| {
        let (graph, mut a, mut b) = (graph(), 0, 0);
        ok!(cuGraphAddMemsetNode(&mut a, graph, null(), 0, &set(memory, value, 1), context.0));
        let before = if edge { (&raw const a, 1) } else { (null(), 0) };
        if kind == SET {
            ok!(cuGraphAddMemsetNode(
                &mut b,
                graph,
                before.0,
                before.1,
                &set(memory + 4, value, 1),
                context.0
            ));
        } else {
            ok!(cuGraphAddEmptyNode(&mut b, graph, before.0, before.1));
        }
        (graph, a, b)
    };
    let exec = exec(make(1, true, SET).0);
    let update = |graph: H| {
        let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        let result = cu!(cuGraphExecUpdate_v2(exec, graph, &mut info));
        (result, info.result as u32, info.errorNode.addr())
    };
    assert_eq!(update(make(2, true, SET).0), (CUDA_SUCCESS, 0, 0));
    let failed = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    let (loose, _, b) = make(3, false, SET);
    assert_eq!(update(loose), (failed, 2, b), "topology");
    let (other, _, b) = make(3, true, 5);
    assert_eq!(update(other), (failed, 3, b), "kind");
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 2), [2, 2], "the last update that fitted");
}

#[test]
fn launches_of_one_graph_come_one_after_the_other_in_any_streams() {
    static ACTIVE: Mutex<(u32, u32)> = Mutex::new((0, 0));
    extern "C" fn enter(_: *mut c_void) {
        ACTIVE.lock().unwrap().0 += 1;
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut active = ACTIVE.lock().unwrap();
        active.1 = active.1.max(active.0);
    }
    extern "C" fn leave(_: *mut c_void) {
        ACTIVE.lock().unwrap().0 -= 1;
    }
    let _context = context();
    let graph = graph();
    let (mut a, mut b) = (0, 0);
    let node = |f: HostFn| sys::CUDA_HOST_NODE_PARAMS { fn_: Some(f), userData: null_mut() };
    ok!(cuGraphAddHostNode(&mut a, graph, null(), 0, &node(enter)));
    ok!(cuGraphAddHostNode(&mut b, graph, &a, 1, &node(leave)));
    let exec = exec(graph);
    let streams = [stream(1), stream(1), stream(1)];
    for _ in 0..4 {
        for stream in streams {
            ok!(cuGraphLaunch(exec, stream));
        }
    }
    ok!(cuCtxSynchronize());
    assert_eq!(*ACTIVE.lock().unwrap(), (0, 1));
}

#[test]
fn event_nodes_order_streams_and_keep_time() {
    let context = context();
    let (graph, memory, mark, go) = (graph(), alloc(4), event(0), event(2));
    let (mut wait, mut fill, mut done) = (0, 0, 0);
    ok!(cuGraphAddEventWaitNode(&mut wait, graph, null(), 0, go));
    ok!(cuGraphAddMemsetNode(&mut fill, graph, &wait, 1, &set(memory, 4, 1), context.0));
    ok!(cuGraphAddEventRecordNode(&mut done, graph, &fill, 1, mark));
    let exec = exec(graph);
    let (one, two) = (stream(1), stream(1));
    ok!(cuMemsetD32_v2(memory, 0, 1));
    // The event that the graph waits for comes behind a word that the host writes last.
    let mut gate = null_mut();
    ok!(cuMemHostAlloc(&mut gate, 4096, 0));
    unsafe { gate.cast::<u32>().write_volatile(0) };
    ok!(cuStreamWaitValue32_v2(two, gate.expose_provenance() as u64, 1, 0));
    ok!(cuEventRecord(go, two));
    ok!(cuGraphLaunch(exec, one));
    assert_eq!(cu!(cuEventQuery(mark)), CUDA_ERROR_NOT_READY);
    unsafe { gate.cast::<u32>().write_volatile(1) };
    ok!(cuEventSynchronize(mark));
    assert_eq!(words(memory, 1), [4]);
    ok!(cuStreamSynchronize(two));
}

#[test]
fn graph_memory_is_the_programs_until_it_is_freed() {
    let _context = context();
    let graph = graph();
    let mut params: sys::CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.poolProps.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 4096;
    let (mut take, mut fill, mut current) = (0, 0, 9);
    ok!(cuGraphAddMemAllocNode(&mut take, graph, null(), 0, &mut params));
    let memory = params.dptr;
    assert_ne!(memory, 0);
    let context = 0;
    ok!(cuGraphAddMemsetNode(&mut fill, graph, &take, 1, &set(memory, 3, 4), context));
    let exec = exec(graph);
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE, "no launch took it yet");
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuDeviceGetGraphMemAttribute(0, 0, &mut current));
    assert_eq!(current, 4096);
    assert_eq!(cu!(cuGraphLaunch(exec, 0)), CUDA_ERROR_INVALID_VALUE, "it was not given back");
    ok!(cuCtxSynchronize());
    assert_eq!(words(memory, 4), [3; 4]);
    ok!(cuMemFree_v2(memory));
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuMemFreeAsync(memory, 0));
    // With a node that gives it back, every launch may follow the other.
    let mut free = 0;
    ok!(cuGraphAddMemFreeNode(&mut free, graph, &fill, 1, memory));
    assert_eq!(cu!(cuGraphClone(&mut 0, graph)), CUDA_ERROR_NOT_SUPPORTED);
    let mut both = 0;
    ok!(cuGraphInstantiateWithFlags(&mut both, graph, 0));
    ok!(cuGraphLaunch(both, 0));
    ok!(cuGraphLaunch(both, 0));
    ok!(cuCtxSynchronize());
    ok!(cuDeviceGetGraphMemAttribute(0, 0, &mut current));
    assert_eq!(current, 0);
    // Freed at the next launch, where the flag says so.
    ok!(cuGraphDestroyNode(fill));
}

#[test]
fn conditional_bodies_run_as_their_value_says() {
    let context = context();
    let graph = graph();
    let (hits, mut handle) = (alloc(8), 0);
    ok!(cuMemsetD32_v2(hits, 0, 2));
    // A default of 1 at each launch; the body clears the value, so that a loop ends after one turn.
    ok!(cuGraphConditionalHandleCreate(&mut handle, graph, context.0, 1, 1));
    let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    unsafe {
        let c = &mut params.__bindgen_anon_1.conditional;
        (c.handle, c.size) = (handle, 1);
        c.type_ = sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
    }
    let mut node = 0;
    ok!(cuGraphAddNode_v2(&mut node, graph, null(), null(), 0, &mut params));
    let body = unsafe { (*params.__bindgen_anon_1.conditional.phGraph_out).addr() };
    let count = function(module(PTX), "number");
    let number = Number::new(count, hits, 5);
    let (mut kernel, mut clear) = (0, 0);
    let mut one = number.params();
    one.blockDimX = 1;
    ok!(cuGraphAddKernelNode_v2(&mut kernel, body, null(), 0, &one));
    let word = [5u64, handle, 0, 0, 0, 0];
    let word = [[2, word[1], 0, 0, 0, 0]];
    let mut ops: sys::CUDA_BATCH_MEM_OP_NODE_PARAMS = unsafe { std::mem::zeroed() };
    (ops.count, ops.paramArray) = (1, word.as_ptr().cast_mut().cast());
    // The value is the device's own: a program sets it from a kernel, never by this call.
    let cleared = cu!(cuGraphAddBatchMemOpNode(&mut clear, body, &kernel, 1, &ops));
    assert_eq!(cleared, CUDA_ERROR_INVALID_VALUE);
    let end = function(module(CLEARS), "clear");
    let mut params: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let mut values = [(&raw const handle).cast_mut().cast::<c_void>()];
    params.func = pointer(end).cast();
    (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
    (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
    params.kernelParams = values.as_mut_ptr();
    ok!(cuGraphAddKernelNode_v2(&mut clear, body, &kernel, 1, &params));
    let exec = exec(graph);
    for _ in 0..2 {
        ok!(cuMemsetD32_v2(hits, 0, 2));
        ok!(cuGraphLaunch(exec, 0));
        ok!(cuCtxSynchronize());
        assert_eq!(words(hits, 2), [5, 0]);
    }
}

/// What `cudaGraphSetConditional(handle, 0)` comes down to.
const CLEARS: &str = "
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry clear(.param .u64 handle)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [handle];
    mov.u32 %r1, 0;
    { .param .b64 h; .param .b32 v;
      st.param.b64 [h], %rd1;
      st.param.b32 [v], %r1;
      call.uni cudaGraphSetConditional, (h, v);
    }
    ret;
}
";

#[test]
fn user_objects_live_as_long_as_a_graph_holds_them() {
    static GONE: Mutex<u32> = Mutex::new(0);
    extern "C" fn gone(_: *mut c_void) {
        *GONE.lock().unwrap() += 1;
    }
    let _context = context();
    let (graph, mut object) = (graph(), 0);
    ok!(cuUserObjectCreate(&mut object, null_mut(), gone, 1, 1));
    ok!(cuGraphRetainUserObject(graph, object, 1, 1));
    let exec = exec(graph);
    ok!(cuGraphDestroy(graph));
    assert_eq!(*GONE.lock().unwrap(), 0, "the executable graph holds it");
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(*GONE.lock().unwrap(), 1);
    assert_eq!(cu!(cuUserObjectRelease(object, 1)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_graph_is_printed_in_graphvizs_language() {
    let context = context();
    let (graph, memory) = (graph(), alloc(4));
    let (mut a, mut b) = (0, 0);
    ok!(cuGraphAddMemsetNode(&mut a, graph, null(), 0, &set(memory, 1, 1), context.0));
    ok!(cuGraphAddEmptyNode(&mut b, graph, &a, 1));
    let path = std::env::temp_dir().join(format!("softcuda-graph-{}.dot", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    ok!(cuGraphDebugDotPrint(graph, name.as_ptr(), 1));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.starts_with("digraph dot {") && text.trim_end().ends_with('}'));
    assert_eq!(text.matches("->").count(), 1);
    assert_eq!(text.matches("[shape=").count(), 2);
    assert_eq!(cu!(cuGraphDebugDotPrint(graph, c"/nowhere/at/all".as_ptr(), 0)), CUDA_ERROR_OPERATING_SYSTEM);
}

#[test]
fn kernel_attributes_are_kept_and_copied() {
    let _context = context();
    let function = function(module(PTX), "number");
    let (graph, memory) = (graph(), alloc(16));
    let number = Number::new(function, memory, 0);
    let (mut a, mut b) = (0, 0);
    ok!(cuGraphAddKernelNode_v2(&mut a, graph, null(), 0, &number.params()));
    ok!(cuGraphAddKernelNode_v2(&mut b, graph, null(), 0, &number.params()));
    let (priority, mut value) = ([3, 0, 0, 0, 0, 0, 0, 0], [9; 8]);
    ok!(cuGraphKernelNodeSetAttribute(a, 8, &priority));
    ok!(cuGraphKernelNodeCopyAttributes(b, a));
    ok!(cuGraphKernelNodeGetAttribute(b, 8, &mut value));
    assert_eq!(value, priority);
    assert_eq!(cu!(cuGraphKernelNodeSetAttribute(a, 99, &priority)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_batch_of_copies_is_one_node() {
    let _context = context();
    let (memory, graph) = (alloc(32), graph());
    ok!(cuMemsetD8_v2(memory, 0, 32));
    let host: Vec<u8> = (1..=8).collect();
    let from = host.as_ptr().expose_provenance() as u64;
    let (mut to, from, mut bytes) =
        ([memory, memory + 8, memory + 16], [from, from + 4, from], [2usize, 4, 0]);
    let (order, firsts) = ([1u32, 0, 0, 0, 0, 0], [0usize]);
    let mut node = 0;
    let mut parameters: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    // CUDA_MEMCPY_BATCH_NODE_PARAMS: count, targets, sources, sizes, attributes, their first copies, their number, context.
    let body = |to: &[u64; 3], bytes: &[usize; 3]| {
        let lists = [to.as_ptr() as u64, from.as_ptr() as u64, bytes.as_ptr() as u64];
        [3, lists[0], lists[1], lists[2], order.as_ptr() as u64, firsts.as_ptr() as u64, 1, 0]
    };
    let raw = (&raw mut parameters).cast::<u64>();
    let write = |words: [u64; 8]| unsafe {
        raw.cast::<u32>().write(14);
        words.iter().enumerate().for_each(|(i, word)| raw.add(2 + i).write(*word));
    };
    write(body(&to, &bytes));
    ok!(cuGraphAddNode_v2(&mut node, graph, std::ptr::null(), std::ptr::null(), 0, &mut parameters));
    let (mut kind, exec) = (0, exec(graph));
    ok!(cuGraphNodeGetType(node, &mut kind));
    assert_eq!(kind, 14);
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(read(memory, 20), [1, 2, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    // An executable graph takes other addresses and sizes, one of them of none.
    (to[0], bytes) = (memory + 24, [1, 0, 3]);
    write(body(&to, &bytes));
    ok!(cuGraphExecNodeSetParams(exec, node, &mut parameters));
    ok!(cuMemsetD8_v2(memory, 0, 32));
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(read(memory, 28)[8..], [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let mut found: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    ok!(cuGraphNodeGetParams(node, &mut found));
    let found = (&raw const found).cast::<u64>();
    // The graph's node is as it was: three copies, the second of four bytes.
    let (count, sizes) = unsafe { (found.add(2).read(), found.add(5).read() as usize as *const usize) };
    assert_eq!((count, unsafe { sizes.add(1).read() }), (3, 4));
}
