//! Matrix products of a warp: who holds which element, and the arithmetic.
//!
//! For `mma` the PTX manual says which lane holds what ("Matrix Fragments for mma"). For `wmma` it leaves that open; here word `j` of lane
//! `l` is word `32 j + l` of the matrix, row by row (`b` column by column).

use super::small_float::{E2M1, E2M3, E3M2, E4M3, E5M2};
use super::sparse;
use crate::ir::matrix::{Element, Product};
use half::slice::HalfFloatSliceExt;

/// Most elements of an `a`, `b` or `c` of integers (`m16n8k64`), and of floats (`m32n8k16`).
pub(super) const MOST: usize = 1024;
pub(super) const FLOATS: usize = 512;

/// Words that each lane brings and takes; a lane that has ended has none.
pub type Lanes = [Option<*mut u32>; 32];

/// Which of the two layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Mma,
    Wmma,
}

/// Where words lie: of `a`, its row and first column; of `b`, its column and first row.
fn place(layout: Layout, lane: u32, word: u32, outer: u32, k: u32, per_word: u32) -> (u32, u32) {
    if layout == Layout::Wmma {
        let at = (word * 32 + lane) * per_word;
        return (at / k, at % k);
    }
    let (group, member) = (lane / 4, lane % 4);
    let (upper, chunk) = if outer == 16 { (word & 1, word >> 1) } else { (0, word) };
    (group + 8 * upper, chunk * 4 * per_word + member * per_word)
}

/// Row and column of element `e` that a lane holds of `c` or `d`; `per_word` of them share a word.
pub(super) fn place_c(layout: Layout, lane: u32, e: u32, n: u32, per_word: u32) -> (u32, u32) {
    if layout == Layout::Wmma {
        let at = (e / per_word * 32 + lane) * per_word + e % per_word;
        return (at / n, at % n);
    }
    (lane / 4 + 8 * (e >> 1), lane % 4 * 2 + (e & 1))
}

/// Word `i` of a lane; 0 of one that is not there.
pub(super) fn word(lanes: &Lanes, lane: u32, i: u32) -> u32 {
    match lanes[lane as usize] {
        // SAFETY: the buffer of a lane holds all operands of the operation (`Op::Collective`).
        Some(p) => unsafe { p.add(i as usize).read() },
        None => 0,
    }
}

pub(super) fn put(lanes: &Lanes, lane: u32, i: u32, v: u32) {
    if let Some(p) = lanes[lane as usize] {
        // SAFETY: as in `word`; results fit where operands were.
        unsafe { p.add(i as usize).write(v) };
    }
}

/// Computes `d` of all lanes. Operands lie as `a`, `b`, `c`, with `padded` words of each of the first two; `d` begins at word 0.
pub fn product(p: Product, layout: Layout, padded: [u32; 2], lanes: &Lanes) {
    let c_at = padded[0] + padded[1];
    match p.a {
        _ if p.sparse.is_some() => sparse::product(p, lanes),
        _ if p.quads() => (0..4).for_each(|quad| quads(p, quad, padded, lanes)),
        Element::F64 => doubles(p, layout, padded, lanes),
        Element::B1 => bits(p, layout, padded, lanes),
        Element::S8 | Element::U8 | Element::S4 | Element::U4 => integers(p, layout, padded, lanes),
        _ => {
            let (mut a, mut b, mut c) = ([0f32; FLOATS], [0f32; FLOATS], [0f32; FLOATS]);
            floats(p.a, layout, lanes, 0, p.words_a(), [p.m, p.k], [p.k, 1], &mut a);
            floats(p.b, layout, lanes, padded[0], p.words_b(), [p.n, p.k], [1, p.n], &mut b);
            load_floats(p, layout, lanes, c_at, &mut c);
            multiply(p, &a, &b, &mut c);
            store_floats(p, layout, lanes, &c);
        }
    }
}

/// Reads the elements of `a` or `b`: `shape` is {rows or columns, k}, and an element goes to {row or column, k} · `strides`.
#[allow(clippy::too_many_arguments)]
pub(super) fn floats(
    e: Element,
    layout: Layout,
    lanes: &Lanes,
    at: u32,
    words: u32,
    shape: [u32; 2],
    strides: [u32; 2],
    out: &mut [f32; FLOATS],
) {
    let per_word = 32 / e.bits();
    // 16-bit floats are converted together, which is much quicker than one by one.
    let mut raw = [half::f16::ZERO; FLOATS];
    for lane in 0..32 {
        for j in 0..words {
            let v = word(lanes, lane, at + j);
            let (outer, first) = place(layout, lane, j, shape[0], shape[1], per_word);
            let mut to = (outer * strides[0] + first * strides[1]) as usize;
            if e == Element::F16 {
                raw[to] = half::f16::from_bits(v as u16);
                raw[to + strides[1] as usize] = half::f16::from_bits((v >> 16) as u16);
                continue;
            }
            for i in 0..per_word {
                out[to] = element(e, v >> (i * e.bits()));
                to += strides[1] as usize;
            }
        }
    }
    if e == Element::F16 {
        let n = (shape[0] * shape[1]) as usize;
        raw[..n].convert_to_f32_slice(&mut out[..n]);
    }
}

fn element(e: Element, bits: u32) -> f32 {
    match e {
        Element::F16 => half::f16::from_bits(bits as u16).to_f32(),
        Element::Bf16 => f32::from_bits(bits << 16),
        // The hardware does not look at the last 13 bits.
        Element::Tf32 => f32::from_bits(bits & !0x1fff),
        Element::E4m3 => E4M3.decode(bits & 0xff) as f32,
        Element::E5m2 => E5M2.decode(bits & 0xff) as f32,
        Element::E3m2 => E3M2.decode(bits & 0x3f) as f32,
        Element::E2m3 => E2M3.decode(bits & 0x3f) as f32,
        // In the middle of its byte.
        Element::E2m1 => E2M1.decode(bits >> 2 & 0xf) as f32,
        _ => f32::from_bits(bits),
    }
}

pub(super) fn load_floats(p: Product, layout: Layout, lanes: &Lanes, at: u32, c: &mut [f32; FLOATS]) {
    let per_word = 32 / p.c.bits();
    for lane in 0..32 {
        for e in 0..p.m * p.n / 32 {
            let v = word(lanes, lane, at + e / per_word) >> (e % per_word * p.c.bits());
            let (row, col) = place_c(layout, lane, e, p.n, per_word);
            c[(row * p.n + col) as usize] = element(p.c, v);
        }
    }
}

pub(super) fn store_floats(p: Product, layout: Layout, lanes: &Lanes, d: &[f32; FLOATS]) {
    let per_word = 32 / p.d.bits();
    for lane in 0..32 {
        for j in 0..p.words_d() {
            let value = |i: u32| {
                let (row, col) = place_c(layout, lane, j * per_word + i, p.n, per_word);
                d[(row * p.n + col) as usize]
            };
            let v = if per_word == 1 {
                value(0).to_bits()
            } else {
                let half = |i| u32::from(half::f16::from_f32(value(i)).to_bits());
                half(0) | half(1) << 16
            };
            put(lanes, lane, j, v);
        }
    }
}

/// `c += a · b`, 8 columns at a time. The products of all short formats are exact in f32, so that a fused and a plain
/// multiplication give the same.
fn multiply(p: Product, a: &[f32; FLOATS], b: &[f32; FLOATS], c: &mut [f32; FLOATS]) {
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has both.
        unsafe { multiply_wide(p, a, b, c) }
    } else {
        multiply_with(p, a, b, c, |x, y, z| x * y + z);
    }
}

#[target_feature(enable = "avx2,fma")]
fn multiply_wide(p: Product, a: &[f32; FLOATS], b: &[f32; FLOATS], c: &mut [f32; FLOATS]) {
    multiply_with(p, a, b, c, f32::mul_add);
}

#[inline(always)]
fn multiply_with(
    p: Product,
    a: &[f32; FLOATS],
    b: &[f32; FLOATS],
    c: &mut [f32; FLOATS],
    fused: impl Fn(f32, f32, f32) -> f32,
) {
    let (n, k) = (p.n as usize, p.k as usize);
    for row in 0..p.m as usize {
        let a = &a[row * k..(row + 1) * k];
        for c in c[row * n..(row + 1) * n].chunks_exact_mut(8).enumerate() {
            let (block, c) = c;
            let mut sum = [0f32; 8];
            sum.copy_from_slice(c);
            for (x, b) in a.iter().zip(b.chunks_exact(n)) {
                let b = &b[block * 8..block * 8 + 8];
                for (s, y) in sum.iter_mut().zip(b) {
                    *s = fused(*x, *y, *s);
                }
            }
            c.copy_from_slice(&sum);
        }
    }
}

/// The product of one pair of quads, lanes `4 quad` to `4 quad + 3` and those 16 behind them ("Matrix Fragments for mma.m8n8k4 with
/// .f16 floating point type").
fn quads(p: Product, quad: u32, padded: [u32; 2], lanes: &Lanes) {
    let lane = |i: u32| 4 * quad + i % 4 + 16 * (i / 4);
    let half = |lane, at: u32, e: u32| element(Element::F16, word(lanes, lane, at + e / 2) >> (16 * (e % 2)));
    // Rows of `a`, columns of `b`, four elements each.
    let (mut a, mut b) = ([[0f32; 4]; 8], [[0f32; 4]; 8]);
    for i in 0..8 {
        for e in 0..4 {
            let place = |across: bool| if across { (e + i / 4 * 4, i % 4) } else { (i, e) };
            let (row, k) = place(p.across[0]);
            a[row as usize][k as usize] = half(lane(i), 0, e);
            let (column, k) = place(p.across[1]);
            b[column as usize][k as usize] = half(lane(i), padded[0], e);
        }
    }
    // The place of element `e` of lane `i`.
    let place = |ty: Element, i: u32, e: u32| {
        if ty == Element::F16 { (i, e) } else { ((i & 1) + (e & 2) + i / 4 * 4, (e & 4) + (i & 2) + (e & 1)) }
    };
    let c_at = padded[0] + padded[1];
    let mut sums = [[0f32; 8]; 8];
    for i in 0..8 {
        for e in 0..8 {
            let (row, column) = place(p.c, i, e);
            let c = if p.c == Element::F16 {
                half(lane(i), c_at, e)
            } else {
                f32::from_bits(word(lanes, lane(i), c_at + e))
            };
            let (x, y) = (&a[row as usize], &b[column as usize]);
            sums[row as usize][column as usize] = x.iter().zip(y).fold(c, |sum, (x, y)| x.mul_add(*y, sum));
        }
    }
    for i in 0..8 {
        let value = |e: u32| {
            let (row, column) = place(p.d, i, e);
            sums[row as usize][column as usize]
        };
        for j in 0..p.words_d() {
            let v = if p.d == Element::F16 {
                let half = |e| u32::from(half::f16::from_f32(value(e)).to_bits());
                half(2 * j) | half(2 * j + 1) << 16
            } else {
                value(j).to_bits()
            };
            put(lanes, lane(i), j, v);
        }
    }
}

fn doubles(p: Product, layout: Layout, padded: [u32; 2], lanes: &Lanes) {
    let mut a = [0f64; 256];
    let mut b = [0f64; 128];
    let value = |lane, at: u32| {
        f64::from_bits(u64::from(word(lanes, lane, at)) | u64::from(word(lanes, lane, at + 1)) << 32)
    };
    for lane in 0..32 {
        for j in 0..p.words_a() / 2 {
            let (row, col) = place(layout, lane, j, p.m, p.k, 1);
            a[(row * p.k + col) as usize] = value(lane, 2 * j);
        }
        for j in 0..p.words_b() / 2 {
            let (col, row) = place(layout, lane, j, p.n, p.k, 1);
            b[(row * p.n + col) as usize] = value(lane, padded[0] + 2 * j);
        }
    }
    for lane in 0..32 {
        for e in 0..p.m * p.n / 32 {
            let (row, col) = place_c(layout, lane, e, p.n, 1);
            let mut sum = value(lane, padded[0] + padded[1] + 2 * e);
            for i in 0..p.k {
                sum = a[(row * p.k + i) as usize].mul_add(b[(i * p.n + col) as usize], sum);
            }
            // Element `e` of `c` has been read by this lane, and later ones lie behind it, where `d` has not come yet.
            put(lanes, lane, 2 * e, sum.to_bits() as u32);
            put(lanes, lane, 2 * e + 1, (sum.to_bits() >> 32) as u32);
        }
    }
}

fn integer(e: Element, bits: u32) -> i32 {
    match e {
        Element::S8 => i32::from(bits as i8),
        Element::U8 => i32::from(bits as u8),
        Element::S4 => (bits << 28) as i32 >> 28,
        _ => (bits & 15) as i32,
    }
}

/// Reads the integers of `a` or `b`, of `k` elements a row or column.
pub(super) fn load_integers(
    e: Element,
    layout: Layout,
    lanes: &Lanes,
    at: u32,
    words: u32,
    [outer, k]: [u32; 2],
    out: &mut [i32; MOST],
) {
    let per_word = 32 / e.bits();
    for lane in 0..32 {
        for j in 0..words {
            let v = word(lanes, lane, at + j);
            let (line, first) = place(layout, lane, j, outer, k, per_word);
            for i in 0..per_word {
                out[(line * k + first + i) as usize] = integer(e, v >> (i * e.bits()));
            }
        }
    }
}

/// `c + dot`, clamped or wrapped, to element `e` of `d` from that of `c` at `at`.
pub(super) fn accumulate(p: Product, lanes: &Lanes, lane: u32, at: u32, e: u32, dot: i32) {
    let c = word(lanes, lane, at + e) as i32;
    let v = if p.saturate { c.saturating_add(dot) } else { c.wrapping_add(dot) };
    put(lanes, lane, e, v as u32);
}

fn integers(p: Product, layout: Layout, padded: [u32; 2], lanes: &Lanes) {
    let (mut a, mut b) = ([0i32; MOST], [0i32; MOST]);
    load_integers(p.a, layout, lanes, 0, p.words_a(), [p.m, p.k], &mut a);
    load_integers(p.b, layout, lanes, padded[0], p.words_b(), [p.n, p.k], &mut b);
    for lane in 0..32 {
        for e in 0..p.m * p.n / 32 {
            let (row, col) = place_c(layout, lane, e, p.n, 1);
            let (x, y) = ((row * p.k) as usize, (col * p.k) as usize);
            let k = p.k as usize;
            let dot: i32 = a[x..x + k].iter().zip(&b[y..y + k]).map(|(x, y)| x * y).sum();
            accumulate(p, lanes, lane, padded[0] + padded[1], e, dot);
        }
    }
}

/// Rows of bits, 32 a word: how many agree in `and`, or differ.
fn bits(p: Product, layout: Layout, padded: [u32; 2], lanes: &Lanes) {
    let mut a = [0u32; 128];
    let mut b = [0u32; 64];
    let k = p.k / 32;
    for lane in 0..32 {
        for j in 0..p.words_a() {
            let (row, first) = place(layout, lane, j, p.m, p.k, 32);
            a[(row * k + first / 32) as usize] = word(lanes, lane, j);
        }
        for j in 0..p.words_b() {
            let (col, first) = place(layout, lane, j, p.n, p.k, 32);
            b[(col * k + first / 32) as usize] = word(lanes, lane, padded[0] + j);
        }
    }
    for lane in 0..32 {
        for e in 0..p.m * p.n / 32 {
            let (row, col) = place_c(layout, lane, e, p.n, 1);
            let pairs = (0..k).map(|i| (a[(row * k + i) as usize], b[(col * k + i) as usize]));
            let count: u32 = pairs.map(|(x, y)| if p.and { x & y } else { x ^ y }.count_ones()).sum();
            let c = word(lanes, lane, padded[0] + padded[1] + e);
            put(lanes, lane, e, c.wrapping_add(count));
        }
    }
}
