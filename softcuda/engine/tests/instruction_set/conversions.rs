//! Conversions between all types of numbers, in all roundings, with `.ftz` and `.sat`, on random and edge operands: against
//! `rustc_apfloat`, through numbers of 128 bits, which hold all of them exactly.

use crate::exact::{Owned, ROUNDS, Reference, compare_on, edge_operands};
use rustc_apfloat::ieee::{BFloat, Double, Half, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

/// What stands for any NaN of up to 32 bits in what is compared.
const NAN: u64 = 0xffff_ffff;
/// Operands an operation.
const COUNT: usize = 6400;

const FLOATS: [&str; 4] = ["f16", "bf16", "f32", "f64"];
const INTEGERS: [&str; 8] = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"];

fn width(ty: &str) -> u32 {
    ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap()
}

fn float(ty: &str) -> bool {
    FLOATS.contains(&ty)
}

/// One conversion: `cvt.ROUND.MODE.to.from`.
#[derive(Clone, Copy)]
struct Conversion {
    to: &'static str,
    from: &'static str,
    round: Option<(&'static str, Round)>,
    /// To a whole number, by the rounding.
    integral: bool,
    ftz: bool,
    sat: bool,
}

/// The number that bits of a type mean.
fn decode(ty: &str, bits: u64) -> Quad {
    fn wide<F: Float + FloatConvert<Quad>>(bits: u64) -> Quad {
        F::from_bits(u128::from(bits)).convert(&mut false).value
    }
    let bits = bits & (u64::MAX >> (64 - width(ty)));
    match ty {
        "f16" => wide::<Half>(bits),
        "bf16" => wide::<BFloat>(bits),
        "f32" => wide::<Single>(bits),
        "f64" => wide::<Double>(bits),
        _ => Quad::from_i128(integer(ty, bits)).value,
    }
}

fn integer(ty: &str, bits: u64) -> i128 {
    let shift = 128 - width(ty);
    let top = (i128::from(bits)) << shift;
    if ty.starts_with('s') { top >> shift } else { (top as u128 >> shift) as i128 }
}

/// The least and greatest integer of a type.
fn range(ty: &str) -> (i128, i128) {
    let n = width(ty);
    if ty.starts_with('s') { (-1 << (n - 1), (1 << (n - 1)) - 1) } else { (0, (1 << n) - 1) }
}

impl Conversion {
    fn text(self) -> String {
        let round =
            self.round.map_or(String::new(), |r| format!(".{}{}", r.0, if self.integral { "i" } else { "" }));
        let ftz = if self.ftz { ".ftz" } else { "" };
        let sat = if self.sat { ".sat" } else { "" };
        format!("cvt{round}{ftz}{sat}.{}.{}", self.to, self.from)
    }

    /// With its operand in the 64 bits of `a`, and its result in those of `d`: integers of fewer than 32 bits extended to 32, as
    /// wider registers have them, and [`NAN`] for NaNs of up to 32 bits.
    fn code(self) -> String {
        let cvt = self.text();
        let source = match width(self.from) {
            64 => ".reg .b64 s; mov.b64 s, a;",
            32 => ".reg .b32 s; cvt.u32.u64 s, a;",
            _ => ".reg .b16 s; cvt.u16.u64 s, a;",
        };
        let (register, move_out) = match (float(self.to), width(self.to)) {
            (_, 64) => ("b64", "mov.b64 d, t;"),
            (true, 16) => ("b16", "cvt.u64.u16 d, t;"),
            _ => ("b32", "cvt.u64.u32 d, t;"),
        };
        let nan = match self.to {
            "f32" => "setp.nan.f32 p, t, t; @p mov.b64 d, 0xffffffff;",
            "f16" => "setp.nan.f16 p, t, t; @p mov.b64 d, 0xffffffff;",
            "bf16" => "setp.nan.bf16 p, t, t; @p mov.b64 d, 0xffffffff;",
            _ => "",
        };
        format!("{{ {source} .reg .{register} t; .reg .pred p; {cvt} t, s; {move_out} {nan} }}")
    }

    fn expected(self, bits: u64) -> Option<u64> {
        if !float(self.to) && !float(self.from) {
            let v = integer(self.from, bits);
            let (low, high) = range(self.to);
            return Some(self.extended(if self.sat { v.clamp(low, high) } else { v }));
        }
        let mut v = decode(self.from, bits);
        let round = self.round.map_or(Round::NearestTiesToEven, |r| r.1);
        if self.ftz && self.from == "f32" && bits & 0x7f80_0000 == 0 {
            v = if v.is_negative() { -Quad::ZERO } else { Quad::ZERO };
        }
        if !float(self.to) {
            return Some(self.to_integer(v, round));
        }
        if self.integral {
            v = v.round_to_integral(round).value;
        }
        let bits = match self.to {
            "f16" => narrow::<Half>(v, round),
            "bf16" => narrow::<BFloat>(v, round),
            "f32" => narrow::<Single>(v, round),
            _ => narrow::<Double>(v, round),
        };
        let flushed = match bits {
            Some(b) if self.ftz && self.to == "f32" && b & 0x7f80_0000 == 0 => Some(b & 0x8000_0000),
            b => b,
        };
        let sign = 1 << (width(self.to) - 1);
        let one = decode_one(self.to);
        match flushed {
            Some(b) if self.sat => Some(if b & sign == 0 { b.min(one) } else { 0 }),
            None if self.sat => Some(0),
            None if self.to == "f64" => None,
            b => Some(b.unwrap_or(NAN)),
        }
    }

    /// PTX manual, `cvt`: what is out of range becomes the nearest end; NaN is 0, or the topmost bit where source or destination
    /// have 64 bits.
    fn to_integer(self, v: Quad, round: Round) -> u64 {
        if v.is_nan() {
            let wide = self.from == "f64" || width(self.to) == 64;
            return self.extended(if wide { 1 << (width(self.to) - 1) } else { 0 });
        }
        let (low, high) = range(self.to);
        self.extended(v.to_i128_r(128, round, &mut false).value.clamp(low, high))
    }

    /// As a register of 32 or 64 bits has it.
    fn extended(self, v: i128) -> u64 {
        let v = integer(self.to, v as u64 & (u64::MAX >> (64 - width(self.to)))) as u64;
        if width(self.to) == 64 { v } else { v & NAN }
    }
}

fn decode_one(ty: &str) -> u64 {
    match ty {
        "f16" => 0x3c00,
        "bf16" => 0x3f80,
        "f32" => 0x3f80_0000,
        _ => 0x3ff0_0000_0000_0000,
    }
}

fn narrow<T: Float>(v: Quad, round: Round) -> Option<u64>
where
    Quad: FloatConvert<T>,
{
    let v: T = v.convert_r(round, &mut false).value;
    if v.is_nan() { None } else { Some(v.to_bits() as u64) }
}

/// All conversions that PTX has from one type to another.
fn all(to: &'static str, from: &'static str) -> Vec<Conversion> {
    let plain = Conversion { to, from, round: None, integral: false, ftz: false, sat: false };
    let integral = float(from) && (!float(to) || to == from);
    let rounded = match (float(from), float(to)) {
        (false, true) => true,
        (true, true) => FLOATS.iter().position(|f| *f == to) < FLOATS.iter().position(|f| *f == from),
        _ => false,
    };
    let mut list = Vec::new();
    if integral {
        list.extend(ROUNDS.map(|r| Conversion { round: Some(r), integral: true, ..plain }));
    }
    if rounded {
        // bf16 of f32 has two.
        let count = if (to, from) == ("bf16", "f32") { 2 } else { 4 };
        list.extend(ROUNDS[..count].iter().map(|r| Conversion { round: Some(*r), ..plain }));
    }
    if !(integral || rounded || to.contains("f16") && from.contains("f16")) {
        list.push(plain);
    }
    let sat = float(to) != float(from) && float(to)
        || to == from && float(to)
        || rounded
        || !float(to) && !float(from);
    let sat: Vec<Conversion> =
        list.iter().filter(|_| sat && to != "bf16").map(|c| Conversion { sat: true, ..*c }).collect();
    list.extend(sat);
    if (to == "f32" || from == "f32") && to != "bf16" {
        let ftz: Vec<Conversion> = list.iter().map(|c| Conversion { ftz: true, ..*c }).collect();
        list.extend(ftz);
    }
    list
}

fn check(from: &'static str, to: &[&'static str]) {
    let mantissa = match from {
        "f16" => 10,
        "bf16" => 7,
        "f32" => 23,
        "f64" => 52,
        ty => width(ty) - 5,
    };
    let n = width(from);
    let mut values = edge_operands(n, mantissa, 4711 + u64::from(n));
    values.truncate(COUNT);
    // What is above the operand is not looked at.
    let above = if n == 64 { 0 } else { 0xa5a5_5a5a_c3c3_3c3c << n };
    for (i, v) in values.iter_mut().enumerate() {
        // Halves of small numbers, for ties; of integers all sizes.
        if !float(from) {
            *v >>= i as u32 % n;
        } else if i % 16 == 1 {
            let half = (i as f64 / 16.0).floor() / 2.0 - 100.0;
            *v = Double::from_bits(u128::from(half.to_bits())).to_bits() as u64;
            let q = decode("f64", *v);
            *v = match from {
                "f16" => narrow::<Half>(q, Round::NearestTiesToEven),
                "bf16" => narrow::<BFloat>(q, Round::NearestTiesToEven),
                "f32" => narrow::<Single>(q, Round::NearestTiesToEven),
                _ => Some(*v),
            }
            .unwrap();
        }
        *v |= above;
    }
    let list: Vec<(String, Owned)> = to
        .iter()
        .flat_map(|to| all(to, from))
        .map(|c| (c.code(), Box::new(move |x, _, _| c.expected(x)) as Owned))
        .collect();
    let borrowed: Vec<(String, Reference)> =
        list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect();
    let inputs = [values.clone(), values.clone(), values];
    compare_on(&inputs, "b64", 8, 0x7ff0_0000_0000_0000, &borrowed);
}

#[test]
fn from_floats_to_integers() {
    for from in FLOATS {
        check(from, &INTEGERS);
    }
}

#[test]
fn from_integers_to_floats() {
    for from in INTEGERS {
        check(from, &FLOATS);
    }
}

#[test]
fn between_floats() {
    for from in FLOATS {
        check(from, &FLOATS);
    }
}

#[test]
fn between_integers() {
    for from in INTEGERS {
        check(from, &INTEGERS);
    }
}

/// Two f32 become a pair, the first on top; `.relu` makes what is below zero +0, and NaN canonical.
#[test]
fn two_floats_to_a_pair() {
    let mut list: Vec<(String, Owned)> = Vec::new();
    for (pair, to) in [("f16x2", "f16"), ("bf16x2", "bf16")] {
        for (name, round) in [ROUNDS[0], ROUNDS[1]] {
            for relu in [false, true] {
                let plain = Conversion {
                    to,
                    from: "f32",
                    round: Some((name, round)),
                    integral: false,
                    ftz: false,
                    sat: false,
                };
                let one = move |x| match plain.expected(x).unwrap() {
                    NAN => 0x7fff,
                    v if relu && v & 0x8000 != 0 => 0,
                    v => v,
                };
                let r = if relu { ".relu" } else { "" };
                // -0 is made +0 where the manual does not say whether it is below zero.
                let zero = if relu { format!("mov.b32 z, 0; add.rn.{pair} d, d, z;") } else { String::new() };
                list.push((
                    format!("{{ .reg .b32 z; cvt.{name}{r}.{pair}.f32 d, a, b; {zero} }}"),
                    Box::new(move |x, y, _| Some(one(x) << 16 | one(y))),
                ));
                let of = move |x, _, _| Some(one(x));
                list.push((
                    format!("{{ .reg .b16 h; .reg .b32 z; cvt.{name}{r}.{to}.f32 h, a; mov.b32 d, {{h, 0}}; {zero} }}"),
                    Box::new(of),
                ));
            }
        }
    }
    let borrowed: Vec<(String, Reference)> =
        list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect();
    compare_on(&[1, 2, 3].map(|seed| edge_operands(32, 23, seed)), "b32", 4, u64::MAX, &borrowed);
}
