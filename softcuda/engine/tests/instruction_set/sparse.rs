//! `mma.sp`: products of a matrix of which half is zero, with the other half packed and its places told by metadata.

use super::matrix::{fragment, numbers, pack, width};
use crate::common::{Arg, Device};
use std::fmt::Write;

/// A form of the instruction.
#[derive(Clone, Copy)]
struct Sparse {
    k: usize,
    /// Types as in the opcode: d, a, b, c.
    types: [&'static str; 4],
    name: &'static str,
    extra: &'static str,
    most: i64,
    selector: usize,
}

/// Places of stored elements are told for groups of this many elements, in steps of so many.
fn chunk(ty: &str) -> (usize, usize) {
    match ty {
        "tf32" => (2, 1),
        "s4" | "u4" => (8, 2),
        _ => (4, 1),
    }
}

/// A row of `k` elements as stored ones and metadata, four bits a chunk, lowest first; `row` is made to have zeros elsewhere.
fn compress(ty: &str, row: &mut [i64], next: &mut impl FnMut() -> i64) -> (Vec<i64>, Vec<u32>) {
    let (size, step) = chunk(ty);
    let (mut stored, mut meta) = (Vec::new(), Vec::new());
    for part in row.chunks_mut(size) {
        if ty == "tf32" {
            // One of two; the manual's two numbers for that.
            let at = next() as usize % 2;
            part[1 - at] = 0;
            stored.push(part[at]);
            meta.push([0b0100, 0b1110][at]);
            continue;
        }
        // Two of four, in order.
        let (x, y) = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)][next() as usize % 6];
        for u in 0..4 {
            let unit = &mut part[u * step..(u + 1) * step];
            if u == x || u == y { stored.extend_from_slice(unit) } else { unit.fill(0) }
        }
        meta.push(x as u32 | (y as u32) << 2);
    }
    (stored, meta)
}

/// Where row `r` and piece `piece` of its metadata goes: the lane and the shift. What is wide follows the formula by which CUTLASS
/// reorders metadata for the hardware (`reorder_meta`), what is not the manual's figures.
fn home(ty: &str, pieces: usize, selector: usize, r: usize, piece: usize) -> (usize, usize) {
    let halves = matches!(ty, "f16" | "bf16" | "tf32");
    let wide = |group: usize, interweave: usize| {
        let m = r + if halves { 16 * selector } else { 0 };
        let (mut row, mut column) = (m % 8 * interweave + m % group / 8, piece);
        match (row % 2, column % 2) {
            (0, 1) => (row, column) = (row + 1, column - 1),
            (1, 0) => (row, column) = (row - 1, column + 1),
            _ => {}
        }
        (row, column)
    };
    match (halves, pieces) {
        (true, 1) => (4 * (r % 8) + selector, 16 * (r / 8)),
        (true, _) => {
            let (row, column) = wide(32, 4);
            (row, 16 * column)
        }
        (false, 1) => (4 * (r % 8) + 2 * selector + r / 8, 0),
        (false, _) => {
            let (row, column) = wide(16, 2);
            (2 * row + column, 0)
        }
    }
}

fn run(s: Sparse) {
    let Sparse { k, types: [td, ta, tb, tc], most, selector, .. } = s;
    let unsigned = [ta, tb].iter().any(|t| t.starts_with('u'));
    let low = if unsigned { 0 } else { -most };
    let mut next = numbers((k + selector) as u64, &(low..most));
    let mut dice = numbers(3, &(0..60));
    let mut a: Vec<i64> = (0..16 * k).map(|_| next()).collect();
    let b: Vec<i64> = (0..8 * k).map(|_| next()).collect();
    let c: Vec<i64> = (0..128).map(|_| dice() - 30).collect();
    let (mut stored, mut meta) = (Vec::new(), vec![0xdead_beef_u32; 32]);
    let of_piece = if matches!(ta, "f16" | "bf16" | "tf32") { 4 } else { 8 };
    for (r, row) in a.chunks_mut(k).enumerate() {
        let (kept, nibbles) = compress(ta, row, &mut dice);
        stored.extend(kept);
        let pieces = nibbles.len() / of_piece;
        for (piece, bits) in nibbles.chunks(of_piece).enumerate() {
            let (lane, shift) = home(ta, pieces, selector, r, piece);
            for (i, n) in bits.iter().enumerate() {
                let at = shift + 4 * i;
                meta[lane] = meta[lane] & !(15 << at) | n << at;
            }
        }
    }
    let lanes = |ty: &str, f: &dyn Fn(usize) -> Vec<i64>| -> Vec<u32> {
        (0..32).flat_map(|l| pack(ty, &f(l))).collect()
    };
    let result = |l: usize, x: &dyn Fn(usize, usize) -> i64| -> Vec<i64> {
        (0..4).map(|e| x(l / 4 + 8 * (e / 2), l % 4 * 2 + e % 2)).collect()
    };
    let fa = lanes(ta, &|l| fragment(ta, 16, k / 2, l, &|r, i| stored[r * k / 2 + i]));
    let fb = lanes(tb, &|l| fragment(tb, 8, k, l, &|q, i| b[q * k + i]));
    let fc = lanes(tc, &|l| result(l, &|r, q| c[r * 8 + q]));
    let want = lanes(td, &|l| {
        result(l, &|r, q| c[r * 8 + q] + (0..k).map(|i| a[r * k + i] * b[q * k + i]).sum::<i64>())
    });
    let d = Device::new();
    let text = kernel(&s, [fa.len() / 32, fb.len() / 32, fc.len() / 32, want.len() / 32]);
    let module = d.load(&text);
    let args = [d.put(&fa), d.put(&fb), d.put(&fc), d.put(&meta), d.put(&vec![0u32; want.len()])];
    d.run(&module.kernels()[0], [1; 3], [32, 1, 1], &args.map(Arg::U64)).unwrap();
    assert_eq!(d.get::<u32>(args[4], want.len()), want, "m16n8k{k} {:?} {selector}", s.types);
}

/// Loads fragments and metadata, one instruction, stores the result.
fn kernel(s: &Sparse, words: [usize; 4]) -> String {
    let Sparse { k, types: [td, ta, tb, tc], name, extra, selector, .. } = *s;
    let mut text = String::from(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe, .param .u64 pd) {\n\
         .reg .b64 p, w; .reg .b32 t; mov.u32 t, %laneid;\n",
    );
    let mut lists = Vec::new();
    for (operand, ty, count) in
        [("a", ta, words[0]), ("b", tb, words[1]), ("c", tc, words[2]), ("d", td, words[3]), ("e", "b32", 1)]
    {
        let r = if matches!(ty, "f32" | "s32") { ty } else { "b32" };
        writeln!(text, ".reg .{r} {operand}<{count}>; ld.param.u64 p, [p{operand}]; mul.wide.u32 w, t, {}; add.u64 p, p, w;", 4 * count)
            .unwrap();
        for i in (0..count).filter(|_| operand != "d") {
            writeln!(text, "ld.global.{r} {operand}{i}, [p+{}];", 4 * i).unwrap();
        }
        lists.push((0..count).map(|i| format!("{operand}{i}")).collect::<Vec<_>>().join(", "));
    }
    writeln!(
        text,
        "{name}.sync.aligned.m16n8k{k}.row.col{extra}.{td}.{ta}.{tb}.{tc} {{{}}}, {{{}}}, {{{}}}, {{{}}}, e0, {selector};\n\
         ld.param.u64 p, [pd]; mul.wide.u32 w, t, {}; add.u64 p, p, w;",
        lists[3],
        lists[0],
        lists[1],
        lists[2],
        4 * words[3]
    )
    .unwrap();
    for i in 0..words[3] {
        writeln!(text, "st.global.b32 [p+{}], d{i};", 4 * i).unwrap();
    }
    text + "ret;\n}\n"
}

#[test]
fn every_sparse_product() {
    let name = "mma.sp";
    let mut all: Vec<Sparse> = Vec::new();
    let mut add = |types: [&'static str; 4], extra, most, ks: &[(usize, usize)]| {
        for (k, selectors) in ks {
            all.extend((0..*selectors).map(|selector| Sparse { k: *k, types, name, extra, most, selector }));
        }
    };
    for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
        add([d, "f16", "f16", c], "", 4, &[(16, 4), (32, 2)]);
    }
    add(["f32", "bf16", "bf16", "f32"], "", 100, &[(16, 4), (32, 2)]);
    add(["f32", "tf32", "tf32", "f32"], "", 900, &[(8, 4), (16, 2)]);
    for (a, b) in [("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")] {
        add(["s32", a, b, "s32"], "", if a == b { 128 } else { 64 }, &[(32, 2), (64, 1)]);
    }
    for (a, b) in [("s4", "s4"), ("u4", "u4")] {
        add(["s32", a, b, "s32"], ".satfinite", 8, &[(64, 2), (128, 1)]);
    }
    for (a, b) in [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
        add(["f32", a, b, "f32"], "", 3, &[(64, 1)]);
    }
    add(["f32", "e3m2", "e2m1", "f32"], ".kind::f8f6f4", 3, &[(64, 1)]);
    for s in all {
        assert!(width(s.types[1]) <= 32);
        run(s);
        run(Sparse { name: "mma.sp::ordered_metadata", ..s });
    }
}

#[test]
fn what_mma_sp_does_not_have() {
    for (form, selector) in [
        ("m16n8k16.row.col.f32.f16.f16.f32 {f0, f1, f2, f3}, {r0, r1}, {r2, r3}, {f0, f1, f2, f3}, r4", 4),
        ("m16n8k8.row.col.f32.f16.f16.f32 {f0, f1, f2, f3}, {r0}, {r2}, {f0, f1, f2, f3}, r4", 0),
        ("m16n8k32.row.col.s32.s8.s8.s32 {r6, r7, r8, r9}, {r0, r1}, {r2, r3}, {r6, r7, r8, r9}, r4", 2),
        ("m16n8k16.row.col.f64.f64.f64.f64 {f0, f1, f2, f3}, {r0, r1}, {r2, r3}, {f0, f1, f2, f3}, r4", 0),
    ] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {{ .reg .f32 f<4>; .reg .b32 r<12>;\n mma.sp.sync.aligned.{form}, {selector}; ret; }}\n"
        );
        assert!(softcuda_engine::Module::parse(&text).is_err(), "{form}");
    }
}
