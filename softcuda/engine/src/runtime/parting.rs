//! Lanes that part from their group: each runs on a stack of its own, since they may wait for each other, until all of them have
//! come to where the group goes on.
//!
//! A lane may wait for what another one does only behind that place (a lock that it holds, for example). So those who
//! have come there are not held for ever: when the others only spin, or nobody else can run, they go on alone, and the group
//! does not come together again.

use super::block::{Rest, give_way};
use super::context::Thread;
use super::segments::unroll;
use crate::codegen::clif::NEVER;

/// Yields of each lane that still spins after which those that have come to the meeting place go on alone: where the loop looks
/// like one for a lock, which one of them may hold, and where it only reads, so that it most likely waits for somebody else.
pub const PATIENCE: [u32; 2] = [1 << 12, 2];

/// Lets the lanes of a group go apart: those of `bits` to `yes`, the others to `no`, until all are at `until`. `frame` holds their
/// registers; `lock` is 1 if they may wait for a lock. Comes back when they are.
///
/// # Safety
/// `t` is the running group; the frame lies on its stack.
pub unsafe extern "C" fn part(
    t: *mut Thread,
    frame: u64,
    bits: u32,
    yes: u32,
    no: u32,
    until: u32,
    lock: u32,
) {
    // SAFETY: as promised; references end before the switch.
    unsafe {
        let rest = (*(*t).block).rest;
        {
            let r = &mut *rest;
            if r.rooms.in_turn() {
                unroll(r, t);
            }
            let (w, lanes) = r.lanes(t);
            let group = r.group_bit(t);
            let first = lanes.trailing_zeros();
            r.warps[w].run &= !group;
            r.warps[w].spins = 0;
            r.warps[w].patience = PATIENCE[(lock & 1) as usize];
            for l in each(lanes) {
                let start = if bits >> (l - first) & 1 == 1 { yes } else { no };
                let lane = r.thread(w as u32 * 64 + l);
                ((*lane).start, (*lane).until, (*lane).spill, (*lane).joined) = (start, until, frame, 0);
                if start == until {
                    r.warps[w].joined |= 1 << l;
                } else {
                    r.start_lane(w, l);
                }
            }
        }
        give_way(t);
    }
}

/// The running lane has come to where its group meets. Returns if it is to go on alone, from there to its end.
///
/// # Safety
/// `t` is the running lane.
pub unsafe fn join(t: *mut Thread) {
    // SAFETY: as promised.
    unsafe {
        let rest = (*(*t).block).rest;
        {
            let r = &mut *rest;
            let (w, lane) = r.lanes(t);
            if r.warps[w].alone & lane == 0 {
                let warp = &mut r.warps[w];
                if warp.joined == 0 {
                    warp.spins = 0;
                }
                warp.joined |= lane;
                warp.run &= !u64::from(lane);
                r.meet(w, lane);
                r.moved();
                // Comes back only if it was released: else the lane begins anew when the group parts again.
                give_way(t);
            }
        }
        ((*t).start, (*t).until, (*t).joined) = ((*t).until, NEVER, 0);
    }
}

impl Rest {
    /// Wakes the group of a lane if all its lanes are there.
    fn meet(&mut self, w: usize, lane: u32) {
        let g = lane.trailing_zeros() / self.width();
        let lanes = self.group_lanes(g);
        if self.warps[w].joined & lanes == lanes {
            self.warps[w].joined &= !lanes;
            self.warps[w].run |= 1 << (32 + g);
        }
    }
}

/// Lanes that have come to the meeting place go on alone, and so will all others of their groups. Whether there were any.
pub fn release(r: &mut Rest, w: usize) -> bool {
    let joined = std::mem::take(&mut r.warps[w].joined);
    for l in each(joined) {
        r.warps[w].alone |= r.group_lanes(l / r.width());
        let lane = r.thread(w as u32 * 64 + l);
        // SAFETY: a lane of this block that does not run, or is the one that has just come here.
        unsafe {
            if (*lane).joined != 0 {
                // It waits in `join`, on a stack that must stay as it is.
                r.warps[w].run |= 1 << l;
            } else {
                ((*lane).start, (*lane).until) = ((*lane).until, NEVER);
                r.start_lane(w, l);
            }
        }
    }
    joined != 0
}

/// [`release`], if the others of the warp have spun for long.
pub fn impatient(r: &mut Rest, w: usize) {
    let warp = &r.warps[w];
    if warp.joined != 0 && warp.spins / warp.patience.max(1) > warp.run.count_ones() {
        release(r, w);
    }
}

fn each(mut lanes: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let l = (lanes != 0).then(|| lanes.trailing_zeros())?;
        lanes &= lanes - 1;
        Some(l)
    })
}
