//! Conversions between numbers in all roundings, on random and edge operands, against `rustc_apfloat`.

use crate::exact::{ROUNDS, Reference, compare};
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

type Owned = Box<dyn Fn(u64, u64, u64) -> Option<u64>>;

/// What stands for any NaN in what is compared.
const NAN: u64 = 0xffff_ffff;

fn check(register: &str, bytes: usize, mantissa: u32, list: &[(String, Owned)]) {
    let borrowed: Vec<(String, Reference)> =
        list.iter().map(|(n, f)| (n.clone(), f.as_ref() as Reference)).collect();
    compare(register, bytes, mantissa, &borrowed);
}

/// A conversion whose result is brought into the register `d` of `from`'s width, with [`NAN`] for NaNs.
fn code(cvt: &str, to: &str, from: &str) -> String {
    let width: u32 = to.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap();
    let nan = match to {
        "f32" => "testp.notanumber.f32 p, t; @p mov.b32 u, 0xffffffff;",
        "f16" => "setp.nan.f16 p, t, t; @p mov.b32 u, 0xffffffff;",
        "bf16" => "setp.nan.bf16 p, t, t; @p mov.b32 u, 0xffffffff;",
        _ => "",
    };
    let ty = if matches!(to, "f16" | "bf16") { "b16" } else { to };
    let narrow = match width {
        16 => "mov.b32 u, {t, z};",
        32 => "mov.b32 u, t;",
        _ => "",
    };
    let last = match (width, from) {
        (64, _) => "mov.b64 d, t;",
        (_, "f64") => "cvt.u64.u32 v, u; mov.b64 d, v;",
        _ => "mov.b32 d, u;",
    };
    format!(
        "{{ .reg .{ty} t; .reg .b32 u; .reg .b64 v; .reg .b16 z; .reg .pred p; mov.b16 z, 0; {cvt} t, a; {narrow} {nan} {last} }}"
    )
}

fn float<F: Float + FloatConvert<T>, T: Float>(x: u64, round: Round) -> Option<u64> {
    let v = F::from_bits(u128::from(x)).convert_r(round, &mut false).value;
    Some(if v.is_nan() { NAN } else { v.to_bits() as u64 })
}

/// The integer, clamped; NaN is 0, or the topmost bit where source or destination have 64.
fn integer<F: Float>(x: u64, round: Round, to: &str, wide: bool) -> Option<u64> {
    let v = F::from_bits(u128::from(x));
    let bits: u32 = to[1..].parse().unwrap();
    if v.is_nan() {
        return Some(if wide { 1 << (bits - 1) } else { 0 });
    }
    let n = v.to_i128_r(128, round, &mut false).value;
    let (low, high) = if to.starts_with('s') {
        (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    let n = n.clamp(low, high) as u64;
    Some(if bits == 64 { n } else { n & NAN })
}

#[test]
fn from_double_precision() {
    let mut list: Vec<(String, Owned)> = Vec::new();
    for (name, round) in ROUNDS {
        list.push((
            code(&format!("cvt.{name}.f32.f64"), "f32", "f64"),
            Box::new(move |x, _, _| float::<Double, Single>(x, round)),
        ));
        for to in ["s32", "u32", "s64", "u64"] {
            let cvt = format!("cvt.{name}i.{to}.f64");
            list.push((
                code(&cvt, to, "f64"),
                Box::new(move |x, _, _| integer::<Double>(x, round, to, true)),
            ));
        }
    }
    list.push((
        code("cvt.rn.f16.f64", "f16", "f64"),
        Box::new(|x, _, _| float::<Double, Half>(x, Round::NearestTiesToEven)),
    ));
    check("f64", 8, 52, &list);
}

#[test]
fn from_single_precision() {
    let mut list: Vec<(String, Owned)> = Vec::new();
    for (name, round) in ROUNDS {
        for to in ["s32", "u32"] {
            let cvt = format!("cvt.{name}i.{to}.f32");
            list.push((
                code(&cvt, to, "f32"),
                Box::new(move |x, _, _| integer::<Single>(x, round, to, false)),
            ));
        }
    }
    for (name, round) in &ROUNDS[..2] {
        let round = *round;
        list.push((
            code(&format!("cvt.{name}.f16.f32"), "f16", "f32"),
            Box::new(move |x, _, _| float::<Single, Half>(x, round)),
        ));
        list.push((
            code(&format!("cvt.{name}.bf16.f32"), "bf16", "f32"),
            Box::new(move |x, _, _| float::<Single, BFloat>(x, round)),
        ));
    }
    check("f32", 4, 23, &list);
}

#[test]
fn from_integers() {
    let mut narrow: Vec<(String, Owned)> = Vec::new();
    let mut wide: Vec<(String, Owned)> = Vec::new();
    for (name, round) in ROUNDS {
        let of = move |v: i128| Some(Single::from_i128_r(v, round).value.to_bits() as u64);
        let double = move |v: i128| Some(Double::from_i128_r(v, round).value.to_bits() as u64);
        narrow.push((
            format!("{{ .reg .s32 i; mov.b32 i, a; cvt.{name}.f32.s32 d, i; }}"),
            Box::new(move |x, _, _| of(i128::from(x as i32))),
        ));
        narrow.push((
            format!("{{ .reg .u32 i; mov.b32 i, a; cvt.{name}.f32.u32 d, i; }}"),
            Box::new(move |x, _, _| of(i128::from(x as u32))),
        ));
        wide.push((
            format!("{{ .reg .s64 i; mov.b64 i, a; cvt.{name}.f64.s64 d, i; }}"),
            Box::new(move |x, _, _| double(i128::from(x as i64))),
        ));
        wide.push((
            format!("{{ .reg .u64 i; mov.b64 i, a; cvt.{name}.f64.u64 d, i; }}"),
            Box::new(move |x, _, _| double(i128::from(x))),
        ));
        for (ty, signed) in [("s64", true), ("u64", false)] {
            let f = move |x: u64| of(if signed { i128::from(x as i64) } else { i128::from(x) });
            wide.push((
                format!("{{ .reg .{ty} i; .reg .f32 t; .reg .b32 u; .reg .b64 v; mov.b64 i, a; cvt.{name}.f32.{ty} t, i; mov.b32 u, t; cvt.u64.u32 v, u; mov.b64 d, v; }}"),
                Box::new(move |x, _, _| f(x)),
            ));
        }
    }
    check("f32", 4, 23, &narrow);
    check("f64", 8, 52, &wide);
}
