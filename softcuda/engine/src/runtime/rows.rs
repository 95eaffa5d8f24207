//! Operations that vector code leaves to the run time, for all lanes in one call: a *row* is one value of each lane, side by side
//! in memory. The results are those of the same operation on one lane, to the bit.

use super::helpers::FloatKind;
use super::{math, special};
use std::arch::asm;

macro_rules! special {
    ($name:ident, |$x:ident| $one:expr, $far:expr) => {
        /// Each value of a row becomes the function's value.
        ///
        /// # Safety
        /// `row` leads to `count` values.
        pub unsafe extern "C" fn $name(row: *mut f32, count: u32) {
            #[inline(always)]
            fn all(row: &mut [f32]) {
                let far: Option<fn(f32) -> f32> = $far;
                let old: [f32; 32] = std::array::from_fn(|i| row.get(i).copied().unwrap_or(0.0));
                row.iter_mut().for_each(|v| {
                    let $x = *v;
                    *v = $one;
                });
                let Some(far) = far else { return };
                for (v, x) in row.iter_mut().zip(old).filter(|(_, x)| x.abs() > special::FAR) {
                    *v = far(x);
                }
            }
            #[target_feature(enable = "avx2")]
            fn wide(row: &mut [f32]) {
                all(row);
            }
            // SAFETY: as promised; nobody else knows the row meanwhile.
            let row = unsafe { std::slice::from_raw_parts_mut(row, count as usize) };
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions.
                unsafe { wide(row) }
            } else {
                all(row);
            }
        }
    };
}
special!(ex2, |x| special::ex2(x), None);
special!(lg2, |x| special::lg2(x), None);
special!(sin, |x| special::near_sine(x, 0), Some(special::sin));
special!(cos, |x| special::near_sine(x, 1), Some(special::cos));
special!(tanh, |x| x.tanh(), None);

macro_rules! rounded {
    ($name:ident, $t:ty, $suffix:literal) => {
        /// `kind` of three rows, one behind the other, rounded as `round` (MXCSR's number) says; the result replaces the first one.
        ///
        /// # Safety
        /// `rows` leads to 3 · `count` values, and `count` fills whole vectors of 16 bytes. For [`FloatKind::Fma`] the processor has that
        /// instruction.
        pub unsafe extern "C" fn $name(kind: u32, round: u32, rows: *mut $t, count: u32) {
            let (new, old) = (math::mxcsr(round), math::mxcsr(0));
            let count = count as usize;
            macro_rules! run {
                ($op:literal, $operands:literal) => {
                    for i in (0..count).step_by(16 / size_of::<$t>()) {
                        // SAFETY: all three lie in the rows.
                        unsafe {
                            let [r, x, y] = [0, 1, 2].map(|k| rows.add(k * count + i));
                            asm!(
                                "movups {a}, [{r}]", "movups {b}, [{x}]", "movups {c}, [{y}]",
                                concat!($op, $suffix, $operands),
                                "movups [{r}], {a}",
                                r = in(reg) r, x = in(reg) x, y = in(reg) y,
                                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, options(nostack),
                            );
                        }
                    }
                };
            }
            // SAFETY: the rounding changes only until the end of this function, which computes nothing else meanwhile.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &new, options(nostack, readonly)) };
            match kind {
                k if k == FloatKind::Add as u32 => run!("add", " {a}, {b}"),
                k if k == FloatKind::Sub as u32 => run!("sub", " {a}, {b}"),
                k if k == FloatKind::Mul as u32 => run!("mul", " {a}, {b}"),
                k if k == FloatKind::Div as u32 => run!("div", " {a}, {b}"),
                k if k == FloatKind::Sqrt as u32 => run!("sqrt", " {a}, {b}"),
                _ => run!("vfmadd213", " {a}, {b}, {c}"),
            }
            // SAFETY: as above.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &old, options(nostack, readonly)) };
        }
    };
}
rounded!(rounded_f32, f32, "ps");
rounded!(rounded_f64, f64, "pd");

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [f32; 96] {
        std::array::from_fn(|i| f32::from_bits((i as u32 * 7 + 3).wrapping_mul(0x9e37_79b9)))
    }

    /// Each row operation against the one on one lane, on numbers of all sizes.
    #[test]
    fn same_bits_as_one_lane() {
        type Row = unsafe extern "C" fn(*mut f32, u32);
        type One = fn(f32) -> f32;
        let functions: [(Row, One); 5] = [
            (ex2, special::ex2),
            (lg2, special::lg2),
            (sin, special::sin),
            (cos, special::cos),
            (tanh, f32::tanh),
        ];
        for (row, one) in functions {
            for scale in [1e-20f32, 1e-3, 1.0, 50.0, 1e9, 1e30] {
                let x: [f32; 32] = std::array::from_fn(|i| (i as f32 - 13.7) * scale);
                let mut got = x;
                // SAFETY: 32 values.
                unsafe { row(got.as_mut_ptr(), 32) };
                for (g, x) in got.into_iter().zip(x) {
                    assert_eq!(g.to_bits(), one(x).to_bits(), "{x:e}");
                }
            }
        }
    }

    #[test]
    fn roundings_are_those_of_one_lane() {
        use FloatKind::{Add, Div, Fma, Mul, Sqrt, Sub};
        let fma = std::arch::is_x86_feature_detected!("fma");
        for kind in [Add, Sub, Mul, Div, Sqrt, Fma].into_iter().filter(|k| fma || *k != Fma) {
            for round in 0..4 {
                let all = rows();
                let mut got = all;
                // SAFETY: three rows of 32 values.
                unsafe { rounded_f32(kind as u32, round, got.as_mut_ptr(), 32) };
                for i in 0..32 {
                    let (a, b, c) = (all[i], all[32 + i], all[64 + i]);
                    let a = if kind == Sqrt { b } else { a };
                    let want = math::rounded_f32(kind as u32, round, a, b, c);
                    assert_eq!(got[i].to_bits(), want.to_bits(), "{kind:?} {round} {a:e} {b:e} {c:e}");
                }
                // Rounding is back to nearest.
                assert_eq!(std::hint::black_box(1f32) / std::hint::black_box(3f32), 0.333_333_34);
                let mut wide = all.map(f64::from);
                // SAFETY: as above.
                unsafe { rounded_f64(kind as u32, round, wide.as_mut_ptr(), 32) };
                for i in 0..32 {
                    let (a, b, c) = (f64::from(all[i]), f64::from(all[32 + i]), f64::from(all[64 + i]));
                    let a = if kind == Sqrt { b } else { a };
                    let want = math::rounded_f64(kind as u32, round, a, b, c);
                    assert_eq!(wide[i].to_bits(), want.to_bits(), "{kind:?} {round} {a:e} {b:e} {c:e}");
                }
            }
        }
    }
}
