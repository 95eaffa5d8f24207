//! The queue of grids and parked blocks, and the threads that work on it.
//!
//! Blocks are started in rising order, those of grids with the most urgent priority first; blocks that run go on. A block
//! whose threads all wait for something outside is parked, and its thread takes another block of any grid; so kernels of
//! different streams run side by side, and one that waits holds up nobody. A grid that has no room for another block lets
//! less urgent ones go on, for it may wait for them.

use super::gate::{Gate, Pass};
use super::quiet::Quiet;
use super::ready::Ready;
use super::turns::SIDE_BY_SIDE;
use super::{Grid, GridState};
use crate::error::{Fault, FaultKind};
use crate::memory::Memory;
use crate::memory::door::{self, Bell};
use crate::runtime::block::Outcome;
use crate::runtime::cluster::Cluster;
use crate::runtime::stack::StackPool;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Blocks that one claim takes at most where no thread waits.
const MAX_CHUNK: u64 = 64;
/// Blocks that a worker runs of one grid before it looks for others.
const TURN: u32 = 16;

pub(super) struct Pool {
    pub(super) memory: Arc<Memory>,
    pub(super) stacks: StackPool,
    /// Free scratch memory by size: shared and local memory of blocks.
    pub(super) scratch: Mutex<HashMap<u64, Vec<u64>>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    workers: usize,
    gate: OnceLock<Arc<dyn Gate>>,
    /// See [`Pool::bell`]; where no gate has one.
    own_bell: AtomicU32,
    /// The most urgent priority of all grids with blocks to start, or one that is more urgent.
    urgent: AtomicI32,
}

#[derive(Default)]
struct Queue {
    /// Grids with blocks that have not been started.
    grids: VecDeque<Arc<Grid>>,
    /// All grids that are being run.
    live: Vec<Arc<Grid>>,
    parked: VecDeque<(Arc<Grid>, Ready)>,
    threads: Vec<JoinHandle<()>>,
    stop: bool,
    /// Counts picks, so that parked blocks get their turn while others start.
    turn: u32,
}

enum Work {
    New(Arc<Grid>),
    Parked(Arc<Grid>, Ready),
}

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell for Pool {
    fn ring(&self) {
        self.bell().fetch_add(1, Ordering::Relaxed);
    }

    fn rest(&self) {
        self.bell().fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub fn new(memory: Arc<Memory>, workers: usize) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            memory,
            stacks: StackPool::default(),
            scratch: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            workers,
            gate: OnceLock::new(),
            own_bell: AtomicU32::new(0),
            urgent: AtomicI32::new(i32::MAX),
        });
        let bell: Weak<Pool> = Arc::downgrade(&pool);
        door::register(bell);
        pool
    }

    /// Has every block ask first. Only the first gate counts.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        let _ = self.gate.set(gate);
    }

    pub fn gate(&self) -> Option<Arc<dyn Gate>> {
        self.gate.get().cloned()
    }

    /// The word that code looks at while it runs; its lower half counts grids that are to stop, and closings of the door.
    pub(super) fn bell(&self) -> &AtomicU32 {
        self.gate.get().and_then(|gate| gate.bell()).unwrap_or(&self.own_bell)
    }

    fn pass(&self) -> Pass<'_> {
        Pass::new(self.gate.get().map(|gate| &**gate))
    }

    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Runs a grid to its end, with the calling thread as one of the workers.
    pub fn run(self: &Arc<Self>, grid: &Arc<Grid>) -> Result<(), Fault> {
        let _quiet = Quiet::new();
        let many = lock(&grid.state).total > 1;
        {
            let mut q = lock(&self.queue);
            q.live.push(grid.clone());
            q.grids.push_back(grid.clone());
            self.urgent.fetch_min(grid.priority, Ordering::Relaxed);
            if many {
                self.start_threads(&mut q);
                self.wake.notify_all();
            }
        }
        let mut grid = grid.clone();
        loop {
            self.work_for(&grid);
            let next = self.leave(&grid);
            if grid.stop.load(Ordering::Relaxed) != 0 {
                self.bell().fetch_sub(1, Ordering::Relaxed);
            }
            match next {
                Some(next) => grid = next,
                None => break,
            }
        }
        match lock(&grid.state).fault.take() {
            Some(f) => Err(f),
            None => Ok(()),
        }
    }

    /// Takes a grid that is over off the queue, and puts in its place the one of the blocks that it handed over, so that there is no moment
    /// at which a launch could not be cancelled.
    fn leave(&self, grid: &Arc<Grid>) -> Option<Arc<Grid>> {
        let mut q = lock(&self.queue);
        q.live.retain(|g| !Arc::ptr_eq(g, grid));
        q.grids.retain(|g| !Arc::ptr_eq(g, grid));
        let next = Arc::new(grid.successor()?);
        q.live.push(next.clone());
        q.grids.push_back(next.clone());
        self.urgent.fetch_min(next.priority, Ordering::Relaxed);
        self.wake.notify_all();
        Some(next)
    }

    fn start_threads(self: &Arc<Self>, q: &mut Queue) {
        while q.threads.len() + 1 < self.workers && !q.stop {
            let (pool, number) = (self.clone(), q.threads.len() as u32 + 1);
            let body = move || {
                let _quiet = Quiet::new();
                if let Some(gate) = pool.gate.get() {
                    gate.settle();
                }
                pool.worker(number);
            };
            match std::thread::Builder::new().name(format!("softcuda-{number}")).spawn(body) {
                Ok(t) => q.threads.push(t),
                // The callers themselves can do all the work.
                Err(_) => break,
            }
        }
    }

    pub fn shut_down(&self) {
        self.cancel(|_| true);
        let threads = {
            let mut q = lock(&self.queue);
            q.stop = true;
            std::mem::take(&mut q.threads)
        };
        self.wake.notify_all();
        for t in threads {
            // A worker that panicked has already said so.
            let _ = t.join();
        }
    }

    /// Blocks that the grids which `whose` names and which run have done.
    pub fn blocks_done(&self, whose: impl Fn(&Grid) -> bool) -> u64 {
        let done = |grid: &Arc<Grid>| {
            let state = lock(&grid.state);
            state.next - state.running
        };
        lock(&self.queue).live.iter().filter(|g| whose(g)).map(done).sum()
    }

    /// Stops the grids that `whose` names.
    pub fn cancel(&self, whose: impl Fn(&Grid) -> bool) {
        for g in lock(&self.queue).live.iter().filter(|g| whose(g)) {
            self.stop_grid(g, Fault::new(FaultKind::Cancelled, format!("{}: cancelled", g.kernel.name)));
        }
    }

    /// No further block of the grid is started, and those that run end at their next yield or way back in a loop.
    pub(super) fn stop_grid(&self, grid: &Grid, fault: Fault) {
        if grid.stop.swap(1, Ordering::Relaxed) == 0 {
            self.bell().fetch_add(1, Ordering::Relaxed);
        }
        let mut s = lock(&grid.state);
        s.fault.get_or_insert(fault);
        s.next = s.total;
        if s.over() {
            grid.finished.notify_all();
        }
    }

    /// The caller's part: its own grid, and what is more urgent, until its own is over.
    fn work_for(&self, grid: &Arc<Grid>) {
        let mut naps = 0;
        loop {
            if let Some(urgent) = self.before(grid) {
                self.start_blocks(&urgent, 0, TURN);
            }
            if self.start_blocks(grid, 0, u32::MAX) {
                naps = 0;
            }
            let parked = {
                let mut q = lock(&self.queue);
                let at = q.parked.iter().position(|(g, _)| Arc::ptr_eq(g, grid));
                at.and_then(|i| q.parked.remove(i))
            };
            match parked {
                Some((g, block)) => {
                    if self.resume(&g, block, 0) {
                        naps = 0;
                        continue;
                    }
                    naps += 1;
                    nap(naps);
                }
                None => {
                    let s = lock(&grid.state);
                    if s.over() {
                        return;
                    }
                    if s.next == s.total || !grid.has_room(&s) {
                        // Others run what is left; one of them may park it.
                        let wait = Duration::from_micros(200);
                        drop(grid.finished.wait_timeout(s, wait).unwrap_or_else(PoisonError::into_inner));
                    }
                }
            }
        }
    }

    /// A helping thread.
    fn worker(&self, number: u32) {
        let mut naps = 0;
        loop {
            match self.pick() {
                None => return,
                Some(Work::New(g)) => {
                    naps = 0;
                    self.start_blocks(&g, number, TURN);
                }
                Some(Work::Parked(g, block)) => {
                    if self.resume(&g, block, number) {
                        naps = 0;
                    } else {
                        naps += 1;
                        nap(naps);
                    }
                }
            }
        }
    }

    /// What to do next; `None` when the engine ends.
    fn pick(&self) -> Option<Work> {
        let mut q = lock(&self.queue);
        loop {
            if q.stop {
                return None;
            }
            q.turn = q.turn.wrapping_add(1);
            if q.turn.is_multiple_of(8)
                && let Some((g, b)) = q.parked.pop_front()
            {
                return Some(Work::Parked(g, b));
            }
            if let Some(grid) = self.most_urgent(&mut q) {
                return Some(Work::New(grid));
            }
            if let Some((g, b)) = q.parked.pop_front() {
                return Some(Work::Parked(g, b));
            }
            q = self.wake.wait(q).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The most urgent grid that has a block to start; among equals the one that has waited longest.
    fn most_urgent(&self, q: &mut Queue) -> Option<Arc<Grid>> {
        let mut best: Option<(i32, usize)> = None;
        let mut urgent = i32::MAX;
        let mut place = 0;
        q.grids.retain(|grid| {
            let (left, room) = grid.startable();
            if left {
                urgent = urgent.min(grid.priority);
                if room && best.is_none_or(|(priority, _)| grid.priority < priority) {
                    best = Some((grid.priority, place));
                }
                place += 1;
            }
            left
        });
        self.urgent.store(urgent, Ordering::Relaxed);
        let grid = q.grids.remove(best?.1)?;
        q.grids.push_back(grid.clone());
        Some(grid)
    }

    /// A grid that has a block to start and is more urgent than this one.
    fn before(&self, grid: &Grid) -> Option<Arc<Grid>> {
        // In most programs all are equal, and this is all that it costs.
        if self.urgent.load(Ordering::Relaxed) >= grid.priority {
            return None;
        }
        self.most_urgent(&mut lock(&self.queue)).filter(|other| other.priority < grid.priority)
    }

    /// Claims the next blocks of a grid.
    fn claim(&self, grid: &Grid) -> Option<std::ops::Range<u64>> {
        grid.count_time();
        let mut s = lock(&grid.state);
        if grid.hands_over(&s) {
            s.total = s.next;
        }
        let left = s.total - s.next;
        if left == 0 || !grid.has_room(&s) {
            return None;
        }
        let cluster = u64::from(grid.cluster_size());
        let n = if grid.clustered() {
            cluster
        } else if grid.in_turns() {
            (left / self.workers as u64).clamp(1, SIDE_BY_SIDE)
        } else if grid.fibers() {
            1
        } else {
            (left / (self.workers as u64 * 8)).clamp(1, MAX_CHUNK)
        };
        let first = s.next;
        s.next += n;
        s.running += n;
        Some(first..first + n)
    }

    /// Starts blocks of a grid and runs them until they end or park. Whether there were any.
    fn start_blocks(&self, grid: &Arc<Grid>, number: u32, turns: u32) -> bool {
        let mut ready = None;
        let mut any = false;
        let mut pass = None;
        for _ in 0..turns {
            if self.before(grid).is_some() {
                break;
            }
            let Some(blocks) = self.claim(grid) else { break };
            any = true;
            let count = blocks.end - blocks.start;
            if grid.clustered() {
                self.start_cluster(grid, blocks, number);
                continue;
            }
            let pass = pass.get_or_insert_with(|| self.pass());
            if grid.in_turns() {
                self.take_turns(grid, blocks, number, pass);
                self.ended(grid, count);
                continue;
            }
            if ready.is_none() {
                match self.make(grid) {
                    Ok(r) => ready = Some(r),
                    Err(f) => {
                        self.stop_grid(grid, f);
                        self.ended(grid, count);
                        break;
                    }
                }
            }
            let mut outcome = Outcome::Done;
            for b in blocks {
                let Some(r) = &mut ready else { break };
                if grid.stop.load(Ordering::Relaxed) != 0 {
                    break;
                }
                pass.renew();
                r.running.begin(grid.ctaid(b));
                outcome = r.running.resume(number);
                if outcome != Outcome::Done {
                    break;
                }
            }
            match (outcome, ready.take()) {
                (Outcome::Done, r) => {
                    ready = r;
                    self.ended(grid, count);
                }
                (Outcome::Parked, Some(r)) => self.park(grid, r),
                (_, r) => {
                    if let Some(r) = r {
                        self.failed(grid, r);
                    }
                    self.ended(grid, count);
                }
            }
        }
        if let Some(r) = ready {
            self.recycle(r);
        }
        any
    }

    /// Starts all blocks of a cluster, each with memory of its own before the first one runs.
    fn start_cluster(&self, grid: &Arc<Grid>, blocks: std::ops::Range<u64>, number: u32) {
        let mut all = Vec::new();
        for _ in blocks.clone() {
            match self.make(grid) {
                Ok(r) => all.push(r),
                Err(f) => {
                    self.stop_grid(grid, f);
                    self.ended(grid, blocks.end - blocks.start);
                    all.into_iter().for_each(|r| self.recycle(r));
                    return;
                }
            }
        }
        let bases = all.iter().map(|r| r.running.context.shared_base).collect();
        let cluster = Arc::new(Cluster::new(bases, grid.threads()));
        for (b, mut r) in blocks.zip(all) {
            r.running.context.member.cluster = Some(cluster.clone());
            r.running.begin(grid.ctaid(b));
            if grid.stop.load(Ordering::Relaxed) != 0 {
                self.recycle(r);
                self.ended(grid, 1);
                continue;
            }
            self.resume(grid, r, number);
        }
    }

    /// Goes on with a parked block; whether it came to its end.
    fn resume(&self, grid: &Arc<Grid>, mut r: Ready, number: u32) -> bool {
        let pass = self.pass();
        let outcome = r.running.resume(number);
        drop(pass);
        match outcome {
            Outcome::Parked => {
                self.park(grid, r);
                return false;
            }
            Outcome::Done | Outcome::Stands => self.recycle(r),
            Outcome::Failed => self.failed(grid, r),
        }
        self.ended(grid, 1);
        true
    }

    fn park(&self, grid: &Arc<Grid>, r: Ready) {
        lock(&self.queue).parked.push_back((grid.clone(), r));
        self.wake.notify_one();
    }

    pub(super) fn failed(&self, grid: &Grid, mut r: Ready) {
        if let Some(f) = r.running.take_fault() {
            self.stop_grid(grid, f);
        }
        self.recycle(r);
    }

    fn ended(&self, grid: &Grid, count: u64) {
        let mut s: MutexGuard<'_, GridState> = lock(&grid.state);
        let had_room = grid.has_room(&s);
        s.running -= count;
        if s.over() {
            grid.finished.notify_all();
        } else if !had_room && s.next < s.total && grid.has_room(&s) {
            // A worker may have gone to sleep because there was no room for another block. It decides that under the
            // queue's lock, so after that was free once it hears of this.
            drop(s);
            drop(lock(&self.queue));
            self.wake.notify_one();
        }
    }
}

/// Between two looks at a block that waits: first at once, then less and less often.
fn nap(times: u32) {
    match times {
        0..64 => std::thread::yield_now(),
        64..256 => std::thread::sleep(Duration::from_micros(20)),
        _ => std::thread::sleep(Duration::from_micros(200)),
    }
}
