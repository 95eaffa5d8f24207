//! Matrix instructions: whole products through fragments as the PTX manual lays them out, against sums of integers, which are exact.

use crate::common::{Arg, Device};
use half::{bf16, f16};
use std::fmt::Write;

/// An `mma` to try: how its parts are stored in memory, element by element, as bits.
pub struct Form {
    pub shape: [usize; 3],
    /// Types as in the opcode: d, a, b, c.
    pub types: [&'static str; 4],
    pub extra: &'static str,
    /// Operands and the product of integers: the range of `a` and `b`.
    pub range: std::ops::Range<i64>,
}

pub fn width(ty: &str) -> usize {
    match ty {
        "f64" => 64,
        "f32" | "tf32" | "s32" => 32,
        "f16" | "bf16" => 16,
        "s8" | "u8" | "e4m3" | "e5m2" | "e3m2" | "e2m3" | "e2m1" => 8,
        "s4" | "u4" => 4,
        _ => 1,
    }
}

/// A small integer as the bits of a type.
fn bits(ty: &str, v: i64) -> u64 {
    match ty {
        "f64" => (v as f64).to_bits(),
        "f32" | "tf32" => u64::from((v as f32).to_bits()),
        "f16" => u64::from(f16::from_f32(v as f32).to_bits()),
        "bf16" => u64::from(bf16::from_f32(v as f32).to_bits()),
        // 0, ±1, ±2 and ±3 in e4m3 (bias 7) and e5m2 (bias 15).
        "e4m3" => [0, 0x38, 0x40, 0x44][v.unsigned_abs() as usize] | if v < 0 { 0x80 } else { 0 },
        "e5m2" => [0, 0x3c, 0x40, 0x42][v.unsigned_abs() as usize] | if v < 0 { 0x80 } else { 0 },
        // The same in e3m2 (bias 3), e2m3 (bias 1) and, two bits up, e2m1 (bias 1).
        "e3m2" => [0, 0x0c, 0x10, 0x12][v.unsigned_abs() as usize] | if v < 0 { 0x20 } else { 0 },
        "e2m3" => [0, 0x08, 0x10, 0x14][v.unsigned_abs() as usize] | if v < 0 { 0x20 } else { 0 },
        "e2m1" => [0, 0x02, 0x04, 0x05][v.unsigned_abs() as usize] << 2 | if v < 0 { 0x20 } else { 0 },
        t => v as u64 & ((1u64 << width(t)) - 1),
    }
}

/// Numbers that look random and are the same each time.
pub fn numbers(seed: u64, range: &std::ops::Range<i64>) -> impl FnMut() -> i64 + use<> {
    let (mut s, range) = (seed * 2 + 1, range.clone());
    move || {
        s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + ((s >> 33) as i64).rem_euclid(range.end - range.start)
    }
}

/// Packs elements into 32-bit words.
pub fn pack(ty: &str, elements: &[i64]) -> Vec<u32> {
    let mut out = vec![0u32; elements.len() * width(ty) / 32];
    for (i, v) in elements.iter().enumerate() {
        let (b, at) = (bits(ty, *v), i * width(ty));
        out[at / 32] |= (b << (at % 32)) as u32;
        if width(ty) == 64 {
            out[at / 32 + 1] = (b >> 32) as u32;
        }
    }
    out
}

/// The elements of one lane of `a` (outer: m, inner: k) or `b` (outer: n, inner: k), by the manual's figures.
pub fn fragment(ty: &str, outer: usize, k: usize, lane: usize, m: &dyn Fn(usize, usize) -> i64) -> Vec<i64> {
    let per = (32 / width(ty)).max(1);
    let (group, member) = (lane / 4, lane % 4);
    let mut out = Vec::new();
    for chunk in (0..k).step_by(4 * per) {
        for upper in (0..outer).step_by(8) {
            for e in 0..per {
                out.push(m(group + upper, chunk + member * per + e));
            }
        }
    }
    out
}

fn mma(form: &Form) {
    let [m, n, k] = form.shape;
    let [td, ta, tb, tc] = form.types;
    let d = Device::new();
    let mut next = numbers((m * k + n) as u64, &form.range);
    let a: Vec<i64> = (0..m * k).map(|_| next()).collect();
    let b: Vec<i64> = (0..n * k).map(|_| next()).collect();
    let mut next = numbers(7, &(-3..4));
    let c: Vec<i64> = (0..m * n).map(|_| next()).collect();
    let lanes_of = |ty: &str, f: &dyn Fn(usize) -> Vec<i64>| -> Vec<u32> {
        (0..32).flat_map(|l| pack(ty, &f(l))).collect()
    };
    let fa = lanes_of(ta, &|l| fragment(ta, m, k, l, &|r, i| a[r * k + i]));
    let fb = lanes_of(tb, &|l| fragment(tb, n, k, l, &|col, i| b[col * k + i]));
    let place = |l: usize, e: usize| (l / 4 + 8 * (e / 2), l % 4 * 2 + e % 2);
    let fc = lanes_of(tc, &|l| {
        (0..m * n / 32)
            .map(|e| {
                let (r, q) = place(l, e);
                c[r * n + q]
            })
            .collect()
    });
    let words = |v: &[u32]| v.len() / 32;
    let wd = m * n * width(td) / 1024;
    let text = kernel(form, [words(&fa), words(&fb), words(&fc), wd]);
    let module = d.load(&text);
    let args = [d.put(&fa), d.put(&fb), d.put(&fc), d.put(&vec![0u32; 32 * wd])];
    d.run(&module.kernels()[0], [1; 3], [32, 1, 1], &args.map(Arg::U64)).unwrap();
    let got: Vec<u32> = d.get(args[3], 32 * wd);
    let want = lanes_of(td, &|l| {
        (0..m * n / 32)
            .map(|e| {
                let (r, q) = place(l, e);
                let dot = (0..k).map(|i| {
                    let (x, y) = (a[r * k + i], b[q * k + i]);
                    match form.extra {
                        ".xor.popc" => x ^ y,
                        _ => x * y,
                    }
                });
                c[r * n + q] + dot.sum::<i64>()
            })
            .collect()
    });
    assert_eq!(got, want, "{:?} {:?}", form.shape, form.types);
}

/// Row and column of element `e` of `c` or `d` that lane `l` holds of its pair of quads' product.
fn quad_place(ty: &str, l: usize, e: usize) -> (usize, usize) {
    if ty == "f16" {
        return (l % 4 + if l < 16 { 0 } else { 4 }, e);
    }
    let x = (l & 0b1) + (e & 0b10);
    (if l < 16 { x } else { x + 4 }, (e & 0b100) + (l & 0b10) + (e & 0b1))
}

/// `mma.m8n8k4` of f16: four products, each in the 8 lanes of a pair of quads, by the manual's formulas.
fn quads(layouts: [&'static str; 2], td: &'static str, tc: &'static str) {
    let d = Device::new();
    let mut next = numbers(31, &(-9..10));
    let mut matrices = |n: usize| (0..4).map(|_| (0..n).map(|_| next()).collect()).collect::<Vec<Vec<i64>>>();
    let (a, b, c) = (matrices(32), matrices(32), matrices(64));
    let lanes_of = |ty: &str, count: usize, f: &dyn Fn(usize, usize) -> i64| -> Vec<u32> {
        (0..32).flat_map(|l| pack(ty, &(0..count).map(|e| f(l, e)).collect::<Vec<_>>())).collect()
    };
    let quad = |l: usize| l % 16 / 4;
    let half = |l: usize| if l < 16 { 0 } else { 4 };
    let fa = lanes_of("f16", 4, &|l, e| {
        let (row, k) = if layouts[0] == "row" { (l % 4 + half(l), e) } else { (e % 4 + half(l), l % 4) };
        a[quad(l)][row * 4 + k]
    });
    let fb = lanes_of("f16", 4, &|l, e| {
        let (k, col) = if layouts[1] == "row" { (l % 4, e + half(l)) } else { (e, l % 4 + half(l)) };
        b[quad(l)][k * 8 + col]
    });
    let fc = lanes_of(tc, 8, &|l, e| {
        let (row, col) = quad_place(tc, l, e);
        c[quad(l)][row * 8 + col]
    });
    let form = Form { shape: [8, 8, 4], types: [td, "f16", "f16", tc], extra: "", range: 0..1 };
    let words_d = if td == "f16" { 4 } else { 8 };
    let text = kernel(&form, [2, 2, fc.len() / 32, words_d])
        .replace("k4.row.col", &format!("k4.{}.{}", layouts[0], layouts[1]));
    let module = d.load(&text);
    let args = [d.put(&fa), d.put(&fb), d.put(&fc), d.put(&vec![0u32; 32 * words_d])];
    d.run(&module.kernels()[0], [1; 3], [32, 1, 1], &args.map(Arg::U64)).unwrap();
    let want = lanes_of(td, 8, &|l, e| {
        let (row, col) = quad_place(td, l, e);
        let dot: i64 = (0..4).map(|k| a[quad(l)][row * 4 + k] * b[quad(l)][k * 8 + col]).sum();
        c[quad(l)][row * 8 + col] + dot
    });
    assert_eq!(d.get::<u32>(args[3], 32 * words_d), want, "{layouts:?} {td} {tc}");
}

#[test]
fn products_of_pairs_of_quads() {
    for layouts in [["row", "col"], ["row", "row"], ["col", "row"], ["col", "col"]] {
        for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16")] {
            quads(layouts, d, c);
        }
    }
}

/// Loads fragments, one instruction, stores the result.
fn kernel(form: &Form, words: [usize; 4]) -> String {
    let [m, n, k] = form.shape;
    let [td, ta, tb, tc] = form.types;
    let register = |t: &str| match t {
        "f64" => ("f64", 8),
        "f32" => ("f32", 4),
        "s32" => ("s32", 4),
        _ => ("b32", 4),
    };
    let mut s = String::from(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n\
         .reg .b64 p, o, w; .reg .b32 t; mov.u32 t, %laneid;\n",
    );
    let mut lists = Vec::new();
    for (name, ty, count) in
        [("a", ta, words[0]), ("b", tb, words[1]), ("c", tc, words[2]), ("d", td, words[3])]
    {
        let (r, size) = register(ty);
        let n = count * 4 / size;
        writeln!(s, ".reg .{r} {name}<{n}>;").unwrap();
        if name != "d" {
            writeln!(s, "ld.param.u64 p, [p{name}]; mul.wide.u32 w, t, {}; add.u64 p, p, w;", count * 4)
                .unwrap();
            for i in 0..n {
                writeln!(s, "ld.global.{r} {name}{i}, [p+{}];", i * size).unwrap();
            }
        }
        lists.push((0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", "));
    }
    let extra = form.extra;
    writeln!(
        s,
        "mma.sync.aligned.m{m}n{n}k{k}.row.col{extra}.{td}.{ta}.{tb}.{tc} {{{}}}, {{{}}}, {{{}}}, {{{}}};",
        lists[3], lists[0], lists[1], lists[2]
    )
    .unwrap();
    let (r, size) = register(td);
    writeln!(s, "ld.param.u64 p, [pd]; mul.wide.u32 w, t, {}; add.u64 p, p, w;", words[3] * 4).unwrap();
    for i in 0..words[3] * 4 / size {
        writeln!(s, "st.global.{r} [p+{}], d{i};", i * size).unwrap();
    }
    s.push_str("ret;\n}\n");
    s
}

#[test]
fn every_mma() {
    let forms = |types: [&'static str; 4], extra, range: std::ops::Range<i64>, shapes: &[[usize; 3]]| {
        for shape in shapes {
            mma(&Form { shape: *shape, types, extra, range: range.clone() });
        }
    };
    let tall = |ks: &[usize]| ks.iter().map(|k| [16, 8, *k]).collect::<Vec<_>>();
    for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
        forms([d, "f16", "f16", c], "", -4..5, &tall(&[8, 16]));
    }
    forms(["f32", "bf16", "bf16", "f32"], "", -100..101, &tall(&[8, 16]));
    forms(["f32", "tf32", "tf32", "f32"], "", -900..901, &tall(&[4, 8]));
    forms(["f64", "f64", "f64", "f64"], "", -1000..1001, &[[8, 8, 4], [16, 8, 4], [16, 8, 8], [16, 8, 16]]);
    for (a, b) in [("s8", "s8"), ("u8", "s8"), ("s8", "u8"), ("u8", "u8")] {
        let range = if a == b && a == "s8" { -128..128 } else { 0..128 };
        forms(["s32", a, b, "s32"], "", range, &[[8, 8, 16], [16, 8, 16], [16, 8, 32]]);
    }
    forms(["s32", "s4", "s4", "s32"], ".satfinite", -8..8, &[[8, 8, 32], [16, 8, 32], [16, 8, 64]]);
    forms(["s32", "u4", "u4", "s32"], "", 0..16, &[[8, 8, 32], [16, 8, 32], [16, 8, 64]]);
    for extra in [".xor.popc", ".and.popc"] {
        forms(["s32", "b1", "b1", "s32"], extra, 0..2, &[[8, 8, 128], [16, 8, 128], [16, 8, 256]]);
    }
    for (a, b) in [("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2")] {
        forms(["f32", a, b, "f32"], "", -3..4, &tall(&[32]));
    }
    let bytes = ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"];
    for (i, a) in bytes.into_iter().enumerate() {
        for b in &bytes[i..] {
            forms(["f32", a, b, "f32"], ".kind::f8f6f4", -3..4, &tall(&[32]));
        }
    }
}

#[test]
fn integers_saturate_where_asked() {
    let d = Device::new();
    let run = |sat: &str| {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 pd) {{ .reg .b64 p; .reg .b32 a, d0, d1, c;\n\
             ld.param.u64 p, [pd]; mov.b32 a, 0x7f7f7f7f; mov.b32 c, 0x7ffffff0;\n\
             mma.sync.aligned.m8n8k16.row.col{sat}.s32.s8.s8.s32 {{d0, d1}}, {{a}}, {{a}}, {{c, c}};\n\
             st.global.u32 [p], d0; ret; }}"
        );
        let p = d.put(&[0u32]);
        d.run(&d.load(&text).kernels()[0], [1; 3], [32, 1, 1], &[Arg::U64(p)]).unwrap();
        d.get::<u32>(p, 1)[0]
    };
    assert_eq!(run(".satfinite"), 0x7fff_ffff);
    assert_eq!(run(""), 0x7fff_fff0u32.wrapping_add(127 * 127 * 16));
}

/// `ldmatrix` as the manual draws it: thread `t` gets elements 2 (t mod 4) and the next of row t / 4; transposed, of columns.
#[test]
fn matrices_between_shared_memory_and_registers() {
    let d = Device::new();
    let text = |trans: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pin, .param .u64 pout, .param .u64 back) {{\n\
             .shared .align 16 .b8 s[512]; .shared .align 16 .b8 u[512]; .reg .b64 i, o, q, w; .reg .b32 t, m, v<4>, x<4>, a;\n\
             ld.param.u64 i, [pin]; ld.param.u64 o, [pout]; ld.param.u64 q, [back]; mov.u32 t, %tid.x; mov.u32 m, s; shl.b32 a, t, 4;\n\
             mul.wide.u32 w, t, 16; add.u64 i, i, w; add.u64 o, o, w; add.u64 q, q, w;\n\
             ld.global.v4.b32 {{v0, v1, v2, v3}}, [i]; add.u32 m, m, a; st.shared.v4.b32 [m], {{v0, v1, v2, v3}};\n\
             bar.sync 0;\n\
             ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{x0, x1, x2, x3}}, [m];\n\
             st.global.v4.b32 [o], {{x0, x1, x2, x3}};\n\
             mov.u32 m, u; add.u32 m, m, a;\n\
             stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [m], {{x0, x1, x2, x3}};\n\
             bar.sync 0;\n\
             ld.shared.v4.b32 {{v0, v1, v2, v3}}, [m]; st.global.v4.b32 [q], {{v0, v1, v2, v3}}; ret; }}"
        )
    };
    // Row r of matrix m, element e holds m · 64 + r · 8 + e.
    let input: Vec<u16> = (0..256).collect();
    let pair = |lo: usize, hi: usize| lo as u32 | (hi as u32) << 16;
    for (trans, plain) in [("", true), (".trans", false)] {
        let (i, o, q) = (d.put(&input), d.put(&[0u32; 128]), d.put(&[0u16; 256]));
        d.run(&d.load(&text(trans)).kernels()[0], [1; 3], [32, 1, 1], &[i, o, q].map(Arg::U64)).unwrap();
        let got: Vec<u32> = d.get(o, 128);
        for t in 0..32 {
            for m in 0..4 {
                let (long, short) = (t / 4, t % 4 * 2);
                let at = |r: usize, e: usize| m * 64 + r * 8 + e;
                let want = if plain {
                    pair(at(long, short), at(long, short + 1))
                } else {
                    pair(at(short, long), at(short + 1, long))
                };
                assert_eq!(got[t * 4 + m], want, "thread {t}, matrix {m}{trans}");
            }
        }
        assert_eq!(d.get::<u16>(q, 256), input, "stored back{trans}");
    }
}

#[test]
fn movmatrix_transposes() {
    let d = Device::new();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 po) { .reg .b64 o, w; .reg .b32 t, a, b;\n\
                ld.param.u64 o, [po]; mov.u32 t, %tid.x; mad.lo.u32 a, t, 0x20002, 0x10000;\n\
                movmatrix.sync.aligned.m8n8.trans.b16 b, a; mul.wide.u32 w, t, 4; add.u64 o, o, w; st.global.u32 [o], b; ret; }";
    let o = d.put(&[0u32; 32]);
    d.run(&d.load(text).kernels()[0], [1; 3], [32, 1, 1], &[Arg::U64(o)]).unwrap();
    // Element (row, column) was 8 · row + column.
    for (t, v) in d.get::<u32>(o, 32).into_iter().enumerate() {
        let (column, row) = (t as u32 / 4, t as u32 % 4 * 2);
        assert_eq!(v, (row * 8 + column) | ((row + 1) * 8 + column) << 16, "thread {t}");
    }
}

#[test]
fn a_bad_row_address_faults() {
    let d = Device::new();
    for (address, kind) in [
        ("0x10000", softcuda_engine::FaultKind::IllegalAddress),
        ("8", softcuda_engine::FaultKind::MisalignedAddress),
    ] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{ .shared .align 16 .b8 s[128]; .reg .b32 m, x;\n\
             mov.u32 m, {address}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{x}}, [m]; st.shared.u32 [s], x; ret; }}"
        );
        let f = d.run(&d.load(&text).kernels()[0], [1; 3], [32, 1, 1], &[]).unwrap_err();
        assert_eq!(f.kind, kind, "{f}");
    }
}

/// `wmma` of all shapes, types and layouts: load, multiply, store, as `mma.h` does.
#[test]
fn every_wmma() {
    let d = Device::new();
    let wide = [[16, 16, 16], [8, 32, 16], [32, 8, 16]];
    type Row<'a> = (&'a str, &'a str, &'a [[usize; 3]], std::ops::Range<i64>);
    let all: [Row; 12] = [
        ("f16", "f32", &wide, -4..5),
        ("f16", "f16", &wide, -4..5),
        ("bf16", "f32", &wide, -50..51),
        ("tf32", "f32", &[[16, 16, 8]], -900..901),
        ("f64", "f64", &[[8, 8, 4]], -1000..1001),
        ("s8", "s32", &wide, -128..128),
        ("u8", "s32", &wide, 0..256),
        ("s4", "s32", &[[8, 8, 32]], -8..8),
        ("u4", "s32", &[[8, 8, 32]], 0..16),
        ("b1", "s32", &[[8, 8, 128]], 0..2),
        ("f16", "f32", &[[16, 16, 16]], 0..3),
        ("f64", "f64", &[[8, 8, 4]], 0..9),
    ];
    for (ty, acc, shapes, range) in all {
        for shape in shapes {
            for layouts in 0..8 {
                let col = |bit: usize| layouts >> bit & 1 == 1;
                // Parts of a byte have one layout only.
                if width(ty) < 8 && (col(0) || !col(1)) {
                    continue;
                }
                wmma(&d, ty, acc, *shape, [col(0), col(1), col(2)], &range);
            }
        }
    }
}

fn wmma(
    d: &Device,
    ty: &str,
    acc: &str,
    [m, n, k]: [usize; 3],
    col: [bool; 3],
    range: &std::ops::Range<i64>,
) {
    let mut next = numbers((m + n + k) as u64, range);
    let a: Vec<i64> = (0..m * k).map(|_| next()).collect();
    let b: Vec<i64> = (0..k * n).map(|_| next()).collect();
    let mut next = numbers(5, &(-3..4));
    let c: Vec<i64> = (0..m * n).map(|_| next()).collect();
    // In memory: lines of a stride that is longer than they are.
    let store = |ty: &str, rows: usize, columns: usize, col: bool, x: &[i64]| -> (Vec<u32>, usize) {
        let (lines, length) = if col { (columns, rows) } else { (rows, columns) };
        let stride = if width(ty) < 8 { length } else { length + 16 * 8 / width(ty) };
        let mut out = vec![0; lines * stride];
        for l in 0..lines {
            for i in 0..length {
                out[l * stride + i] = if col { x[i * columns + l] } else { x[l * columns + i] };
            }
        }
        (pack(ty, &out), stride)
    };
    let (ma, sa) = store(ty, m, k, col[0], &a);
    let (mb, sb) = store(ty, k, n, col[1], &b);
    let (mc, sc) = store(acc, m, n, col[2], &c);
    let f16 = ty == "f16";
    let register = |t: &str| match t {
        "f64" => "f64",
        "f32" => "f32",
        "s32" => "s32",
        _ => "b32",
    };
    let count = |t: &str, elements: usize| {
        let words = elements * width(t) / 1024;
        if t == "f64" { words / 2 } else { words }
    };
    let (na, nb) = if f16 { (8, 8) } else { (count(ty, m * k), count(ty, k * n)) };
    let nc = count(acc, m * n);
    let list = |name: &str, n: usize| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ");
    let name = |c: bool| if c { "col" } else { "row" };
    // The two ways of single bits take turns with the layouts of the result.
    let both = ty == "b1" && col[2];
    let sub = match ty {
        "b1" if both => ".and.popc",
        "b1" => ".xor.popc",
        _ => "",
    };
    let types = if f16 { format!("{acc}.{acc}") } else { format!("{acc}.{ty}.{ty}.{acc}") };
    let shape = format!("m{m}n{n}k{k}");
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc) {{\n\
         .reg .b64 a, b, c; .reg .{ra} x<{na}>; .reg .{ra} y<{nb}>; .reg .{rc} z<{nc}>; .reg .b32 s;\n\
         ld.param.u64 a, [pa]; ld.param.u64 b, [pb]; ld.param.u64 c, [pc]; mov.u32 s, {sb};\n\
         wmma.load.a.sync.aligned.{la}.{shape}.global.{ty} {{{xa}}}, [a], {sa};\n\
         wmma.load.b.sync.aligned.{lb}.{shape}.{ty} {{{yb}}}, [b], s;\n\
         wmma.load.c.sync.aligned.{lc}.{shape}.global.{acc} {{{zc}}}, [c], {sc};\n\
         wmma.mma{sub}.sync.aligned.{la}.{lb}.{shape}.{types} {{{zc}}}, {{{xa}}}, {{{yb}}}, {{{zc}}};\n\
         wmma.store.d.sync.aligned.{lc}.{shape}.global.{acc} [c], {{{zc}}}, {sc}; ret; }}",
        ra = register(ty),
        rc = register(acc),
        la = name(col[0]),
        lb = name(col[1]),
        lc = name(col[2]),
        xa = list("x", na),
        yb = list("y", nb),
        zc = list("z", nc),
    );
    let args = [d.put(&ma), d.put(&mb), d.put(&mc)];
    d.run(&d.load(&text).kernels()[0], [1; 3], [32, 1, 1], &args.map(Arg::U64)).unwrap();
    let product: Vec<i64> = (0..m * n)
        .map(|e| {
            let (r, q) = (e / n, e % n);
            let dot = (0..k).map(|i| {
                let (x, y) = (a[r * k + i], b[i * n + q]);
                if ty == "b1" && !both { x ^ y } else { x * y }
            });
            c[e] + dot.sum::<i64>()
        })
        .collect();
    let (want, _) = store(acc, m, n, col[2], &product);
    assert_eq!(d.get::<u32>(args[2], want.len()), want, "{shape} {ty} {acc} {col:?}");
    for p in args {
        d.memory.free(p);
    }
}
