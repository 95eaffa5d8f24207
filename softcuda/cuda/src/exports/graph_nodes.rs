//! Nodes of graphs: adding them, reading and changing what they do.

use super::copies::Copy3D;
use super::graph_params::{
    self, AllocNode, HostNode, KernelNode, KernelNodeV1, MemsetNode, NodeParams, WordsNode,
};
use super::graphs::add;
use super::{handle, out};
use crate::error::*;
use crate::graph::node::{Content, Edge};
use crate::graph::{self};
use crate::launch::{Attributes, KernelOp, Value};
use crate::op::Op;
use cudarc::driver::sys::{CUcontext, CUevent, CUgraph, CUgraphNode};
use std::sync::Arc;

/// The program's lists of dependencies.
type Nodes = *const CUgraphNode;
const NONE: *const Edge = std::ptr::null();

exports! { ($) graph_nodes_names, initialised;
    cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const KernelNodeV1) {
        let what = KernelNode::from(read(what)?);
        add(node, graph, (list, NONE, count), |_| what.content(Attributes::default()))
    }
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const KernelNode) {
        let what = read(what)?;
        add(node, graph, (list, NONE, count), |_| what.content(Attributes::default()))
    }
    cuGraphKernelNodeGetParams(node: CUgraphNode, what: *mut KernelNodeV1) {
        out(what)?.set(kernel(node, |op| Ok(KernelNode::of(op)))?.v1())
    }
    cuGraphKernelNodeGetParams_v2(node: CUgraphNode, what: *mut KernelNode) {
        out(what)?.set(kernel(node, |op| Ok(KernelNode::of(op)))?)
    }
    cuGraphKernelNodeSetParams(node: CUgraphNode, what: *const KernelNodeV1) {
        set_kernel(node, KernelNode::from(read(what)?))
    }
    cuGraphKernelNodeSetParams_v2(node: CUgraphNode, what: *const KernelNode) { set_kernel(node, read(what)?) }
    cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: u32, value: *mut Value) {
        out(value)?.set(kernel(node, |op| op.attributes.get(attribute))?)
    }
    cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: u32, value: *const Value) {
        let value = read(value)?;
        set_attributes(node, |attributes| attributes.set(attribute, value))
    }
    cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) {
        let theirs = kernel(from, |op| Ok(op.attributes.clone()))?;
        set_attributes(to, |attributes| {
            *attributes = theirs;
            Ok(())
        })
    }

    cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const Copy3D, _context: CUcontext
    ) { add(node, graph, (list, NONE, count), |_| graph_params::copy_content(what)) }
    cuGraphMemcpyNodeGetParams(node: CUgraphNode, what: *mut Copy3D) {
        out(what)?.set(look(node, |content| match content {
            Content::Do(Op::Copy(copy)) => Some(Copy3D::of(&copy.to, &copy.from, &copy.extent)),
            _ => None,
        })?)
    }
    cuGraphMemcpyNodeSetParams(node: CUgraphNode, what: *const Copy3D) {
        let content = graph_params::copy_content(what)?;
        graph::change_node(node.addr(), |_| Ok(content))
    }

    cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const MemsetNode, _context: CUcontext
    ) {
        let what = read(what)?;
        add(node, graph, (list, NONE, count), |_| what.content())
    }
    cuGraphMemsetNodeGetParams(node: CUgraphNode, what: *mut MemsetNode) {
        out(what)?.set(look(node, |content| match content {
            Content::Do(Op::Set(fill)) => Some(MemsetNode::of(fill)),
            _ => None,
        })?)
    }
    cuGraphMemsetNodeSetParams(node: CUgraphNode, what: *const MemsetNode) {
        let content = read(what)?.content()?;
        graph::change_node(node.addr(), |_| Ok(content))
    }

    cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const HostNode) {
        let what = read(what)?;
        add(node, graph, (list, NONE, count), |_| what.content())
    }
    cuGraphHostNodeGetParams(node: CUgraphNode, what: *mut HostNode) {
        out(what)?.set(look(node, |content| match content {
            Content::Do(Op::Host(call)) => Some(HostNode::of(*call)),
            _ => None,
        })?)
    }
    cuGraphHostNodeSetParams(node: CUgraphNode, what: *const HostNode) {
        let content = read(what)?.content()?;
        graph::change_node(node.addr(), |_| Ok(content))
    }

    cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, child: CUgraph) {
        add(node, graph, (list, NONE, count), |graph| graph_params::child_content(Some(graph), child, false))
    }
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph) {
        out(child)?.set(look(node, |content| match content {
            Content::Child(graph) => Some(handle(graph.handle)),
            _ => None,
        })?)
    }
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize) {
        add(node, graph, (list, NONE, count), |_| Ok(Content::Empty))
    }

    cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, event: CUevent) {
        add(node, graph, (list, NONE, count), |_| graph_params::event_content(event, true))
    }
    cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        out(event)?.set(look(node, |content| match content {
            Content::Record(event) => Some(handle(*event)),
            _ => None,
        })?)
    }
    cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) {
        let content = graph_params::event_content(event, true)?;
        graph::change_node(node.addr(), |_| Ok(content))
    }
    cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, event: CUevent) {
        add(node, graph, (list, NONE, count), |_| graph_params::event_content(event, false))
    }
    cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        out(event)?.set(look(node, |content| match content {
            Content::Wait(event) => Some(handle(*event)),
            _ => None,
        })?)
    }
    cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) {
        let content = graph_params::event_content(event, false)?;
        graph::change_node(node.addr(), |_| Ok(content))
    }

    cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *mut AllocNode) {
        let what = what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        add(node, graph, (list, NONE, count), |_| what.content())
    }
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, what: *mut AllocNode) {
        out(what)?.set(look(node, |content| match content {
            Content::Alloc(memory) => Some(AllocNode::of(memory)),
            _ => None,
        })?)
    }
    cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, address: u64) {
        add(node, graph, (list, NONE, count), |graph| graph_params::free_content(graph, address))
    }
    cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut u64) {
        out(address)?.set(look(node, |content| match content {
            Content::Free(memory) => Some(memory.address),
            _ => None,
        })?)
    }

    cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *const WordsNode) {
        let what = read(what)?;
        add(node, graph, (list, NONE, count), |_| what.content())
    }
    cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, what: *mut WordsNode) {
        out(what)?.set(look(node, |content| match content {
            Content::Do(Op::Words(batch)) => Some(WordsNode::of(batch)),
            _ => None,
        })?)
    }
    cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, what: *const WordsNode) {
        let content = read(what)?.content()?;
        graph::change_node(node.addr(), |_| Ok(content))
    }

    cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, list: Nodes, count: usize, what: *mut NodeParams) {
        let what = what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        add(node, graph, (list, NONE, count), |graph| what.content(Some(graph), Attributes::default()))
    }
    cuGraphAddNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, list: Nodes, edges: *const Edge, count: usize, what: *mut NodeParams
    ) {
        let what = what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        add(node, graph, (list, edges, count), |graph| what.content(Some(graph), Attributes::default()))
    }
    cuGraphAddNode_v3(
        node: *mut CUgraphNode, graph: CUgraph, list: Nodes, edges: *const Edge, count: usize, what: *mut NodeParams
    ) {
        let what = what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        add(node, graph, (list, edges, count), |graph| what.content(Some(graph), Attributes::default()))
    }
    cuGraphNodeGetParams(node: CUgraphNode, what: *mut NodeParams) {
        out(what)?.set(look(node, |content| Some(NodeParams::of(content)))?)
    }
    cuGraphNodeSetParams(node: CUgraphNode, what: *mut NodeParams) { set(node, what) }
    cuGraphNodeSetParams_v2(node: CUgraphNode, what: *mut NodeParams) { set(node, what) }
}

/// # Safety
/// `place` is null or good.
pub(super) unsafe fn read<T: Copy>(place: *const T) -> Result<T> {
    // SAFETY: not null, and the caller vouches for it.
    if place.is_null() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(unsafe { place.read_unaligned() }) }
}

/// Reads from a node's content; what is of another kind is an invalid value.
fn look<T>(node: CUgraphNode, what: impl FnOnce(&Content) -> Option<T>) -> Result<T> {
    graph::with_node(node.addr(), |n| what(&n.content).ok_or(CUDA_ERROR_INVALID_VALUE))
}

fn kernel<T>(node: CUgraphNode, what: impl FnOnce(&Arc<KernelOp>) -> Result<T>) -> Result<T> {
    graph::with_node(node.addr(), |n| match &n.content {
        Content::Do(Op::Kernel(op)) => what(op),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// # Safety
/// As [`KernelNode::content`].
unsafe fn set_kernel(node: CUgraphNode, what: KernelNode) -> Result {
    let attributes = kernel(node, |op| Ok(op.attributes.clone()))?;
    // SAFETY: the caller vouches for the parameters.
    let content = unsafe { what.content(attributes)? };
    graph::change_node(node.addr(), |_| Ok(content))
}

fn set_attributes(node: CUgraphNode, change: impl FnOnce(&mut Attributes) -> Result) -> Result {
    graph::change_node(node.addr(), |content| {
        let Content::Do(Op::Kernel(op)) = content else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let mut attributes = op.attributes.clone();
        change(&mut attributes)?;
        let changed = op.with_attributes(attributes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        Ok(Content::Do(Op::Kernel(changed)))
    })
}

/// The attributes of a node that is a kernel's; none for others.
pub(super) fn attributes_of(content: &Content) -> Attributes {
    match content {
        Content::Do(Op::Kernel(op)) => op.attributes.clone(),
        _ => Attributes::default(),
    }
}

/// # Safety
/// `what` is null or good.
unsafe fn set(node: CUgraphNode, what: *mut NodeParams) -> Result {
    // SAFETY: the caller vouches for it.
    let what = unsafe { what.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let attributes = look(node, |content| Some(attributes_of(content)))?;
    // SAFETY: as above.
    let content = unsafe { what.content(None, attributes)? };
    graph::change_node(node.addr(), |_| Ok(content))
}
