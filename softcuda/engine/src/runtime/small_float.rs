//! Floating-point formats of at most 19 significant bits: how numbers are rounded to them, once, and read back.

/// How a number that is not in the format is brought there; the first four count as MXCSR does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to even.
    Near,
    Down,
    Up,
    Zero,
    /// To nearest, ties away from zero (`.rna`).
    Away,
}

impl Rounding {
    /// From its number.
    pub fn from_number(n: u32) -> Rounding {
        match n {
            0 => Rounding::Near,
            1 => Rounding::Down,
            2 => Rounding::Up,
            3 => Rounding::Zero,
            _ => Rounding::Away,
        }
    }
}

/// What the highest exponent stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// Infinity and NaN, as in IEEE formats.
    Ieee,
    /// Numbers, except all ones, which is NaN (e4m3).
    OneNan,
    /// Numbers only.
    Numbers,
}

/// A format with a sign, `exp` exponent bits and `man` fraction bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub exp: u32,
    pub man: u32,
    pub top: Top,
}

pub const F16: Format = Format { exp: 5, man: 10, top: Top::Ieee };
pub const BF16: Format = Format { exp: 8, man: 7, top: Top::Ieee };
pub const TF32: Format = Format { exp: 8, man: 10, top: Top::Ieee };
pub const E4M3: Format = Format { exp: 4, man: 3, top: Top::OneNan };
pub const E5M2: Format = Format { exp: 5, man: 2, top: Top::Ieee };
pub const E2M1: Format = Format { exp: 2, man: 1, top: Top::Numbers };
pub const E2M3: Format = Format { exp: 2, man: 3, top: Top::Numbers };
pub const E3M2: Format = Format { exp: 3, man: 2, top: Top::Numbers };

/// By the number that [`crate::ir::Pure::Narrow`] and [`crate::ir::Pure::Widen`] carry.
pub const FORMATS: [Format; 8] = [F16, BF16, TF32, E4M3, E5M2, E2M1, E2M3, E3M2];

impl Format {
    /// Bits of a value.
    pub fn bits(self) -> u32 {
        1 + self.exp + self.man
    }

    fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }

    /// Infinity's bits, or one above the largest number where there is none.
    fn limit(self) -> u32 {
        match self.top {
            Top::Ieee => ((1 << self.exp) - 1) << self.man,
            Top::OneNan => (1 << (self.exp + self.man)) - 1,
            Top::Numbers => 1 << (self.exp + self.man),
        }
    }

    /// The bits of PTX's NaN: all ones without a sign. Formats without NaN have their largest number instead.
    pub fn nan(self) -> u32 {
        (1 << (self.exp + self.man)) - 1
    }

    /// Rounds once. What is too large becomes infinity (or the largest number, if the rounding says so, or `finite` does,
    /// or the format has no infinity).
    pub fn encode(self, x: f64, rounding: Rounding, finite: bool) -> u32 {
        let sign = u32::from(x.is_sign_negative()) << (self.exp + self.man);
        if x.is_nan() {
            return self.nan();
        }
        let below = self.limit() - 1;
        let negative = sign != 0;
        let toward_zero = match rounding {
            Rounding::Zero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
            _ => false,
        };
        if x.is_infinite() {
            return sign | if finite || self.top != Top::Ieee { below } else { self.limit() };
        }
        let r = self.magnitude(x.abs(), rounding, negative);
        if r < self.limit() {
            return sign | r;
        }
        sign | if finite || self.top != Top::Ieee || toward_zero { below } else { self.limit() }
    }

    /// The bits of a positive number rounded, perhaps beyond the largest one.
    fn magnitude(self, x: f64, rounding: Rounding, negative: bool) -> u32 {
        let bits = x.to_bits();
        let biased = (bits >> 52) as i32;
        if x == 0.0 {
            return 0;
        }
        // An f64 denormal is far below half of any smallest number here: any tiny number does in its place.
        let (exponent, fraction) =
            if biased == 0 { (-1022, 1 << 52) } else { (biased - 1023, bits & ((1 << 52) - 1) | 1 << 52) };
        let least = 1 - self.bias();
        let e = exponent.max(least);
        if e > self.bias() + 1 {
            return u32::MAX >> 1;
        }
        // One unit in the last place is 2^(e - man); `fraction` counts units of 2^(exponent - 52).
        let shift = ((e - self.man as i32) - (exponent - 52)).min(63) as u32;
        let (whole, rest) = (fraction >> shift, fraction & ((1 << shift) - 1));
        let half = 1u64 << (shift - 1);
        let up = match rounding {
            Rounding::Near => rest > half || rest == half && whole & 1 == 1,
            Rounding::Away => rest >= half,
            Rounding::Zero => false,
            Rounding::Down => negative && rest != 0,
            Rounding::Up => !negative && rest != 0,
        };
        let units = (whole + u64::from(up)) as u32;
        // The leading one of a normal number adds itself to the exponent.
        (((e - least) as u32) << self.man) + units
    }

    /// The number that bits stand for; bits above the format's width are ignored.
    pub fn decode(self, bits: u32) -> f64 {
        let m = bits & ((1 << (self.exp + self.man)) - 1);
        let negative = bits >> (self.exp + self.man) & 1 == 1;
        let v = if m >= self.limit() {
            if self.top == Top::Ieee && m == self.limit() { f64::INFINITY } else { f64::NAN }
        } else {
            let (e, f) = (m >> self.man, m & ((1 << self.man) - 1));
            let units = if e == 0 { f } else { f | 1 << self.man };
            f64::from(units) * power_of_two(e.max(1) as i32 - self.bias() - self.man as i32)
        };
        if negative { -v } else { v }
    }
}

/// 2^e for exponents of normal f64 numbers.
fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// `x · y + z`, rounded *to odd*: a last bit of one says that something was cut off, so that rounding once more to a format that is at
/// least two bits shorter gives what rounding the exact value gives. `x · y` must be exact.
pub fn odd_sum(product: f64, z: f64) -> f64 {
    let sum = product + z;
    if !sum.is_finite() {
        return sum;
    }
    // What the addition lost, exactly (Knuth's two-sum).
    let back = sum - product;
    let lost = (product - (sum - back)) + (z - back);
    if lost == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if lost > 0.0 { sum.next_up() } else { sum.next_down() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_number_comes_back() {
        for f in FORMATS {
            for bits in 0..1u32 << f.bits() {
                let v = f.decode(bits);
                if v.is_nan() {
                    continue;
                }
                for r in 0..5 {
                    assert_eq!(f.encode(v, Rounding::from_number(r), false), bits, "{f:?} {v}");
                }
            }
        }
    }

    /// Of neighbours `a < b`: what lies between goes to the nearer, and from the middle to the even one.
    #[test]
    fn between_neighbours() {
        for f in FORMATS {
            for bits in 0..f.limit() - 1 {
                let (a, b) = (f.decode(bits), f.decode(bits + 1));
                let middle = (a + b) / 2.0;
                let (down, up) = (middle - (b - a) / 64.0, middle + (b - a) / 64.0);
                assert_eq!(f.encode(down, Rounding::Near, true), bits);
                assert_eq!(f.encode(up, Rounding::Near, true), bits + 1);
                assert_eq!(f.encode(middle, Rounding::Near, true), bits + (bits & 1));
                assert_eq!(f.encode(middle, Rounding::Away, true), bits + 1);
                assert_eq!(f.encode(up, Rounding::Zero, true), bits);
                assert_eq!(f.encode(down, Rounding::Up, true), bits + 1);
                assert_eq!(f.encode(-down, Rounding::Up, true), bits | 1 << (f.bits() - 1));
                assert_eq!(f.encode(-down, Rounding::Down, true), (bits + 1) | 1 << (f.bits() - 1));
            }
        }
    }

    #[test]
    fn largest_numbers_of_the_manual() {
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert_eq!(E2M1.decode(7), 6.0);
        assert_eq!(E2M3.decode(0x1f), 7.5);
        assert_eq!(E3M2.decode(0x1f), 28.0);
        assert_eq!(F16.decode(0x7bff), 65504.0);
        assert_eq!(E4M3.encode(1e9, Rounding::Near, true), 0x7e);
        assert_eq!(E4M3.encode(f64::NAN, Rounding::Near, true), 0x7f);
        assert_eq!(E5M2.encode(f64::NEG_INFINITY, Rounding::Near, true), 0xfb);
        assert_eq!(F16.encode(1e9, Rounding::Near, false), 0x7c00);
        assert_eq!(F16.encode(1e9, Rounding::Zero, false), 0x7bff);
        assert_eq!(BF16.encode(5e-324, Rounding::Up, false), 1);
    }

    /// Against the `half` crate on all pairs of a sample: sums of two numbers are exact in f64.
    #[test]
    fn f16_and_bf16_agree_with_another_implementation() {
        for i in 0..200_000u32 {
            let x = f32::from_bits(i.wrapping_mul(0x9e37_79b9));
            if x.is_nan() {
                continue;
            }
            assert_eq!(
                F16.encode(f64::from(x), Rounding::Near, false),
                half::f16::from_f32(x).to_bits().into()
            );
            assert_eq!(
                BF16.encode(f64::from(x), Rounding::Near, false),
                half::bf16::from_f32(x).to_bits().into()
            );
        }
    }

    /// f16 `fma` where rounding twice would be wrong: 1 + 2^-11 lies in the middle, and what is added decides.
    #[test]
    fn sums_are_rounded_once() {
        let z = 2f64.powi(-60);
        let product = 1.0 + 2f64.powi(-11);
        assert_eq!(F16.encode(product + z, Rounding::Near, false), 0x3c00);
        assert_eq!(F16.encode(odd_sum(product, z), Rounding::Near, false), 0x3c01);
        assert_eq!(F16.encode(odd_sum(product, -z), Rounding::Near, false), 0x3c00);
    }
}
