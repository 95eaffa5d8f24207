//! `cuGraphDebugDotPrint`: a graph in Graphviz's language.
#![forbid(unsafe_code)]

use super::Graph;
use super::node::{Content, Node};
use crate::op::Op;
use std::fmt::Write;

/// `CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE`.
const VERBOSE: u32 = 1;
/// `CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES`.
const HANDLES: u32 = 1 << 10;
/// The flags that ask for parameters: of kernels, copies, sets, host functions, events, memory, word operations,
/// conditions, batches of copies.
const PARAMETERS: u32 = 0x1_bbfc;
/// All flags that exist.
pub const FLAGS: u32 = (1 << 18) - 1;

/// The text.
pub fn text(graph: &Graph, flags: u32) -> String {
    let mut out = String::from("digraph dot {\n");
    write_graph(graph, flags, &mut out);
    out.push_str("}\n");
    out
}

fn write_graph(graph: &Graph, flags: u32, out: &mut String) {
    let inner = graph.lock();
    // Writing into a text cannot fail.
    let _ = writeln!(out, "subgraph cluster_{} {{\nlabel=\"graph_{}\"", graph.id, graph.id);
    for node in inner.nodes.values() {
        let label = label(node, flags).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(out, "\"{}\" [shape=rectangle label=\"{label}\"]", name(graph, node));
    }
    for node in inner.nodes.values() {
        for before in &node.before {
            if let Some(from) = inner.nodes.get(&before.node) {
                let style = if before.edge.kind == 0 { "" } else { " [style=dashed]" };
                let _ = writeln!(out, "\"{}\" -> \"{}\"{style}", name(graph, from), name(graph, node));
            }
        }
        for embedded in node.content.embedded() {
            write_graph(embedded, flags, out);
        }
    }
    out.push_str("}\n");
}

fn name(graph: &Graph, node: &Node) -> String {
    format!("graph_{}_node_{}", graph.id, node.local)
}

fn label(node: &Node, flags: u32) -> String {
    let mut text = format!("{}\n{:?}", node.local, node.content.kind());
    if flags & (PARAMETERS | VERBOSE) != 0 {
        let _ = write!(text, "\n{}", parameters(&node.content));
    } else if let Content::Do(Op::Kernel(kernel)) = &node.content {
        let _ = write!(text, "\n{}", kernel.function.kernel.name);
    }
    if flags & (HANDLES | VERBOSE) != 0 {
        let _ = write!(text, "\nnode {:#x}", node.handle);
    }
    text
}

fn parameters(content: &Content) -> String {
    match content {
        Content::Do(Op::Kernel(kernel)) => {
            let shape = &kernel.shape;
            format!(
                "{}<<<{:?}, {:?}, {}>>>",
                kernel.function.kernel.name, shape.grid, shape.block, shape.shared
            )
        }
        Content::Do(Op::Copy(copy)) => {
            let extent = &copy.extent;
            format!("{} x {} x {} bytes", extent.width, extent.height, extent.depth)
        }
        Content::Do(Op::Copies(batch)) => {
            format!("{} copies, {} bytes", batch.request.to.len(), batch.bytes())
        }
        Content::Do(Op::Set(fill)) => {
            let rows = &fill.rows;
            format!("{:#x}: {} x {} of {:02x?}", rows.address, rows.width, rows.height, &fill.pattern[..])
        }
        Content::Do(Op::Host(call)) => format!("{:?}({:?})", call.function, call.argument),
        Content::Do(Op::Words(batch)) => format!("{} operations", batch.words.len()),
        Content::Record(event) | Content::Wait(event) => format!("event {event:#x}"),
        Content::Alloc(memory) | Content::Free(memory) => {
            format!("{:#x}: {} bytes", memory.address, memory.size)
        }
        Content::Conditional(condition, body) => {
            format!("{:?} {:#x}, {} bodies", body.way, condition.handle, body.graphs.len())
        }
        Content::Empty | Content::Child(_) => String::new(),
    }
}
