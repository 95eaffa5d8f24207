//! `mma.sp`: products in which half of each row of `a` is zero and not stored (PTX manual, "Sparse matrix storage").
//!
//! A *unit* is what two bits of metadata place among four: an element of 8 or 16 bits, half an element of tf32, two elements of 4
//! bits. Of four units two are stored, in order; four bits of metadata, the lower two for the first one, say where they stand.
//! What is stored of `a` lies as a dense `a` of half the depth would.

use super::mma::{FLOATS, Lanes, Layout, MOST};
use super::mma::{accumulate, floats, load_floats, load_integers, place_c, store_floats, word};
use crate::ir::matrix::{Element, Product};

/// Most elements of a row that are stored: 4-bit integers of `m16n8k128`.
const STORED: usize = 64;

/// The column of each stored element, by row.
type Columns = [[u8; STORED]; 16];

/// Units of a row of `a`.
fn units(p: &Product) -> u32 {
    match p.a {
        Element::Tf32 => 2 * p.k,
        Element::S4 | Element::U4 => p.k / 2,
        _ => p.k,
    }
}

/// Whether a lane's metadata is 16 bits for each of two rows, and not 32 of one.
fn of_two_rows(p: &Product) -> bool {
    matches!(p.a, Element::F16 | Element::Bf16 | Element::Tf32)
}

/// How many sparsity selectors there are: one, two or all four lanes of a quad have the metadata, 32 bits each of 4 for two rows
/// and four units.
pub fn selectors(p: &Product) -> u64 {
    u64::from(4 / (units(p) / 16).clamp(1, 4))
}

/// The two bits for stored unit `unit` of `row`, where the metadata is word `at` of each lane.
fn index(p: &Product, lanes: &Lanes, at: u32, row: u32, unit: u32) -> u32 {
    let selector = p.sparse.unwrap_or(0);
    let (group, upper, chunk) = (row % 8, row / 8, unit / 2);
    let (member, bit) = if of_two_rows(p) {
        (selector * (units(p) / 16) + chunk / 4, 16 * upper + chunk % 4 * 4)
    } else {
        (2 * selector + upper + 2 * (chunk / 8), chunk % 8 * 4)
    };
    word(lanes, 4 * group + member % 4, at) >> (bit + 2 * (unit % 2)) & 3
}

fn columns(p: &Product, lanes: &Lanes, at: u32) -> Columns {
    let mut out = [[0; STORED]; 16];
    for row in 0..p.m {
        for j in 0..p.stored() {
            // Where stored unit `u` stands.
            let stands = |u: u32| u / 2 * 4 + index(p, lanes, at, row, u);
            out[row as usize][j as usize] = match p.a {
                Element::Tf32 => stands(2 * j) / 2,
                Element::S4 | Element::U4 => stands(j / 2) * 2 + j % 2,
                _ => stands(j),
            } as u8;
        }
    }
    out
}

/// As [`super::mma::product`]; behind `c` comes one word of metadata.
pub fn product(p: Product, lanes: &Lanes) {
    let (words_a, c_at) = (p.words_a(), p.words_a() + p.words_b());
    let columns = columns(&p, lanes, c_at + p.words_c());
    let k = p.stored();
    if matches!(p.a, Element::S8 | Element::U8 | Element::S4 | Element::U4) {
        let (mut a, mut b) = ([0; MOST], [0; MOST]);
        load_integers(p.a, Layout::Mma, lanes, 0, words_a, [p.m, k], &mut a);
        load_integers(p.b, Layout::Mma, lanes, words_a, p.words_b(), [p.n, p.k], &mut b);
        for lane in 0..32 {
            for e in 0..p.m * p.n / 32 {
                let (row, column) = place_c(Layout::Mma, lane, e, p.n, 1);
                let (stored, b) = (&a[(row * k) as usize..], &b[(column * p.k) as usize..]);
                let pairs = stored[..k as usize].iter().zip(&columns[row as usize]);
                accumulate(p, lanes, lane, c_at, e, pairs.map(|(x, at)| x * b[usize::from(*at)]).sum());
            }
        }
        return;
    }
    let (mut a, mut b, mut c) = ([0f32; FLOATS], [0f32; FLOATS], [0f32; FLOATS]);
    floats(p.a, Layout::Mma, lanes, 0, words_a, [p.m, k], [k, 1], &mut a);
    floats(p.b, Layout::Mma, lanes, words_a, p.words_b(), [p.n, p.k], [1, p.n], &mut b);
    load_floats(p, Layout::Mma, lanes, c_at, &mut c);
    let n = p.n as usize;
    for (row, sums) in c.chunks_exact_mut(n).take(p.m as usize).enumerate() {
        let stored = &a[row * k as usize..(row + 1) * k as usize];
        for (x, at) in stored.iter().zip(&columns[row]) {
            let b = &b[usize::from(*at) * n..][..n];
            // Exact in f32, as in a dense product.
            sums.iter_mut().zip(b).for_each(|(sum, y)| *sum += x * y);
        }
    }
    store_floats(p, Layout::Mma, lanes, &c);
}
