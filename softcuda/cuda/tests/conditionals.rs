//! Conditional nodes of graphs whose value a kernel of the same graph chooses: if, if and else, switch.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::ptr::null;

/// What `cudaGraphSetConditional(handle, *place)` comes down to.
const CHOOSE: &str = ".version 8.3 .target sm_75 .address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry choose(.param .u64 handle, .param .u64 place) { .reg .b64 %h, %p; .reg .b32 %v;
ld.param.u64 %h, [handle]; ld.param.u64 %p, [place]; ld.global.u32 %v, [%p];
{ .param .b64 h; .param .b32 v; st.param.b64 [h], %h; st.param.b32 [v], %v;
call.uni cudaGraphSetConditional, (h, v); }
ret; }";

/// A graph of `choose` and a conditional node with bodies, of which the n-th sets `out` to n + 1.
fn graph(kind: sys::CUgraphConditionalNodeType, bodies: u32, context: H, place: u64, out: u64) -> H {
    let (mut graph, mut handle, mut choose, mut node) = (0, 0u64, 0, 0);
    ok!(cuGraphCreate(&mut graph, 0));
    ok!(cuGraphConditionalHandleCreate(&mut handle, graph, context, 0, 0));
    let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let mut values = [&raw const handle, &raw const place].map(|value| value.cast_mut().cast::<c_void>());
    let function = function(module(CHOOSE), "choose");
    kernel.func = std::ptr::with_exposed_provenance_mut(function);
    (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
    (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (1, 1, 1);
    kernel.kernelParams = values.as_mut_ptr();
    ok!(cuGraphAddKernelNode_v2(&mut choose, graph, null(), 0, &kernel));
    let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    unsafe {
        let conditional = &mut params.__bindgen_anon_1.conditional;
        (conditional.handle, conditional.size, conditional.type_) = (handle, bodies, kind);
    }
    ok!(cuGraphAddNode_v2(&mut node, graph, &choose, null(), 1, &mut params));
    for number in 0..bodies {
        let body = unsafe { (*params.__bindgen_anon_1.conditional.phGraph_out.add(number as usize)).addr() };
        let set = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: out,
            pitch: 0,
            value: number + 1,
            elementSize: 4,
            width: 1,
            height: 1,
        };
        let mut fill = 0;
        ok!(cuGraphAddMemsetNode(&mut fill, body, null(), 0, &set, context));
    }
    graph
}

/// Which body ran for each value of the condition, counted from 1; 0 for none.
fn chosen(kind: sys::CUgraphConditionalNodeType, bodies: u32, values: &[u32]) -> Vec<u32> {
    let context = context();
    let (place, out) = (alloc(4), alloc(4));
    let graph = graph(kind, bodies, context.0, place, out);
    let mut exec = 0;
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    let one = |value: &u32| {
        ok!(cuMemsetD32_v2(place, *value, 1));
        ok!(cuMemsetD32_v2(out, 0, 1));
        ok!(cuGraphLaunch(exec, 0));
        ok!(cuCtxSynchronize());
        u32::from_le_bytes(read(out, 4).try_into().unwrap())
    };
    values.iter().map(one).collect()
}

const IF: sys::CUgraphConditionalNodeType = sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
const SWITCH: sys::CUgraphConditionalNodeType = sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH;

#[test]
fn if_runs_its_body_for_every_value_but_zero() {
    assert_eq!(chosen(IF, 1, &[1, 0, 7, u32::MAX, 0]), [1, 0, 1, 1, 0]);
}

#[test]
fn if_with_two_bodies_has_an_else() {
    assert_eq!(chosen(IF, 2, &[0, 1, 2, 0]), [2, 1, 1, 2]);
}

#[test]
fn switch_runs_the_body_of_its_value_or_none() {
    assert_eq!(chosen(SWITCH, 3, &[0, 1, 2, 3, 9, 1]), [1, 2, 3, 0, 0, 2]);
}
