//! The functions that generated code calls, by number.

use super::block::{self, fail, grid_of};
use super::context::Thread;
use super::{access, barrier, bell, checks, cluster, math, parting, print, pure, rows, warp};
use crate::error::FaultKind;
use crate::loaded::function_index;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Index into [`table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Helper {
    SlowAddress, BadShared, SlowSpan, SlowCover, Attend, StackOverflow, BadBranch, Trap, Exit, Yield, Warp, Barrier, Part, AmongLanes, Resolve, Vprintf, AssertFail, Malloc, Free,
    Clock, GlobalTimer, RoundedF32, RoundedF64, F64ToF32, IntToF64, IntToF32, HalfToF32, F64ToHalf, Half, AtomHalf,
    Sin, Cos, Lg2, Ex2, Tanh, Prmt, DotProduct, Fns, Texture, Pure, Memory, ClusterBarrier,
    SinRow, CosRow, Lg2Row, Ex2Row, TanhRow, RoundedRowF32, RoundedRowF64,
}
const COUNT: usize = Helper::RoundedRowF64 as usize + 1;

impl Helper {
    /// Whether it keeps all registers, so that code saves none for it: those that are called on ways that are hardly ever taken
    /// (see `runtime::quiet`).
    pub fn quiet(self) -> bool {
        use Helper::*;
        matches!(self, SlowAddress | BadShared | SlowSpan | SlowCover | Attend)
    }
}

/// Operations of the float helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum FloatKind { Add, Sub, Mul, Div, Min, Max, Neg, Abs, Sqrt, Fma, Ex2, Tanh }

/// Addresses of all helpers, in the order of [`Helper`].
pub fn table() -> *const usize {
    static TABLE: std::sync::LazyLock<[usize; COUNT]> = std::sync::LazyLock::new(|| {
        [
            checks::quiet_address as *const () as usize,
            checks::quiet_shared as *const () as usize,
            checks::quiet_span as *const () as usize,
            checks::quiet_cover as *const () as usize,
            bell::quiet_attend as *const () as usize,
            stack_overflow as *const () as usize,
            bad_branch as *const () as usize,
            trap as *const () as usize,
            block::exit as *const () as usize,
            block::yield_now as *const () as usize,
            warp::operation as *const () as usize,
            barrier::barrier as *const () as usize,
            parting::part as *const () as usize,
            warp::among_lanes as *const () as usize,
            resolve as *const () as usize,
            print::vprintf as *const () as usize,
            print::assert_fail as *const () as usize,
            malloc as *const () as usize,
            free as *const () as usize,
            clock as *const () as usize,
            global_timer as *const () as usize,
            math::rounded_f32 as *const () as usize,
            math::rounded_f64 as *const () as usize,
            math::f64_to_f32 as *const () as usize,
            math::int_to_f64 as *const () as usize,
            math::int_to_f32 as *const () as usize,
            math::half_to_f32 as *const () as usize,
            math::f64_to_half as *const () as usize,
            math::half_op as *const () as usize,
            atom_half as *const () as usize,
            math::sin as *const () as usize,
            math::cos as *const () as usize,
            math::lg2 as *const () as usize,
            math::ex2 as *const () as usize,
            math::tanh as *const () as usize,
            prmt as *const () as usize,
            dot_product as *const () as usize,
            fns as *const () as usize,
            super::texture::operation as *const () as usize,
            pure::call as *const () as usize,
            access::call as *const () as usize,
            cluster::barrier as *const () as usize,
            rows::sin as *const () as usize,
            rows::cos as *const () as usize,
            rows::lg2 as *const () as usize,
            rows::ex2 as *const () as usize,
            rows::tanh as *const () as usize,
            rows::rounded_f32 as *const () as usize,
            rows::rounded_f64 as *const () as usize,
        ]
    });
    TABLE.as_ptr()
}

unsafe extern "C" fn stack_overflow(t: *mut Thread, line: u32) {
    // SAFETY: as in `checks`.
    unsafe { fail(t, FaultKind::IllegalAddress, line, "stack overflow: calls are too deep".to_string()) }
}

unsafe extern "C" fn bad_branch(t: *mut Thread, line: u32) {
    let what = "brx.idx: index is outside of the list of targets".to_string();
    // SAFETY: as in `checks`.
    unsafe { fail(t, FaultKind::IllegalInstruction, line, what) }
}

unsafe extern "C" fn trap(t: *mut Thread, line: u32) {
    // SAFETY: as in `checks`.
    unsafe { fail(t, FaultKind::Trap, line, "trap".to_string()) }
}

/// The entry point of a function pointer.
unsafe extern "C" fn resolve(t: *mut Thread, token: u64, line: u32) -> usize {
    // SAFETY: as in `checks`.
    unsafe {
        let grid = grid_of(t);
        let entry = function_index(token)
            .and_then(|i| grid.code.by_number.get(i as usize))
            .and_then(|n| grid.code.entries.get((*n as usize).wrapping_sub(1)));
        match entry {
            Some(e) => e.load(Ordering::Acquire),
            None => {
                let what = format!("call of {token:#x}, which is no function");
                fail(t, FaultKind::IllegalInstruction, line, what)
            }
        }
    }
}

unsafe extern "C" fn malloc(t: *mut Thread, args: *const u64, ret: *mut u64, _line: u32) {
    // SAFETY: generated code passes the arguments and result of the call: one 64-bit number each.
    unsafe {
        let grid = grid_of(t);
        *ret = grid.realm.heap.take(&grid.memory, args.read());
    }
}

unsafe extern "C" fn free(t: *mut Thread, args: *const u64, _ret: *mut u64, line: u32) {
    // SAFETY: as in `malloc`.
    unsafe {
        let addr = args.read();
        let grid = grid_of(t);
        if addr != 0 && !grid.realm.heap.give(&grid.memory, addr) {
            let what = format!("free of {addr:#x}, which device code has not allocated");
            fail(t, FaultKind::IllegalAddress, line, what);
        }
    }
}

extern "C" fn clock() -> u64 {
    // SAFETY: x86-64 always has the time stamp counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

extern "C" fn global_timer() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Adds 16-bit floats, or pairs, atomically.
///
/// # Safety
/// `p` was checked and is aligned.
unsafe extern "C" fn atom_half(p: u64, v: u32, kind: u32) -> u32 {
    let add = |old: u32| math::half_op(super::helpers::FloatKind::Add as u32 | kind << 8, old, v, 0);
    if kind & 1 == 0 {
        // SAFETY: as promised; all atomic accesses to it have this size.
        let a = unsafe { AtomicU16::from_ptr(p as *mut u16) };
        let f = |old: u16| Some(add(u32::from(old)) as u16);
        return u32::from(a.fetch_update(Ordering::SeqCst, Ordering::SeqCst, f).unwrap_or_default());
    }
    // SAFETY: as above.
    let a = unsafe { AtomicU32::from_ptr(p as *mut u32) };
    a.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(add(old))).unwrap_or_default()
}

/// Byte permutation; `mode` counts as [`crate::ir::PrmtMode`] does.
extern "C" fn prmt(a: u32, b: u32, c: u32, mode: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let byte = |i: u32| (bytes >> (8 * (i & 7))) as u8;
    let k = c & 3;
    let pick = |i: u32| -> u8 {
        match mode {
            0 => {
                let s = c >> (4 * i) & 15;
                let v = byte(s);
                if s & 8 != 0 { if v & 0x80 != 0 { 0xff } else { 0 } } else { v }
            }
            1 => byte(k + i),
            2 => byte(k.wrapping_sub(i)),
            3 => byte(k),
            4 => byte(i.max(k)),
            5 => byte(i.min(k)),
            _ => byte((k & 1) * 2 + (i & 1)),
        }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

/// `dp4a` and `dp2a`: bit 0 of `kind` is "a is signed", 1 "b is signed", 2 "two 16-bit parts", 3 "upper bytes of b".
extern "C" fn dot_product(a: u32, b: u32, c: u32, kind: u32) -> u32 {
    let byte = |v: u32, i: u32, signed: bool| {
        let x = (v >> (8 * i)) as u8;
        if signed { i64::from(x as i8) } else { i64::from(x) }
    };
    let (sa, sb) = (kind & 1 != 0, kind & 2 != 0);
    let mut sum = i64::from(c);
    if kind & 4 == 0 {
        for i in 0..4 {
            sum += byte(a, i, sa) * byte(b, i, sb);
        }
    } else {
        let upper = if kind & 8 != 0 { 2 } else { 0 };
        for i in 0..2 {
            let x = (a >> (16 * i)) as u16;
            let x = if sa { i64::from(x as i16) } else { i64::from(x) };
            sum += x * byte(b, upper + i, sb);
        }
    }
    sum as u32
}

/// The position of the n-th set bit of `mask` from `base`, upwards or downwards.
extern "C" fn fns(mask: u32, base: u32, offset: u32, _kind: u32) -> u32 {
    let offset = offset as i32;
    if offset == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let (step, mut left) = (offset.signum(), offset.unsigned_abs());
    let mut pos = i64::from(base);
    while (0..32).contains(&pos) {
        if mask >> pos & 1 == 1 {
            left -= 1;
            if left == 0 {
                return pos as u32;
            }
        }
        pos += i64::from(step);
    }
    u32::MAX
}
