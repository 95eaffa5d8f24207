//! Random operands, special ones among them: each operation against the same one in Rust.

mod common;

use common::{Arg, Device};
use proptest::prelude::*;
use std::fmt::Write;

type Eval = fn(u64, u64, u64) -> u64;
fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}
fn g(v: u64) -> f64 {
    f64::from_bits(v)
}
fn of(v: f32) -> u64 {
    u64::from(v.to_bits())
}
fn og(v: f64) -> u64 {
    v.to_bits()
}
fn s(v: u64) -> i32 {
    v as i32
}
fn u(v: u64) -> u32 {
    v as u32
}
fn w(v: u32) -> u64 {
    u64::from(v)
}
fn i(v: i32) -> u64 {
    u64::from(v as u32)
}
/// PTX's minimum: the number wins over NaN, and -0 is below 0.
fn low(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

/// The sum rounded down: from the sum to nearest and its exact error.
fn add_down(a: f32, b: f32) -> f32 {
    let n = a + b;
    if !a.is_finite() || !b.is_finite() {
        return n;
    }
    if n.is_infinite() {
        return if n > 0.0 { f32::MAX } else { n };
    }
    let c = n - a;
    let error = (a - (n - c)) + (b - c);
    if n == 0.0 && error == 0.0 {
        return if a.is_sign_positive() && b.is_sign_positive() { 0.0 } else { -0.0 };
    }
    if error < 0.0 { n.next_down() } else { n }
}

/// Code, type of the operands (and of the result unless a second one is given), what it should do.
#[rustfmt::skip]
const OPS: &[(&str, &str, Eval)] = &[
    ("add.u32 d, a, b", "u32", |a, b, _| w(u(a).wrapping_add(u(b)))),
    ("sub.s64 d, a, b", "s64", |a, b, _| a.wrapping_sub(b)),
    ("mul.lo.u64 d, a, b", "u64", |a, b, _| a.wrapping_mul(b)),
    ("mul.hi.s32 d, a, b", "s32", |a, b, _| i(((i64::from(s(a)) * i64::from(s(b))) >> 32) as i32)),
    ("mul.hi.u64 d, a, b", "u64", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
    ("mul.hi.s64 d, a, b", "s64", |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
    ("mul.wide.s32 d, a, b", "s32 s64", |a, b, _| (i64::from(s(a)) * i64::from(s(b))) as u64),
    ("mad.lo.s32 d, a, b, c", "s32", |a, b, c| i(s(a).wrapping_mul(s(b)).wrapping_add(s(c)))),
    ("div.s32 d, a, b", "s32", |a, b, _| if s(b) == 0 { w(u32::MAX) } else { i(s(a).wrapping_div(s(b))) }),
    ("div.u32 d, a, b", "u32", |a, b, _| w(u(a).checked_div(u(b)).unwrap_or(u32::MAX))),
    ("rem.s64 d, a, b", "s64", |a, b, _| if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }),
    ("rem.u64 d, a, b", "u64", |a, b, _| a.checked_rem(b).unwrap_or(a)),
    ("min.s32 d, a, b", "s32", |a, b, _| i(s(a).min(s(b)))),
    ("max.u64 d, a, b", "u64", |a, b, _| a.max(b)),
    ("abs.s32 d, a", "s32", |a, _, _| i(s(a).wrapping_abs())),
    ("shl.b32 d, a, b", "b32", |a, b, _| w(u(a).checked_shl(u(b)).unwrap_or(0))),
    ("shr.u32 d, a, b", "u32", |a, b, _| w(u(a).checked_shr(u(b)).unwrap_or(0))),
    ("shr.s32 d, a, b", "s32", |a, b, _| i(s(a) >> u(b).min(31))),
    ("{ .reg .u32 n; cvt.u32.u64 n, b; shl.b64 d, a, n; }", "b64", |a, b, _| a.checked_shl(u(b)).unwrap_or(0)),
    ("{ .reg .u32 n; cvt.u32.u64 n, b; shr.s64 d, a, n; }", "s64", |a, b, _| ((a as i64) >> u(b).min(63)) as u64),
    ("popc.b32 d, a", "b32", |a, _, _| w(u(a).count_ones())),
    ("clz.b32 d, a", "b32", |a, _, _| w(u(a).leading_zeros())),
    ("brev.b64 d, a", "b64", |a, _, _| a.reverse_bits()),
    ("shf.l.wrap.b32 d, a, b, c", "b32", |a, b, c| w(((b << 32 | u64::from(u(a))) << (c & 31) >> 32) as u32)),
    ("lop3.b32 d, a, b, c, 0xe4", "b32", |a, b, c| w(u((c & a) | (!c & b)))),
    ("add.cc.u32 d, a, b; addc.u32 d, c, 0", "u32", |a, b, c| w(u(c).wrapping_add(u32::from(u(a).overflowing_add(u(b)).1)))),
    ("sub.cc.u64 d, a, b; subc.u64 d, c, 0", "u64", |a, b, c| c.wrapping_sub(u64::from(a < b))),
    ("mad.lo.cc.u32 d, a, b, c; madc.hi.u32 d, a, b, c", "u32", |a, b, c| {
        let carry = (u64::from(u(u(a).wrapping_mul(u(b)).into())) + u64::from(u(c))) >> 32;
        w(((u64::from(u(a)) * u64::from(u(b))) >> 32) as u32).wrapping_add(w(u(c))).wrapping_add(carry) & 0xffff_ffff
    }),
    ("mul.hi.u32 d, a, b", "u32", |a, b, _| w(((u64::from(u(a)) * u64::from(u(b))) >> 32) as u32)),
    ("mul24.lo.u32 d, a, b", "u32", |a, b, _| w((u(a) & 0xff_ffff).wrapping_mul(u(b) & 0xff_ffff))),
    ("mad.wide.u32 d, a, b, 7", "u32 u64", |a, b, _| u64::from(u(a)) * u64::from(u(b)) + 7),
    ("add.sat.s32 d, a, b", "s32", |a, b, _| i(s(a).saturating_add(s(b)))),
    ("sad.s32 d, a, b, c", "s32", |a, b, c| i(s(c).wrapping_add(s(a).wrapping_sub(s(b)).wrapping_mul(if s(a) < s(b) { -1 } else { 1 })))),
    ("bfe.u32 d, a, b, c", "u32", |a, b, c| {
        let (pos, len) = (u(b) & 255, u(c) & 255);
        let v = u64::from(u(a)).checked_shr(pos).unwrap_or(0);
        if len >= 32 { w(v as u32) } else { v & ((1 << len) - 1) }
    }),
    ("bfi.b32 d, a, b, c, 9", "u32", |a, b, c| {
        let mask = (0x1ffu64).checked_shl(u(c) & 255).unwrap_or(0) as u32;
        let v = u64::from(u(a)).checked_shl(u(c) & 255).unwrap_or(0) as u32;
        w((v & mask) | (u(b) & !mask))
    }),
    ("prmt.b32 d, a, b, c", "b32", |a, b, c| {
        let bytes = (u64::from(u(b)) << 32 | u64::from(u(a))).to_le_bytes();
        let byte = |n: u32| {
            let v = bytes[(u(c) >> (4 * n) & 7) as usize];
            if u(c) >> (4 * n) & 8 == 0 { v } else { (v as i8 >> 7) as u8 }
        };
        w(u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]))
    }),
    ("dp4a.s32.u32 d, a, b, c", "s32", |a, b, c| {
        let sum: i32 = (0..4).map(|n| i32::from((s(a) >> (8 * n)) as i8) * i32::from((s(b) >> (8 * n)) as u8)).sum();
        i(s(c).wrapping_add(sum))
    }),
    ("dp2a.hi.u32.s32 d, a, b, c", "s32", |a, b, c| {
        let sum: i32 = (0..2).map(|n| i32::from((s(a) >> (16 * n)) as u16).wrapping_mul(i32::from((s(b) >> (16 + 8 * n)) as i8))).sum();
        i(s(c).wrapping_add(sum))
    }),
    ("vadd2.s32.s32.s32.sat d, a, b, c", "s32", |a, b, _| {
        let half = |n: u32| (s(a) >> (16 * n)) as i16 as i32 + (s(b) >> (16 * n)) as i16 as i32;
        let clamp = |v: i32| v.clamp(-32768, 32767) as u16;
        w(u32::from(clamp(half(0))) | u32::from(clamp(half(1))) << 16)
    }),
    ("vabsdiff4.u32.u32.u32.add d, a, b, c", "u32", |a, b, c| {
        let sum: u32 = (0..4).map(|n| u32::from((u(a) >> (8 * n)) as u8).abs_diff(u32::from((u(b) >> (8 * n)) as u8))).sum();
        w(u(c).wrapping_add(sum))
    }),
    ("bfind.s64 d, a", "s64 u32", |a, _, _| {
        let v = if (a as i64) < 0 { !a } else { a };
        w(if v == 0 { u32::MAX } else { 63 - v.leading_zeros() })
    }),
    ("slct.u32.s32 d, a, b, c", "s32", |a, b, c| if s(c) >= 0 { w(u(a)) } else { w(u(b)) }),
    ("add.f32 d, a, b", "f32", |a, b, _| of(f(a) + f(b))),
    ("sub.f64 d, a, b", "f64", |a, b, _| og(g(a) - g(b))),
    ("mul.f32 d, a, b", "f32", |a, b, _| of(f(a) * f(b))),
    ("fma.rn.f32 d, a, b, c", "f32", |a, b, c| of(f(a).mul_add(f(b), f(c)))),
    ("fma.rn.f64 d, a, b, c", "f64", |a, b, c| og(g(a).mul_add(g(b), g(c)))),
    ("div.rn.f32 d, a, b", "f32", |a, b, _| of(f(a) / f(b))),
    ("div.rn.f64 d, a, b", "f64", |a, b, _| og(g(a) / g(b))),
    ("sqrt.rn.f32 d, a", "f32", |a, _, _| of(f(a).sqrt())),
    ("sqrt.rn.f64 d, a", "f64", |a, _, _| og(g(a).sqrt())),
    ("rcp.rn.f64 d, a", "f64", |a, _, _| og(1.0 / g(a))),
    ("min.f32 d, a, b", "f32", |a, b, _| of(low(f(a), f(b)))),
    ("max.f32 d, a, b", "f32", |a, b, _| of(-low(-f(a), -f(b)))),
    ("neg.f32 d, a", "f32", |a, _, _| of(-f(a))),
    ("set.lt.u32.f32 d, a, b", "f32 u32", |a, b, _| if f(a) < f(b) { w(u32::MAX) } else { 0 }),
    ("set.ltu.u32.f64 d, a, b", "f64 u32", |a, b, _| if g(a) >= g(b) { 0 } else { w(u32::MAX) }),
    ("set.le.u32.s64 d, a, b", "s64 u32", |a, b, _| if a as i64 <= b as i64 { w(u32::MAX) } else { 0 }),
    ("cvt.rzi.s32.f32 d, a", "f32 s32", |a, _, _| i(f(a) as i32)),
    ("cvt.rzi.u32.f32 d, a", "f32 u32", |a, _, _| w(f(a) as u32)),
    ("cvt.rni.s64.f64 d, a", "f64 s64", |a, _, _| if g(a).is_nan() { 1 << 63 } else { g(a).round_ties_even() as i64 as u64 }),
    ("cvt.rmi.u64.f64 d, a", "f64 u64", |a, _, _| if g(a).is_nan() { 1 << 63 } else { g(a).floor() as u64 }),
    ("cvt.rn.f32.f64 d, a", "f64 f32", |a, _, _| of(g(a) as f32)),
    ("cvt.f64.f32 d, a", "f32 f64", |a, _, _| og(f64::from(f(a)))),
    ("cvt.rn.f32.u64 d, a", "u64 f32", |a, _, _| of(a as f32)),
    ("cvt.rn.f64.s64 d, a", "s64 f64", |a, _, _| og(a as i64 as f64)),
    ("cvt.rn.f32.s32 d, a", "s32 f32", |a, _, _| of(s(a) as f32)),
    ("cvt.rpi.f32.f32 d, a", "f32", |a, _, _| of(f(a).ceil())),
    ("cvt.sat.s16.s32 d, a", "s32 s16", |a, _, _| u64::from(s(a).clamp(-32768, 32767) as u16)),
    ("cvt.sat.u8.s32 d, a", "s32 u8", |a, _, _| u64::from(s(a).clamp(0, 255) as u8)),
    // A product of two f32 is exact in f64.
    ("add.rm.f32 d, a, b", "f32", |a, b, _| of(add_down(f(a), f(b)))),
    ("mul.rp.f32 d, a, b", "f32", |a, b, _| { let n = f(a) * f(b); let e = f64::from(f(a)) * f64::from(f(b)); of(if f64::from(n) < e { n.next_up() } else { n }) }),
];

fn module() -> String {
    let mut text = String::from(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pin, .param .u64 pout) {\n\
         .reg .b64 in, out; .reg .b32 t; ld.param.u64 in, [pin]; ld.param.u64 out, [pout];\n\
         mov.u32 t, %tid.x; mad.wide.u32 in, t, 24, in;\n",
    );
    writeln!(text, "mad.wide.u32 out, t, {}, out;", OPS.len() * 8).unwrap();
    for (n, (code, types, _)) in OPS.iter().enumerate() {
        let (from, to) = types.split_once(' ').unwrap_or((types, types));
        writeln!(
            text,
            "{{ .reg .{to} d; .reg .{from} a, b, c; ld.global.{from} a, [in]; ld.global.{from} b, [in+8]; \
             ld.global.{from} c, [in+16];\n{code};\nst.global.{to} [out+{}], d; }}",
            n * 8
        )
        .unwrap();
    }
    text + "ret; }\n"
}

fn operand() -> impl Strategy<Value = u64> {
    let special = [
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        u64::MAX,
        1 << 63,
        1 << 31,
        0x7fff_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x8000_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x0000_0001,
        0x007f_ffff,
        0x7ff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        0x3ff0_0000_0000_0000,
        0xbff0_0000_0000_0000,
        0x4340_0000_0000_0000,
        0x4f80_0000,
        0x5f80_0000,
    ];
    prop_oneof![
        any::<u64>(),
        any::<u32>().prop_map(u64::from),
        (0..200u64),
        prop::sample::select(special.to_vec()),
        (-1e6f32..1e6).prop_map(|v| u64::from(v.to_bits())),
        (-1e9f64..1e9).prop_map(f64::to_bits),
    ]
}

fn same(ty: &str, got: u64, want: u64) -> bool {
    let nan = |v: u64| if ty == "f32" { f(v).is_nan() } else { g(v).is_nan() };
    if ty.starts_with('f') && nan(got) && nan(want) {
        return true;
    }
    let bits: u32 = ty[1..].parse().unwrap();
    let mask = u64::MAX >> (64 - bits);
    got & mask == want & mask
}

#[test]
fn operations_agree_with_rust() {
    let d = Device::new();
    let m = d.load(&module());
    let strategy = prop::collection::vec((operand(), operand(), operand()), 256);
    let (input, output) = (d.put(&vec![0u64; 256 * 3]), d.put(&vec![0u64; 256 * OPS.len()]));
    let run = |rows: Vec<(u64, u64, u64)>| {
        let flat: Vec<u64> = rows.iter().flat_map(|r| [r.0, r.1, r.2]).collect();
        assert!(d.memory.write(input, &common::bytes_of(&flat)));
        d.run(&m.kernels()[0], [1; 3], [256, 1, 1], &[Arg::U64(input), Arg::U64(output)]).unwrap();
        let got: Vec<u64> = d.get(output, 256 * OPS.len());
        for (r, row) in rows.iter().enumerate() {
            for (n, (code, types, eval)) in OPS.iter().enumerate() {
                let ty = types.split_once(' ').map_or(*types, |t| t.1);
                let (got, want) = (got[r * OPS.len() + n], eval(row.0, row.1, row.2));
                prop_assert!(same(ty, got, want), "{code} of {row:x?}: {got:#x}, not {want:#x}");
            }
        }
        Ok(())
    };
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    runner.run(&strategy, run).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

#[test]
fn again_with_vectors() {
    common::again_with_vectors();
}
