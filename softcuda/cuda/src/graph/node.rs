//! Nodes: what they do and what they wait for.
#![forbid(unsafe_code)]

use super::Graph;
use super::conditional::{Body, Condition};
use super::memory::GraphMemory;
use crate::error::*;
use crate::op::Op;
use std::sync::Arc;

/// `CUgraphNodeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A kernel.
    Kernel = 0,
    /// A copy.
    Copy = 1,
    /// A memory set.
    Set = 2,
    /// A function of the program.
    Host = 3,
    /// A child graph.
    Child = 4,
    /// Nothing.
    Empty = 5,
    /// A wait for an event.
    EventWait = 6,
    /// The recording of an event.
    EventRecord = 7,
    /// An allocation.
    Alloc = 10,
    /// Its end.
    Free = 11,
    /// Stream memory operations.
    Words = 12,
    /// Graphs that run if a value says so.
    Conditional = 13,
    /// Several copies.
    Copies = 14,
}

/// What a node does.
#[derive(Clone)]
pub enum Content {
    /// What a stream does as well.
    Do(Op),
    /// Nothing.
    Empty,
    /// The nodes of a graph of its own.
    Child(Arc<Graph>),
    /// Records an event, by handle.
    Record(usize),
    /// Waits for an event, by handle.
    Wait(usize),
    /// Takes memory.
    Alloc(Arc<GraphMemory>),
    /// Gives memory back.
    Free(Arc<GraphMemory>),
    /// Runs bodies.
    Conditional(Arc<Condition>, Body),
}

/// `CUgraphEdgeData`: ports and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Edge {
    /// `from_port`: 0 when the node is done; of kernels also 1 and 2.
    pub from_port: u8,
    /// `to_port`: always 0.
    pub to_port: u8,
    /// `type`: 0, or 1 for programmatic launches.
    pub kind: u8,
    reserved: [u8; 5],
}

impl Edge {
    /// Whether it can come from such a node. A programmatic edge lets a kernel start earlier than it must; here it waits.
    pub fn fits(&self, from: &Content) -> bool {
        let plain = *self == Edge::default();
        let programmatic =
            self.kind <= 1 && self.from_port <= 2 && self.to_port == 0 && self.reserved == [0; 5];
        plain || (programmatic && from.kind() == Kind::Kernel)
    }
}

/// What a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// The node.
    pub node: usize,
    /// How.
    pub edge: Edge,
}

impl Dependency {
    /// A node's end.
    pub fn plain(node: usize) -> Self {
        Self { node, edge: Edge::default() }
    }

    /// Whether it is the same edge, whatever its type.
    pub fn same_place(&self, other: &Dependency) -> bool {
        let ports = |d: &Dependency| (d.node, d.edge.from_port, d.edge.to_port);
        ports(self) == ports(other)
    }
}

/// One node.
pub struct Node {
    /// Its handle.
    pub handle: usize,
    /// `cuGraphNodeGetLocalId`.
    pub local: u32,
    /// What it does.
    pub content: Content,
    /// What it waits for.
    pub before: Vec<Dependency>,
}

impl Content {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Content::Do(Op::Kernel(_)) => Kind::Kernel,
            Content::Do(Op::Copy(_)) => Kind::Copy,
            Content::Do(Op::Copies(_)) => Kind::Copies,
            Content::Do(Op::Set(_)) => Kind::Set,
            Content::Do(Op::Host(_)) => Kind::Host,
            Content::Do(Op::Words(_)) => Kind::Words,
            Content::Empty => Kind::Empty,
            Content::Child(_) => Kind::Child,
            Content::Record(_) => Kind::EventRecord,
            Content::Wait(_) => Kind::EventWait,
            Content::Alloc(_) => Kind::Alloc,
            Content::Free(_) => Kind::Free,
            Content::Conditional(..) => Kind::Conditional,
        }
    }

    /// The graphs that are part of it.
    pub fn embedded(&self) -> impl Iterator<Item = &Arc<Graph>> {
        let (child, bodies) = match self {
            Content::Child(graph) => (Some(graph), [].as_slice()),
            Content::Conditional(_, body) => (None, body.graphs.as_slice()),
            _ => (None, [].as_slice()),
        };
        child.into_iter().chain(bodies)
    }

    /// The same for a clone of its graph.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for memory and conditional nodes.
    pub fn duplicate(&self) -> Result<Content> {
        match self {
            Content::Child(graph) => Ok(Content::Child(graph.duplicate(true)?)),
            Content::Alloc(_) | Content::Free(_) | Content::Conditional(..) => Err(CUDA_ERROR_NOT_SUPPORTED),
            other => Ok(other.clone()),
        }
    }
}
