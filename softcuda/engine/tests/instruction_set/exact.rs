//! What tests of IEEE arithmetic share: operands, the kernel that runs operations on them, and references: `rustc_apfloat`, which
//! is software, and for square roots integers.

use crate::common::{Arg, Device};
use rustc_apfloat::{Float, Round};
use std::fmt::Write;

const COUNT: usize = 20_000;
pub const ROUNDS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

/// Random bits of `width`, every third one with an exponent near the others', some of them special.
fn operands(width: u32, mantissa: u32, seed: u64) -> Vec<u64> {
    let mut s = seed | 1;
    let mut next = move || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        s.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mask = u64::MAX >> (64 - width);
    let exponent = (mask >> 1) & !((1 << mantissa) - 1);
    let one = (exponent >> 1) & exponent;
    let special = [
        0,
        1,
        1 << mantissa,
        (1 << mantissa) - 1,
        one,
        one | 1,
        exponent,
        exponent - 1,
        exponent | 1 << (mantissa - 1),
    ];
    (0..COUNT)
        .map(|i| {
            let r = next();
            let sign = (r >> 63) << (width - 1);
            match i % 8 {
                0 => special[(r % 9) as usize] | sign,
                1..5 => {
                    (one + (((r >> 32) % 30) << mantissa) - (15 << mantissa))
                        | (r & ((1 << mantissa) - 1))
                        | sign
                }
                _ => r & mask,
            }
        })
        .collect()
}

/// A kernel with one thread an element: `d = op a, b, c` for all operations, in the order of `ops`.
fn kernel(register: &str, bytes: usize, ops: &[String]) -> String {
    let mut s = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{\n\
         .reg .{register} a, b, c, d; .reg .b64 p, o, w; .reg .b32 t, n, i, x;\n\
         mov.u32 t, %tid.x; mov.u32 n, %ntid.x; mov.u32 i, %ctaid.x; mad.lo.u32 t, i, n, t; mul.wide.u32 w, t, {bytes};\n"
    );
    for name in ["a", "b", "c"] {
        writeln!(s, "ld.param.u64 p, [p{name}]; add.u64 p, p, w; ld.global.{register} {name}, [p];").unwrap();
    }
    writeln!(s, "ld.param.u64 o, [pd]; mul.wide.u32 w, t, {}; add.u64 o, o, w;", bytes * ops.len()).unwrap();
    for (i, op) in ops.iter().enumerate() {
        writeln!(s, "{op}; st.global.{register} [o+{}], d;", i * bytes).unwrap();
    }
    s.push_str("ret;\n}\n");
    s
}

fn bytes_of(v: &[u64], bytes: usize) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()[..bytes].to_vec()).collect()
}

pub type Owned = Box<dyn Fn(u64, u64, u64) -> Option<u64>>;
/// What one operation gives, or `None` for any NaN.
pub type Reference<'a> = &'a dyn Fn(u64, u64, u64) -> Option<u64>;

/// Compares operations on floats of `mantissa` bits with their references, on random and edge operands.
pub fn compare(register: &str, bytes: usize, mantissa: u32, ops: &[(String, Reference)]) {
    let inputs = [1, 77, 4242].map(|seed| edge_operands(bytes as u32 * 8, mantissa, seed));
    let infinity = (u64::MAX >> (65 - bytes * 8)) & !((1 << mantissa) - 1);
    compare_on(&inputs, register, bytes, infinity, ops);
}

/// Random and edge operands; the same for the same seed.
pub fn edge_operands(width: u32, mantissa: u32, seed: u64) -> Vec<u64> {
    operands(width, mantissa, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Compares operations on registers of a type and size with their references, on the operands given; what is above `infinity`
/// (without its sign) is NaN.
pub fn compare_on(
    inputs: &[Vec<u64>; 3],
    register: &str,
    bytes: usize,
    infinity: u64,
    ops: &[(String, Reference)],
) {
    let d = Device::new();
    let count = inputs[0].len();
    assert!(count.is_multiple_of(32) && inputs.iter().all(|v| v.len() == count));
    let texts: Vec<String> = ops.iter().map(|o| o.0.clone()).collect();
    let m = d.load(&kernel(register, bytes, &texts));
    let [a, b, c] = [0, 1, 2].map(|i: usize| d.put(&bytes_of(&inputs[i], bytes)));
    let o = d.put(&vec![0u8; count * bytes * ops.len()]);
    d.run(&m.kernels()[0], [count as u32 / 32, 1, 1], [32, 1, 1], &[a, b, c, o].map(Arg::U64)).unwrap();
    let got: Vec<u8> = d.get(o, count * bytes * ops.len());
    let [xs, ys, zs] = inputs;
    for (i, ((x, y), z)) in xs.iter().zip(ys).zip(zs).enumerate() {
        let (x, y, z) = (*x, *y, *z);
        for (j, (name, f)) in ops.iter().enumerate() {
            let at = (i * ops.len() + j) * bytes;
            let mut v = [0u8; 8];
            v[..bytes].copy_from_slice(&got[at..at + bytes]);
            let v = u64::from_le_bytes(v);
            match f(x, y, z) {
                Some(want) => assert_eq!(v, want, "{name} of {x:#x} {y:#x} {z:#x}: {v:#x}, not {want:#x}"),
                None => {
                    let magnitude = v & (u64::MAX >> (65 - bytes * 8));
                    assert!(magnitude > infinity, "{name} of {x:#x} {y:#x} {z:#x}: {v:#x}, not NaN");
                }
            }
        }
    }
}

fn number<F: Float>(v: rustc_apfloat::StatusAnd<F>) -> Option<u64> {
    if v.value.is_nan() { None } else { Some(v.value.to_bits() as u64) }
}

/// The four operations in one rounding.
pub fn arithmetic<F: Float>(op: &str, round: Round) -> impl Fn(u64, u64, u64) -> Option<u64> + use<F> {
    let op = op.to_string();
    move |x, y, z| {
        let [x, y, z] = [x, y, z].map(|v| F::from_bits(u128::from(v)));
        number(match op.as_str() {
            "add" => x.add_r(y, round),
            "sub" => x.sub_r(y, round),
            "mul" => x.mul_r(y, round),
            "div" => x.div_r(y, round),
            _ => x.mul_add_r(y, z, round),
        })
    }
}

/// The largest number whose square is at most `x`, in integers, and whether it is exact.
fn integer_root(x: u128) -> (u128, bool) {
    let mut r = (x as f64).sqrt() as u128;
    while r * r > x {
        r -= 1;
    }
    while (r + 1) * (r + 1) <= x {
        r += 1;
    }
    (r, r * r == x)
}

/// Square root by integers, rounded: `bits` of a float with `mantissa` bits and exponent bias `bias`.
pub fn root(v: u64, mantissa: u32, bias: i32, round: Round) -> Option<u64> {
    let width = if mantissa == 23 { 32 } else { 64 };
    let magnitude = v & (u64::MAX >> (65 - width));
    let infinity = (2 * bias as u64 + 1) << mantissa;
    if magnitude == 0 || v == infinity {
        return Some(v);
    }
    if v >> (width - 1) == 1 || magnitude > infinity {
        return None;
    }
    let raw = (magnitude >> mantissa) as i32;
    let fraction = magnitude & ((1 << mantissa) - 1);
    let (mut m, mut e) = if raw == 0 {
        (u128::from(fraction), 1 - bias - mantissa as i32)
    } else {
        (u128::from(fraction | 1 << mantissa), raw - bias - mantissa as i32)
    };
    // A root with two bits more than the result has: of a number with twice as many, and an even exponent.
    let want = 2 * (mantissa + 3);
    let have = 128 - m.leading_zeros();
    let mut shift = want as i32 - have as i32;
    if (e - shift) % 2 != 0 {
        shift += 1;
    }
    m <<= shift;
    e -= shift;
    let (mut r, exact) = integer_root(m);
    let mut e = e / 2;
    // Cut to mantissa + 1 bits, remembering what is cut.
    let drop = 128 - r.leading_zeros() - (mantissa + 1);
    let rest = r & ((1 << drop) - 1);
    r >>= drop;
    e += drop as i32;
    let half = 1u128 << (drop - 1);
    let inexact = rest != 0 || !exact;
    let up = match round {
        Round::NearestTiesToEven => rest > half || rest == half && (!exact || r & 1 == 1),
        Round::TowardPositive => inexact,
        _ => false,
    };
    r += u128::from(up);
    // Roots are normal numbers.
    Some((((e + mantissa as i32 + bias - 1) as u64) << mantissa) + r as u64)
}
