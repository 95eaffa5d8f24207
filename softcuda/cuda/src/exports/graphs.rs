//! Graphs: their nodes and edges as a whole, clones, user objects, memory.

use super::{handle, out, text};
use crate::driver;
use crate::error::*;
use crate::graph::node::{Content, Dependency, Edge};
use crate::graph::{self, Graph, conditional, dot, user_object};
use crate::host_call::{HostCall, HostFunction};
use cudarc::driver::sys::{CUcontext, CUgraph, CUgraphNode, CUuserObject};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

exports! { ($) graphs_names, initialised;
    cuGraphCreate(graph: *mut CUgraph, flags: u32) {
        let graph = out(graph)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graph.set(handle(Graph::new(false).handle))
    }
    cuGraphDestroy(graph: CUgraph) { graph::destroy(graph.addr()) }
    cuGraphClone(clone: *mut CUgraph, graph: CUgraph) {
        out(clone)?.set(handle(find(graph)?.duplicate(false)?.handle))
    }
    cuGraphGetId(graph: CUgraph, id: *mut u32) { out(id)?.set(find(graph)?.id) }
    cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) {
        out(node)?.set(handle(find(clone)?.clone_of(original.addr())?))
    }
    cuGraphDestroyNode(node: CUgraphNode) { graph::of_node(node.addr())?.remove(node.addr()) }
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut u32) {
        out(kind)?.set(graph::with_node(node.addr(), |n| Ok(n.content.kind() as u32))?)
    }
    cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph) {
        out(graph)?.set(handle(graph::of_node(node.addr())?.handle))
    }
    cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut u32) {
        out(id)?.set(graph::with_node(node.addr(), |n| Ok(n.local))?)
    }
    cuGraphNodeGetToolsId(node: CUgraphNode, id: *mut u64) {
        let id = out(id)?;
        let (graph, local) = (graph::of_node(node.addr())?.id, graph::with_node(node.addr(), |n| Ok(n.local))?);
        id.set(u64::from(graph) << 32 | u64::from(local))
    }
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let all: Vec<usize> = find(graph)?.lock().nodes.keys().copied().collect();
        give(&all, nodes.cast(), count)
    }
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let graph = find(graph)?;
        let inner = graph.lock();
        let roots: Vec<usize> = inner.nodes.values().filter(|n| n.before.is_empty()).map(|n| n.handle).collect();
        give(&roots, nodes.cast(), count)
    }
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) {
        edges(graph, from, to, std::ptr::null_mut(), count)
    }
    cuGraphGetEdges_v2(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut Edge, count: *mut usize
    ) { edges(graph, from, to, data, count) }
    cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        give_dependencies(&before(node)?, nodes, std::ptr::null_mut(), count)
    }
    cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, data: *mut Edge, count: *mut usize) {
        give_dependencies(&before(node)?, nodes, data, count)
    }
    cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        give_dependencies(&after(node)?, nodes, std::ptr::null_mut(), count)
    }
    cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, data: *mut Edge, count: *mut usize) {
        give_dependencies(&after(node)?, nodes, data, count)
    }
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {
        find(graph)?.connect(&pairs(from, to, std::ptr::null(), count)?)
    }
    cuGraphAddDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const Edge, count: usize
    ) { find(graph)?.connect(&pairs(from, to, data, count)?) }
    cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {
        find(graph)?.disconnect(&pairs(from, to, std::ptr::null(), count)?)
    }
    cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const Edge, count: usize
    ) { find(graph)?.disconnect(&pairs(from, to, data, count)?) }
    cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32) {
        let (graph, path) = (find(graph)?, text(path)?);
        if flags & !dot::FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        std::fs::write(path, dot::text(&graph, flags)).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    }
    cuGraphConditionalHandleCreate(handle: *mut u64, graph: CUgraph, context: CUcontext, default: u32, flags: u32) {
        let (handle, graph) = (out(handle)?, find(graph)?);
        let condition = conditional::Condition::new(&*super::contexts::find(context)?, default, flags)?;
        let number = condition.handle;
        graph.lock().conditions.push(condition);
        handle.set(number)
    }

    cuUserObjectCreate(
        object: *mut CUuserObject, argument: *mut c_void, destroy: Option<HostFunction>, references: u32, flags: u32
    ) {
        let (object, function) = (out(object)?, destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        object.set(handle(user_object::create(HostCall { function, argument }, references, flags)?))
    }
    cuUserObjectRetain(object: CUuserObject, count: u32) {
        counted(object, count).map(|object| object.retain(count))
    }
    cuUserObjectRelease(object: CUuserObject, count: u32) {
        let object = counted(object, count)?;
        if !object.has(count) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        object.release(count);
        Ok(())
    }
    cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        let (graph, object) = (find(graph)?, counted(object, count)?);
        if flags > 1 || (flags == 1 && !object.has(count)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graph.hold(&object, count, flags == 1);
        Ok(())
    }
    cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) {
        find(graph)?.let_go(&counted(object, count)?, count)
    }

    cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: *mut u64) {
        out(value)?.set(driver::device(device)?.graph_memory.get(attribute)?)
    }
    cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64) {
        let value = if value.is_null() { return Err(CUDA_ERROR_INVALID_VALUE) } else { value.read_unaligned() };
        driver::device(device)?.graph_memory.reset(attribute, value)
    }
    // What graphs hold is what their nodes need: there is nothing to give back.
    cuDeviceGraphMemTrim(device: i32) { driver::device(device).map(drop) }
}

fn find(graph: CUgraph) -> Result<Arc<Graph>> {
    graph::find(graph.addr())
}

fn counted(object: CUuserObject, count: u32) -> Result<Arc<user_object::UserObject>> {
    if count == 0 || count > i32::MAX as u32 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    user_object::find(object.addr())
}

fn before(node: CUgraphNode) -> Result<Vec<Dependency>> {
    graph::with_node(node.addr(), |n| Ok(n.before.clone()))
}

fn after(node: CUgraphNode) -> Result<Vec<Dependency>> {
    let graph = graph::of_node(node.addr())?;
    let found = graph.lock().after(node.addr());
    Ok(found)
}

/// Gives a list as CUDA does: without a place only its length; with one as many as fit, and nulls behind them.
///
/// # Safety
/// `count` is null or good; `places` is null or has as many entries as it says.
unsafe fn give<T: Copy + Default>(all: &[T], places: *mut T, count: *mut usize) -> Result {
    if count.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for both.
    unsafe {
        if !places.is_null() {
            for i in 0..*count {
                places.add(i).write_unaligned(all.get(i).copied().unwrap_or_default());
            }
        }
        *count = if places.is_null() { all.len() } else { all.len().min(*count) };
    }
    Ok(())
}

/// # Safety
/// As [`give`], for both places.
unsafe fn give_dependencies(
    all: &[Dependency],
    nodes: *mut CUgraphNode,
    data: *mut Edge,
    count: *mut usize,
) -> Result {
    if data.is_null() && !nodes.is_null() && all.iter().any(|d| d.edge != Edge::default()) {
        return Err(CUDA_ERROR_LOSSY_QUERY);
    }
    let handles: Vec<usize> = all.iter().map(|d| d.node).collect();
    let kinds: Vec<Edge> = all.iter().map(|d| d.edge).collect();
    // SAFETY: the caller vouches for the places.
    unsafe {
        if !data.is_null() {
            let mut room = out(count).map(|_| *count)?;
            give(&kinds, data, &raw mut room)?;
        }
        give(&handles, nodes.cast(), count)
    }
}

/// # Safety
/// As [`give`], for all places.
unsafe fn edges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut Edge,
    count: *mut usize,
) -> Result {
    let graph = find(graph)?;
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (mut ends, mut dependencies) = (Vec::new(), Vec::new());
    for node in graph.lock().nodes.values() {
        ends.extend(node.before.iter().map(|_| node.handle));
        dependencies.extend(&node.before);
    }
    // SAFETY: the caller vouches for the places.
    unsafe {
        if !to.is_null() {
            let mut room = out(count).map(|_| *count)?;
            give(&ends, to.cast(), &raw mut room)?;
        }
        give_dependencies(&dependencies, from, data, count)
    }
}

/// Nodes and edges of the program's arrays; without `edges` plain ones.
///
/// # Safety
/// The arrays are null or have `count` entries.
pub(super) unsafe fn dependencies(
    nodes: *const CUgraphNode,
    edges: *const Edge,
    count: usize,
) -> Result<Vec<Dependency>> {
    if count > 0 && nodes.is_null() || count > 1 << 24 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let one = |i| {
        // SAFETY: both arrays have more than `i` entries, or there is no array of edges.
        unsafe {
            let edge = if edges.is_null() { Edge::default() } else { edges.add(i).read_unaligned() };
            Dependency { node: nodes.add(i).read_unaligned().addr(), edge }
        }
    };
    Ok((0..count).map(one).collect())
}

/// # Safety
/// The arrays are null or have `count` entries.
unsafe fn pairs(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const Edge,
    count: usize,
) -> Result<Vec<(usize, Dependency)>> {
    // SAFETY: the caller vouches for the arrays.
    let (from, to) =
        unsafe { (dependencies(from, data, count)?, dependencies(to, std::ptr::null(), count)?) };
    Ok(to.iter().map(|d| d.node).zip(from).collect())
}

/// Adds a node to a graph and gives its handle.
///
/// # Safety
/// The place is null or may be written, the arrays are null or have `count` entries.
pub(super) unsafe fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    (nodes, edges, count): (*const CUgraphNode, *const Edge, usize),
    content: impl FnOnce(&Arc<Graph>) -> Result<Content>,
) -> Result {
    // SAFETY: the caller vouches for place and arrays.
    let (node, before) = unsafe { (out(node)?, dependencies(nodes, edges, count)?) };
    let graph = find(graph)?;
    let content = content(&graph)?;
    node.set(handle(graph.add(content, before)?))
}
