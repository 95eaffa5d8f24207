//! Runs grids: the public face. [`pool`] has the queue and the workers.

mod compiler;
mod gate;
mod pool;
mod quiet;
mod ready;
mod realm;
mod tiers;
mod turns;

pub use gate::Gate;
pub use realm::Realm;
pub(crate) use tiers::{Policy, PutOff};

use crate::codegen::cache::CodeCache;
use crate::codegen::{Code, Mode};
use crate::error::{Fault, FaultKind};
use crate::kernel::{Kernel, dynamic_offset};
use crate::memory::{Memory, View};
use crate::runtime::cluster::MOST_BLOCKS;
use crate::runtime::stack::size_class;
use crate::texture::Bindings;
use compiler::Compiler;
use pool::Pool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Threads of a block, as on every card.
const MAX_BLOCK: u32 = 1024;
/// Local memory of a thread, with room above what CUDA allows (512 KiB).
const MAX_LOCAL: u32 = 64 << 20;
/// Threads that one worker keeps resident at most: what a multiprocessor has.
const RESIDENT: u32 = 2048;

/// One launch of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameters, packed as [`Kernel::params`] says.
    pub params: Vec<u8>,
    /// All blocks must be resident at once (grid synchronisation).
    pub cooperative: bool,
    /// Blocks of a cluster in x, y, z; zeros if the launch does not say, and then the kernel may (`.reqnctapercluster`).
    pub cluster: [u32; 3],
    /// Blocks of a grid with a lower number are started before those of one with a higher number.
    pub priority: i32,
    /// Whose it is, for [`Engine::cancel_of`] and [`Engine::blocks_done`].
    pub owner: u64,
    /// What the module's texture and surface references are bound to.
    pub bindings: Bindings,
}

/// A grid that is being run.
pub(crate) struct Grid {
    pub kernel: Arc<Kernel>,
    pub code: Arc<Code>,
    /// What was put off, if there is better code than this.
    put_off: Option<Arc<PutOff>>,
    began: Instant,
    /// How many nanoseconds since it began are counted for what is put off.
    counted: AtomicU64,
    /// For what of the code is not made yet.
    pub compiler: Arc<Compiler>,
    /// The parameters; padded, so that reads of the last one stay inside.
    pub params: Box<[u8]>,
    pub memory: Arc<Memory>,
    pub bindings: Bindings,
    /// What it may touch, if that is more than the device's kernels all may.
    view: Option<Arc<View>>,
    pub realm: Arc<Realm>,
    /// Not 0: end as soon as possible.
    pub stop: AtomicU32,
    /// Who else uses the processors.
    pub gate: Option<Arc<dyn Gate>>,
    /// See [`Launch::owner`].
    owner: u64,
    id: u64,
    priority: i32,
    /// Blocks of the launch.
    blocks: u64,
    dims: [u32; 3],
    block: [u32; 3],
    /// Blocks of a cluster; ones if there are none.
    cluster: [u32; 3],
    /// The launch gave the cluster.
    explicit_cluster: bool,
    dynamic_shared: u32,
    total_shared: u32,
    local: u32,
    stack: usize,
    max_resident: u64,
    /// Cooperative groups keep the barrier of the grid in it; 0 if the launch is not cooperative.
    workspace: u64,
    state: Mutex<GridState>,
    finished: Condvar,
}

#[derive(Default)]
struct GridState {
    /// Blocks that have been started, and those of the launch before them.
    next: u64,
    /// Where its blocks end: before the end of the launch's if it has handed the others over.
    total: u64,
    /// Blocks that have been started and have not ended.
    running: u64,
    fault: Option<Fault>,
}

impl GridState {
    fn over(&self) -> bool {
        self.next == self.total && self.running == 0
    }
}

/// Runs grids on a pool of threads, and on the threads that call [`Engine::run`].
pub struct Engine {
    memory: Arc<Memory>,
    pool: Arc<Pool>,
    /// That of runs for which nobody names one.
    realm: Arc<Realm>,
    compiler: Arc<Compiler>,
    grids: AtomicU64,
    process: u32,
}

impl Engine {
    /// An engine that uses `workers` processors (at least 1): the caller of [`Engine::run`] works for its own grid, and
    /// `workers - 1` threads help. They are started by the first run of more than one block, not here. After `fork` an
    /// engine is of no use in the child: its threads are not there, and a run is refused.
    pub fn new(memory: Arc<Memory>, workers: usize) -> Arc<Engine> {
        Engine::with_cache(memory, workers, None)
    }

    /// As [`Engine::new`], with a cache of code on disk.
    pub fn with_cache(memory: Arc<Memory>, workers: usize, cache: Option<Arc<CodeCache>>) -> Arc<Engine> {
        Arc::new(Engine {
            compiler: Arc::new(Compiler::new(cache)),
            pool: Pool::new(memory.clone(), workers.max(1)),
            realm: Realm::new(memory.clone()),
            memory,
            grids: AtomicU64::new(1),
            process: std::process::id(),
        })
    }

    /// Runs one grid and returns when it is done. Several threads may call this at once: their grids run side by
    /// side, and one that waits for another (or for the host) does not hold it up. Signals are blocked for the
    /// calling thread meanwhile, since it runs on small stacks.
    ///
    /// # Errors
    /// The first [`Fault`] of the grid; its other blocks are stopped.
    pub fn run(&self, kernel: &Arc<Kernel>, launch: &Launch) -> Result<(), Fault> {
        self.run_in(kernel, launch, None, &self.realm)
    }

    /// As [`Engine::run`], as one of a realm's kernels, and with a view of the memory by which the grid reaches other devices' memory as well.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_in(
        &self,
        kernel: &Arc<Kernel>,
        launch: &Launch,
        view: Option<&Arc<View>>,
        realm: &Arc<Realm>,
    ) -> Result<(), Fault> {
        if std::process::id() != self.process {
            return Err(Fault::new(
                FaultKind::OutOfResources,
                "the engine cannot be used in the child of a fork",
            ));
        }
        let mut grid = self.grid(kernel, launch)?;
        (grid.view, grid.realm) = (view.cloned(), realm.clone());
        let grid = Arc::new(grid);
        let _use = self.memory.enter();
        let done = self.pool.run(&grid);
        grid.count_time();
        done
    }

    /// Returns when no code is being made beside the kernels: long ones run one thread at a time until their vectors are there.
    pub fn settle(&self) {
        self.compiler.background.settle();
    }

    /// Compiles a kernel now, if it has not been: else the first launch does. Other shapes of blocks than the usual ones
    /// need other code, which their first launch makes.
    ///
    /// # Errors
    /// As [`Engine::run`] would give.
    pub fn prepare(&self, kernel: &Kernel) -> Result<(), Fault> {
        self.code(kernel, kernel.required_block.unwrap_or([256, 1, 1])).map(drop)
    }

    fn code(&self, kernel: &Kernel, block: [u32; 3]) -> Result<(Arc<Code>, Option<Arc<PutOff>>), Fault> {
        let internal = |e: String| Fault::new(FaultKind::Internal, format!("{}: {e}", kernel.name));
        self.compiler.code(kernel, block).map_err(internal)
    }

    fn grid(&self, kernel: &Arc<Kernel>, launch: &Launch) -> Result<Grid, Fault> {
        let total = check(kernel, launch)?;
        let cluster = cluster(kernel, launch)?;
        let (code, put_off) = self.code(kernel, launch.block)?;
        if kernel.local_bytes > MAX_LOCAL {
            let what =
                format!("{}: a thread needs {} bytes of local memory", kernel.name, kernel.local_bytes);
            return Err(Fault::new(FaultKind::OutOfResources, what));
        }
        let threads = launch.block.iter().product::<u32>();
        let max_resident = u64::from(self.max_resident_blocks(kernel, threads, launch.dynamic_shared));
        if launch.cooperative && total > max_resident {
            let what = format!(
                "{}: cooperative launch of {total} blocks, but only {max_resident} fit at once",
                kernel.name
            );
            return Err(Fault::new(FaultKind::CooperativeTooLarge, what));
        }
        let stack = native_stack(kernel, &code)?;
        let workspace = if launch.cooperative { self.workspace(kernel)? } else { 0 };
        let mut params = launch.params.clone();
        params.resize(params.len().next_multiple_of(16) + 16, 0);
        Ok(Grid {
            kernel: kernel.clone(),
            code,
            put_off,
            began: Instant::now(),
            counted: AtomicU64::new(0),
            compiler: self.compiler.clone(),
            params: params.into_boxed_slice(),
            memory: self.memory.clone(),
            bindings: launch.bindings.clone(),
            view: None,
            realm: self.realm.clone(),
            stop: AtomicU32::new(0),
            gate: self.pool.gate(),
            owner: launch.owner,
            id: self.grids.fetch_add(1, Ordering::Relaxed),
            priority: launch.priority,
            blocks: total,
            dims: launch.grid,
            block: launch.block,
            cluster,
            explicit_cluster: launch.cluster != [0; 3] || kernel.required_cluster.is_some(),
            dynamic_shared: launch.dynamic_shared,
            total_shared: shared_bytes(kernel, launch.dynamic_shared),
            local: kernel.local_step(),
            stack,
            max_resident,
            workspace,
            state: Mutex::new(GridState { total, ..GridState::default() }),
            finished: Condvar::new(),
        })
    }

    /// {size, barrier}, as the cooperative groups of CUDA's headers expect it, with the barrier at 0.
    fn workspace(&self, kernel: &Kernel) -> Result<u64, Fault> {
        let Ok(addr) = self.memory.alloc_scratch(64) else {
            let what = format!("{}: no memory for the grid's barrier", kernel.name);
            return Err(Fault::new(FaultKind::OutOfResources, what));
        };
        self.memory.write_scratch(addr, &[64, 0, 0, 0, 0, 0, 0, 0]);
        Ok(addr)
    }

    /// Has every thread that runs blocks ask a gate first. To be called before the first run; only the first gate counts.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        self.pool.set_gate(gate);
    }

    /// What the kernels of [`Engine::run`] share.
    pub fn realm(&self) -> &Realm {
        &self.realm
    }

    /// The number of blocks of `kernel` that can be resident at once on the whole device: the limit of a cooperative
    /// launch. Divided by the number of workers it is what the occupancy calls report for a multiprocessor.
    pub fn max_resident_blocks(&self, kernel: &Kernel, threads_per_block: u32, dynamic_shared: u32) -> u32 {
        let _ = (kernel, dynamic_shared); // memory does not limit it here
        let threads = threads_per_block.clamp(1, RESIDENT).next_multiple_of(32);
        (RESIDENT / threads).min(32) * self.pool.workers() as u32
    }

    /// Stops every grid that runs now, each with [`FaultKind::Cancelled`], as soon as its threads reach a point where
    /// they can be stopped: a wait, the way back in a loop, or the end of a block.
    pub fn cancel(&self) {
        self.pool.cancel(|_| true);
    }

    /// As [`Engine::cancel`], the grids of one [`Launch::owner`] only.
    pub fn cancel_of(&self, owner: u64) {
        self.pool.cancel(|grid| grid.owner == owner);
    }

    /// How many blocks the grids of an owner that run now have done: a number that moves when they get on.
    pub fn blocks_done(&self, owner: u64) -> u64 {
        self.pool.blocks_done(|grid| grid.owner == owner)
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        if self.workspace != 0 {
            self.memory.free_scratch(self.workspace);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            self.pool.shut_down();
        }
    }
}

/// Bytes of native stack of a thread.
fn native_stack(kernel: &Kernel, code: &Code) -> Result<usize, Fault> {
    // Calls that cannot be counted are checked against the stack; else it holds the deepest chain.
    let deepest = u64::from(code.frame + 64) * kernel.reach.functions.len() as u64;
    let need = if kernel.reach.unbounded { 200 << 10 } else { deepest + (32 << 10) };
    let need = need + u64::from(code.group_frame);
    size_class(need as usize).ok_or_else(|| {
        let what = format!("{}: a thread needs {need} bytes of stack", kernel.name);
        Fault::new(FaultKind::OutOfResources, what)
    })
}

fn shared_bytes(kernel: &Kernel, dynamic: u32) -> u32 {
    if dynamic == 0 {
        kernel.static_shared
    } else {
        dynamic_offset(kernel.static_shared).saturating_add(dynamic)
    }
}

/// The number of blocks, if the launch fits the kernel.
fn check(kernel: &Kernel, launch: &Launch) -> Result<u64, Fault> {
    let bad = |what: String| Err(Fault::new(FaultKind::InvalidLaunch, format!("{}: {what}", kernel.name)));
    let volume = |d: [u32; 3]| d.iter().try_fold(1u64, |a, b| a.checked_mul(u64::from(*b)));
    let threads = volume(launch.block).unwrap_or(u64::MAX);
    if threads == 0 || threads > u64::from(MAX_BLOCK.min(kernel.max_threads_per_block)) {
        let [x, y, z] = launch.block;
        return bad(format!("a block of {x}x{y}x{z} threads; at most {} fit", kernel.max_threads_per_block));
    }
    if let Some(r) = kernel.required_block
        && r != launch.block
    {
        return bad(format!("the kernel requires blocks of {}x{}x{} threads", r[0], r[1], r[2]));
    }
    let Some(blocks @ 1..) = volume(launch.grid) else {
        return bad("the grid is empty or too large".to_string());
    };
    if (launch.params.len() as u64) < u64::from(kernel.param_bytes()) {
        let want = kernel.param_bytes();
        return bad(format!("{} bytes of parameters are given, {want} are needed", launch.params.len()));
    }
    if u64::from(shared_bytes(kernel, launch.dynamic_shared)) > 256 << 20 {
        return bad("too much shared memory".to_string());
    }
    Ok(blocks)
}

/// The dimensions of a cluster, if they fit kernel and grid.
fn cluster(kernel: &Kernel, launch: &Launch) -> Result<[u32; 3], Fault> {
    let bad = |what: String| Err(Fault::new(FaultKind::InvalidLaunch, format!("{}: {what}", kernel.name)));
    let given = (launch.cluster != [0; 3]).then_some(launch.cluster);
    let required = kernel.required_cluster.filter(|c| *c != [0; 3]);
    let size = match (given, required) {
        (Some(g), Some(r)) if g != r => {
            let ([a, b, c], [x, y, z]) = (g, r);
            return bad(format!("a cluster of {a}x{b}x{c} blocks, where the kernel requires {x}x{y}x{z}"));
        }
        (given, required) => given.or(required).unwrap_or([1; 3]),
    };
    let [x, y, z] = size;
    let blocks = u64::from(x) * u64::from(y) * u64::from(z);
    if blocks == 0 || blocks > u64::from(MOST_BLOCKS) {
        return bad(format!("a cluster of {x}x{y}x{z} blocks; at most {MOST_BLOCKS} fit"));
    }
    if launch.grid.iter().zip(size).any(|(g, c)| !g.is_multiple_of(c)) {
        return bad(format!("the grid is no multiple of the cluster of {x}x{y}x{z} blocks"));
    }
    Ok(size)
}

impl Grid {
    /// Whether blocks are started a cluster at a time.
    fn clustered(&self) -> bool {
        self.cluster_size() > 1 || self.kernel.reach.clusters
    }

    fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Whether blocks take turns.
    fn in_turns(&self) -> bool {
        self.code.variant.mode == Mode::WarpLoop && self.code.segments.is_some()
    }

    fn fibers(&self) -> bool {
        self.code.variant.mode.fibers()
    }

    fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Whether the grid may touch `len` bytes at `addr`: the rule of the generated code, by granules, or windows.
    pub(crate) fn permits(&self, addr: u64, len: u64, write: bool) -> bool {
        self.view.as_ref().is_some_and(|view| view.permits(addr, len))
            || self.memory.permits(addr, len, write)
    }

    /// Address of the granule table that its threads read.
    fn table(&self) -> u64 {
        self.view.as_ref().map_or_else(|| self.memory.table(), |view| view.table())
    }

    /// Whether there are blocks that have not been started, and whether there is room for one of them.
    fn startable(&self) -> (bool, bool) {
        let s = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (s.next < s.total, self.has_room(&s))
    }

    /// Whether a block more can be resident, or a cluster, all of whose blocks are resident together. One always may be.
    fn has_room(&self, s: &GridState) -> bool {
        let cluster = u64::from(self.cluster_size());
        let full = self.fibers() && s.running >= self.max_resident;
        let split = cluster > 1 && s.running > 0 && s.running + cluster > self.max_resident;
        !full && !split
    }

    /// Where block `number` lies; the blocks of a cluster follow each other.
    fn ctaid(&self, number: u64) -> [u32; 3] {
        let at = |n: u64, [x, y, _]: [u32; 3]| {
            let (x, y) = (u64::from(x), u64::from(y));
            [(n % x) as u32, (n / x % y) as u32, (n / x / y) as u32]
        };
        let size = u64::from(self.cluster_size());
        if size == 1 {
            return at(number, self.dims);
        }
        let clusters = std::array::from_fn(|i| self.dims[i] / self.cluster[i]);
        let (cluster, block) = (at(number / size, clusters), at(number % size, self.cluster));
        std::array::from_fn(|i| cluster[i] * self.cluster[i] + block[i])
    }
}
