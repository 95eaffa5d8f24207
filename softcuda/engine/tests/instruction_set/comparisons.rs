//! All comparisons of all types, and what `testp` asks, on random and edge operands (NaN, infinities, denormals, zeros of both
//! signs): against integers.

use crate::exact::{Owned, Reference, compare_on, edge_operands};

/// The comparisons of the PTX manual: their names, what of {below, equal, above} they accept, and whether NaN is accepted.
const FLOATS: [(&str, [bool; 3], bool); 14] = [
    ("eq", [false, true, false], false),
    ("ne", [true, false, true], false),
    ("lt", [true, false, false], false),
    ("le", [true, true, false], false),
    ("gt", [false, false, true], false),
    ("ge", [false, true, true], false),
    ("equ", [false, true, false], true),
    ("neu", [true, false, true], true),
    ("ltu", [true, false, false], true),
    ("leu", [true, true, false], true),
    ("gtu", [false, false, true], true),
    ("geu", [false, true, true], true),
    ("num", [true, true, true], false),
    ("nan", [false, false, false], true),
];

/// As [`FLOATS`], of integers.
const INTEGERS: [(&str, [bool; 3]); 10] = [
    ("eq", [false, true, false]),
    ("ne", [true, false, true]),
    ("lt", [true, false, false]),
    ("le", [true, true, false]),
    ("gt", [false, false, true]),
    ("ge", [false, true, true]),
    ("lo", [true, false, false]),
    ("ls", [true, true, false]),
    ("hi", [false, false, true]),
    ("hs", [false, true, true]),
];

/// A format of floats: its bits in all and of the mantissa.
#[derive(Clone, Copy)]
struct Format {
    ty: &'static str,
    width: u32,
    mantissa: u32,
}

const FORMATS: [Format; 4] = [
    Format { ty: "f32", width: 32, mantissa: 23 },
    Format { ty: "f64", width: 64, mantissa: 52 },
    Format { ty: "f16", width: 16, mantissa: 10 },
    Format { ty: "bf16", width: 16, mantissa: 7 },
];

impl Format {
    fn magnitude(self, v: u64) -> u64 {
        v & ((1 << (self.width - 1)) - 1)
    }

    fn infinity(self) -> u64 {
        ((1 << (self.width - 1)) - 1) & !((1 << self.mantissa) - 1)
    }

    /// The number's place among all that are not NaN, which has none. Zeros are equal.
    fn order(self, v: u64, ftz: bool) -> Option<i128> {
        let m = self.magnitude(v);
        if m > self.infinity() {
            return None;
        }
        let m = if ftz && m < 1 << self.mantissa { 0 } else { i128::from(m) };
        Some(if v >> (self.width - 1) & 1 == 1 { -m } else { m })
    }

    fn accepts(self, row: &(&str, [bool; 3], bool), ftz: bool, x: u64, y: u64) -> bool {
        match (self.order(x, ftz), self.order(y, ftz)) {
            (Some(x), Some(y)) => row.1[(x.cmp(&y) as i8 + 1) as usize],
            _ => row.2,
        }
    }
}

/// The operands of one type; every fourth pair is equal or one apart.
fn operands(width: u32, mantissa: u32) -> [Vec<u64>; 3] {
    let mut all = [11, 13, 17].map(|seed| edge_operands(width, mantissa, seed));
    let mask = u64::MAX >> (64 - width);
    for i in (0..all[0].len()).step_by(4) {
        all[1][i] = all[0][i].wrapping_add(i as u64 / 4 % 3).wrapping_sub(1) & mask;
    }
    all
}

fn check(width: u32, mantissa: u32, list: &[(String, Owned)]) {
    let borrowed: Vec<(String, Reference)> =
        list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect();
    compare_on(&operands(width, mantissa), &format!("b{width}"), width as usize / 8, u64::MAX, &borrowed);
}

/// `d` is 7 where the predicate is true, else 1.
fn chosen(width: u32, code: &str) -> String {
    format!("{{ .reg .pred p; {code}; selp.b{width} d, 7, 1, p; }}")
}

#[test]
fn of_floats() {
    for f in FORMATS {
        let mut list: Vec<(String, Owned)> = Vec::new();
        let flushing: &[bool] = if matches!(f.ty, "f32" | "f16") { &[false, true] } else { &[false] };
        for row in &FLOATS {
            for ftz in flushing.iter().copied() {
                let z = if ftz { ".ftz" } else { "" };
                let (name, ty) = (row.0, f.ty);
                let of = move |x, y, _| Some(if f.accepts(row, ftz, x, y) { 7 } else { 1 });
                list.push((chosen(f.width, &format!("setp.{name}{z}.{ty} p, a, b")), Box::new(of)));
                // With a predicate: `c` is below zero, and the second destination is the opposite before that.
                let of = move |x, y, z: u64| {
                    let (t, c) = (f.accepts(row, ftz, x, y), z >> (f.width - 1) & 1 == 1);
                    Some(u64::from(t && c) | u64::from(!t && c) << 1)
                };
                list.push((
                    format!(
                        "{{ .reg .pred c0, p, q; .reg .b{w} n; setp.lt.s{w} c0, c, 0; setp.{name}.and{z}.{ty} p|q, a, b, c0;\
                         selp.b{w} d, 1, 0, p; selp.b{w} n, 2, 0, q; or.b{w} d, d, n; }}",
                        w = f.width
                    ),
                    Box::new(of),
                ));
                if f.width != 32 {
                    continue;
                }
                let of = move |x, y, _| Some(if f.accepts(row, ftz, x, y) { 0xffff_ffff } else { 0 });
                list.push((format!("set.{name}{z}.u32.f32 d, a, b"), Box::new(of)));
                let of = move |x, y, _| Some(if f.accepts(row, ftz, x, y) { 0x3f80_0000 } else { 0 });
                list.push((format!("set.{name}{z}.f32.f32 d, a, b"), Box::new(of)));
            }
        }
        check(f.width, f.mantissa, &list);
    }
}

/// Pairs of 16-bit floats: the lower ones and the upper ones are compared.
#[test]
fn of_pairs() {
    for (f, pair) in [(FORMATS[2], "f16x2"), (FORMATS[3], "bf16x2")] {
        let halves = [f.width; 2].map(|w| operands(w, f.mantissa));
        let mut inputs: [Vec<u64>; 3] = Default::default();
        for (i, out) in inputs.iter_mut().enumerate() {
            // The upper halves are the lower ones in another order, so that the two answers differ.
            let high = halves[1][i].iter().rev();
            *out = halves[0][i].iter().zip(high).map(|(l, h)| l | h << 16).collect();
        }
        let mut list: Vec<(String, Owned)> = Vec::new();
        let flushing: &[bool] = if pair == "f16x2" { &[false, true] } else { &[false] };
        for row in &FLOATS {
            for ftz in flushing.iter().copied() {
                let z = if ftz { ".ftz" } else { "" };
                let both = move |x: u64, y: u64| {
                    [0, 16].map(|n| f.accepts(row, ftz, x >> n & 0xffff, y >> n & 0xffff))
                };
                let of = move |x, y, _| {
                    let [low, high] = both(x, y).map(u64::from);
                    Some(low | high << 1)
                };
                list.push((
                    format!(
                        "{{ .reg .pred p, q; .reg .b32 n; setp.{}{z}.{pair} p|q, a, b;\
                         selp.b32 d, 1, 0, p; selp.b32 n, 2, 0, q; or.b32 d, d, n; }}",
                        row.0
                    ),
                    Box::new(of),
                ));
                let one = if pair == "f16x2" { 0x3c00 } else { 0x3f80 };
                let of = move |x, y, _| {
                    let [low, high] = both(x, y).map(u64::from);
                    Some((low | high << 16) * one)
                };
                list.push((format!("set.{}{z}.{pair}.{pair} d, a, b", row.0), Box::new(of)));
            }
        }
        let borrowed: Vec<(String, Reference)> =
            list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect();
        compare_on(&inputs, "b32", 4, u64::MAX, &borrowed);
    }
}

#[test]
fn of_integers() {
    for width in [16, 32, 64] {
        let mut list: Vec<(String, Owned)> = Vec::new();
        for kind in ["s", "u", "b"] {
            for (name, accepted) in INTEGERS {
                let unsigned_name = matches!(name, "lo" | "ls" | "hi" | "hs");
                if kind == "b" && !matches!(name, "eq" | "ne") || unsigned_name && kind != "u" {
                    continue;
                }
                let value = move |v: u64| match (kind, width) {
                    ("s", 16) => i128::from(v as i16),
                    ("s", 32) => i128::from(v as i32),
                    ("s", _) => i128::from(v as i64),
                    _ => i128::from(v),
                };
                let of = move |x, y, _| {
                    let [below, equal, above] = accepted;
                    let (x, y) = (value(x), value(y));
                    let t = x < y && below || x == y && equal || x > y && above;
                    Some(if t { 7 } else { 1 })
                };
                list.push((chosen(width, &format!("setp.{name}.{kind}{width} p, a, b")), Box::new(of)));
            }
        }
        check(width, width - 9, &list);
    }
}

#[test]
fn sorts_of_numbers() {
    for f in &FORMATS[..2] {
        let (low, inf) = (1u64 << f.mantissa, f.infinity());
        type Test = fn(u64, u64, u64) -> bool;
        let tests: [(&str, Test); 6] = [
            ("finite", |m, _, inf| m < inf),
            ("infinite", |m, _, inf| m == inf),
            ("number", |m, _, inf| m <= inf),
            ("notanumber", |m, _, inf| m > inf),
            ("normal", |m, low, inf| m >= low && m < inf),
            ("subnormal", |m, low, _| m > 0 && m < low),
        ];
        let list: Vec<(String, Owned)> = tests
            .into_iter()
            .map(|(name, test)| {
                let of = move |x, _, _| Some(if test(f.magnitude(x), low, inf) { 7u64 } else { 1 });
                (chosen(f.width, &format!("testp.{name}.{} p, a", f.ty)), Box::new(of) as Owned)
            })
            .collect();
        check(f.width, f.mantissa, &list);
    }
}

/// `c >= 0 ? a : b`; a NaN chooses `b`, and with `.ftz` a denormal below zero counts as zero.
#[test]
fn chosen_by_a_sign() {
    let f = FORMATS[0];
    let mut list: Vec<(String, Owned)> = Vec::new();
    for ftz in [false, true] {
        let z = if ftz { ".ftz" } else { "" };
        let of = move |x, y, c| Some(if f.order(c, ftz).is_some_and(|c| c >= 0) { x } else { y });
        list.push((format!("slct{z}.b32.f32 d, a, b, c"), Box::new(of)));
    }
    let of = |x, y, c: u64| Some(if c as i32 >= 0 { x } else { y });
    list.push(("slct.b32.s32 d, a, b, c".to_string(), Box::new(of)));
    check(32, 23, &list);
}
