//! The functions behind [`crate::ir::Op::Pure`].

use super::context::Thread;
use super::small_float::{BF16, F16, FORMATS, Format, Rounding, TF32};
use crate::ir::Pure;

/// Which of the functions; `as u32` of the enumeration is what generated code passes.
fn function(code: u32) -> Option<Pure> {
    use Pure::*;
    const ALL: [Pure; 12] = [
        Vmad,
        Narrow,
        NarrowOne,
        Widen,
        Tf32,
        MapShared,
        MapGeneric,
        RankOfShared,
        RankOfGeneric,
        ClusterToGeneric,
        GenericToCluster,
        IsCluster,
    ];
    ALL.get(code as usize).copied()
}

/// Calls function `code` with its detail and operands.
///
/// # Safety
/// `t` is the running thread.
pub unsafe extern "C" fn call(t: *mut Thread, code: u32, detail: u32, a: u64, b: u64, c: u64) -> u64 {
    // SAFETY: as promised; the block of a running thread lives.
    let member = unsafe { &(*(*t).block).member };
    match function(code) {
        Some(Pure::Vmad) => u64::from(vmad(detail, a as i64, b as i64, c as u32)),
        Some(Pure::Narrow) => u64::from(narrow(detail, a, b)),
        Some(Pure::NarrowOne) => u64::from(narrow_one(detail, a)),
        Some(Pure::Widen) => u64::from(widen(detail, a as u32)),
        Some(Pure::Tf32) => u64::from(tf32(detail, f32::from_bits(a as u32))),
        Some(Pure::MapShared) => member.map_shared(a as u32, b as u32).into(),
        Some(Pure::MapGeneric) => member.map_generic(a, b as u32),
        Some(Pure::RankOfShared) => member.rank_of_shared(a as u32).into(),
        Some(Pure::RankOfGeneric) => member.rank_of_generic(a).into(),
        Some(Pure::ClusterToGeneric) => member.to_generic(a as u32, detail),
        Some(Pure::GenericToCluster) => member.to_cluster(a).into(),
        Some(Pure::IsCluster) => u64::from(member.window(a).is_some()),
        None => 0,
    }
}

/// `vmad`: the pseudo-code of the PTX manual in 128 bits. Detail: bit 0 `.po`, 1 product negated, 2 `c` negated, 3 signed,
/// 4 `.sat`; from bit 8 the shift.
fn vmad(detail: u32, a: i64, b: i64, c: u32) -> u32 {
    let bit = |n: u32| detail >> n & 1 == 1;
    let (signed, scale) = (bit(3), detail >> 8);
    let mut product = i128::from(a) * i128::from(b);
    let mut c = c;
    let mut low = 0;
    if bit(0) {
        low = 1;
    } else if bit(1) {
        product = !product;
        low = 1;
    } else if bit(2) {
        c = !c;
        low = 1;
    }
    let c = if signed { i128::from(c as i32) } else { i128::from(c) };
    let sum = product + c + low;
    if scale == 0 && !bit(4) {
        return sum as u32;
    }
    let shifted = sum >> scale;
    match (bit(4), signed) {
        (false, _) => shifted as u32,
        (true, true) => shifted.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
        (true, false) => shifted.clamp(0, u32::MAX.into()) as u32,
    }
}

/// Detail of [`Pure::Narrow`] and [`Pure::NarrowOne`].
pub const NARROW_ROUND: u32 = 8;
pub const NARROW_RELU: u32 = 1 << 11;
pub const NARROW_FINITE: u32 = 1 << 12;
/// Sources, from bit 4 on: f32 (two operands of `Narrow`), or pairs in one operand.
pub const FROM_F32: u32 = 0;
pub const FROM_F16X2: u32 = 1 << 4;
pub const FROM_BF16X2: u32 = 2 << 4;
/// Target of [`Pure::Widen`]: bf16x2 instead of f16x2.
pub const TO_BF16X2: u32 = 1 << 4;

fn format(detail: u32) -> Format {
    FORMATS[(detail & 7) as usize]
}

fn one(detail: u32, x: f64) -> u32 {
    let f = format(detail);
    if x.is_nan() {
        return f.nan();
    }
    // -0 stays with `.relu` clamping below 0 only.
    let x = if detail & NARROW_RELU != 0 && x <= 0.0 { 0.0 } else { x };
    f.encode(x, Rounding::from_number(detail >> NARROW_ROUND & 7), detail & NARROW_FINITE != 0)
}

/// Two numbers, the first in the upper half of the result; formats under a byte take one byte each, except the 4-bit one.
fn narrow(detail: u32, a: u64, b: u64) -> u32 {
    let (hi, lo) = match detail >> 4 & 3 {
        0 => (f64::from(f32::from_bits(a as u32)), f64::from(f32::from_bits(b as u32))),
        1 => (F16.decode(a as u32 >> 16), F16.decode(a as u32)),
        _ => (BF16.decode(a as u32 >> 16), BF16.decode(a as u32)),
    };
    one(detail, hi) << slot(format(detail)) | one(detail, lo)
}

/// Bits between two packed numbers.
fn slot(f: Format) -> u32 {
    match f.bits() {
        4 => 4,
        5..=8 => 8,
        _ => 16,
    }
}

fn narrow_one(detail: u32, a: u64) -> u32 {
    one(detail, f64::from(f32::from_bits(a as u32)))
}

fn widen(detail: u32, a: u32) -> u32 {
    let f = format(detail);
    let to = if detail & TO_BF16X2 != 0 { BF16 } else { F16 };
    let part = |bits: u32| {
        let v = f.decode(bits);
        let v = if detail & NARROW_RELU != 0 && v <= 0.0 { 0.0 } else { v };
        to.encode(v, Rounding::Near, false)
    };
    part(a >> slot(f)) << 16 | part(a)
}

/// An f32 whose last 13 bits are zero.
fn tf32(detail: u32, x: f32) -> u32 {
    if x.is_nan() {
        return 0x7fff_ffff;
    }
    let x = if detail & NARROW_RELU != 0 && x <= 0.0 { 0.0 } else { x };
    let rounding = Rounding::from_number(detail >> NARROW_ROUND & 7);
    TF32.encode(f64::from(x), rounding, detail & NARROW_FINITE != 0) << 13
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_the_enumeration() {
        for code in 0.. {
            let Some(f) = function(code) else {
                assert_eq!(code, Pure::IsCluster as u32 + 1);
                break;
            };
            assert_eq!(f as u32, code);
        }
    }
}
