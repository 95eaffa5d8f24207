//! Blocks whose groups of lanes need no stacks of their own: the code of a group runs from one stop to the next and returns, with
//! what it needs then in the group's room. So the groups of a block run one after the other, round by round. Where threads cannot wait for
//! each other stops are only there for the sake of the memory: several blocks take turns ([`turns`]).
//!
//! Otherwise stops are barriers. Where the lanes of a group part and may have to wait for each other, that no longer works: the block then goes over to fibers
//! for good ([`unroll`]), in which the same code is called again and again.

use super::barrier::barrier;
use super::bell::listen;
use super::block::{GROUP, Outcome, Rest, Warp, exit, go_home, grid_of};
use super::context::{Entry, Thread};

/// In the first word of a room: the group has ended. 0 there: it has not begun; else the number of its stop.
pub const OVER: u32 = u32::MAX;

/// The offset in a room of a word that is not 0 if the group is not to stop in loops any more, since hardly any are left to wait for.
pub const ALONE: u32 = 4;

/// The rooms of a block's groups.
#[derive(Debug)]
pub struct Rooms {
    words: Vec<u128>,
    /// Of one room, in words.
    step: usize,
    /// The barrier at which groups stand.
    barrier: u32,
    /// The group that runs.
    turn: usize,
    /// Groups have stacks of their own by now.
    parted: bool,
}

impl Rooms {
    /// Rooms of `bytes` bytes, a multiple of 16; with 0 the groups need none.
    pub fn new(groups: u32, bytes: u32, barrier: u32) -> Rooms {
        let step = bytes as usize / 16;
        Rooms { words: vec![0; groups as usize * step], step, barrier, turn: 0, parted: true }
    }

    /// Whether code returns at stops.
    pub fn used(&self) -> bool {
        self.step > 0
    }

    /// Groups run one after the other.
    pub fn in_turn(&self) -> bool {
        !self.parted
    }

    /// For a new block, whose groups run one after the other, or on stacks of their own.
    pub fn begin(&mut self, in_turn: bool) {
        self.parted = !in_turn;
        (0..self.groups()).for_each(|g| self.words[g * self.step] = 0);
    }

    fn groups(&self) -> usize {
        self.words.len().checked_div(self.step).unwrap_or(0)
    }

    fn room(&mut self, group: usize) -> *mut u8 {
        (&raw mut self.words[group * self.step]).cast()
    }

    /// Groups that stand in loops go on to their ends.
    fn let_go(&mut self) {
        (0..self.groups()).for_each(|g| self.words[g * self.step] |= 1 << (8 * ALONE));
    }

    fn over(&self, group: usize) -> bool {
        self.words[group * self.step] as u32 == OVER
    }
}

/// Runs a group to its next barrier or its end.
///
/// # Safety
/// `t` is a group of a block that is being run, and has a room.
unsafe fn run(t: *mut Thread) {
    // SAFETY: as promised; no reference is held while the code runs.
    unsafe {
        let rest = (*(*t).block).rest;
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).kernel());
        let number = (*rest).group_number(t);
        kernel(t, grid_of(t).params.as_ptr(), (*rest).rooms.room(number), (*t).local);
    }
}

/// The first frame of a block whose groups run one after the other, on the stack of the first group.
pub unsafe extern "sysv64" fn rounds(thread: usize) {
    let first = thread as *mut Thread;
    // SAFETY: `begin` was given the first group of a block that is being run.
    unsafe {
        let rest = (*(*first).block).rest;
        let groups = (*rest).rooms.groups();
        loop {
            let mut standing = 0;
            for g in 0..groups {
                if (*rest).rooms.over(g) {
                    continue;
                }
                (*rest).rooms.turn = g;
                let t = first.add(g);
                run(t);
                if (*rest).rooms.parted {
                    // This stack is that of the group now.
                    follow(t);
                }
                standing += usize::from(!(*rest).rooms.over(g));
            }
            if standing == 0 {
                go_home(first, Outcome::Done);
            }
            listen(first);
        }
    }
}

/// The first frame of a block whose threads cannot wait, and whose groups stop in loops: it comes home after each round.
pub unsafe extern "sysv64" fn turns(thread: usize) {
    let first = thread as *mut Thread;
    // SAFETY: `begin` was given the first thread of a block that is being run; no reference is held while code runs.
    unsafe {
        let rest = (*(*first).block).rest;
        let (groups, width) = ((*rest).rooms.groups(), (*rest).width() as usize);
        let params = grid_of(first).params.as_ptr();
        let kernel: Entry = std::mem::transmute::<usize, Entry>((*rest).kernel());
        // Threads that fill no group.
        for t in (groups * width..(*rest).threads.len()).map(|i| first.add(i)) {
            let lanes: Entry = std::mem::transmute::<usize, Entry>((*rest).scalar());
            lanes(t, params, std::ptr::null_mut(), (*t).local);
        }
        loop {
            let mut standing = 0;
            for g in 0..groups {
                if !(*rest).rooms.over(g) {
                    let t = first.add(g * width);
                    kernel(t, params, (*rest).rooms.room(g), (*t).local);
                    standing += usize::from(!(*rest).rooms.over(g));
                }
            }
            // Few would look for each other longer than they run.
            if standing * 4 <= groups.max(4) {
                (*rest).rooms.let_go();
            }
            go_home(first, if standing == 0 { Outcome::Done } else { Outcome::Stands });
        }
    }
}

/// The first frame of a group that stands at a barrier.
unsafe extern "sysv64" fn standing(thread: usize) {
    // SAFETY: as in `rounds`.
    unsafe { follow(thread as *mut Thread) }
}

/// The first frame of a group that may run.
pub unsafe extern "sysv64" fn running(thread: usize) {
    // SAFETY: as in `rounds`.
    unsafe {
        run(thread as *mut Thread);
        follow(thread as *mut Thread)
    }
}

/// Waits at the barrier at which the group stands, and goes on to its end.
///
/// # Safety
/// `t` is the running group, on a stack of its own.
unsafe fn follow(t: *mut Thread) -> ! {
    // SAFETY: as promised; no reference is held over a switch.
    unsafe {
        let rest = (*(*t).block).rest;
        while !(*rest).rooms.over((*rest).group_number(t)) {
            let number = (*rest).rooms.barrier;
            barrier(t, 0, number, 0, 0);
            run(t);
        }
        exit(t)
    }
}

/// Gives every group a stack of its own, as the running one, `t`, must wait for others where its lanes are apart.
pub fn unroll(r: &mut Rest, t: *mut Thread) {
    let now = r.rooms.turn;
    r.rooms.parted = true;
    // It runs on the first one's stack.
    r.swap_stacks(0, now);
    let per_warp = 32 / r.width() as usize;
    for w in 0..r.warps.len() {
        r.warps[w] = Warp { alive: u32::MAX, ..Warp::default() };
    }
    let mut ended = 0;
    for g in 0..r.rooms.groups() {
        let (w, bit) = (g / per_warp, (g % per_warp) as u32);
        if r.rooms.over(g) {
            let lanes = r.group_lanes(bit);
            r.warps[w].alive &= !lanes;
            ended += lanes.count_ones();
            continue;
        }
        r.warps[w].run |= 1 << (GROUP + bit);
        if g != now {
            // Those before it have run in this round.
            r.ready(w as u32 * 64 + GROUP + bit, if g < now { standing } else { running });
        }
    }
    r.alive -= ended;
    // SAFETY: it is a group of this block.
    debug_assert_eq!(unsafe { r.group_number(t) }, now);
}
