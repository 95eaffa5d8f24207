//! The 16 barriers of a block.

use super::block::{GROUP, Rest, bit_of, fail, give_way, next_runnable};
use super::context::Thread;
use super::stack::switch;
use crate::error::FaultKind;

/// One of the 16 barriers.
#[derive(Debug, Clone, Default)]
pub struct Barrier {
    arrived: u32,
    /// 0: all threads of the block.
    count: u32,
    votes: u32,
    /// Somebody wants the votes.
    asked: bool,
    /// Lanes that have arrived, by warp, where a count is given.
    lanes: [u32; 32],
    /// Who waits, by warp, as in [`Warp::run`].
    waiting: [u64; 32],
}

impl Barrier {
    /// Whether anybody has arrived.
    pub fn begun(&self) -> bool {
        self.arrived > 0
    }

    /// For the next block.
    pub fn reset(&mut self) {
        if self.begun() {
            *self = Barrier::default();
        }
    }
}

impl Rest {
    /// Releases a barrier if all have come.
    pub(super) fn barrier_check(&mut self, id: usize) -> bool {
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
        let (result, asked, counted) =
            (u64::from(b.votes) | u64::from(b.arrived) << 32, b.asked, b.count != 0);
        for w in 0..self.warps.len() {
            let b = &mut self.barriers[id];
            let woken = std::mem::take(&mut b.waiting[w]);
            if counted {
                b.lanes[w] = 0;
            }
            self.warps[w].run |= woken;
            // Only reductions look at what came out.
            let mut left = if asked { woken } else { 0 };
            while left != 0 {
                let t = self.thread(w as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
                // SAFETY: it waits here, and its result belongs to this barrier.
                unsafe { (*t).post.result = result };
            }
        }
        let b = &mut self.barriers[id];
        (b.arrived, b.count, b.votes, b.asked) = (0, 0, 0, false);
        self.idle = 0;
        true
    }

    /// Lanes of a warp arrive; `wait` tells whether (and as which bit) they wait.
    fn arrive(
        &mut self,
        at: (usize, u32),
        id: usize,
        count: u32,
        votes: Option<u32>,
        wait: Option<u64>,
    ) -> bool {
        let (w, lanes) = at;
        self.used = self.used.max(id + 1);
        let b = &mut self.barriers[id];
        b.count = count;
        b.arrived += lanes.count_ones();
        b.asked |= votes.is_some();
        b.votes += votes.unwrap_or(0);
        if count != 0 {
            b.lanes[w] |= lanes;
        }
        if let Some(bit) = wait {
            b.waiting[w] |= bit;
            self.warps[w].run &= !bit;
        }
        self.barrier_check(id)
    }
}

/// `bar.sync`, `bar.arrive`, `bar.red` of a thread or of a group of lanes: see [`crate::ir::BarOp`] for `op`. `count` 0 means all
/// threads of the block; `votes` of its lanes say yes.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn barrier(t: *mut Thread, op: u32, id: u32, count: u32, votes: u32) -> u32 {
    // SAFETY: as promised.
    unsafe {
        let rest = (*(*t).block).rest;
        let wait = op != 1;
        if id >= 16 {
            fail(t, FaultKind::IllegalInstruction, 0, format!("barrier {id} does not exist"));
        }
        if op == 0 && count == 0 {
            sync(t, id as usize);
            return 0;
        }
        let released = {
            let r = &mut *rest;
            let at = r.lanes(t);
            r.arrive(at, id as usize, count, (op >= 2).then_some(votes), wait.then_some(bit_of(t)))
        };
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

/// `bar.sync` of the whole block, which is nearly every barrier: as [`barrier`] by the shortest way, so that a processor that waits for
/// the memory of one group already begins with the next one's.
///
/// # Safety
/// `t` is the running thread; there is a barrier `id`.
unsafe fn sync(t: *mut Thread, id: usize) {
    // SAFETY: as promised; the reference ends before the switch.
    unsafe {
        let rest = (*(*t).block).rest;
        let (this, bit) = ((*t).id, bit_of(t));
        let next = {
            let r = &mut *rest;
            let w = (this / 64) as usize;
            let lanes = if this % 64 < GROUP { 1 } else { r.width() };
            r.used = r.used.max(id + 1);
            let b = &mut r.barriers[id];
            b.count = 0;
            b.arrived += lanes;
            b.waiting[w] |= bit;
            let warp = &mut r.warps[w];
            warp.run &= !bit;
            // Who gathers or has joined may have to be let go first.
            let plain = warp.gathering == 0 && warp.joined == 0;
            if r.barriers[id].arrived >= r.alive && r.barrier_check(id) {
                return;
            }
            if plain { next_runnable(r, this).map(|n| (*r.thread(n)).sp) } else { None }
        };
        match next {
            Some(to) => switch(&raw mut (*t).sp, to),
            None => give_way(t),
        }
    }
}
