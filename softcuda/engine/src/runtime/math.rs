//! Floating-point operations that generated code leaves to the run time: other roundings, 16-bit floats, transcendentals.

use super::helpers::FloatKind;
use super::small_float::{self, Rounding, odd_sum};
use super::special;
use half::{bf16, f16};
use std::arch::asm;
use std::cmp::Ordering;

/// The rounding bits of MXCSR, with all exceptions masked.
pub fn mxcsr(round: u32) -> u32 {
    0x1f80 | (round & 3) << 13
}

macro_rules! rounded {
    ($name:ident, $t:ty, $suffix:literal) => {
        /// `kind` of the operands, rounded as `round` (MXCSR's number) says.
        pub extern "C" fn $name(kind: u32, round: u32, a: $t, b: $t, c: $t) -> $t {
            let (new, old) = (mxcsr(round), mxcsr(0));
            let mut r = a;
            macro_rules! run {
                ($op:literal) => {
                    // SAFETY: the rounding is changed for this one instruction and set back to what all code here runs
                    // under; nothing else is touched.
                    unsafe {
                        asm!(
                            "ldmxcsr [{new}]",
                            concat!($op, $suffix, " {r}, {b}"),
                            "ldmxcsr [{old}]",
                            new = in(reg) &new, old = in(reg) &old, r = inout(xmm_reg) r, b = in(xmm_reg) b,
                            options(nostack, readonly),
                        )
                    }
                };
            }
            match kind {
                k if k == FloatKind::Add as u32 => run!("add"),
                k if k == FloatKind::Sub as u32 => run!("sub"),
                k if k == FloatKind::Mul as u32 => run!("mul"),
                k if k == FloatKind::Div as u32 => run!("div"),
                k if k == FloatKind::Sqrt as u32 => {
                    let b = a;
                    // SAFETY: as above.
                    unsafe {
                        asm!(
                            "ldmxcsr [{new}]",
                            concat!("sqrt", $suffix, " {r}, {b}"),
                            "ldmxcsr [{old}]",
                            new = in(reg) &new, old = in(reg) &old, r = inout(xmm_reg) r, b = in(xmm_reg) b,
                            options(nostack, readonly),
                        )
                    }
                }
                _ if std::arch::is_x86_feature_detected!("fma") => {
                    // SAFETY: as above, and the CPU has the instruction.
                    unsafe {
                        asm!(
                            "ldmxcsr [{new}]",
                            concat!("vfmadd213", $suffix, " {r}, {b}, {c}"),
                            "ldmxcsr [{old}]",
                            new = in(reg) &new, old = in(reg) &old,
                            r = inout(xmm_reg) r, b = in(xmm_reg) b, c = in(xmm_reg) c,
                            options(nostack, readonly),
                        )
                    }
                }
                // A CPU this old rounds to nearest here.
                _ => r = a.mul_add(b, c),
            }
            r
        }
    };
}
rounded!(rounded_f32, f32, "ss");
rounded!(rounded_f64, f64, "sd");

/// f64 to f32 in a direction.
pub extern "C" fn f64_to_f32(a: f64, round: u32) -> f32 {
    let near = a as f32;
    adjust(near, f64::from(near), a, round, f32::next_up, f32::next_down)
}

/// Moves the nearest value to the one that `round` asks for.
fn adjust<T: Copy>(near: T, back: f64, exact: f64, round: u32, up: fn(T) -> T, down: fn(T) -> T) -> T {
    if exact.is_nan() || back == exact {
        return near;
    }
    let (want_up, want_down) = match round {
        1 => (false, true),
        2 => (true, false),
        3 => (exact < 0.0, exact > 0.0),
        _ => (false, false),
    };
    if want_up && back < exact {
        up(near)
    } else if want_down && back > exact {
        down(near)
    } else {
        near
    }
}

/// The rounding of [`int_to_f64`] that keeps a trace of what was cut off in the last bit: for one more rounding.
pub const TO_ODD: u32 = 4;

/// A 64-bit integer to f64; bit 0 of `kind` is "signed", the rest the rounding.
pub extern "C" fn int_to_f64(a: u64, kind: u32) -> f64 {
    let wide = if kind & 1 == 1 { i128::from(a as i64) } else { i128::from(a) };
    let near = wide as f64;
    let even = near.to_bits() & 1 == 0;
    match (near as i128).cmp(&wide) {
        Ordering::Less if kind >> 1 == TO_ODD && even => return near.next_up(),
        Ordering::Greater if kind >> 1 == TO_ODD && even => return near.next_down(),
        _ => {}
    }
    match direction(near as i128, wide, kind >> 1) {
        1 => near.next_up(),
        -1 => near.next_down(),
        _ => near,
    }
}

/// A 64-bit integer to f32, as [`int_to_f64`].
pub extern "C" fn int_to_f32(a: u64, kind: u32) -> f32 {
    let wide = if kind & 1 == 1 { i128::from(a as i64) } else { i128::from(a) };
    let near = wide as f32;
    match direction(near as i128, wide, kind >> 1) {
        1 => near.next_up(),
        -1 => near.next_down(),
        _ => near,
    }
}

fn direction(near: i128, exact: i128, round: u32) -> i32 {
    match round {
        1 if near > exact => -1,
        2 if near < exact => 1,
        3 if near > exact && exact > 0 => -1,
        3 if near < exact && exact < 0 => 1,
        _ => 0,
    }
}

/// 16-bit float bits to f32; `kind` 0 and 1 are f16, else bf16.
pub extern "C" fn half_to_f32(bits: u32, kind: u32) -> f32 {
    if kind < 2 { f16::from_bits(bits as u16).to_f32() } else { bf16::from_bits(bits as u16).to_f32() }
}

/// f64 to the bits of a 16-bit float, rounded once.
pub extern "C" fn f64_to_half(a: f64, kind: u32, round: u32) -> u32 {
    let format = if kind < 2 { small_float::F16 } else { small_float::BF16 };
    format.encode(a, Rounding::from_number(round & 3), false)
}

pub extern "C" fn sin(x: f32) -> f32 {
    special::sin(x)
}

pub extern "C" fn cos(x: f32) -> f32 {
    special::cos(x)
}

pub extern "C" fn lg2(x: f32) -> f32 {
    special::lg2(x)
}

pub extern "C" fn ex2(x: f32) -> f32 {
    special::ex2(x)
}

pub extern "C" fn tanh(x: f32) -> f32 {
    x.tanh()
}

fn minimum(a: f64, b: f64, max: bool, nan: bool) -> f64 {
    if nan && (a.is_nan() || b.is_nan()) {
        return f64::NAN;
    }
    if a.is_nan() {
        return b;
    }
    let first = if a == b { a.is_sign_negative() != max } else { (a < b) != max };
    if b.is_nan() || first { a } else { b }
}

/// A denormal 16-bit float becomes a zero of its sign.
fn flushed(bits: u32, ty: u32, ftz: bool) -> u32 {
    let least = if ty < 2 { 0x0400 } else { 0x0080 };
    if ftz && bits & 0x7fff < least { bits & 0x8000 } else { bits }
}

/// One operation on 16-bit floats, on both halves of a pair: `flags` holds kind, type, `.sat`, `.NaN`, `.relu`, `.ftz`.
pub extern "C" fn half_op(flags: u32, a: u32, b: u32, c: u32) -> u32 {
    let kind = flags & 0xff;
    let ty = flags >> 8 & 0xff;
    let one = |a: u32, b: u32, c: u32| -> u32 {
        let ftz = flags >> 19 & 1 == 1;
        let sign = match kind {
            k if k == FloatKind::Neg as u32 => Some(flushed((a ^ 0x8000) & 0xffff, ty, ftz)),
            k if k == FloatKind::Abs as u32 => Some(flushed(a & 0x7fff, ty, ftz)),
            _ => None,
        };
        if let Some(bits) = sign {
            return bits;
        }
        // Products of two such numbers are exact in f64; sums may not be, and are rounded to odd.
        let [x, y, z] = [a, b, c].map(|v| f64::from(half_to_f32(flushed(v & 0xffff, ty, ftz), ty)));
        let mut v = match kind {
            k if k == FloatKind::Add as u32 => odd_sum(x, y),
            k if k == FloatKind::Sub as u32 => odd_sum(x, -y),
            k if k == FloatKind::Mul as u32 => x * y,
            k if k == FloatKind::Fma as u32 => odd_sum(x * y, z),
            k if k == FloatKind::Min as u32 => minimum(x, y, false, flags >> 17 & 1 == 1),
            k if k == FloatKind::Max as u32 => minimum(x, y, true, flags >> 17 & 1 == 1),
            k if k == FloatKind::Ex2 as u32 => x.exp2(),
            _ => x.tanh(),
        };
        if flags >> 16 & 1 == 1 {
            v = if v > 0.0 { v.min(1.0) } else { 0.0 };
        }
        if flags >> 18 & 1 == 1 && v < 0.0 {
            v = 0.0;
        }
        flushed(f64_to_half(v, ty, 0), ty, ftz)
    };
    if ty & 1 == 0 {
        return one(a, b, c);
    }
    one(a & 0xffff, b & 0xffff, c & 0xffff) | one(a >> 16, b >> 16, c >> 16) << 16
}
