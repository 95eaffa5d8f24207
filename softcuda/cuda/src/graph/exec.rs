//! Executable graphs: made of a graph, launched into streams.
#![forbid(unsafe_code)]

use super::Graph;
use super::node::Content;
use super::plan::{Action, Plan, Step};
use super::update;
use super::user_object::UserObject;
use crate::context::{self, Context};
use crate::driver::TABLES;
use crate::error::*;
use crate::event::Record;
use crate::graph::capture;
use crate::stream::{Stream, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;
/// All flags that exist: with `_UPLOAD` (2) and `_USE_NODE_PRIORITY` (8).
const FLAGS: u64 = 15;

/// One executable graph.
pub struct Exec {
    /// Its handle.
    pub handle: usize,
    /// `cuGraphExecGetId`.
    pub id: u32,
    /// `cuGraphExecGetFlags`.
    pub flags: u64,
    objects: Vec<(Arc<UserObject>, u32)>,
    state: Mutex<State>,
}

struct State {
    /// A launch holds the plan that was when it was asked for; a change makes a new one.
    plan: Arc<Plan>,
    /// The end of the newest launch: an executable graph runs once at a time.
    last: Option<Arc<Record>>,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// Why a graph cannot be made executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: cudarc::driver::sys::CUresult,
    /// The node that is to blame, or 0.
    pub node: usize,
    /// `CUgraphInstantiateResult`.
    pub result: u32,
}

/// `cuGraphInstantiate` in all its forms.
///
/// # Errors
/// [`Failure`]: unknown flags, launches by the device, cycles.
pub fn instantiate(graph: &Graph, flags: u64) -> std::result::Result<Arc<Exec>, Failure> {
    if flags & !FLAGS != 0 {
        return Err(Failure { code: CUDA_ERROR_INVALID_VALUE, node: 0, result: 1 });
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(Failure { code: CUDA_ERROR_NOT_SUPPORTED, node: 0, result: 3 });
    }
    let cycle = |node| Failure { code: CUDA_ERROR_INVALID_VALUE, node, result: 2 };
    let plan = Arc::new(Plan::of(graph).map_err(cycle)?);
    let objects = graph.objects();
    for (object, count) in &objects {
        object.retain(*count);
    }
    let handle = TABLES.execs.reserve();
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let exec = Exec { handle, id, flags, objects, state: Mutex::new(State { plan, last: None }) };
    let exec = Arc::new(exec);
    TABLES.execs.add(handle, exec.clone());
    Ok(exec)
}

/// The executable graph of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn find(handle: usize) -> Result<Arc<Exec>> {
    TABLES.execs.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuGraphExecDestroy`: launches that run go on.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn destroy(handle: usize) -> Result {
    let exec = TABLES.execs.remove(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    for (object, count) in &exec.objects {
        object.release(*count);
    }
    Ok(())
}

/// `cuGraphUpload`: everything is there already.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`, no such stream, a stream that captures.
pub fn upload(exec: usize, stream: usize) -> Result {
    find(exec)?;
    let (context, stream) = context::stream(stream)?;
    capture::permit(&context, &stream)?;
    context.fate.check()
}

/// `cuGraphLaunch`: as one piece of work of the stream; in a stream that captures, as a child graph.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for memory of the graph that the launch before took and nobody gave back, no such stream,
/// what [`capture::launch`] says, the context's fatal error.
pub fn launch(exec: usize, stream: usize) -> Result {
    let exec = find(exec)?;
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    let mut state = exec.lock();
    if capture::launch(&stream, &state.plan)? {
        return Ok(());
    }
    capture::permit(&context, &stream)?;
    take_memory(&state.plan, exec.flags & AUTO_FREE != 0)?;
    if let Some(before) = state.last.take().filter(|record| !record.is_done()) {
        context.submit(&stream, Work::Event(before))?;
    }
    // The recordings of its nodes are no earlier than this one, which is behind what the stream is ordered behind.
    context.submit(&stream, Work::Mark(Arc::new(Record::default())))?;
    let end = Arc::new(Record::default());
    submit(&context, &stream, &state.plan)?;
    // Unless its own work has ended the context by now: that is for who waits for it to say.
    if context.submit(&stream, Work::Mark(end.clone())).is_ok() {
        state.last = Some(end);
    }
    Ok(())
}

fn submit(context: &Arc<Context>, stream: &Arc<Stream>, plan: &Arc<Plan>) -> Result {
    let (plan, marks, fate) = (plan.clone(), plan.marks(), context.fate.clone());
    let job = move |status| {
        if status == CUDA_SUCCESS {
            let run = || plan.start_conditions().and_then(|()| plan.run(&marks, &fate));
            let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(CUDA_ERROR_UNKNOWN));
            if let Err(error) = done {
                fate.fail(error);
            }
        }
        marks.pass_all();
    };
    context.submit(stream, Work::Always(Box::new(job)))
}

/// Notes which memory the program has after the launch.
fn take_memory(plan: &Plan, auto_free: bool) -> Result {
    let actions = plan.memory();
    for (memory, _) in actions.iter().filter(|(memory, takes)| *takes && memory.is_live()) {
        if !auto_free {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory.give();
    }
    for (memory, takes) in actions {
        if takes {
            memory.take();
        } else {
            memory.give();
        }
    }
    Ok(())
}

impl Exec {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the step of a node for later launches.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a node that is not in it; what `change` says, after which nothing is changed.
    pub fn change(&self, node: usize, change: impl FnOnce(&mut Step) -> Result) -> Result {
        let mut state = self.lock();
        let mut plan = Plan::clone(&state.plan);
        change(plan.step_mut(node).ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
        state.plan = Arc::new(plan);
        Ok(())
    }

    /// Gives a node what another content of its kind says.
    ///
    /// # Errors
    /// As [`Exec::change`]; `CUDA_ERROR_INVALID_VALUE` for changes that [`update::replace`] does not take.
    pub fn set_content(&self, node: usize, make: impl FnOnce(&Step) -> Result<Content>) -> Result {
        self.change(node, |step| {
            let content = make(step)?;
            let action = match content {
                Content::Do(op) => Action::Do(op),
                Content::Record(event) => Action::Record(event),
                Content::Wait(event) => Action::Wait(event),
                Content::Child(graph) => {
                    Action::Child(Plan::of(&graph).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            update::replace(step, &action).map_err(|_| CUDA_ERROR_INVALID_VALUE)
        })
    }

    /// `cuGraphNodeGetEnabled`.
    ///
    /// # Errors
    /// As [`Exec::change`]; only kernels, copies and memory sets can be switched.
    pub fn is_enabled(&self, node: usize) -> Result<bool> {
        let mut enabled = false;
        self.change(node, |step| {
            step.check_switchable()?;
            enabled = step.enabled;
            Ok(())
        })?;
        Ok(enabled)
    }

    /// `cuGraphNodeSetEnabled`.
    ///
    /// # Errors
    /// As [`Exec::is_enabled`].
    pub fn enable(&self, node: usize, enabled: bool) -> Result {
        self.change(node, |step| {
            step.check_switchable()?;
            step.enabled = enabled;
            Ok(())
        })
    }

    /// `cuGraphExecUpdate`: takes over what another graph of the same shape says.
    ///
    /// # Errors
    /// Why not, and at which node; nothing is changed then.
    pub fn update(&self, graph: &Graph) -> std::result::Result<(), update::Mismatch> {
        let mut state = self.lock();
        let new = Plan::of(graph).map_err(update::Mismatch::error)?;
        let mut plan = Plan::clone(&state.plan);
        update::plan(&mut plan, &new)?;
        state.plan = Arc::new(plan);
        Ok(())
    }
}
