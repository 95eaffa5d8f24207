//! Stream capture.

use super::graphs::dependencies;
use super::{handle, out, set_if_wanted};
use crate::context;
use crate::error::*;
use crate::graph::capture::{self, Mode};
use crate::graph::node::{Dependency, Edge};
use cudarc::driver::sys::{CUgraph, CUgraphNode, CUstream};

exports! { ($) captures_names, initialised;
    cuStreamBeginCapture(stream: CUstream) [cuStreamBeginCapture_ptsz, default] {
        let (context, stream) = context::stream(super::on(stream, default))?;
        capture::begin(&context, &stream, Mode::Global, None)
    }
    cuStreamBeginCapture_v2(stream: CUstream, mode: u32) [cuStreamBeginCapture_v2_ptsz, default] {
        let (context, stream) = context::stream(super::on(stream, default))?;
        capture::begin(&context, &stream, Mode::of(mode)?, None)
    }
    cuStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, edges: *const Edge, count: usize, mode: u32
    ) [cuStreamBeginCaptureToGraph_ptsz, default] {
        let (context, stream) = context::stream(super::on(stream, default))?;
        let into = (graph.addr(), dependencies(nodes, edges, count)?);
        capture::begin(&context, &stream, Mode::of(mode)?, Some(into))
    }
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) [cuStreamEndCapture_ptsz, default] {
        let graph = out(graph)?;
        let ended = capture::end(&context::stream(super::on(stream, default))?.1);
        graph.set(handle(ended.unwrap_or(0)))?;
        ended.map(drop)
    }
    cuStreamIsCapturing(stream: CUstream, status: *mut u32) [cuStreamIsCapturing_ptsz, default] {
        let info = Info { status, ..Info::default() };
        info.give(super::on(stream, default))
    }
    cuStreamGetCaptureInfo(stream: CUstream, status: *mut u32, id: *mut u64) [cuStreamGetCaptureInfo_ptsz, default] {
        let info = Info { status, id, ..Info::default() };
        info.give(super::on(stream, default))
    }
    cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const usize, count: *mut usize
    ) [cuStreamGetCaptureInfo_v2_ptsz, default] {
        let info = Info { status, id, graph, nodes, count, ..Info::default() };
        info.give(super::on(stream, default))
    }
    cuStreamGetCaptureInfo_v3(
        stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const usize,
        edges: *mut *const Edge, count: *mut usize
    ) [cuStreamGetCaptureInfo_v3_ptsz, default] {
        let info = Info { status, id, graph, nodes, edges, count };
        info.give(super::on(stream, default))
    }
    cuStreamUpdateCaptureDependencies(
        stream: CUstream, nodes: *const CUgraphNode, count: usize, flags: u32
    ) [cuStreamUpdateCaptureDependencies_ptsz, default] {
        update(super::on(stream, default), dependencies(nodes, std::ptr::null(), count)?, flags)
    }
    cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, nodes: *const CUgraphNode, edges: *const Edge, count: usize, flags: u32
    ) [cuStreamUpdateCaptureDependencies_v2_ptsz, default] {
        update(super::on(stream, default), dependencies(nodes, edges, count)?, flags)
    }
    cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        let new = if mode.is_null() { return Err(CUDA_ERROR_INVALID_VALUE) } else { Mode::of(*mode)? };
        out(mode)?.set(capture::exchange_mode(new) as u32)
    }
}

fn update(stream: usize, nodes: Vec<Dependency>, flags: u32) -> Result {
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capture::set_dependencies(&context::stream(stream)?.1, nodes, flags == 1)
}

/// Where the answers about a capture go; null where the program does not want them.
struct Info {
    status: *mut u32,
    id: *mut u64,
    graph: *mut CUgraph,
    nodes: *mut *const usize,
    edges: *mut *const Edge,
    count: *mut usize,
}

impl Default for Info {
    fn default() -> Self {
        use std::ptr::null_mut;
        Info {
            status: null_mut(),
            id: null_mut(),
            graph: null_mut(),
            nodes: null_mut(),
            edges: null_mut(),
            count: null_mut(),
        }
    }
}

impl Info {
    /// # Safety
    /// The places are null or may be written.
    unsafe fn give(&self, stream: usize) -> Result {
        // SAFETY: the caller vouches for the places.
        let status = unsafe { out(self.status)? };
        let (context, stream) = context::stream(stream)?;
        if stream.is_legacy() {
            capture::permit(&context, &stream)?;
        }
        let Some(tail) = stream.capture.tail() else { return status.set(0) };
        if tail.capture.is_invalid() {
            return status.set(2);
        }
        let lossy = self.edges.is_null() && tail.after.iter().any(|d| d.edge != Edge::default());
        if lossy && !self.nodes.is_null() {
            return Err(CUDA_ERROR_LOSSY_QUERY);
        }
        // SAFETY: as above.
        unsafe {
            set_if_wanted(self.id, tail.capture.id);
            set_if_wanted(self.graph, handle(tail.capture.graph.handle));
            let (nodes, edges) = stream.capture.show(&tail);
            set_if_wanted(self.nodes, nodes);
            set_if_wanted(self.edges, edges);
            set_if_wanted(self.count, tail.after.len());
        }
        status.set(1)
    }
}
