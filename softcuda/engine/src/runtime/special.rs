//! `ex2`, `lg2`, `sin` and `cos` of f32, computed in f64 and without branches, so that a loop over lanes becomes vector code. One thread
//! and a row of lanes get the same bits, whatever the processor: nothing here is contracted.
//!
//! Each series is cut off where what is left out is below 2^-32 of the result, far inside of the bounds of the PTX manual.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_PI_2, LN_2};

/// Adding it rounds to an integer, which then stands in the low bits: 1.5 · 2^52.
const SHIFT: f64 = 6_755_399_441_055_744.0;

/// `c[0] + x·(c[1] + x·(…))`.
#[inline(always)]
fn horner<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut sum = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum * x + c[i];
    }
    sum
}

/// 2 to the power of `x`.
#[inline(always)]
pub fn ex2(x: f32) -> f32 {
    let x = f64::from(x);
    // Beyond, results are zero and infinity all the same; NaN stays.
    let x = if x < -200.0 { -200.0 } else { x };
    let x = if x > 200.0 { 200.0 } else { x };
    let shifted = x + SHIFT;
    let t = (x - (shifted - SHIFT)) * LN_2;
    let power = horner(
        t,
        [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0],
    );
    // The integer becomes the exponent.
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1f64.to_bits()));
    (power * scale) as f32
}

/// The logarithm to base 2: `2/ln 2 · artanh((m-1)/(m+1))` of a mantissa around 1, and the exponent.
#[inline(always)]
pub fn lg2(x: f32) -> f32 {
    const BIAS: u64 = 1024;
    let bits = f64::from(x).to_bits();
    let exponent = (bits.wrapping_sub(FRAC_1_SQRT_2.to_bits()).wrapping_add(BIAS << 52)) >> 52;
    let m = f64::from_bits(bits.wrapping_sub(exponent.wrapping_sub(BIAS) << 52));
    let whole = f64::from_bits(4_503_599_627_370_496f64.to_bits() | exponent)
        - (4_503_599_627_370_496.0 + BIAS as f64);
    let s = (m - 1.0) / (m + 1.0);
    let sum = horner(s * s, [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0]);
    let log = (whole + s * sum * (2.0 / LN_2)) as f32;
    let log = if x > 0.0 { log } else { f32::NAN };
    let log = if x == 0.0 { f32::NEG_INFINITY } else { log };
    if x == f32::INFINITY { x } else { log }
}

/// π/2 in two parts: the first has 33 bits, so that its product with up to 2^20 is exact.
const QUARTER: [f64; 2] = {
    let high = f64::from_bits(FRAC_PI_2.to_bits() & !0xf_ffff);
    // What f64 does not hold of π/2.
    [high, (FRAC_PI_2 - high) + 6.123_233_995_736_766e-17]
};

/// Above this the parts of [`QUARTER`] are too short.
pub const FAR: f32 = 1e6;

/// The sine of `x` and some quarters of a turn; right up to [`FAR`].
#[inline(always)]
pub fn near_sine(x: f32, quarters: u64) -> f32 {
    let x = f64::from(x);
    let shifted = x * FRAC_2_PI + SHIFT;
    let k = shifted - SHIFT;
    let r = x - k * QUARTER[0] - k * QUARTER[1];
    let z = r * r;
    let sine =
        r * horner(z, [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0]);
    let cosine = horner(
        z,
        [1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0, -1.0 / 3_628_800.0, 1.0 / 479_001_600.0],
    );
    let quadrant = shifted.to_bits().wrapping_add(quarters);
    let v = if quadrant & 1 == 1 { cosine } else { sine };
    f64::from_bits(v.to_bits() ^ (quadrant & 2) << 62) as f32
}

/// The sine of `x`.
pub fn sin(x: f32) -> f32 {
    if x.abs() > FAR { f64::from(x).sin() as f32 } else { near_sine(x, 0) }
}

/// The cosine of `x`.
pub fn cos(x: f32) -> f32 {
    if x.abs() > FAR { f64::from(x).cos() as f32 } else { near_sine(x, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_arguments() {
        let inf = f32::INFINITY;
        assert_eq!(
            [ex2(0.0), ex2(-0.0), ex2(1.0), ex2(-149.0), ex2(127.0)],
            [1.0, 1.0, 2.0, f32::from_bits(1), 2f32.powi(127)]
        );
        assert_eq!([ex2(128.0), ex2(inf), ex2(-inf), ex2(-151.0)], [inf, inf, 0.0, 0.0]);
        assert_eq!([lg2(1.0), lg2(2.0), lg2(0.5), lg2(f32::from_bits(1))], [0.0, 1.0, -1.0, -149.0]);
        assert_eq!([lg2(0.0), lg2(-0.0), lg2(inf)], [-inf, -inf, inf]);
        assert_eq!([sin(0.0), cos(0.0)], [0.0, 1.0]);
        assert!(sin(-0.0).is_sign_negative());
        let nans = [ex2(f32::NAN), lg2(f32::NAN), lg2(-1.0), lg2(-inf), sin(inf), cos(-inf), sin(f32::NAN)];
        assert!(nans.iter().all(|v| v.is_nan()), "{nans:?}");
    }

    /// Against the C library's double precision, up to where it takes over.
    #[test]
    fn sines_of_many_turns() {
        for i in -200_000..=200_000i32 {
            let x = i as f32 * 4.999_7;
            for (got, want) in [(sin(x), f64::from(x).sin()), (cos(x), f64::from(x).cos())] {
                assert!((f64::from(got) - want).abs() < 1e-7, "{x}: {got}, not {want}");
            }
        }
    }
}
