//! Graphs: operations and their order, as a value that is launched as a whole.
//!
//! A [`Graph`] is what the program builds, node by node or by [`capture`]; [`exec`] makes of it something that can be
//! launched, which is a copy: later changes of the graph do not reach it. [`node`] says what nodes are, [`plan`] in which
//! order they are done, [`update`] which changes an executable graph takes.
#![forbid(unsafe_code)]

pub mod capture;
pub mod conditional;
pub mod dot;
pub mod exec;
pub mod memory;
pub mod node;
pub mod plan;
pub mod update;
pub mod user_object;

use crate::driver::TABLES;
use crate::error::*;
use node::{Content, Dependency, Node};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use user_object::UserObject;

/// One graph.
pub struct Graph {
    /// Its handle.
    pub handle: usize,
    /// `cuGraphGetId`.
    pub id: u32,
    /// Whether it is part of a node (a child graph, a conditional body), with which it goes.
    embedded: AtomicBool,
    inner: Mutex<Inner>,
}

/// What a graph holds.
#[derive(Default)]
pub struct Inner {
    /// Nodes by handle, which is the order in which they were made.
    pub nodes: BTreeMap<usize, Node>,
    /// In a clone: the clone of each node of the original, by the original's handle.
    clones: HashMap<usize, usize>,
    /// References to user objects.
    objects: Vec<(Arc<UserObject>, u32)>,
    /// Handles of conditional nodes that were made for this graph.
    pub conditions: Vec<Arc<conditional::Condition>>,
    next_local: u32,
}

/// Where a node is.
pub struct NodePlace {
    /// Its graph.
    pub graph: Weak<Graph>,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Graph {
    /// An empty graph, in the table.
    pub fn new(embedded: bool) -> Arc<Graph> {
        let handle = TABLES.graphs.reserve();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let graph =
            Arc::new(Graph { handle, id, embedded: AtomicBool::new(embedded), inner: Mutex::default() });
        TABLES.graphs.add(handle, graph.clone());
        graph
    }

    /// Whether it is part of a node.
    pub fn is_embedded(&self) -> bool {
        self.embedded.load(Ordering::Acquire)
    }

    /// It becomes part of a node.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if it is part of one already.
    pub fn embed(&self) -> Result {
        if self.embedded.swap(true, Ordering::AcqRel) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// What it holds. Never held while another graph's is taken that is not inside of this one.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node behind others.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if a dependency is not in this graph or named twice.
    pub fn add(self: &Arc<Self>, content: Content, before: Vec<Dependency>) -> Result<usize> {
        let mut inner = self.lock();
        inner.check_dependencies(&before)?;
        let handle = TABLES.nodes.reserve();
        TABLES.nodes.add(handle, Arc::new(NodePlace { graph: Arc::downgrade(self) }));
        let local = inner.next_local;
        inner.next_local += 1;
        inner.nodes.insert(handle, Node { handle, local, content, before });
        Ok(handle)
    }

    /// `cuGraphAddDependencies`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for nodes of other graphs, a node behind itself, and a dependency that is there.
    pub fn connect(&self, edges: &[(usize, Dependency)]) -> Result {
        let mut inner = self.lock();
        for (to, dependency) in edges {
            inner.check_dependencies(std::slice::from_ref(dependency))?;
            let node = inner.nodes.get_mut(to).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if dependency.node == *to || node.before.iter().any(|d| d.same_place(dependency)) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            node.before.push(*dependency);
        }
        Ok(())
    }

    /// `cuGraphRemoveDependencies`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a dependency that is not there.
    pub fn disconnect(&self, edges: &[(usize, Dependency)]) -> Result {
        let mut inner = self.lock();
        for (to, dependency) in edges {
            let node = inner.nodes.get_mut(to).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let found =
                node.before.iter().position(|d| d.node == dependency.node && d.edge == dependency.edge);
            node.before.remove(found.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        }
        Ok(())
    }

    /// `cuGraphDestroyNode`: the node and its edges.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a node that is not there; `CUDA_ERROR_NOT_SUPPORTED` for memory nodes, which CUDA
    /// does not let be taken away either.
    pub fn remove(&self, handle: usize) -> Result {
        let mut inner = self.lock();
        let node = inner.nodes.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if matches!(node.content, Content::Alloc(_) | Content::Free(_)) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let node = inner.nodes.remove(&handle);
        for other in inner.nodes.values_mut() {
            other.before.retain(|d| d.node != handle);
        }
        drop(inner);
        TABLES.nodes.remove(handle);
        if let Some(node) = node {
            node.content.embedded().for_each(Graph::forget);
        }
        Ok(())
    }

    /// Takes the graph, and what is embedded in it, out of the tables; what is being launched keeps its parts.
    pub fn forget(graph: &Arc<Graph>) {
        TABLES.graphs.remove(graph.handle);
        let (nodes, objects) = {
            let mut inner = graph.lock();
            (std::mem::take(&mut inner.nodes), std::mem::take(&mut inner.objects))
        };
        for (handle, node) in &nodes {
            TABLES.nodes.remove(*handle);
            node.content.embedded().for_each(Graph::forget);
        }
        for (object, count) in objects {
            object.release(count);
        }
    }

    /// `cuGraphClone`: the same nodes under handles of their own.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for graphs with memory or conditional nodes, as in CUDA.
    pub fn duplicate(&self, embedded: bool) -> Result<Arc<Graph>> {
        let copy = Graph::new(embedded);
        let source = self.lock();
        let made = source.nodes.values().try_for_each(|node| {
            let before = {
                let inner = copy.lock();
                let moved =
                    |d: &Dependency| Some(Dependency { node: *inner.clones.get(&d.node)?, edge: d.edge });
                // Edges that lead to nodes made later are added below.
                node.before.iter().filter_map(moved).collect()
            };
            let handle = copy.add(node.content.duplicate()?, before)?;
            copy.lock().clones.insert(node.handle, handle);
            Ok(())
        });
        let made = made.and_then(|()| copy.add_missing_edges(&source));
        if let Err(error) = made {
            Graph::forget(&copy);
            return Err(error);
        }
        let objects: Vec<_> = source.objects.clone();
        drop(source);
        for (object, count) in &objects {
            object.retain(*count);
        }
        copy.lock().objects = objects;
        Ok(copy)
    }

    fn add_missing_edges(&self, source: &Inner) -> Result {
        let clones = self.lock().clones.clone();
        let mut missing = Vec::new();
        for node in source.nodes.values() {
            for d in node.before.iter().filter(|d| d.node > node.handle) {
                missing.push((clones[&node.handle], Dependency { node: clones[&d.node], edge: d.edge }));
            }
        }
        self.connect(&missing)
    }

    /// `cuGraphNodeFindInClone`, also in what is embedded in this clone.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the node has no clone here.
    pub fn clone_of(&self, original: usize) -> Result<usize> {
        let inner = self.lock();
        if let Some(found) = inner.clones.get(&original).filter(|clone| inner.nodes.contains_key(clone)) {
            return Ok(*found);
        }
        let mut embedded = inner.nodes.values().flat_map(|node| node.content.embedded());
        embedded.find_map(|child| child.clone_of(original).ok()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuGraphRetainUserObject`: the graph takes references, its own or (`moved`) those of the caller.
    pub fn hold(&self, object: &Arc<UserObject>, count: u32, moved: bool) {
        if !moved {
            object.retain(count);
        }
        self.lock().objects.push((object.clone(), count));
    }

    /// `cuGraphReleaseUserObject`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the graph has not so many references.
    pub fn let_go(&self, object: &Arc<UserObject>, count: u32) -> Result {
        let mut inner = self.lock();
        let ours = |(other, _): &(Arc<UserObject>, u32)| Arc::ptr_eq(other, object);
        let held: u32 = inner.objects.iter().filter(|o| ours(o)).map(|(_, n)| n).sum();
        let left = held.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        inner.objects.retain(|o| !ours(o));
        if left > 0 {
            inner.objects.push((object.clone(), left));
        }
        drop(inner);
        object.release(count);
        Ok(())
    }

    /// References to user objects, which an executable graph takes as well.
    pub fn objects(&self) -> Vec<(Arc<UserObject>, u32)> {
        self.lock().objects.clone()
    }
}

impl Inner {
    fn check_dependencies(&self, list: &[Dependency]) -> Result {
        let mut seen = HashSet::new();
        for d in list {
            let node = self.nodes.get(&d.node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if !seen.insert((d.node, d.edge)) || !d.edge.fits(&node.content) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// The memory that a node takes at an address.
    pub fn memory_at(&self, address: u64) -> Option<Arc<memory::GraphMemory>> {
        self.nodes.values().find_map(|node| match &node.content {
            Content::Alloc(memory) if memory.address == address => Some(memory.clone()),
            _ => None,
        })
    }

    /// The nodes that wait for one, with their edges.
    pub fn after(&self, handle: usize) -> Vec<Dependency> {
        let mut found = Vec::new();
        for node in self.nodes.values() {
            found.extend(
                node.before
                    .iter()
                    .filter(|d| d.node == handle)
                    .map(|d| Dependency { node: node.handle, edge: d.edge }),
            );
        }
        found
    }

    /// Whether `node` is `ancestor` or comes behind it.
    pub fn reaches(&self, ancestor: usize, from: &[usize]) -> bool {
        let mut open: Vec<usize> = from.to_vec();
        let mut seen = HashSet::new();
        while let Some(handle) = open.pop() {
            if handle == ancestor {
                return true;
            }
            if seen.insert(handle)
                && let Some(node) = self.nodes.get(&handle)
            {
                open.extend(node.before.iter().map(|d| d.node));
            }
        }
        false
    }
}

/// The graph of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn find(handle: usize) -> Result<Arc<Graph>> {
    TABLES.graphs.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The graph that holds a node.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is no node.
pub fn of_node(node: usize) -> Result<Arc<Graph>> {
    TABLES.nodes.get(node).and_then(|place| place.graph.upgrade()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Looks at a node.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is no node; what `look` says.
pub fn with_node<T>(node: usize, look: impl FnOnce(&Node) -> Result<T>) -> Result<T> {
    let graph = of_node(node)?;
    let inner = graph.lock();
    look(inner.nodes.get(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?)
}

/// Gives a node a content of the same kind.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is no node or a node of another kind; what `make` says, which is given
/// the content as it is.
pub fn change_node(node: usize, make: impl FnOnce(&Content) -> Result<Content>) -> Result {
    let graph = of_node(node)?;
    let mut inner = graph.lock();
    let found = inner.nodes.get_mut(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let content = make(&found.content)?;
    if content.kind() != found.content.kind() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    found.content = content;
    Ok(())
}

/// `cuGraphDestroy`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is no graph, or one that is part of a node.
pub fn destroy(handle: usize) -> Result {
    let graph = find(handle)?;
    if graph.is_embedded() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Graph::forget(&graph);
    Ok(())
}
