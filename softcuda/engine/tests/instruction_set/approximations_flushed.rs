//! The special functions of other formats within the error bounds of the PTX manual: 16-bit floats (all of them), f64 by its upper
//! half, and f32 with `.ftz`.

use crate::approximations::{all, between, each, pattern, relative};
use crate::common::{Arg, Device};
use crate::exact::edge_operands;
use half::{bf16, f16};

/// `op d, a` of all 2^16 values of `a`, in both halves of `wide`; the results of the lower halves, and the upper.
fn sixteen_bits(op: &str, pair: bool) -> [Vec<u16>; 2] {
    let d = Device::new();
    let (ty, bytes) = if pair { ("b32", 4) } else { ("b16", 2) };
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 po) {{\n\
         .reg .{ty} a, d; .reg .b64 p, o, w; .reg .b32 t, n, i;\n\
         mov.u32 t, %tid.x; mov.u32 n, %ntid.x; mov.u32 i, %ctaid.x; mad.lo.u32 t, i, n, t; mul.wide.u32 w, t, {bytes};\n\
         ld.param.u64 p, [pa]; add.u64 p, p, w; ld.global.{ty} a, [p]; {op} d, a;\n\
         ld.param.u64 o, [po]; add.u64 o, o, w; st.global.{ty} [o], d; ret; }}"
    );
    let k = d.load(&text).kernels()[0].clone();
    // The upper half is the lower one's complement, so that they differ.
    let values: Vec<u16> = (0..=u16::MAX).flat_map(|v| if pair { vec![v, !v] } else { vec![v] }).collect();
    let (pa, po) = (d.put(&values), d.put(&vec![0u16; values.len()]));
    d.run(&k, [256, 1, 1], [256, 1, 1], &[pa, po].map(Arg::U64)).unwrap();
    let got = d.get::<u16>(po, values.len());
    if !pair {
        return [got, Vec::new()];
    }
    let low = got.iter().step_by(2).copied().collect();
    // In the order of the operand: that of `!v` is at `v`.
    [low, got.iter().skip(1).step_by(2).rev().copied().collect()]
}

type Check<'a> = &'a dyn Fn(u16, u16);

fn every(op: &str, ty: &str, check: Check) {
    let [low, _] = sixteen_bits(&format!("{op}.{ty}"), false);
    let [first, second] = sixteen_bits(&format!("{op}.{ty}x2"), true);
    for results in [low, first, second] {
        assert_eq!(results.len(), 1 << 16);
        results.into_iter().enumerate().for_each(|(x, g)| check(x as u16, g));
    }
}

/// PTX manual, `tanh`: absolute errors of 2^-10.987 for f16 and 2^-8 for bf16, denormals are kept.
#[test]
fn hyperbolic_tangents_of_sixteen_bits() {
    let check = |name: &str, bound: f64, x: f64, g: f64| {
        if x.is_nan() {
            return assert!(g.is_nan(), "{name}({x:e}) = {g:e}");
        }
        assert!((g - x.tanh()).abs() <= 2f64.powf(bound), "{name}({x:e}) = {g:e}");
        assert_eq!(g.is_sign_negative(), x.is_sign_negative(), "{name}({x:e}) = {g:e}");
    };
    every("tanh.approx", "f16", &|x, g| {
        check("tanh.f16", -10.987, f16::from_bits(x).to_f64(), f16::from_bits(g).to_f64());
    });
    every("tanh.approx", "bf16", &|x, g| {
        check("tanh.bf16", -8.0, bf16::from_bits(x).to_f64(), bf16::from_bits(g).to_f64());
    });
}

/// PTX manual, `ex2`: relative errors of 2^-9.9 for f16, whose denormals are kept, and 2^-7 for bf16, whose are flushed.
#[test]
fn exponentials_of_sixteen_bits() {
    let check = |name: &str, bound: f64, x: f64, g: f64, want: f64, least: f64, most: f64| {
        if x.is_nan() {
            assert!(g.is_nan(), "{name}({x:e}) = {g:e}");
        } else if want > most {
            assert!(g.is_infinite() && g > 0.0 || g == most, "{name}({x:e}) = {g:e}");
        } else {
            let slack = (want * 2f64.powf(bound)).max(least);
            assert!((g - want).abs() <= slack && g.is_sign_positive(), "{name}({x:e}) = {g:e}, not {want:e}");
        }
    };
    every("ex2.approx", "f16", &|x, g| {
        let (x, g) = (f16::from_bits(x).to_f64(), f16::from_bits(g).to_f64());
        check("ex2.f16", -9.9, x, g, x.exp2(), 2f64.powi(-25), 65504.0);
    });
    every("ex2.approx.ftz", "bf16", &|x, g| {
        let (x, g) = (bf16::from_bits(x).to_f64(), bf16::from_bits(g).to_f64());
        let want = if x.exp2() < 2f64.powi(-126) { 0.0 } else { x.exp2() };
        check("ex2.ftz.bf16", -7.0, x, g, want, 0.0, bf16::MAX.to_f64());
    });
}

fn flushed(x: f32) -> f64 {
    f64::from(if x.is_subnormal() { 0f32.copysign(x) } else { x })
}

/// As [`relative`], where results below the normal numbers are zeros of their sign.
fn relative_flushed(name: &str, bound: f64, x: f32, got: f32, want: f64) {
    assert!(!got.is_subnormal(), "{name}({x:e}) = {got:e}");
    if want.abs() < f64::from(f32::MIN_POSITIVE) * (1.0 - bound) {
        assert!(
            got == 0.0 && got.is_sign_negative() == want.is_sign_negative(),
            "{name}({x:e}) = {got:e}, not {want:e}"
        );
    } else {
        relative(name, bound, x, got, want);
    }
}

#[test]
fn of_flushed_arguments() {
    type Row = (&'static str, f64, fn(f64) -> f64);
    let rows: [Row; 4] = [
        ("rcp", -23.0, f64::recip),
        ("rsqrt", -22.9, |x| x.sqrt().recip()),
        ("sqrt", -23.0, f64::sqrt),
        ("ex2", -22.5, f64::exp2),
    ];
    for (name, bound, f) in rows {
        let op = format!("{name}.approx.ftz.f32 d, a");
        each(&op, &all, &mut |x, _, g| relative_flushed(name, 2f64.powf(bound), x, g, f(flushed(x))));
    }
    each("lg2.approx.ftz.f32 d, a", &all, &mut |x, _, g| {
        let want = flushed(x).log2();
        if x > 0.5 && x < 2.0 {
            assert!((f64::from(g) - want).abs() <= 2f64.powi(-22), "lg2({x:e}) = {g:e}");
        } else {
            relative_flushed("lg2", 2f64.powi(-22), x, g, want);
        }
    });
    for (name, f) in [("sin", f64::sin as fn(f64) -> f64), ("cos", f64::cos)] {
        let op = format!("{name}.approx.ftz.f32 d, a");
        let turn = std::f32::consts::TAU;
        each(&op, &between(-turn, turn), &mut |x, _, g| {
            let error = (f64::from(g) - f(flushed(x))).abs();
            assert!(error <= 2f64.powf(-20.5) && !g.is_subnormal(), "{name}({x:e}) = {g:e}");
        });
        // Around zero, where denormals are.
        each(&op, &|i| (f32::from_bits(i << 3 | (i & 1) << 31), 0.0), &mut |x, _, g| {
            assert!(!g.is_subnormal(), "{name}({x:e}) = {g:e}");
            if x.is_subnormal() {
                assert_eq!(f64::from(g), f(0.0), "{name}({x:e})");
            }
        });
    }
}

#[test]
fn quotients_of_flushed_operands() {
    let pairs = |i: u32| (pattern(i), pattern(i.wrapping_mul(2_654_435_761)));
    for name in ["div.full.ftz", "div.approx.ftz"] {
        each(&format!("{name}.f32 d, a, b"), &pairs, &mut |a, b, g| {
            assert!(!g.is_subnormal(), "{name} {a:e} {b:e}: {g:e}");
            if name == "div.full.ftz" || b.abs() >= 2f32.powi(-126) && b.abs() <= 2f32.powi(126) {
                relative_flushed(name, 2f64.powi(-22), a, g, flushed(a) / flushed(b));
            }
        });
    }
}

/// PTX manual, `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: of the operand only the upper 32 bits count, those of the result's
/// lower half are zero, and its 20 bits of mantissa are an approximation; denormals count as zeros.
#[test]
fn double_precision_by_its_upper_half() {
    type Row = (&'static str, fn(f64) -> f64);
    let rows: [Row; 2] = [("rcp", f64::recip), ("rsqrt", |x| x.sqrt().recip())];
    for (name, f) in rows {
        let d = Device::new();
        let text = format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 po) {{\n\
             .reg .f64 a, d; .reg .b64 p, o, w; .reg .b32 t, n, i;\n\
             mov.u32 t, %tid.x; mov.u32 n, %ntid.x; mov.u32 i, %ctaid.x; mad.lo.u32 t, i, n, t; mul.wide.u32 w, t, 8;\n\
             ld.param.u64 p, [pa]; add.u64 p, p, w; ld.global.f64 a, [p]; {name}.approx.ftz.f64 d, a;\n\
             ld.param.u64 o, [po]; add.u64 o, o, w; st.global.f64 [o], d; ret; }}"
        );
        let k = d.load(&text).kernels()[0].clone();
        let values = edge_operands(64, 52, 31);
        let (pa, po) = (d.put(&values), d.put(&vec![0u64; values.len()]));
        d.run(&k, [values.len() as u32 / 32, 1, 1], [32, 1, 1], &[pa, po].map(Arg::U64)).unwrap();
        for (x, got) in values.iter().zip(d.get::<u64>(po, values.len())) {
            let upper = f64::from_bits(x & !0xffff_ffff);
            let of = if upper.is_subnormal() { 0f64.copysign(upper) } else { upper };
            let (want, g) = (f(of), f64::from_bits(got));
            assert!(got & 0xffff_ffff == 0, "{name}({x:#x}) = {got:#x}");
            if want.is_nan() {
                assert!(g.is_nan(), "{name}({x:#x}) = {got:#x}");
            } else if want.is_infinite() || want.abs() < f64::MIN_POSITIVE * (1.0 - 1e-6) {
                let expected = if want.is_infinite() { want } else { 0f64.copysign(want) };
                assert_eq!(got, expected.to_bits(), "{name}({x:#x})");
            } else {
                assert!(((g - want) / want).abs() <= 2f64.powi(-20), "{name}({x:#x}) = {g:e}, not {want:e}");
            }
        }
    }
}
