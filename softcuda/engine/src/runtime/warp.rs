//! Operations among the lanes of a warp: each lane posts what it brings and waits; the last one of the mask to come
//! computes for all, so that no lane's post is overwritten before it was read.

use super::block::{Rest, give_way};
use super::collective::Window;
use super::context::Thread;
use crate::ir::ReduxOp;
use std::mem::offset_of;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Kind { Shfl, Vote, Match, Redux, Active, Elect, Sync, Collective }

/// In place of a mask: whoever is there takes part.
pub const WHOEVER: u64 = 1 << 32;

/// A kind and its detail (mode or operation) in one number.
pub const fn code(kind: Kind, detail: u32) -> u32 {
    kind as u32 | detail << 8
}

/// What a lane brings, and what it gets: the result in the lower half, its predicate in bit 32.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Post {
    code: u32,
    mask: u64,
    a: u64,
    b: u64,
    pub result: u64,
}

/// Where generated code leaves what a lane brings: code, mask, and the two operands.
pub const POST_FIELDS: [usize; 4] =
    [offset_of!(Post, code), offset_of!(Post, mask), offset_of!(Post, a), offset_of!(Post, b)];

/// A warp operation of the running thread.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn operation(t: *mut Thread, code: u32, mask: u64, a: u64, b: u64) -> u64 {
    // SAFETY: as promised; the reference to the rest ends before the switch.
    unsafe {
        let rest = (*(*t).block).rest;
        let (w, bit) = (((*t).linear / 32) as usize, 1u32 << ((*t).linear % 32));
        let mask = if mask & WHOEVER != 0 { mask } else { mask | u64::from(bit) };
        (*t).post = Post { code, mask, a, b, result: 0 };
        let complete = {
            let r = &mut *rest;
            let warp = &mut r.warps[w];
            warp.run &= !u64::from(bit);
            if mask & WHOEVER != 0 {
                if warp.gathering == 0 {
                    warp.yields = 0;
                }
                warp.gathering |= bit;
                false
            } else {
                warp.waiting |= bit;
                try_mask(r, w, mask, code)
            }
        };
        if !complete {
            give_way(t);
        }
        (*t).post.result
    }
}

/// A warp operation of a whole group of lanes; each of them has left what it brings, and finds its result there.
///
/// # Safety
/// `t` is the running group, of 32 lanes.
pub unsafe extern "C" fn among_lanes(t: *mut Thread) {
    // SAFETY: as promised; nothing switches here.
    unsafe {
        let r = &mut *(*(*t).block).rest;
        let w = ((*t).id / 64) as usize;
        let posts = &mut r.threads[w * 32..w * 32 + 32];
        for (l, t) in posts.iter_mut().enumerate() {
            if t.post.mask & WHOEVER == 0 {
                t.post.mask |= 1 << l;
            }
        }
        let mut left = u32::MAX;
        while left != 0 {
            let first = r.threads[w * 32 + left.trailing_zeros() as usize].post;
            let same = each(left)
                .filter(|l| {
                    let p = &r.threads[w * 32 + l].post;
                    p.mask == first.mask && p.code == first.code
                })
                .fold(0, |all, l| all | 1 << l);
            compute(r, w, same, first.code);
            left &= !same;
        }
    }
}

/// Computes if every living lane of the mask is there with the same mask and operation.
fn try_mask(r: &mut Rest, w: usize, mask: u64, code: u32) -> bool {
    let warp = r.warps[w];
    let lanes = mask as u32 & warp.alive;
    if lanes & !warp.waiting != 0 || lanes == 0 {
        return false;
    }
    let same = each(lanes).all(|l| {
        let p = &r.threads[w * 32 + l].post;
        p.mask == mask && p.code == code
    });
    if same {
        compute(r, w, lanes, code);
        r.warps[w].waiting &= !lanes;
        r.warps[w].run |= u64::from(lanes);
        r.moved();
    }
    same
}

/// A lane has ended: those that wait for it need not.
pub fn lane_ended(r: &mut Rest, w: usize) {
    let mut left = r.warps[w].waiting;
    while left != 0 {
        let p = r.threads[w * 32 + left.trailing_zeros() as usize].post;
        try_mask(r, w, p.mask, p.code);
        left &= !(p.mask as u32) & r.warps[w].waiting;
    }
}

/// Rounds of yields after which a lane that spins is no longer waited for.
const PATIENCE: u32 = 64;

/// If every other lane of the warp waits, or has spun for long, those who gather at the same place go on together.
pub fn gathered(r: &mut Rest, w: usize) -> bool {
    let warp = r.warps[w];
    if warp.gathering == 0 || warp.yields <= PATIENCE * warp.run.count_ones() && warp.run != 0 {
        return false;
    }
    let first = r.threads[w * 32 + warp.gathering.trailing_zeros() as usize].post;
    let mut lanes = 0;
    for l in each(warp.gathering) {
        let p = &r.threads[w * 32 + l].post;
        if p.code == first.code && p.mask == first.mask {
            lanes |= 1 << l;
        }
    }
    compute(r, w, lanes, first.code);
    let warp = &mut r.warps[w];
    warp.gathering &= !lanes;
    warp.run |= u64::from(lanes);
    warp.yields = 0;
    r.moved();
    true
}

fn each(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let l = (lanes != 0).then(|| lanes.trailing_zeros() as usize);
        lanes &= lanes.wrapping_sub(1);
        l
    })
}

/// The results of all `lanes`.
fn compute(r: &mut Rest, w: usize, lanes: u32, code: u32) {
    let t = &mut r.threads[w * 32..];
    let detail = code >> 8;
    let kind = code & 0xff;
    if kind == Kind::Shfl as u32 {
        for l in each(lanes) {
            let (from, valid) = source_lane(l as u32, detail, t[l].post.b);
            let from = if lanes >> from & 1 == 1 { from as usize } else { l };
            t[l].post.result = (t[from].post.a & 0xffff_ffff) | u64::from(valid) << 32;
        }
        return;
    }
    if kind == Kind::Collective as u32 {
        return collective(t, lanes, detail);
    }
    if kind == Kind::Match as u32 {
        return matching(t, lanes, detail != 0);
    }
    let result = if kind == Kind::Vote as u32 {
        vote(t, lanes, detail)
    } else if kind == Kind::Redux as u32 {
        redux(t, lanes, detail)
    } else {
        // `activemask`; for `elect` the leader is put in below.
        u64::from(lanes)
    };
    for l in each(lanes) {
        t[l].post.result = result;
        if kind == Kind::Elect as u32 {
            let leader = lanes.trailing_zeros();
            t[l].post.result = u64::from(leader) | u64::from(leader == l as u32) << 32;
        }
    }
}

/// An operation of all lanes on buffers: `a` of a post is the lane's buffer, `b` the operation's detail.
fn collective(t: &mut [Thread], lanes: u32, f: u32) {
    let buffers = std::array::from_fn(|l| (lanes >> l & 1 == 1).then(|| t[l].post.a as *mut u32));
    let first = &t[lanes.trailing_zeros() as usize];
    // SAFETY: the block of a thread that waits lives.
    let block = unsafe { &*first.block };
    let shared = Window { base: block.shared_base, size: u64::from(block.total_shared) };
    let bad = super::collective::run(f, first.post.b, &buffers, shared);
    for l in each(lanes) {
        t[l].post.result = u64::from(bad >> l & 1);
    }
}

/// The lane that `shfl` reads, and whether it is in range: the rule of the PTX manual. `operands` has `b` in its lower
/// half and `c` in the upper one.
pub fn source_lane(lane: u32, mode: u32, operands: u64) -> (u32, bool) {
    let (b, c) = (operands as u32 & 31, (operands >> 32) as u32);
    let (clamp, segment) = (c & 31, c >> 8 & 31);
    let most = (lane & segment) | (clamp & !segment);
    let least = lane & segment;
    let (j, valid) = match mode {
        0 => (lane as i32 - b as i32, lane as i32 - b as i32 >= most as i32),
        1 => ((lane + b) as i32, lane + b <= most),
        2 => ((lane ^ b) as i32, lane ^ b <= most),
        _ => {
            let j = least | (b & !segment);
            (j as i32, j <= most)
        }
    };
    if valid { (j as u32 & 31, true) } else { (lane, false) }
}

fn vote(t: &[Thread], lanes: u32, mode: u32) -> u64 {
    let yes: u32 = each(lanes).filter(|&l| t[l].post.a != 0).map(|l| 1 << l).sum();
    let truth = match mode {
        0 => yes == lanes,
        1 => yes != 0,
        2 => yes == lanes || yes == 0,
        _ => return u64::from(yes),
    };
    u64::from(truth) << 32
}

fn matching(t: &mut [Thread], lanes: u32, all: bool) {
    let value = |t: &[Thread], l: usize| t[l].post.a;
    for l in each(lanes) {
        let same: u32 = each(lanes).filter(|&o| value(t, o) == value(t, l)).map(|o| 1 << o).sum();
        t[l].post.result = match (all, same == lanes) {
            (false, _) => u64::from(same),
            (true, true) => u64::from(same) | 1 << 32,
            (true, false) => 0,
        };
    }
}

/// Which floats win: numbers, or with `.NaN` what is none; of zeros the one whose sign says so.
fn redux_float(values: impl Iterator<Item = u32>, op: u32) -> u32 {
    const NAN: u32 = 0x7fff_ffff;
    let is = |ops: [ReduxOp; 2]| ops.iter().any(|o| *o as u32 == op);
    let least = is([ReduxOp::Min, ReduxOp::MinNan]);
    let nan_wins = is([ReduxOp::MinNan, ReduxOp::MaxNan]);
    let (mut best, mut none) = (None::<f32>, false);
    for v in values.map(f32::from_bits) {
        none |= v.is_nan();
        let better = |b: f32| if least { v.total_cmp(&b).is_lt() } else { v.total_cmp(&b).is_gt() };
        if !v.is_nan() && best.is_none_or(better) {
            best = Some(v);
        }
    }
    best.filter(|_| !(none && nan_wins)).map_or(NAN, f32::to_bits)
}

fn redux(t: &[Thread], lanes: u32, detail: u32) -> u64 {
    let signed = detail >> 4 & 1 == 1;
    let values = each(lanes).map(|l| t[l].post.a as u32);
    if detail >> 5 & 1 == 1 {
        return u64::from(redux_float(values, detail & 15));
    }
    let v = match (detail & 15, signed) {
        (0, _) => values.reduce(u32::wrapping_add),
        (1, true) => values.reduce(|a, b| (a as i32).min(b as i32) as u32),
        (1, false) => values.reduce(u32::min),
        (2, true) => values.reduce(|a, b| (a as i32).max(b as i32) as u32),
        (2, false) => values.reduce(u32::max),
        (3, _) => values.reduce(|a, b| a & b),
        (4, _) => values.reduce(|a, b| a | b),
        _ => values.reduce(|a, b| a ^ b),
    };
    u64::from(v.unwrap_or(0))
}
