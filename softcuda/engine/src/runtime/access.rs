//! The functions behind [`crate::ir::Op::Memory`]: at an address that generated code has checked.

use super::block::fail;
use super::context::Thread;
use super::helpers::FloatKind;
use super::{math, mbarrier};
use crate::error::FaultKind;
use crate::ir::MemoryFn;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Detail of [`MemoryFn::VectorAtomic`]: lanes from bit 0, what they are from bit 8 ([`math::half_op`]'s numbers, or
/// this for f32), the operation from bit 16 ([`FloatKind`]).
pub const LANES_F32: u32 = 4;

fn function(code: u32) -> Option<MemoryFn> {
    use MemoryFn::*;
    const ALL: [MemoryFn; 11] = [
        Load128,
        Store128,
        Exchange128,
        Compare128,
        VectorAtomic,
        MbarrierInit,
        MbarrierExpect,
        MbarrierComplete,
        MbarrierArrive,
        MbarrierTest,
        Zeros,
    ];
    ALL.get(code as usize).copied()
}

/// Words of a buffer.
struct Words(*mut u32);

impl Words {
    fn get(&self, i: usize) -> u32 {
        // SAFETY: the buffer holds all operands and results of the operation.
        unsafe { self.0.add(i).read() }
    }

    fn get64(&self, i: usize) -> u64 {
        u64::from(self.get(i)) | u64::from(self.get(i + 1)) << 32
    }

    fn get128(&self, i: usize) -> u128 {
        u128::from(self.get64(i)) | u128::from(self.get64(i + 2)) << 64
    }

    fn put(&self, i: usize, v: u32) {
        // SAFETY: as in `get`.
        unsafe { self.0.add(i).write(v) };
    }

    fn put64(&self, i: usize, v: u64) {
        self.put(i, v as u32);
        self.put(i + 1, (v >> 32) as u32);
    }

    fn put128(&self, v: u128) {
        self.put64(0, v as u64);
        self.put64(2, (v >> 64) as u64);
    }
}

/// Calls function `code` for address `p`, with operands and results in `words`.
///
/// # Safety
/// `t` is the running thread; `p` was checked for all bytes of the access and is aligned to them; `words` holds operands and results.
pub unsafe extern "C" fn call(t: *mut Thread, code: u32, detail: u32, p: u64, words: *mut u32) {
    let w = Words(words);
    let Some(f) = function(code) else { return };
    if matches!(f, MemoryFn::Load128 | MemoryFn::Store128 | MemoryFn::Exchange128 | MemoryFn::Compare128) {
        // SAFETY: 16 bytes at `p`, as promised.
        return unsafe { wide(f, p as *mut u128, &w) };
    }
    if f == MemoryFn::Zeros {
        // SAFETY: as promised.
        return unsafe { zeros(t, p, w.get64(0)) };
    }
    if f == MemoryFn::VectorAtomic {
        // SAFETY: as promised.
        return unsafe { vector(detail, p, &w) };
    }
    // SAFETY: 8 aligned bytes; mbarrier objects are only accessed here.
    let object = unsafe { AtomicU64::from_ptr(p as *mut u64) };
    match f {
        MemoryFn::MbarrierInit => mbarrier::init(object, w.get(0)),
        MemoryFn::MbarrierExpect => mbarrier::expect(object, w.get(0)),
        MemoryFn::MbarrierComplete => mbarrier::complete(object, w.get(0)),
        MemoryFn::MbarrierArrive => {
            let tx = if detail & mbarrier::ARRIVE_EXPECTS != 0 { w.get(1) } else { 0 };
            let state = mbarrier::arrive(object, w.get(0), tx, detail & mbarrier::ARRIVE_DROP != 0);
            w.put64(0, state);
        }
        _ => {
            let over = mbarrier::test(object, w.get64(0), detail & mbarrier::TEST_PARITY != 0);
            w.put(0, u32::from(over));
        }
    }
}

/// Puts `new` at `p` if `old` is there; what was there.
///
/// # Safety
/// 16 aligned bytes at `p`; the CPU has the instruction, as every 64-bit one of the last 15 years.
unsafe fn exchange16(p: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: as promised. rbx, which the compiler keeps for itself, is put back.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi", "lock cmpxchg16b [rdi]", "mov rbx, rsi",
            inout("rsi") new as u64 => _, in("rdi") p, inout("rax") low, inout("rdx") high,
            in("rcx") (new >> 64) as u64, options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}

/// What is at `p`, read at once: CPUs with AVX promise that for aligned 16 bytes, and it works where nobody may write.
///
/// # Safety
/// As [`exchange16`].
unsafe fn load16(p: *mut u128) -> u128 {
    if !std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as promised.
        return unsafe { exchange16(p, 0, 0) };
    }
    let v: std::arch::x86_64::__m128i;
    // SAFETY: as promised.
    unsafe { std::arch::asm!("movdqa {v}, [{p}]", v = out(xmm_reg) v, p = in(reg) p, options(nostack)) };
    // SAFETY: both are 16 bytes without meaning.
    unsafe { std::mem::transmute::<std::arch::x86_64::__m128i, u128>(v) }
}

/// # Safety
/// As [`call`].
unsafe fn wide(f: MemoryFn, p: *mut u128, w: &Words) {
    if !std::arch::is_x86_feature_detected!("cmpxchg16b") {
        std::process::abort()
    }
    // SAFETY: the CPU has the instruction; the address is good, as promised.
    let exchange = |old: u128, new: u128| unsafe { exchange16(p, old, new) };
    let set = |new: u128| {
        let mut seen = exchange(0, 0);
        loop {
            let now = exchange(seen, new);
            if now == seen {
                return seen;
            }
            seen = now;
        }
    };
    match f {
        // SAFETY: as above.
        MemoryFn::Load128 => w.put128(unsafe { load16(p) }),
        MemoryFn::Store128 => drop(set(w.get128(0))),
        MemoryFn::Exchange128 => w.put128(set(w.get128(0))),
        _ => w.put128(exchange(w.get128(0), w.get128(4))),
    }
}

/// `red.v4.f32` and its like: each lane is an atomic operation of its own.
///
/// # Safety
/// As [`call`].
unsafe fn vector(detail: u32, p: u64, w: &Words) {
    let (lanes, kind, op) = (detail & 0xff, detail >> 8 & 0xff, detail >> 16);
    for i in 0..lanes as usize {
        let v = w.get(i);
        let step = |old: u32| {
            if kind == LANES_F32 {
                flushed(flushed(f32::from_bits(old)) + flushed(f32::from_bits(v))).to_bits()
            } else {
                // `.NaN` is off: numbers win in `min` and `max`.
                math::half_op(op | kind << 8, old, v, 0)
            }
        };
        let old = if kind == LANES_F32 || kind & 1 == 1 {
            // SAFETY: as promised.
            let a = unsafe { AtomicU32::from_ptr((p + 4 * i as u64) as *mut u32) };
            a.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |o| Some(step(o))).unwrap_or_default()
        } else {
            // SAFETY: as promised.
            let a = unsafe { AtomicU16::from_ptr((p + 2 * i as u64) as *mut u16) };
            let new = |o: u16| Some(step(u32::from(o)) as u16);
            u32::from(a.fetch_update(Ordering::SeqCst, Ordering::SeqCst, new).unwrap_or_default())
        };
        w.put(i, old);
    }
}

/// `st.bulk`.
///
/// # Safety
/// `t` is the running thread.
unsafe fn zeros(t: *mut Thread, p: u64, size: u64) {
    // SAFETY: the block of a running thread lives.
    let member = unsafe { &(*(*t).block).member };
    let inside = p.checked_sub(member.base).is_some_and(|at| at <= member.size && size <= member.size - at);
    let (kind, what) = match inside {
        true if size.is_multiple_of(8) => {
            for word in (p..p + size).step_by(8) {
                // SAFETY: 8 aligned bytes inside of the block's shared memory.
                unsafe { AtomicU64::from_ptr(word as *mut u64) }.store(0, Ordering::Relaxed);
            }
            return;
        }
        true => (FaultKind::MisalignedAddress, format!("st.bulk: {size} bytes are no multiple of 8")),
        false => {
            (FaultKind::IllegalAddress, format!("st.bulk: {size} bytes at {p:#x} are not in shared memory"))
        }
    };
    // SAFETY: as promised.
    unsafe { fail(t, kind, 0, what) }
}

/// A denormal becomes a zero of its sign: additions in global memory do that.
fn flushed(v: f32) -> f32 {
    if v.is_subnormal() { 0f32.copysign(v) } else { v }
}

/// Number of an operation in [`MemoryFn::VectorAtomic`].
pub fn vector_operation(op: crate::ir::AtomOp) -> Option<u32> {
    Some(match op {
        crate::ir::AtomOp::Add => FloatKind::Add as u32,
        crate::ir::AtomOp::Min => FloatKind::Min as u32,
        crate::ir::AtomOp::Max => FloatKind::Max as u32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_the_enumeration() {
        for code in 0..=MemoryFn::Zeros as u32 {
            assert_eq!(function(code).map(|f| f as u32), Some(code));
        }
        assert_eq!(function(MemoryFn::Zeros as u32 + 1), None);
    }
}
