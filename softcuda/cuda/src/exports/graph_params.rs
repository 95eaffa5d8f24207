//! The structs in which graph nodes are described, and the contents that they mean.

use super::batch_copies::BatchNode;
use super::copies::Copy3D;
use super::{contexts, handle};
use crate::context::Context;
use crate::copy_box::BoxCopy;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::event;
use crate::graph::conditional::{Body, Way};
use crate::graph::memory::GraphMemory;
use crate::graph::node::Content;
use crate::graph::{self, Graph};
use crate::handles::{self, Kind};
use crate::host_call::{HostCall, HostFunction};
use crate::launch::{Attributes, KernelOp, Refusal, Request, Shape};
use crate::memset::{Fill, Rows};
use crate::op::Op;
use crate::words::{Batch, Raw};
use cudarc::driver::sys::{CUcontext, CUevent, CUgraph};
use std::ffi::c_void;
use std::sync::Arc;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KernelNodeV1 {
    function: *mut c_void,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KernelNode {
    first: KernelNodeV1,
    kernel: *mut c_void,
    context: CUcontext,
}

impl From<KernelNodeV1> for KernelNode {
    fn from(first: KernelNodeV1) -> Self {
        Self { first, kernel: std::ptr::null_mut(), context: std::ptr::null_mut() }
    }
}

impl KernelNode {
    /// The launch that it describes.
    ///
    /// # Errors
    /// As [`KernelOp::prepare`].
    ///
    /// # Safety
    /// The parameters are as `cuLaunchKernel` wants them.
    pub(super) unsafe fn content(&self, attributes: Attributes) -> Result<Content> {
        let first = &self.first;
        let function = if first.function.is_null() { self.kernel.addr() } else { first.function.addr() };
        let context = context_of(function, self.context)?;
        let shape = Shape { grid: first.grid, block: first.block, shared: first.shared, cooperative: false };
        let request = Request { function, shape, attributes, stream: 0, priority: 0 };
        // SAFETY: the caller vouches for the parameters.
        let made = unsafe { KernelOp::prepare(&context, request, first.values, first.extra) };
        made.map(|op| Content::Do(Op::Kernel(op))).map_err(|refusal| match refusal {
            Refusal::Code(code) => code,
            Refusal::Configuration => CUDA_ERROR_INVALID_VALUE,
        })
    }

    /// The description of a launch; its pointers are good as long as the node is not changed.
    pub(super) fn of(op: &KernelOp) -> KernelNode {
        let by_kernel = handles::kind_of(op.named) == Kind::Kernel as usize;
        let named = |wanted: bool| if wanted { handle(op.named) } else { std::ptr::null_mut() };
        let shape = &op.shape;
        let first = KernelNodeV1 {
            function: named(!by_kernel),
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            values: op.values(),
            extra: std::ptr::null_mut(),
        };
        KernelNode { first, kernel: named(by_kernel), context: handle(op.context.handle) }
    }

    /// As the first version, which has one place for both kinds of functions.
    pub(super) fn v1(self) -> KernelNodeV1 {
        let function = if self.first.function.is_null() { self.kernel } else { self.first.function };
        KernelNodeV1 { function, ..self.first }
    }
}

/// The context of a launch: the one that is named, the function's, the current one.
fn context_of(function: usize, named: CUcontext) -> Result<Arc<Context>> {
    if !named.is_null() {
        return contexts::find(named);
    }
    match TABLES.functions.get(function) {
        Some(function) => TABLES.contexts.get(function.context).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        None => crate::current::context(),
    }
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MemsetNode {
    address: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

impl MemsetNode {
    /// # Errors
    /// As [`Fill::prepare`]; `CUDA_ERROR_INVALID_VALUE` for elements of other sizes than 1, 2 and 4.
    pub(super) fn content(&self) -> Result<Content> {
        if !matches!(self.element, 1 | 2 | 4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let rows = Rows { address: self.address, pitch: self.pitch, width: self.width, height: self.height };
        let bytes = self.value.to_le_bytes();
        Ok(Content::Do(Op::Set(Fill::prepare(rows, &bytes[..self.element as usize])?)))
    }

    pub(super) fn of(fill: &Fill) -> MemsetNode {
        let mut bytes = [0; 4];
        bytes[..fill.pattern.len()].copy_from_slice(&fill.pattern);
        let Rows { address, pitch, width, height } = fill.rows;
        let element = fill.pattern.len() as u32;
        MemsetNode { address, pitch, value: u32::from_le_bytes(bytes), element, width, height }
    }
}

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HostNode {
    function: Option<HostFunction>,
    argument: *mut c_void,
}

impl HostNode {
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` without a function.
    pub(super) fn content(&self) -> Result<Content> {
        let function = self.function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(Content::Do(Op::Host(HostCall { function, argument: self.argument })))
    }

    pub(super) fn of(call: HostCall) -> HostNode {
        HostNode { function: Some(call.function), argument: call.argument }
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct WordsNode {
    context: CUcontext,
    count: u32,
    list: *const Raw,
    flags: u32,
}

impl WordsNode {
    /// # Errors
    /// As [`Batch::prepare`].
    ///
    /// # Safety
    /// The list has as many entries as are said.
    pub(super) unsafe fn content(&self) -> Result<Content> {
        if self.flags != 0 || self.list.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller vouches for the list.
        let words = unsafe { read_words(self.list, self.count)? };
        Ok(Content::Do(Op::Words(Batch::prepare(&contexts::find(self.context)?, words)?)))
    }

    pub(super) fn of(batch: &Batch) -> WordsNode {
        let context = handle(batch.context.handle);
        WordsNode { context, count: batch.words.len() as u32, list: batch.words.as_ptr(), flags: 0 }
    }
}

/// Operations of an array of the program.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for null and for more than CUDA takes.
///
/// # Safety
/// The list is null or has `count` entries.
pub(super) unsafe fn read_words(list: *const Raw, count: u32) -> Result<Vec<Raw>> {
    if list.is_null() || count > 256 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the list.
    Ok((0..count as usize).map(|i| unsafe { list.add(i).read_unaligned() }).collect())
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`: the pool's properties begin with type of allocation, handle types, and location.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AllocNode {
    allocation: u32,
    handles: u32,
    location: u32,
    device: i32,
    rest: [u64; 9],
    accesses: *const c_void,
    access_count: usize,
    size: usize,
    /// Written when the node is made.
    pub(super) address: u64,
}

impl AllocNode {
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for anything but pinned memory of a device, as [`GraphMemory::new`].
    pub(super) fn content(&mut self) -> Result<Content> {
        // CU_MEM_ALLOCATION_TYPE_PINNED on CU_MEM_LOCATION_TYPE_DEVICE, not to be shared.
        if self.allocation != 1 || self.location != 1 || self.handles != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver::device(self.device)?;
        let memory = GraphMemory::new(&*crate::current::healthy()?, device, self.size as u64)?;
        self.address = memory.address;
        Ok(Content::Alloc(memory))
    }

    pub(super) fn of(memory: &GraphMemory) -> AllocNode {
        AllocNode {
            allocation: 1,
            handles: 0,
            location: 1,
            device: memory.device.ordinal,
            rest: [0; 9],
            accesses: std::ptr::null(),
            access_count: 0,
            size: memory.size as usize,
            address: memory.address,
        }
    }
}

/// The node that gives memory back.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for memory that no node of the graph takes.
pub(super) fn free_content(graph: &Graph, address: u64) -> Result<Content> {
    graph.lock().memory_at(address).map(Content::Free).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The node that records an event, or waits for it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub(super) fn event_content(event: CUevent, records: bool) -> Result<Content> {
    let event = event::find(event.addr())?.handle;
    Ok(if records { Content::Record(event) } else { Content::Wait(event) })
}

/// The node of a child graph: of a clone of it, or (`moved`) of it itself.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for no graph or the graph itself, as [`Graph::duplicate`].
pub(super) fn child_content(into: Option<&Arc<Graph>>, child: CUgraph, moved: bool) -> Result<Content> {
    let child = graph::find(child.addr())?;
    if into.is_some_and(|graph| Arc::ptr_eq(graph, &child)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if moved {
        child.embed()?;
        return Ok(Content::Child(child));
    }
    Ok(Content::Child(child.duplicate(true)?))
}

/// The node of a copy.
///
/// # Errors
/// As [`BoxCopy::prepare`].
///
/// # Safety
/// `copy` is null or good, and so are the host ranges that it names, at every launch.
pub(super) unsafe fn copy_content(copy: *const Copy3D) -> Result<Content> {
    // SAFETY: the caller vouches for it.
    let (to, from, extent) = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?.parts();
    // SAFETY: the caller vouches for the ranges.
    Ok(Content::Do(Op::Copy(unsafe { BoxCopy::prepare(to, from, extent)? })))
}

/// `CUgraphNodeParams`: a kind and the struct of that kind.
#[repr(C)]
pub struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    body: [u64; 29],
    reserved2: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
struct CopyNode {
    flags: u32,
    reserved: u32,
    context: CUcontext,
    copy: Copy3D,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
struct ConditionalNode {
    handle: u64,
    way: u32,
    size: u32,
    graphs: *const usize,
    context: CUcontext,
}

impl NodeParams {
    fn body<T>(&mut self) -> *mut T {
        const { assert!(size_of::<T>() <= 232 && align_of::<T>() <= 8) };
        self.body.as_mut_ptr().cast()
    }

    /// What it describes, for a node of a graph; without one, for a node that exists.
    ///
    /// # Errors
    /// As the call for the kind; `CUDA_ERROR_INVALID_VALUE` for a kind that is none, `CUDA_ERROR_NOT_SUPPORTED` for external
    /// semaphores and kinds that only newer drivers have.
    ///
    /// # Safety
    /// The struct of the kind is good.
    pub(super) unsafe fn content(
        &mut self,
        graph: Option<&Arc<Graph>>,
        attributes: Attributes,
    ) -> Result<Content> {
        if self.reserved != [0; 3] || self.reserved2 != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let first = handle::<c_void>(self.body[0] as usize);
        // SAFETY: the body is the struct of the kind, which the caller made good; all of them fit in it.
        unsafe {
            match self.kind {
                0 => (*self.body::<KernelNode>()).content(attributes),
                1 => copy_content(&raw const (*self.body::<CopyNode>()).copy),
                2 => (*self.body::<MemsetNode>()).content(),
                3 => (*self.body::<HostNode>()).content(),
                4 => child_content(graph, first.cast(), self.body[1] as u32 == 1),
                5 => Ok(Content::Empty),
                6 => event_content(first.cast(), false),
                7 => event_content(first.cast(), true),
                8 | 9 | 18 => Err(CUDA_ERROR_NOT_SUPPORTED),
                14 => (*self.body::<BatchNode>()).content(),
                10 if graph.is_some() => (*self.body::<AllocNode>()).content(),
                11 => free_content(&**graph.ok_or(CUDA_ERROR_INVALID_VALUE)?, self.body[0]),
                12 => (*self.body::<WordsNode>()).content(),
                13 => {
                    conditional(&mut *self.body::<ConditionalNode>(), graph.ok_or(CUDA_ERROR_INVALID_VALUE)?)
                }
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
    }

    /// The description of a node.
    pub(super) fn of(content: &Content) -> NodeParams {
        let mut params =
            NodeParams { kind: content.kind() as u32, reserved: [0; 3], body: [0; 29], reserved2: 0 };
        // SAFETY: every struct written fits in the body, which is aligned for all of them.
        unsafe {
            match content {
                Content::Do(Op::Kernel(op)) => params.body::<KernelNode>().write(KernelNode::of(op)),
                Content::Do(Op::Copy(copy)) => params.body::<CopyNode>().write(CopyNode {
                    flags: 0,
                    reserved: 0,
                    context: std::ptr::null_mut(),
                    copy: Copy3D::of(&copy.to, &copy.from, &copy.extent),
                }),
                Content::Do(Op::Copies(batch)) => params.body::<BatchNode>().write(BatchNode::of(batch)),
                Content::Do(Op::Set(fill)) => params.body::<MemsetNode>().write(MemsetNode::of(fill)),
                Content::Do(Op::Host(call)) => params.body::<HostNode>().write(HostNode::of(*call)),
                Content::Do(Op::Words(batch)) => params.body::<WordsNode>().write(WordsNode::of(batch)),
                Content::Child(graph) => params.body[0] = graph.handle as u64,
                Content::Record(event) | Content::Wait(event) => params.body[0] = *event as u64,
                Content::Alloc(memory) => params.body::<AllocNode>().write(AllocNode::of(memory)),
                Content::Free(memory) => params.body[0] = memory.address,
                Content::Conditional(condition, body) => {
                    params.body::<ConditionalNode>().write(ConditionalNode {
                        handle: condition.handle,
                        way: body.way as u32,
                        size: body.graphs.len() as u32,
                        graphs: body.handles.as_ptr(),
                        context: std::ptr::null_mut(),
                    })
                }
                Content::Empty => {}
            }
        }
        params
    }
}

/// The node of a conditional, whose body graphs are made and shown.
fn conditional(node: &mut ConditionalNode, graph: &Graph) -> Result<Content> {
    let way = Way::of(node.way, node.size)?;
    if node.size > 1 << 16 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let known = |c: &&Arc<graph::conditional::Condition>| c.handle == node.handle;
    let condition = graph.lock().conditions.iter().find(known).cloned().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let body = Body::new(way, node.size);
    node.graphs = body.handles.as_ptr();
    Ok(Content::Conditional(condition, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<NodeParams>(), size_of::<sys::CUgraphNodeParams>());
        assert_eq!(offset_of!(NodeParams, body), 16);
        assert_eq!(size_of::<KernelNodeV1>(), size_of::<sys::CUDA_KERNEL_NODE_PARAMS_v1>());
        assert_eq!(size_of::<KernelNode>(), size_of::<sys::CUDA_KERNEL_NODE_PARAMS_v3>());
        assert_eq!(offset_of!(KernelNode, context), offset_of!(sys::CUDA_KERNEL_NODE_PARAMS_v3, ctx));
        assert_eq!(size_of::<MemsetNode>(), size_of::<sys::CUDA_MEMSET_NODE_PARAMS_v1>());
        assert_eq!(offset_of!(MemsetNode, height), offset_of!(sys::CUDA_MEMSET_NODE_PARAMS_v1, height));
        assert_eq!(size_of::<HostNode>(), size_of::<sys::CUDA_HOST_NODE_PARAMS_v1>());
        assert_eq!(size_of::<WordsNode>(), size_of::<sys::CUDA_BATCH_MEM_OP_NODE_PARAMS_v2>());
        assert_eq!(size_of::<Raw>(), size_of::<sys::CUstreamBatchMemOpParams>());
        assert_eq!(size_of::<AllocNode>(), size_of::<sys::CUDA_MEM_ALLOC_NODE_PARAMS_v2>());
        assert_eq!(offset_of!(AllocNode, size), offset_of!(sys::CUDA_MEM_ALLOC_NODE_PARAMS_v2, bytesize));
        assert_eq!(size_of::<CopyNode>(), size_of::<sys::CUDA_MEMCPY_NODE_PARAMS>());
        assert_eq!(offset_of!(CopyNode, copy), offset_of!(sys::CUDA_MEMCPY_NODE_PARAMS, copyParams));
        assert_eq!(size_of::<ConditionalNode>(), size_of::<sys::CUDA_CONDITIONAL_NODE_PARAMS>());
    }
}
