//! A block while it runs: its threads, who may run, who waits at a barrier.
//!
//! All functions that may switch stacks take raw pointers and keep no Rust reference over a switch: another thread of the
//! block works on the same structures meanwhile.

use super::barrier::Barrier;
use super::bell;
use super::context::{Block, Entry, Thread};
use super::parting;
use super::segments::{self, Rooms};
use super::stack::{Stack, switch};
use super::warp::{self, Post};
use crate::codegen::clif::{BEGIN, NEVER};
use crate::codegen::{Mode, Variant};
use crate::engine::Grid;
use crate::error::{Fault, FaultKind};
use std::sync::Arc;

/// How a block came back to its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All threads have ended.
    Done,
    /// All threads wait for something outside of the block: try again later.
    Parked,
    /// It has run to its next stop, and others may go first.
    Stands,
    /// See [`Rest::fault`]; the block is not to be run again.
    Failed,
}

/// Bit of the first group of lanes in [`Warp::run`].
pub(super) const GROUP: u32 = 32;

/// The lanes of one warp, as bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Warp {
    /// Can run (or runs); from bit 32 on its groups of lanes that run as one.
    pub run: u64,
    /// Have not ended.
    pub alive: u32,
    /// Wait at an operation with a mask.
    pub waiting: u32,
    /// Wait at an operation among whoever is there.
    pub gathering: u32,
    /// How often a lane has yielded since somebody began to gather.
    pub yields: u32,
    /// Parted from their group and are where it meets again.
    pub joined: u32,
    /// How often a lane has yielded since one of them came there.
    pub spins: u32,
    /// How many of them those who joined bear; see [`parting::PATIENCE`].
    pub patience: u32,
    /// Will not meet any more: each runs by itself to its end.
    pub alone: u32,
}

/// What the threads of a block share besides what generated code reads.
pub struct Rest {
    pub grid: Arc<Grid>,
    pub threads: Vec<Thread>,
    pub warps: Vec<Warp>,
    pub(super) barriers: Vec<Barrier>,
    /// Barriers from this number on were never used.
    pub(super) used: usize,
    pub(super) alive: u32,
    /// The stack of the worker.
    home: usize,
    outcome: Outcome,
    pub fault: Option<Fault>,
    /// Yields since something last moved.
    pub(super) idle: u32,
    /// Who runs on when the block is resumed.
    current: u32,
    pub stacks: Vec<Stack>,
    /// Entry point of groups, or of all threads.
    kernel: usize,
    mode: Mode,
    /// Lanes of a group.
    width: u32,
    /// Threads of the block; groups follow them in `threads`.
    count: u32,
    /// Of groups whose code returns at barriers.
    pub(super) rooms: Rooms,
}

/// The number of stacks that a block of `threads` threads needs.
pub fn fibers_of(variant: Variant, threads: u32) -> u32 {
    match variant.mode {
        Mode::ThreadLoop | Mode::WarpLoop => 1,
        Mode::ThreadFibers => threads,
        Mode::WarpFibers => threads + threads / variant.width,
    }
}

/// A block with everything that it needs; stays where it is, since its parts point to each other.
pub struct Running {
    pub context: Box<Block>,
    rest: Box<Rest>,
}

// SAFETY: a block is run by one OS thread at a time; its raw pointers lead to its own parts, to its stacks, and to tables that its grid keeps alive.
unsafe impl Send for Running {}

impl Running {
    /// Threads with the stacks that [`fibers_of`] tells, and `local` bytes of local memory each.
    pub fn new(mut context: Box<Block>, grid: Arc<Grid>, stacks: Vec<Stack>, local: u64) -> Running {
        let variant = grid.code.variant;
        let n = context.threads;
        let count = if variant.mode == Mode::ThreadLoop { 1 } else { n };
        let groups = if variant.mode == Mode::WarpFibers { n / variant.width } else { 0 };
        let (base, block) = (context.local_base, &raw mut *context);
        let [x, y, _] = context.ntid;
        let thread = |i: u32, id: u32, stack: u32| Thread {
            block,
            tid: [i % x, i / x % y, i / x / y],
            linear: i,
            local_end: base + local * u64::from(i + 1),
            local_top: base + local * u64::from(i + 1),
            stack_limit: stacks[stack as usize].low() as u64,
            sp: 0,
            local: base + local * u64::from(i),
            first: std::ptr::null_mut(),
            spill: 0,
            start: BEGIN,
            until: NEVER,
            joined: 0,
            id,
            post: Post::default(),
            cluster_phase: 0,
        };
        let own = variant.mode.fibers();
        let lane = |i: u32| thread(i, i / 32 * 64 + i % 32, if own { i } else { 0 });
        let group = |g: u32| {
            let first = g * variant.width;
            thread(first, first / 32 * 64 + GROUP + first % 32 / variant.width, n + g)
        };
        let threads = (0..count).map(lane).chain((0..groups).map(group)).collect();
        let warps = vec![Warp::default(); n.div_ceil(32) as usize];
        let rooms = match grid.code.segments {
            Some(s) => Rooms::new(n / variant.width, s.room, s.barrier),
            None => Rooms::new(0, 0, 0),
        };
        let mut rest = Box::new(Rest {
            rooms,
            kernel: grid.code.entry(0),
            grid,
            threads,
            warps,
            barriers: vec![Barrier::default(); 16],
            used: 0,
            alive: 0,
            home: 0,
            outcome: Outcome::Done,
            fault: None,
            idle: 0,
            current: 0,
            stacks,
            mode: variant.mode,
            width: variant.width,
            count: n,
        });
        for g in 0..groups {
            let first = &raw mut rest.threads[(g * variant.width) as usize];
            rest.threads[(n + g) as usize].first = first;
        }
        context.rest = &raw mut *rest;
        Running { context, rest }
    }

    /// Makes it block `ctaid`, ready to begin.
    pub fn begin(&mut self, ctaid: [u32; 3]) {
        self.context.place(ctaid);
        let r = &mut *self.rest;
        r.alive = self.context.threads;
        r.idle = 0;
        r.outcome = Outcome::Done;
        r.current = 0;
        if !r.mode.fibers() {
            r.rooms.begin(true);
            r.ready(0, if r.rooms.used() { segments::turns } else { whole_block });
            return;
        }
        r.barriers[..r.used].iter_mut().for_each(Barrier::reset);
        let in_turn = r.rooms.used() && r.count.is_multiple_of(r.width);
        r.rooms.begin(in_turn);
        if in_turn {
            r.current = GROUP;
            r.ready(GROUP, segments::rounds);
            return;
        }
        for w in 0..r.warps.len() {
            r.begin_warp(w);
        }
        r.current = r.warps[0].run.trailing_zeros();
    }

    /// Runs it until all threads have ended, or all wait, or one has failed.
    pub fn resume(&mut self, smid: u32) -> Outcome {
        loop {
            match self.turn(smid) {
                Outcome::Stands => {}
                outcome => return outcome,
            }
        }
    }

    /// As [`Running::resume`], but only to the next stop.
    pub fn turn(&mut self, smid: u32) -> Outcome {
        self.context.smid = smid;
        let rest = self.context.rest;
        // SAFETY: the block is ours; what runs on the other stacks comes back here by `go_home`, and no reference to its parts is held over the switch.
        unsafe {
            (*rest).idle = 0;
            let to = (*(*rest).thread((*rest).current)).sp;
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

/// The first frame of a thread, or of a lane that has parted from its group.
unsafe extern "sysv64" fn lane(thread: usize) {
    let t = thread as *mut Thread;
    // SAFETY: `ready` was given a live thread of a block that is being run.
    unsafe {
        let rest = (*(*t).block).rest;
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).scalar());
        loop {
            kernel(t, grid_of(t).params.as_ptr(), (*t).spill as *mut u8, (*t).local);
            if (*t).joined == 0 {
                break;
            }
            parting::join(t);
        }
        exit(t);
    }
}

/// The first frame of a group of lanes.
unsafe extern "sysv64" fn group(thread: usize) {
    let t = thread as *mut Thread;
    // SAFETY: as in `lane`.
    unsafe {
        let rest = (*(*t).block).rest;
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).kernel);
        kernel(t, grid_of(t).params.as_ptr(), std::ptr::null_mut(), (*t).local);
        exit(t);
    }
}

/// The first frame of a block whose threads run one after the other.
unsafe extern "sysv64" fn whole_block(thread: usize) {
    let t = thread as *mut Thread;
    // SAFETY: as in `lane`.
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
pub(super) unsafe fn go_home(t: *mut Thread, outcome: Outcome) {
    // SAFETY: the worker's stack waits in `resume`.
    unsafe {
        let rest = (*(*t).block).rest;
        (*rest).outcome = outcome;
        (*rest).current = (*t).id;
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
        let kernel = &grid_of(t).kernel;
        let name = &kernel.name;
        let at = if line > 0 { format!(", PTX {}", kernel.line(line)) } else { String::new() };
        let message = format!("{what} (kernel {name}, block ({x},{y},{z}), thread ({i},{j},{k}){at})");
        (*rest).fault = Some(Fault::new(kind, message));
        go_home(t, Outcome::Failed);
    }
    std::process::abort()
}

/// The next thread or group in the ring behind `id` that can run.
pub(super) fn next_runnable(r: &Rest, id: u32) -> Option<u32> {
    let (w, bit) = ((id / 64) as usize, id % 64);
    let above = if bit == 63 { 0 } else { r.warps[w].run & (u64::MAX << (bit + 1)) };
    if above != 0 {
        return Some(w as u32 * 64 + above.trailing_zeros());
    }
    let n = r.warps.len();
    for i in 1..=n {
        let v = if w + i >= n { w + i - n } else { w + i };
        if r.warps[v].run != 0 {
            return Some(v as u32 * 64 + r.warps[v].run.trailing_zeros());
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
        let w = ((*t).id / 64) as usize;
        warp::gathered(&mut *rest, w);
        parting::impatient(&mut *rest, w);
        let next = loop {
            if let Some(n) = next_runnable(&*rest, (*t).id) {
                break n;
            }
            // Nobody can run: those who gather need not wait for anybody.
            let n = (*rest).warps.len();
            if !(0..n).any(|w| warp::gathered(&mut *rest, w))
                && !(0..n).any(|w| parting::release(&mut *rest, w))
            {
                let what =
                    "deadlock: every thread that is left waits at a barrier or warp operation".to_string();
                fail(t, FaultKind::LaunchTimeout, 0, what);
            }
        };
        if next == (*t).id {
            return;
        }
        let to = (*(*rest).thread(next)).sp;
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
        {
            let r = &mut *rest;
            let (w, lanes) = r.lanes(t);
            r.warps[w].yields = r.warps[w].yields.saturating_add(1);
            r.warps[w].spins = r.warps[w].spins.saturating_add(1);
            r.idle += lanes.count_ones();
        }
        bell::listen(t);
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
            let (w, lanes) = r.lanes(t);
            // What it has taken by `alloca` is given back, also by an `exit` deep inside of functions.
            (*t).local_top = (*t).local_end;
            r.alive -= lanes.count_ones();
            r.idle = 0;
            if let Some(c) = &(*(*t).block).member.cluster {
                c.ended(lanes.count_ones());
            }
            r.warps[w].alive &= !lanes;
            r.warps[w].run &= !bit_of(t);
            if r.alive > 0 {
                if r.warps[w].waiting != 0 {
                    warp::lane_ended(r, w);
                }
                for id in 0..r.used {
                    if r.barriers[id].begun() {
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

/// The bit of a thread or group in [`Warp::run`].
///
/// # Safety
/// `t` is a thread or group of a block.
pub(super) unsafe fn bit_of(t: *mut Thread) -> u64 {
    // SAFETY: as promised.
    unsafe { 1 << ((*t).id % 64) }
}

impl Rest {
    /// A thread (bits 0 to 31 of its warp) or a group of lanes (from bit 32 on), by 64 × warp + bit.
    pub fn thread(&mut self, id: u32) -> *mut Thread {
        let (w, bit) = (id / 64, id % 64);
        let at = if bit < GROUP { w * 32 + bit } else { self.count + w * (32 / self.width) + bit - GROUP };
        &raw mut self.threads[at as usize]
    }

    /// The warp of a thread or group, and its lanes there.
    ///
    /// # Safety
    /// `t` is a thread or group of this block.
    pub unsafe fn lanes(&self, t: *mut Thread) -> (usize, u32) {
        // SAFETY: as promised.
        let id = unsafe { (*t).id };
        let (w, bit) = ((id / 64) as usize, id % 64);
        if bit < GROUP {
            return (w, 1 << bit);
        }
        (w, self.group_lanes(bit - GROUP))
    }

    /// The lanes of the group numbered `g` of its warp.
    pub fn group_lanes(&self, g: u32) -> u32 {
        (u32::MAX >> (32 - self.width)) << (g * self.width)
    }

    /// Lanes of a group.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The bit of a thread or group in [`Warp::run`].
    ///
    /// # Safety
    /// `t` is a thread or group of this block.
    pub unsafe fn group_bit(&self, t: *mut Thread) -> u64 {
        // SAFETY: as promised.
        unsafe { bit_of(t) }
    }

    /// Lets a lane run from where its `start` says, on a fresh stack.
    pub fn start_lane(&mut self, w: usize, l: u32) {
        self.warps[w].run |= 1 << l;
        self.ready(w as u32 * 64 + l, lane);
    }

    /// Gives a thread or group a fresh stack that begins with `f`.
    pub(super) fn ready(&mut self, id: u32, f: unsafe extern "sysv64" fn(usize)) {
        let t = self.thread(id);
        // SAFETY: only the difference of two addresses in one vector is taken.
        let at = unsafe { t.offset_from(self.threads.as_ptr()) } as usize;
        let sp = self.stacks[at].prepare(at as u32, f, t as usize);
        // SAFETY: `t` is a thread of this block that does not run now.
        unsafe { (*t).sp = sp };
    }

    /// Full groups run as such, the threads of the last one, if it is not full, by themselves.
    fn begin_warp(&mut self, w: usize) {
        let n = self.count - 32 * w as u32;
        let all = if n >= 32 { u32::MAX } else { (1 << n) - 1 };
        self.warps[w] = Warp { alive: all, ..Warp::default() };
        let mut single = all;
        if self.mode == Mode::WarpFibers {
            for g in 0..32 / self.width {
                let lanes = self.group_lanes(g);
                if lanes & all == lanes {
                    single &= !lanes;
                    self.warps[w].run |= 1 << (GROUP + g);
                    let first = if self.rooms.used() { segments::running } else { group };
                    self.ready(w as u32 * 64 + GROUP + g, first);
                }
            }
        }
        self.warps[w].run |= u64::from(single);
        while single != 0 {
            let id = w as u32 * 64 + single.trailing_zeros();
            single &= single - 1;
            let t = self.thread(id);
            // SAFETY: a thread of this block that does not run now.
            unsafe { ((*t).start, (*t).until, (*t).joined) = (BEGIN, NEVER, 0) };
            self.ready(id, lane);
        }
    }

    /// The entry point of groups.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// The entry point of single lanes.
    pub fn scalar(&self) -> usize {
        let groups = self.mode.groups();
        self.grid.code.entry(if groups { self.grid.kernel.reach.functions.len() } else { 0 })
    }

    /// The number of a group in its block.
    ///
    /// # Safety
    /// `t` is a group of this block.
    pub unsafe fn group_number(&self, t: *mut Thread) -> usize {
        // SAFETY: as promised.
        let id = unsafe { (*t).id };
        (id / 64 * (32 / self.width) + id % 64 - GROUP) as usize
    }

    /// Gives two groups each other's stack.
    pub fn swap_stacks(&mut self, g: usize, h: usize) {
        let (g, h) = (self.count as usize + g, self.count as usize + h);
        self.stacks.swap(g, h);
        let limits = (self.threads[g].stack_limit, self.threads[h].stack_limit);
        (self.threads[h].stack_limit, self.threads[g].stack_limit) = limits;
    }

    /// Something moved: the block does not idle.
    pub fn moved(&mut self) {
        self.idle = 0;
    }
}
