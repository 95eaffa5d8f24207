//! The special functions within the error bounds of the PTX manual, over dense samples of all their arguments, against f64.

use crate::common::{Arg, Device};
use softcuda_engine::Kernel;
use std::sync::Arc;

/// Arguments a round, and rounds: together 2^22 values spread over all bit patterns.
const COUNT: u32 = 1 << 18;
const ROUNDS: u32 = 16;

fn kernel(d: &Device, op: &str) -> Arc<Kernel> {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 po) {{\n\
         .reg .f32 a, b, d; .reg .b64 p, q, o, w; .reg .b32 t, n, i;\n\
         mov.u32 t, %tid.x; mov.u32 n, %ntid.x; mov.u32 i, %ctaid.x; mad.lo.u32 t, i, n, t; mul.wide.u32 w, t, 4;\n\
         ld.param.u64 p, [pa]; add.u64 p, p, w; ld.global.f32 a, [p]; ld.param.u64 q, [pb]; add.u64 q, q, w; ld.global.f32 b, [q];\n\
         {op}; ld.param.u64 o, [po]; add.u64 o, o, w; st.global.f32 [o], d; ret; }}"
    );
    d.load(&text).kernels()[0].clone()
}

/// Calls `check` with arguments and result of `op` for many arguments that `keep` lets pass.
pub fn each(op: &str, arguments: &dyn Fn(u32) -> (f32, f32), check: &mut dyn FnMut(f32, f32, f32)) {
    let d = Device::new();
    let k = kernel(&d, op);
    for round in 0..ROUNDS {
        let (a, b): (Vec<f32>, Vec<f32>) = (0..COUNT).map(|i| arguments(i * ROUNDS + round)).unzip();
        let (pa, pb, po) = (d.put(&a), d.put(&b), d.put(&vec![0f32; COUNT as usize]));
        d.run(&k, [COUNT / 256, 1, 1], [256, 1, 1], &[pa, pb, po].map(Arg::U64)).unwrap();
        let got: Vec<f32> = d.get(po, COUNT as usize);
        for ((a, b), g) in a.into_iter().zip(b).zip(got) {
            check(a, b, g);
        }
        for p in [pa, pb, po] {
            d.memory.free(p);
        }
    }
}

/// Every 1024th bit pattern, with a different remainder each time.
pub fn pattern(i: u32) -> f32 {
    f32::from_bits((i << 10) | (i.wrapping_mul(0x9e37_79b9) >> 22))
}

pub fn between(low: f32, high: f32) -> impl Fn(u32) -> (f32, f32) {
    move |i| (low + (high - low) * (i as f32 / (COUNT * ROUNDS) as f32), 0.0)
}

pub fn all(i: u32) -> (f32, f32) {
    (pattern(i), 0.0)
}

/// Within a relative error; of results that are no normal f32 only what kind they are.
pub fn relative(name: &str, bound: f64, x: f32, got: f32, want: f64) {
    let rounded = want as f32;
    if want.is_nan() {
        assert!(got.is_nan(), "{name}({x:e}) = {got:e}, not NaN");
    } else if rounded.is_infinite() || rounded == 0.0 || rounded.is_subnormal() || got.is_infinite() {
        let tiny = f64::from(f32::MIN_POSITIVE) * 1e-6;
        let close = (f64::from(got) - want).abs() <= (want * bound).abs() + tiny;
        assert!(
            got == rounded || close || (got == 0.0 && rounded.is_subnormal()),
            "{name}({x:e}) = {got:e}, not {want:e}"
        );
    } else {
        let error = ((f64::from(got) - want) / want).abs();
        assert!(error <= bound, "{name}({x:e}) = {got:e}, not {want:e}: 2^{:.2}", error.log2());
    }
}

#[test]
fn reciprocals_and_roots() {
    // `rcp`: 1 ulp; `rsqrt`: 2^-22.9; `sqrt.approx`: 2^-23 (1 ulp).
    each("rcp.approx.f32 d, a", &all, &mut |x, _, g| {
        relative("rcp", 2f64.powi(-23), x, g, 1.0 / f64::from(x))
    });
    each("rsqrt.approx.f32 d, a", &all, &mut |x, _, g| {
        relative("rsqrt", 2f64.powf(-22.9), x, g, 1.0 / f64::from(x).sqrt());
    });
    each("sqrt.approx.f32 d, a", &all, &mut |x, _, g| {
        relative("sqrt", 2f64.powi(-23), x, g, f64::from(x).sqrt())
    });
}

#[test]
fn exponentials_and_logarithms() {
    each("ex2.approx.f32 d, a", &all, &mut |x, _, g| {
        relative("ex2", 2f64.powf(-22.5), x, g, f64::from(x).exp2())
    });
    each("ex2.approx.f32 d, a", &between(-130.0, 130.0), &mut |x, _, g| {
        relative("ex2", 2f64.powf(-22.5), x, g, f64::from(x).exp2());
    });
    // `lg2`: relative 2^-22, absolute 2^-22 between 0.5 and 2.
    each("lg2.approx.f32 d, a", &all, &mut |x, _, g| {
        let want = f64::from(x).log2();
        if x > 0.5 && x < 2.0 {
            assert!((f64::from(g) - want).abs() <= 2f64.powi(-22), "lg2({x:e}) = {g:e}");
        } else {
            relative("lg2", 2f64.powi(-22), x, g, want);
        }
    });
    each("lg2.approx.f32 d, a", &between(0.5, 2.0), &mut |x, _, g| {
        assert!((f64::from(g) - f64::from(x).log2()).abs() <= 2f64.powi(-22), "lg2({x:e}) = {g:e}");
    });
}

#[test]
fn sines_and_cosines() {
    // Absolute 2^-20.5 within one turn to either side.
    let bound = 2f64.powf(-20.5);
    for (name, f) in [("sin", f64::sin as fn(f64) -> f64), ("cos", f64::cos)] {
        let op = format!("{name}.approx.f32 d, a");
        each(&op, &between(-std::f32::consts::TAU, std::f32::consts::TAU), &mut |x, _, g| {
            let error = (f64::from(g) - f(f64::from(x))).abs();
            assert!(error <= bound, "{name}({x:e}) = {g:e}");
        });
        each(&op, &all, &mut |x, _, g| {
            if x.is_infinite() || x.is_nan() {
                assert!(g.is_nan(), "{name}({x:e}) = {g:e}");
            } else {
                assert!(g.abs() <= 1.0, "{name}({x:e}) = {g:e}");
            }
        });
    }
}

#[test]
fn hyperbolic_tangent() {
    each("tanh.approx.f32 d, a", &all, &mut |x, _, g| {
        relative("tanh", 2f64.powi(-11), x, g, f64::from(x).tanh())
    });
}

#[test]
fn divisions_that_are_not_exact() {
    let pairs = |i: u32| (pattern(i), pattern(i.wrapping_mul(2_654_435_761)));
    // 2 ulp for `div.full` everywhere, and for `div.approx` with a divisor of 2^-126 to 2^126.
    each("div.full.f32 d, a, b", &pairs, &mut |a, b, g| {
        relative("div.full", 2f64.powi(-22), a, g, f64::from(a) / f64::from(b));
    });
    each("div.approx.f32 d, a, b", &pairs, &mut |a, b, g| {
        if b.abs() >= 2f32.powi(-126) && b.abs() <= 2f32.powi(126) {
            relative("div.approx", 2f64.powi(-22), a, g, f64::from(a) / f64::from(b));
        }
    });
}
