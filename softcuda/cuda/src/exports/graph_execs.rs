//! Executable graphs.

use super::copies::Copy3D;
use super::graph_nodes::{attributes_of, read};
use super::graph_params::{self, HostNode, KernelNode, KernelNodeV1, MemsetNode, NodeParams, WordsNode};
use super::{handle, on, out, set_if_wanted};
use crate::error::*;
use crate::graph::exec::{self, Exec, Failure};
use crate::graph::node::Content;
use crate::graph::plan::{Action, Step};
use crate::graph::{self};
use crate::launch::Attributes;
use cudarc::driver::sys::{CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUstream};
use std::ffi::c_char;
use std::sync::Arc;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
pub struct InstantiateParams {
    flags: u64,
    stream: CUstream,
    node: CUgraphNode,
    result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
pub struct UpdateInfo {
    result: u32,
    node: CUgraphNode,
    from: CUgraphNode,
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

exports! { ($) graph_execs_names, initialised;
    cuGraphInstantiate(
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, room: usize
    ) { instantiate_with_log(exec, graph, node, log, room) }
    cuGraphInstantiate_v2(
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, room: usize
    ) { instantiate_with_log(exec, graph, node, log, room) }
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        // The upload needs a stream, which the other form names.
        if flags & UPLOAD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let exec = out(exec)?;
        let made = exec::instantiate(&*graph::find(graph.addr())?, flags).map_err(|failure| failure.code)?;
        exec.set(handle(made.handle))
    }
    cuGraphInstantiateWithParams(
        exec: *mut CUgraphExec, graph: CUgraph, what: *mut InstantiateParams
    ) [cuGraphInstantiateWithParams_ptsz, default] {
        let (exec, what) = (out(exec)?, what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        let made = exec::instantiate(&*graph::find(graph.addr())?, what.flags);
        (what.node, what.result) = match &made {
            Ok(_) => (std::ptr::null_mut(), 0),
            Err(failure) => (handle(failure.node), failure.result),
        };
        let made = made.map_err(|failure| failure.code)?;
        if what.flags & UPLOAD != 0 {
            exec::upload(made.handle, on(what.stream, default))?;
        }
        exec.set(handle(made.handle))
    }
    cuGraphExecDestroy(exec: CUgraphExec) { exec::destroy(exec.addr()) }
    cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) { out(flags)?.set(find(exec)?.flags) }
    cuGraphExecGetId(exec: CUgraphExec, id: *mut u32) { out(id)?.set(find(exec)?.id) }
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) [cuGraphLaunch_ptsz, default] {
        exec::launch(exec.addr(), on(stream, default))
    }
    cuGraphUpload(exec: CUgraphExec, stream: CUstream) [cuGraphUpload_ptsz, default] {
        exec::upload(exec.addr(), on(stream, default))
    }
    cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut u32) {
        let mut info = UpdateInfo { result: 0, node: std::ptr::null_mut(), from: std::ptr::null_mut() };
        let done = update(exec, graph, &mut info);
        set_if_wanted(node, info.node);
        set_if_wanted(result, info.result);
        done
    }
    cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut UpdateInfo) {
        update(exec, graph, info.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32) {
        out(enabled)?.set(u32::from(find(exec)?.is_enabled(node.addr())?))
    }
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) {
        find(exec)?.enable(node.addr(), enabled != 0)
    }

    cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *const KernelNodeV1) {
        let what = KernelNode::from(read(what)?);
        find(exec)?.set_content(node.addr(), |step| what.content(attributes(step)))
    }
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, what: *const KernelNode) {
        let what = read(what)?;
        find(exec)?.set_content(node.addr(), |step| what.content(attributes(step)))
    }
    cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *const Copy3D, _context: CUcontext) {
        find(exec)?.set_content(node.addr(), |_| graph_params::copy_content(what))
    }
    cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *const MemsetNode, _context: CUcontext) {
        let what = read(what)?;
        find(exec)?.set_content(node.addr(), |_| what.content())
    }
    cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *const HostNode) {
        let what = read(what)?;
        find(exec)?.set_content(node.addr(), |_| what.content())
    }
    cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *const WordsNode) {
        let what = read(what)?;
        find(exec)?.set_content(node.addr(), |_| what.content())
    }
    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        let child = graph::find(child.addr())?;
        find(exec)?.set_content(node.addr(), |_| Ok(Content::Child(child)))
    }
    cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        find(exec)?.set_content(node.addr(), |_| graph_params::event_content(event, true))
    }
    cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        find(exec)?.set_content(node.addr(), |_| graph_params::event_content(event, false))
    }
    cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, what: *mut NodeParams) {
        let what = what.as_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        find(exec)?.set_content(node.addr(), |step| what.content(None, attributes(step)))
    }
}

fn find(exec: CUgraphExec) -> Result<Arc<Exec>> {
    exec::find(exec.addr())
}

/// The attributes of a step that is a kernel.
fn attributes(step: &Step) -> Attributes {
    match &step.action {
        Action::Do(op) => attributes_of(&Content::Do(op.clone())),
        _ => Attributes::default(),
    }
}

fn update(exec: CUgraphExec, graph: CUgraph, info: &mut UpdateInfo) -> Result {
    let done = find(exec)?.update(&*graph::find(graph.addr())?);
    (info.result, info.node, info.from) = match &done {
        Ok(()) => (0, std::ptr::null_mut(), std::ptr::null_mut()),
        Err(mismatch) => (mismatch.reason as u32, handle(mismatch.node), handle(mismatch.from)),
    };
    done.map_err(|_| CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}

/// # Safety
/// The places are null or may be written; the log has as much room as is said.
unsafe fn instantiate_with_log(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    room: usize,
) -> Result {
    // SAFETY: the caller vouches for the place.
    let exec = unsafe { out(exec)? };
    let made = exec::instantiate(&*graph::find(graph.addr())?, 0);
    let text = match &made {
        Err(Failure { node, result: 2, .. }) => format!("node {node:#x} waits for itself"),
        _ => String::new(),
    };
    let at_fault = made.as_ref().err().map_or(0, |failure| failure.node);
    // SAFETY: the caller vouches for the places; `length` and the zero behind it fit.
    unsafe {
        set_if_wanted(node, handle(at_fault));
        if !log.is_null() && room > 0 {
            let length = text.len().min(room - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr(), log.cast(), length);
            log.add(length).write(0);
        }
    }
    exec.set(handle(made.map_err(|failure| failure.code)?.handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<InstantiateParams>(), size_of::<sys::CUDA_GRAPH_INSTANTIATE_PARAMS>());
        assert_eq!(size_of::<UpdateInfo>(), size_of::<sys::CUgraphExecUpdateResultInfo>());
    }
}
