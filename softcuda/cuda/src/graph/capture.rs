//! Stream capture: what streams are given becomes nodes of a graph instead of work.
//!
//! A capture begins in one stream, its *origin*, and draws in others that wait for events which it recorded. Each stream in
//! a capture has a [`Tail`]: the nodes that its next one comes behind. What no graph can hold, and what would wait for
//! work that is not being done, invalidates the capture: everything in it then answers 901 until the origin ends it.
#![forbid(unsafe_code)]

use super::memory::GraphMemory;
use super::node::{Content, Dependency, Edge};
use super::plan::Plan;
use super::{Graph, find as find_graph};
use crate::context::Context;
use crate::error::*;
use crate::event::Event;
use crate::stream::{Stream, Work};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

/// What a capture forbids the threads of the program (`CUstreamCaptureMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Unsafe calls of every thread.
    Global,
    /// Unsafe calls of the thread that began it.
    ThreadLocal,
    /// Nothing.
    Relaxed,
}

impl Mode {
    /// The mode of a number.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn of(number: u32) -> Result<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// One capture.
pub struct Capture {
    /// `cuStreamGetCaptureInfo`: a number that no other capture has or had.
    pub id: u64,
    /// Where the nodes go.
    pub graph: Arc<Graph>,
    mode: Mode,
    thread: ThreadId,
    /// Whether the graph was the program's before (`cuStreamBeginCaptureToGraph`).
    given: bool,
    invalid: AtomicBool,
    over: AtomicBool,
    /// Every stream that was drawn in; the origin is the first.
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// Where a stream stands in a capture.
#[derive(Clone)]
pub struct Tail {
    /// The capture.
    pub capture: Arc<Capture>,
    /// What the next node waits for.
    pub after: Vec<Dependency>,
}

/// A stream's place in a capture, if it is in one.
#[derive(Default)]
pub struct Slot {
    tail: Mutex<Option<Tail>>,
    active: AtomicBool,
    /// What `cuStreamGetCaptureInfo` handed out; it stays until the next call for this stream.
    shown: Mutex<Shown>,
}

/// Nodes and edges, as two arrays.
#[derive(Default)]
struct Shown {
    nodes: Box<[usize]>,
    edges: Box<[Edge]>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Tail>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the stream is in a capture, valid or not.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    fn set(&self, tail: Option<Tail>) {
        let mut slot = self.lock();
        self.active.store(tail.is_some(), Ordering::Release);
        *slot = tail;
    }

    /// Where the stream stands.
    pub fn tail(&self) -> Option<Tail> {
        if self.is_active() { self.lock().clone() } else { None }
    }

    /// The stream is destroyed.
    pub fn abandon(&self) {
        if let Some(tail) = self.tail() {
            tail.capture.invalidate();
        }
    }

    /// Arrays of the tail's nodes and edges that stay until the next call.
    pub fn show(&self, tail: &Tail) -> (*const usize, *const Edge) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.nodes = tail.after.iter().map(|d| d.node).collect();
        shown.edges = tail.after.iter().map(|d| d.edge).collect();
        (shown.nodes.as_ptr(), shown.edges.as_ptr())
    }
}

/// Captures that are not over.
static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// Their number: most programs have none, and every call asks.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

fn active() -> MutexGuard<'static, Vec<Arc<Capture>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn none_active() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// `cuThreadExchangeStreamCaptureMode`: sets the thread's mode and gives the one before.
pub fn exchange_mode(mode: Mode) -> Mode {
    THREAD_MODE.try_with(|m| m.replace(mode)).unwrap_or(Mode::Global)
}

impl Capture {
    fn check(&self) -> Result {
        if self.is_invalid() { Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    /// Whether something was done that a capture does not bear.
    pub fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    /// Something was done that a capture does not bear.
    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends it for all its streams.
    fn close(self: &Arc<Self>) {
        self.over.store(true, Ordering::Release);
        for stream in self.streams() {
            stream.capture.set(None);
        }
        let mut active = active();
        active.retain(|other| !Arc::ptr_eq(other, self));
        COUNT.store(active.len(), Ordering::Release);
    }
}

/// `cuStreamBeginCapture`; with a graph, `cuStreamBeginCaptureToGraph`.
///
/// # Errors
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for the legacy stream, `CUDA_ERROR_ILLEGAL_STATE` for one that captures,
/// `CUDA_ERROR_INVALID_VALUE` for nodes that are not in the graph.
pub fn begin(
    context: &Context,
    stream: &Arc<Stream>,
    mode: Mode,
    into: Option<(usize, Vec<Dependency>)>,
) -> Result {
    context.fate.check()?;
    if stream.is_legacy() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.is_capturing() {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    let given = into.is_some();
    let (graph, after) = match into {
        Some((graph, after)) => (find_graph(graph)?, after),
        None => (Graph::new(false), Vec::new()),
    };
    let known = |d: &Dependency| graph.lock().nodes.contains_key(&d.node);
    if !after.iter().all(known) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        mode,
        thread: std::thread::current().id(),
        given,
        invalid: AtomicBool::new(false),
        over: AtomicBool::new(false),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    let mut active = active();
    active.push(capture.clone());
    COUNT.store(active.len(), Ordering::Release);
    stream.capture.set(Some(Tail { capture, after }));
    Ok(())
}

/// `cuStreamEndCapture`: the graph.
///
/// # Errors
/// `CUDA_ERROR_ILLEGAL_STATE` for a stream that does not capture, and 901, 903, 904, 908 as their names say. The capture is
/// over then too, except for 903 and 908.
pub fn end(stream: &Arc<Stream>) -> Result<usize> {
    let tail = stream.capture.tail().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let capture = &tail.capture;
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    let streams = capture.streams();
    if !streams.first().is_some_and(|origin| Arc::ptr_eq(origin, stream)) {
        capture.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    let joined = || {
        let inner = capture.graph.lock();
        let ends: Vec<usize> = tail.after.iter().map(|d| d.node).collect();
        let others = streams.iter().skip(1).filter_map(|other| other.capture.tail());
        let mut open =
            others.filter(|other| Arc::ptr_eq(&other.capture, capture)).flat_map(|other| other.after);
        open.all(|d| inner.reaches(d.node, &ends))
    };
    let done = capture
        .check()
        .and_then(|()| if joined() { Ok(()) } else { Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) });
    capture.close();
    if let Err(error) = done {
        if !capture.given {
            let _ = super::destroy(capture.graph.handle);
        }
        return Err(error);
    }
    Ok(capture.graph.handle)
}

/// Adds a node where a stream stands.
///
/// # Errors
/// 901.
fn add(stream: &Stream, tail: &Tail, content: Content) -> Result {
    tail.capture.check()?;
    let node = tail.capture.graph.add(content, tail.after.clone())?;
    stream.capture.set(Some(Tail { capture: tail.capture.clone(), after: vec![Dependency::plain(node)] }));
    Ok(())
}

/// Work on its way to a stream: gives it back if the stream does not capture, and makes a node of it if it does.
///
/// # Errors
/// 900 for work that no graph can hold, 901, 906 for the legacy stream while a stream that orders itself with it captures.
pub fn take(context: &Context, stream: &Arc<Stream>, work: Work) -> Result<Option<Work>> {
    if none_active() {
        return Ok(Some(work));
    }
    match (stream.capture.tail(), work) {
        (Some(tail), Work::Do(op)) => add(stream, &tail, Content::Do(op)).map(|()| None),
        (_, work) => permit(context, stream).map(|()| Some(work)),
    }
}

/// Something that cannot be captured, or looks at the state of work: whether the stream bears it.
///
/// # Errors
/// As [`take`].
pub fn permit(context: &Context, stream: &Stream) -> Result {
    if none_active() {
        return Ok(());
    }
    if let Some(tail) = stream.capture.tail() {
        tail.capture.check()?;
        tail.capture.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.is_legacy() {
        let blocking = context.streams().into_iter().filter(|other| other.is_blocking());
        let captures: Vec<_> = blocking.filter_map(|other| other.capture.tail()).collect();
        if !captures.is_empty() {
            captures.iter().for_each(|tail| tail.capture.invalidate());
            return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(())
}

/// A wait for all streams of a context.
///
/// # Errors
/// 900 if one of them captures, which is invalid then.
pub fn permit_all(context: &Context) -> Result {
    if none_active() {
        return Ok(());
    }
    let captures: Vec<_> = context.streams().iter().filter_map(|stream| stream.capture.tail()).collect();
    captures.iter().for_each(|tail| tail.capture.invalidate());
    if captures.is_empty() { Ok(()) } else { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
}

/// A call that may wait for work in secret, such as an allocation: whether the captures of the process bear it from this
/// thread. See [`Mode`].
///
/// # Errors
/// 900; the captures that forbid it are invalid then.
pub fn permit_unsafe() -> Result {
    if none_active() {
        return Ok(());
    }
    let own = THREAD_MODE.try_with(Cell::get).unwrap_or(Mode::Global);
    let me = std::thread::current().id();
    let forbids = |capture: &&Arc<Capture>| match own {
        Mode::Relaxed => false,
        Mode::ThreadLocal => capture.mode != Mode::Relaxed && capture.thread == me,
        Mode::Global => {
            capture.mode == Mode::Global || (capture.mode == Mode::ThreadLocal && capture.thread == me)
        }
    };
    let active = active();
    let mut forbidding = active.iter().filter(forbids).peekable();
    if forbidding.peek().is_none() {
        return Ok(());
    }
    forbidding.for_each(|capture| capture.invalidate());
    Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// `cuEventRecord`: whether it was captured. With the external flag it becomes a node, else a place in the capture.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for the external flag outside of a capture; as [`take`].
pub fn record(context: &Context, stream: &Arc<Stream>, event: &Event, flags: u32) -> Result<bool> {
    let Some(tail) = stream.capture.tail() else {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        return permit(context, stream).map(|()| false);
    };
    tail.capture.check()?;
    if flags == 0 {
        event.set_captured(tail);
    } else {
        add(stream, &tail, Content::Record(event.handle))?;
    }
    Ok(true)
}

/// `cuStreamWaitEvent`: whether it was captured.
///
/// # Errors
/// As [`record`]; 902 for an event of another capture, 905 for one of none, 907 for one of a capture that is over.
pub fn wait(context: &Context, stream: &Arc<Stream>, event: &Event, flags: u32) -> Result<bool> {
    let there = event.captured();
    let Some(tail) = stream.capture.tail() else {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        return match there {
            Some(there) => join(context, stream, there).map(|()| true),
            None => permit(context, stream).map(|()| false),
        };
    };
    tail.capture.check()?;
    if flags != 0 {
        return add(stream, &tail, Content::Wait(event.handle)).map(|()| true);
    }
    let wrong = |error| {
        tail.capture.invalidate();
        Err(error)
    };
    match there {
        None => wrong(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
        Some(there) if !Arc::ptr_eq(&there.capture, &tail.capture) => {
            there.capture.invalidate();
            wrong(CUDA_ERROR_STREAM_CAPTURE_MERGE)
        }
        Some(there) => {
            let mut after = tail.after;
            after.extend(there.after.iter().filter(|d| !after.contains(d)).copied().collect::<Vec<_>>());
            stream.capture.set(Some(Tail { capture: tail.capture, after }));
            Ok(true)
        }
    }
}

/// A stream that does not capture is drawn in.
fn join(context: &Context, stream: &Arc<Stream>, there: Tail) -> Result {
    permit(context, stream)?;
    if there.capture.over.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_CAPTURED_EVENT);
    }
    there.capture.check()?;
    if stream.is_legacy() {
        there.capture.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    there.capture.streams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(stream));
    stream.capture.set(Some(there));
    Ok(())
}

/// `cuStreamUpdateCaptureDependencies`: more of them, or others.
///
/// # Errors
/// `CUDA_ERROR_ILLEGAL_STATE` for a stream that does not capture, 901, `CUDA_ERROR_INVALID_VALUE` for nodes of others.
pub fn set_dependencies(stream: &Stream, nodes: Vec<Dependency>, replace: bool) -> Result {
    let mut tail = stream.capture.tail().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    tail.capture.check()?;
    let known = |d: &Dependency| tail.capture.graph.lock().nodes.contains_key(&d.node);
    if !nodes.iter().all(known) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if replace {
        tail.after.clear();
    }
    for node in nodes {
        if !tail.after.contains(&node) {
            tail.after.push(node);
        }
    }
    stream.capture.set(Some(tail));
    Ok(())
}

/// `cuGraphLaunch` in a stream: whether it was captured, as a child graph with what the executable graph does now.
///
/// # Errors
/// 901; 900 for graphs that no child graph can be: those with memory or conditional nodes.
pub fn launch(stream: &Stream, plan: &Plan) -> Result<bool> {
    let Some(tail) = stream.capture.tail() else { return Ok(false) };
    tail.capture.check()?;
    let Ok(graph) = plan.graph() else {
        tail.capture.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    };
    add(stream, &tail, Content::Child(graph)).map(|()| true)
}

/// `cuMemAllocAsync` in a stream: the address, if the stream captures.
///
/// # Errors
/// 901, as [`GraphMemory::new`].
pub fn alloc(
    context: &Context,
    stream: &Stream,
    device: &Arc<crate::device::Device>,
    bytes: u64,
) -> Result<Option<u64>> {
    let Some(tail) = stream.capture.tail() else { return Ok(None) };
    tail.capture.check()?;
    let memory = GraphMemory::new(context, device, bytes)?;
    let address = memory.address;
    add(stream, &tail, Content::Alloc(memory))?;
    Ok(Some(address))
}

/// `cuMemFreeAsync` in a stream: whether the stream captures.
///
/// # Errors
/// 901; `CUDA_ERROR_INVALID_VALUE` for memory that no node of the graph takes.
pub fn free(stream: &Stream, address: u64) -> Result<bool> {
    let Some(tail) = stream.capture.tail() else { return Ok(false) };
    tail.capture.check()?;
    let memory = tail.capture.graph.lock().memory_at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    add(stream, &tail, Content::Free(memory)).map(|()| true)
}
