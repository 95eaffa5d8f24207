//! Every rounding with every `.ftz` and `.sat` that PTX has for an operation, and the least and greatest of numbers: on random and
//! edge operands, against `rustc_apfloat` and integers.

use crate::exact::{Owned, ROUNDS, Reference, arithmetic, compare, compare_on, edge_operands, root};
use rustc_apfloat::Round;
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

/// A format of floats: its PTX type, bytes and bits of mantissa.
#[derive(Clone, Copy)]
struct Format {
    ty: &'static str,
    register: &'static str,
    bytes: usize,
    mantissa: u32,
}

const F32: Format = Format { ty: "f32", register: "f32", bytes: 4, mantissa: 23 };
const F64: Format = Format { ty: "f64", register: "f64", bytes: 8, mantissa: 52 };
const F16: Format = Format { ty: "f16", register: "b16", bytes: 2, mantissa: 10 };
const BF16: Format = Format { ty: "bf16", register: "b16", bytes: 2, mantissa: 7 };

impl Format {
    fn sign(self) -> u64 {
        1 << (self.bytes * 8 - 1)
    }

    fn infinity(self) -> u64 {
        (self.sign() - 1) & !((1 << self.mantissa) - 1)
    }

    fn one(self) -> u64 {
        self.infinity() >> 1 & self.infinity()
    }

    fn is_nan(self, v: u64) -> bool {
        v & (self.sign() - 1) > self.infinity()
    }

    /// `.ftz`: a denormal counts as a zero of its sign.
    fn flush(self, ftz: bool, v: u64) -> u64 {
        let denormal = v & (self.sign() - 1) < 1 << self.mantissa;
        if ftz && denormal { v & self.sign() } else { v }
    }

    /// `.sat`: into [0, 1], and NaN is +0.
    fn saturate(self, v: Option<u64>) -> u64 {
        match v {
            Some(v) if v & self.sign() == 0 => v.min(self.one()),
            _ => 0,
        }
    }

    /// The place of a number that is not NaN among all: -0 is below +0.
    fn order(self, v: u64) -> i128 {
        let magnitude = i128::from(v & (self.sign() - 1));
        if v & self.sign() == 0 { magnitude } else { -1 - magnitude }
    }

    /// `f` with `.ftz` and `.sat` around it.
    fn with(self, ftz: bool, sat: bool, f: impl Fn(u64, u64, u64) -> Option<u64> + 'static) -> Owned {
        Box::new(move |x, y, z| {
            let [x, y, z] = [x, y, z].map(|v| self.flush(ftz, v));
            let v = f(x, y, z).map(|v| self.flush(ftz, v));
            if sat { Some(self.saturate(v)) } else { v }
        })
    }

    fn check(self, list: &[(String, Owned)]) {
        compare(self.register, self.bytes, self.mantissa, &borrowed(list));
    }
}

fn borrowed(list: &[(String, Owned)]) -> Vec<(String, Reference<'_>)> {
    list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect()
}

/// The suffix for a modifier that may be there.
fn suffix(name: &'static str, there: bool) -> &'static str {
    if there { name } else { "" }
}

const BOTH: [bool; 2] = [false, true];

#[test]
fn single_precision() {
    for op in ["add", "sub", "mul", "fma"] {
        let c = suffix(", c", op == "fma");
        let mut list = Vec::new();
        for (name, round) in ROUNDS {
            for (ftz, sat) in BOTH.map(|ftz| BOTH.map(|sat| (ftz, sat))).concat() {
                let (f, s) = (suffix(".ftz", ftz), suffix(".sat", sat));
                let reference = F32.with(ftz, sat, arithmetic::<Single>(op, round));
                list.push((format!("{op}.{name}{f}{s}.f32 d, a, b{c}"), reference));
            }
        }
        F32.check(&list);
    }
}

#[test]
fn quotients_reciprocals_and_roots() {
    let mut list = Vec::new();
    for (name, round) in ROUNDS {
        for ftz in BOTH {
            let f = suffix(".ftz", ftz);
            let quotient = arithmetic::<Single>("div", round);
            list.push((format!("div.{name}{f}.f32 d, a, b"), F32.with(ftz, false, quotient)));
            let quotient = arithmetic::<Single>("div", round);
            let reciprocal = move |x, _, _| quotient(F32.one(), x, 0);
            list.push((format!("rcp.{name}{f}.f32 d, a"), F32.with(ftz, false, reciprocal)));
            let of = move |x, _, _| root(x, 23, 127, round);
            list.push((format!("sqrt.{name}{f}.f32 d, a"), F32.with(ftz, false, of)));
        }
    }
    F32.check(&list);
}

#[test]
fn double_precision() {
    let mut list: Vec<(String, Owned)> = Vec::new();
    for (name, round) in ROUNDS {
        for op in ["add", "sub", "mul", "div", "fma"] {
            let c = suffix(", c", op == "fma");
            list.push((format!("{op}.{name}.f64 d, a, b{c}"), Box::new(arithmetic::<Double>(op, round))));
        }
        let quotient = arithmetic::<Double>("div", round);
        let reciprocal = move |x, _, _| quotient(F64.one(), x, 0);
        list.push((format!("rcp.{name}.f64 d, a"), Box::new(reciprocal)));
        list.push((format!("sqrt.{name}.f64 d, a"), Box::new(move |x, _, _| root(x, 52, 1023, round))));
    }
    F64.check(&list);
}

/// PTX manual, `add{.rnd}{.ftz}{.sat}.f16` and the like; the only rounding is to nearest, and bf16 has neither `.ftz` nor `.sat`.
/// The two NaNs are canonical, 0x7fff.
fn half_operations(f: Format) -> Vec<(String, Owned)> {
    let near = Round::NearestTiesToEven;
    let mut list = Vec::new();
    for op in ["add", "sub", "mul", "fma"] {
        let exact = || -> Box<dyn Fn(u64, u64, u64) -> Option<u64>> {
            if f.mantissa == 10 {
                Box::new(arithmetic::<Half>(op, near))
            } else {
                Box::new(arithmetic::<BFloat>(op, near))
            }
        };
        let c = suffix(", c", op == "fma");
        let modes: &[bool] = if f.mantissa == 10 { &BOTH } else { &[false] };
        for (ftz, sat) in modes.iter().flat_map(|ftz| modes.iter().map(|sat| (*ftz, *sat))) {
            let (z, s) = (suffix(".ftz", ftz), suffix(".sat", sat));
            let of = f.with(ftz, sat, exact());
            list.push((
                format!("{op}.rn{z}{s}.{} d, a, b{c}", f.ty),
                Box::new(move |x, y, z| Some(of(x, y, z).unwrap_or(0x7fff))) as Owned,
            ));
        }
        for ftz in modes.iter().filter(|_| op == "fma") {
            // The manual does not say what -0 becomes: it is made +0 here by an addition, on both sides.
            let of = f.with(*ftz, false, exact());

            let text = format!(
                "{{ .reg .{} z; mov.{} z, 0; fma.rn{}.relu.{} d, a, b, c; add.rn.{} d, d, z; }}",
                f.register,
                f.register,
                suffix(".ftz", *ftz),
                f.ty,
                f.ty
            );
            let relu = move |x, y, z| match of(x, y, z) {
                Some(v) if v & 0x8000 == 0 => Some(v),
                Some(_) => Some(0),
                None => Some(0x7fff),
            };
            list.push((text, Box::new(relu) as Owned));
        }
    }
    list
}

/// `min` and `max` in all their forms. PTX manual: a number wins over NaN unless `.NaN` is given, and -0 is less than +0;
/// `.xorsign.abs` takes magnitudes, and the sign that a product would have.
fn extremes(f: Format) -> Vec<(String, Owned)> {
    let mut list = Vec::new();
    let flushing: &[bool] = if matches!(f.ty, "f32" | "f16") { &BOTH } else { &[false] };
    let forms: &[(bool, bool)] = if f.ty == "f64" {
        &[(false, false)]
    } else {
        &[(false, false), (false, true), (true, false), (true, true)]
    };
    for max in BOTH {
        for ftz in flushing {
            for (nan, xorsign) in forms {
                let (nan, xorsign) = (*nan, *xorsign);
                let text = format!(
                    "{}{}{}{}.{} d, a, b",
                    if max { "max" } else { "min" },
                    suffix(".ftz", *ftz),
                    suffix(".NaN", nan),
                    suffix(".xorsign.abs", xorsign),
                    f.ty
                );
                let pick = move |x: u64, y: u64, _: u64| {
                    let sign = if xorsign { (x ^ y) & f.sign() } else { 0 };
                    let [x, y] = [x, y].map(|v| if xorsign { v & (f.sign() - 1) } else { v });
                    extreme(f, max, nan, x, y).map(|v| v | sign)
                };
                list.push((text, f.with(*ftz, false, pick)));
            }
        }
    }
    list
}

fn extreme(f: Format, max: bool, nan: bool, x: u64, y: u64) -> Option<u64> {
    match (f.is_nan(x), f.is_nan(y)) {
        (true, true) => None,
        (true, false) | (false, true) if nan => None,
        (true, false) => Some(y),
        (false, true) => Some(x),
        _ => Some(if (f.order(x) < f.order(y)) != max { x } else { y }),
    }
}

#[test]
fn sixteen_bits() {
    for f in [F16, BF16] {
        f.check(&half_operations(f));
    }
}

#[test]
fn least_and_greatest() {
    for f in [F32, F64, F16, BF16] {
        f.check(&extremes(f));
    }
}

/// `min` and `max` of three.
#[test]
fn least_and_greatest_of_three() {
    let mut list: Vec<(String, Owned)> = Vec::new();
    for (max, nan) in BOTH.map(|max| BOTH.map(|nan| (max, nan))).concat() {
        for (ftz, abs) in BOTH.map(|ftz| BOTH.map(|abs| (ftz, abs))).concat() {
            let text = format!(
                "{}{}{}{}.f32 d, a, b, c",
                if max { "max" } else { "min" },
                suffix(".ftz", ftz),
                suffix(".NaN", nan),
                suffix(".abs", abs)
            );
            let pick = move |x, y, z| {
                let all = [x, y, z].map(|v| if abs { v & (F32.sign() - 1) } else { v });
                let first = extreme(F32, max, nan, all[0], all[1]).or((!nan).then_some(F32.sign() - 1))?;
                if nan && F32.is_nan(first) { None } else { extreme(F32, max, nan, first, all[2]) }
            };
            list.push((text, F32.with(ftz, false, pick)));
        }
    }
    F32.check(&list);
}

/// Pairs of 16-bit floats: each half is what the scalar operation gives.
#[test]
fn pairs_of_sixteen_bits() {
    for f in [F16, BF16] {
        let pair = if f.mantissa == 10 { "f16x2" } else { "bf16x2" };
        let inputs = [3, 5, 7].map(|seed| {
            let [low, high] = [seed, seed + 100].map(|seed| edge_operands(16, f.mantissa, seed));
            low.iter().zip(high).map(|(l, h)| l | h << 16).collect::<Vec<u64>>()
        });
        let mut scalar = half_operations(f);
        scalar.extend(extremes(f).into_iter().map(|(text, of)| {
            let of = move |x, y, z| Some(of(x, y, z).unwrap_or(0x7fff));
            (text, Box::new(of) as Owned)
        }));
        let list: Vec<(String, Owned)> = scalar
            .into_iter()
            .map(|(text, of)| {
                let text = text.replace(".b16", ".b32").replace(&format!(".{} ", f.ty), &format!(".{pair} "));
                let of = move |x: u64, y: u64, z: u64| {
                    let half = |n: u32| of(x >> n & 0xffff, y >> n & 0xffff, z >> n & 0xffff);
                    Some(half(0)? | half(16)? << 16)
                };
                (text, Box::new(of) as Owned)
            })
            .collect();
        compare_on(&inputs, "b32", 4, u64::MAX, &borrowed(&list));
    }
}

#[test]
fn signs_and_magnitudes() {
    for (f, flushing) in [(F32, &BOTH[..]), (F64, &BOTH[..1]), (F16, &BOTH[..]), (BF16, &BOTH[..1])] {
        let mut list: Vec<(String, Owned)> = Vec::new();
        for ftz in flushing {
            let number = move |v: u64| if f.is_nan(v) { None } else { Some(v) };
            let z = suffix(".ftz", *ftz);
            let neg = move |x, _, _| number(x ^ f.sign());
            list.push((format!("neg{z}.{} d, a", f.ty), f.with(*ftz, false, neg)));
            let abs = move |x, _, _| number(x & (f.sign() - 1));
            list.push((format!("abs{z}.{} d, a", f.ty), f.with(*ftz, false, abs)));
        }
        if f.bytes > 2 {
            // The sign of the first, the magnitude of the second; of NaNs too.
            let of = move |x, y, _| Some(x & f.sign() | y & (f.sign() - 1));
            list.push((format!("copysign.{} d, a, b", f.ty), Box::new(of)));
        }
        f.check(&list);
    }
}
