//! A block while it runs: its threads, who may run, who waits at a barrier.
//!
//! All functions that may switch stacks take raw pointers and keep no Rust reference over a switch: another thread of the
//! block works on the same structures meanwhile.

use super::context::{Block, Entry, Thread};
use super::stack::{Stack, switch};
use super::warp::{self, Post};
use crate::engine::Grid;
use crate::error::{Fault, FaultKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a block came back to its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All threads have ended.
    Done,
    /// All threads wait for something outside of the block: try again later.
    Parked,
    /// See [`Rest::fault`]; the block is not to be run again.
    Failed,
}

/// The lanes of one warp, as bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Warp {
    /// Can run (or runs).
    pub run: u32,
    /// Have not ended.
    pub alive: u32,
    /// Wait at an operation with a mask.
    pub waiting: u32,
    /// Wait at an operation among whoever is there.
    pub gathering: u32,
    /// How often a lane has yielded since somebody began to gather.
    pub yields: u32,
}

/// One of the 16 barriers.
#[derive(Debug, Clone, Default)]
struct Barrier {
    arrived: u32,
    /// 0: all threads of the block.
    count: u32,
    votes: u32,
    /// Somebody wants the votes.
    asked: bool,
    /// Lanes that have arrived, by warp, where a count is given.
    lanes: [u32; 32],
    /// Lanes that wait, by warp.
    waiting: [u32; 32],
}

/// What the threads of a block share besides what generated code reads.
pub struct Rest {
    pub grid: Arc<Grid>,
    pub threads: Vec<Thread>,
    pub warps: Vec<Warp>,
    barriers: Vec<Barrier>,
    alive: u32,
    /// The stack of the worker.
    home: usize,
    outcome: Outcome,
    pub fault: Option<Fault>,
    /// Yields since something last moved.
    idle: u32,
    /// Who runs on when the block is resumed.
    current: u32,
    pub stacks: Vec<Stack>,
    kernel: usize,
    fibers: bool,
}

/// A block with everything that it needs; stays where it is, since its parts point to each other.
pub struct Running {
    pub context: Box<Block>,
    rest: Box<Rest>,
}

// SAFETY: a block is run by one OS thread at a time; its raw pointers lead to its own parts, to its stacks, and to tables that its grid keeps alive.
unsafe impl Send for Running {}

impl Running {
    /// `threads` threads, each with a stack of `stacks` (or all with the first one, in a thread loop).
    pub fn new(
        mut context: Box<Block>,
        grid: Arc<Grid>,
        stacks: Vec<Stack>,
        local: u64,
        kernel: usize,
        fibers: bool,
    ) -> Running {
        let n = context.threads;
        let (base, step) = (context.local_base, local);
        let count = if fibers { n } else { 1 };
        let threads = (0..count)
            .map(|i| {
                let [x, y, _] = context.ntid;
                Thread {
                    block: &raw mut *context,
                    tid: [i % x, i / x % y, i / x / y],
                    linear: i,
                    local_end: base + step * u64::from(i + 1),
                    stack_limit: stacks[i as usize].low() as u64,
                    sp: 0,
                    local: base + step * u64::from(i),
                    post: Post::default(),
                }
            })
            .collect();
        let warps = vec![Warp::default(); n.div_ceil(32) as usize];
        let mut rest = Box::new(Rest {
            grid,
            threads,
            warps,
            barriers: vec![Barrier::default(); 16],
            alive: 0,
            home: 0,
            outcome: Outcome::Done,
            fault: None,
            idle: 0,
            current: 0,
            stacks,
            kernel,
            fibers,
        });
        context.rest = &raw mut *rest;
        Running { context, rest }
    }

    /// Makes it block `ctaid`, ready to begin.
    pub fn begin(&mut self, ctaid: [u32; 3]) {
        self.context.ctaid = ctaid;
        let r = &mut *self.rest;
        let n = self.context.threads;
        for (w, warp) in r.warps.iter_mut().enumerate() {
            let lanes = n - 32 * w as u32;
            let all = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
            *warp = Warp { run: all, alive: all, ..Warp::default() };
        }
        if r.fibers {
            for b in r.barriers.iter_mut().filter(|b| b.arrived > 0) {
                *b = Barrier::default();
            }
        }
        r.alive = n;
        r.idle = 0;
        r.current = 0;
        r.outcome = Outcome::Done;
        for i in 0..r.threads.len() {
            let t = &raw mut r.threads[i];
            // SAFETY: `t` is a thread of this block, which does not run now.
            unsafe {
                (*t).sp =
                    r.stacks[i].prepare(i as u32, if r.fibers { fiber } else { thread_loop }, t as usize)
            };
        }
    }

    /// Runs it until all threads have ended, or all wait, or one has failed.
    pub fn resume(&mut self, smid: u32) -> Outcome {
        self.context.smid = smid;
        let rest = self.context.rest;
        // SAFETY: the block is ours; what runs on the other stacks comes back here by `go_home`, and no reference to its parts is held over the switch.
        unsafe {
            (*rest).idle = 0;
            let to = (&(*rest).threads)[(*rest).current as usize].sp;
            switch(&raw mut (*rest).home, to);
            (*rest).outcome
        }
    }

    /// Takes the fault of a failed block.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.rest.fault.take()
    }

    /// Takes it apart: its stacks and its memory can be used again.
    pub fn into_stacks(self) -> Vec<Stack> {
        self.rest.stacks
    }
}

/// The grid of a thread.
///
/// # Safety
/// `t` is a thread of a block that is being run; the grid is used only while it is.
pub unsafe fn grid_of<'a>(t: *mut Thread) -> &'a Grid {
    // SAFETY: as promised; the block holds the grid, and nobody replaces it.
    unsafe {
        let rest = &*(*(*t).block).rest;
        &*Arc::as_ptr(&rest.grid)
    }
}

/// The first frame of a thread.
unsafe extern "sysv64" fn fiber(thread: usize) {
    let t = thread as *mut Thread;
    // SAFETY: `prepare` was given a live thread of a block that is being run.
    unsafe {
        let rest = (*(*t).block).rest;
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).kernel);
        kernel(t, grid_of(t).params.as_ptr(), std::ptr::null_mut(), (*t).local);
        exit(t);
    }
}

/// The first frame of a block whose threads run one after the other.
unsafe extern "sysv64" fn thread_loop(thread: usize) {
    let t = thread as *mut Thread;
    // SAFETY: as in `fiber`.
    unsafe {
        let rest = (*(*t).block).rest;
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).kernel);
        kernel(t, grid_of(t).params.as_ptr(), std::ptr::null_mut(), (*t).local);
        go_home(t, Outcome::Done);
    }
}

/// Back to the worker. Returns only if the block is resumed.
///
/// # Safety
/// `t` is the running thread.
unsafe fn go_home(t: *mut Thread, outcome: Outcome) {
    // SAFETY: the worker's stack waits in `resume`.
    unsafe {
        let rest = (*(*t).block).rest;
        (*rest).outcome = outcome;
        (*rest).current = if (*rest).fibers { (*t).linear } else { 0 };
        let home = (*rest).home;
        switch(&raw mut (*t).sp, home);
    }
}

/// Ends the grid with a fault; does not return.
///
/// # Safety
/// `t` is the running thread. What is on its stack is forgotten, not dropped.
pub unsafe fn fail(t: *mut Thread, kind: FaultKind, line: u32, what: String) -> ! {
    // SAFETY: as promised; a failed block is never resumed.
    unsafe {
        let b = (*t).block;
        let rest = (*b).rest;
        let ([x, y, z], [i, j, k]) = ((*b).ctaid, (*t).tid);
        let name = &grid_of(t).kernel.name;
        let at = if line > 0 { format!(", PTX line {line}") } else { String::new() };
        let message = format!("{what} (kernel {name}, block ({x},{y},{z}), thread ({i},{j},{k}){at})");
        (*rest).fault = Some(Fault::new(kind, message));
        go_home(t, Outcome::Failed);
    }
    std::process::abort()
}

/// The next thread in the ring behind `id` that can run.
fn next_runnable(r: &Rest, id: u32) -> Option<u32> {
    let (w, l) = ((id / 32) as usize, id % 32);
    let above = if l == 31 { 0 } else { r.warps[w].run & (u32::MAX << (l + 1)) };
    if above != 0 {
        return Some(w as u32 * 32 + above.trailing_zeros());
    }
    let n = r.warps.len();
    for i in 1..=n {
        let v = if w + i >= n { w + i - n } else { w + i };
        if r.warps[v].run != 0 {
            return Some(v as u32 * 32 + r.warps[v].run.trailing_zeros());
        }
    }
    None
}

/// Lets another thread run; comes back when this one may run again.
///
/// # Safety
/// `t` is the running thread.
pub unsafe fn give_way(t: *mut Thread) {
    // SAFETY: all threads of the block are live and have prepared or saved stacks, except the running one.
    unsafe {
        let rest = (*(*t).block).rest;
        warp::gathered(&mut *rest, ((*t).linear / 32) as usize);
        let next = loop {
            if let Some(n) = next_runnable(&*rest, (*t).linear) {
                break n;
            }
            // Nobody can run: those who gather need not wait for anybody.
            let n = (*rest).warps.len();
            if !(0..n).any(|w| warp::gathered(&mut *rest, w)) {
                let what =
                    "deadlock: every thread that is left waits at a barrier or warp operation".to_string();
                fail(t, FaultKind::LaunchTimeout, 0, what);
            }
        };
        if next == (*t).linear {
            return;
        }
        let to = (&(*rest).threads)[next as usize].sp;
        switch(&raw mut (*t).sp, to);
    }
}

/// A thread that may be waiting for another one lets it run.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn yield_now(t: *mut Thread) {
    // SAFETY: as promised.
    unsafe {
        let rest = (*(*t).block).rest;
        let w = ((*t).linear / 32) as usize;
        {
            let r = &mut *rest;
            r.warps[w].yields = r.warps[w].yields.saturating_add(1);
            r.idle += 1;
            if r.grid.stop.load(Ordering::Relaxed) != 0 {
                fail(t, FaultKind::Cancelled, 0, "stopped".to_string());
            }
        }
        if (*rest).idle > 2 * (*rest).alive {
            go_home(t, Outcome::Parked);
            return;
        }
        give_way(t);
    }
}

/// Ends a thread; does not return.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn exit(t: *mut Thread) -> ! {
    // SAFETY: as promised; an ended thread is in no mask and is never run again.
    unsafe {
        let rest = (*(*t).block).rest;
        {
            let r = &mut *rest;
            let (w, bit) = (((*t).linear / 32) as usize, 1u32 << ((*t).linear % 32));
            r.alive -= 1;
            r.idle = 0;
            r.warps[w].alive &= !bit;
            r.warps[w].run &= !bit;
            if r.alive > 0 {
                if r.warps[w].waiting != 0 {
                    warp::lane_ended(r, w);
                }
                for id in 0..16 {
                    if r.barriers[id].arrived > 0 {
                        r.barrier_check(id);
                    }
                }
            }
        }
        if (*rest).alive == 0 {
            go_home(t, Outcome::Done);
        } else {
            give_way(t);
        }
    }
    std::process::abort()
}

impl Rest {
    /// Something moved: the block does not idle.
    pub fn moved(&mut self) {
        self.idle = 0;
    }

    /// Releases a barrier if all have come.
    fn barrier_check(&mut self, id: usize) -> bool {
        let b = &self.barriers[id];
        let all = if b.count == 0 {
            b.arrived >= self.alive
        } else {
            // A warp counts as 32 threads, also if some have ended or never were.
            let of = |(w, lanes): (usize, &u32)| {
                let alive = self.warps[w].alive;
                if *lanes != 0 && lanes & alive == alive { 32 } else { lanes.count_ones() }
            };
            b.lanes[..self.warps.len()].iter().enumerate().map(of).sum::<u32>() >= b.count
        };
        if !all {
            return false;
        }
        let b = std::mem::take(&mut self.barriers[id]);
        for (w, lanes) in b.waiting[..self.warps.len()].iter().enumerate() {
            self.warps[w].run |= lanes;
            // Only reductions look at what came out.
            let mut left = if b.asked { *lanes } else { 0 };
            while left != 0 {
                let t = w * 32 + left.trailing_zeros() as usize;
                left &= left - 1;
                self.threads[t].post.result = u64::from(b.votes) | u64::from(b.arrived) << 32;
            }
        }
        self.idle = 0;
        true
    }

    fn arrive(&mut self, t: usize, id: usize, count: u32, vote: Option<bool>, wait: bool) -> bool {
        let (w, bit) = (t / 32, 1u32 << (t % 32));
        let b = &mut self.barriers[id];
        b.count = count;
        b.arrived += 1;
        b.asked |= vote.is_some();
        b.votes += u32::from(vote == Some(true));
        b.lanes[w] |= bit;
        if wait {
            b.waiting[w] |= bit;
            self.warps[w].run &= !bit;
        }
        self.barrier_check(id)
    }
}

/// `bar.sync`, `bar.arrive`, `bar.red`: see [`crate::ir::BarOp`] for `op`. `count` 0 means all threads of the block.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn barrier(t: *mut Thread, op: u32, id: u32, count: u32, vote: u32) -> u32 {
    // SAFETY: as promised.
    unsafe {
        let rest = (*(*t).block).rest;
        let (wait, linear) = (op != 1, (*t).linear as usize);
        if id >= 16 {
            fail(t, FaultKind::IllegalInstruction, 0, format!("barrier {id} does not exist"));
        }
        let released = (*rest).arrive(linear, id as usize, count, (op >= 2).then_some(vote != 0), wait);
        if wait && !released {
            give_way(t);
        }
        let (votes, arrived) = ((*t).post.result as u32, ((*t).post.result >> 32) as u32);
        match op {
            2 => votes,
            3 => u32::from(votes == arrived),
            4 => u32::from(votes != 0),
            _ => 0,
        }
    }
}
