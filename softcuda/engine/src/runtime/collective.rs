//! Operations that all lanes of a warp do together ([`crate::ir::Op::Collective`]).
//!
//! Each lane has a buffer of 32-bit words with its operands, in order; results are put in its place from word 0 on. A run time that
//! has a warp's lanes side by side may call [`run`] directly; the scalar one gathers the lanes in [`super::warp`].

use super::mma::{Lanes, Layout, product};
use crate::ir::CollectiveFn;
use crate::ir::matrix::Product;

/// Words of a lane's buffer: `wmma` of f16 has 24 operands, `mma` of f64 16 of two words each.
pub const WORDS: usize = 40;

/// Detail of [`CollectiveFn::LoadMatrix`] and its like: matrices, and whether they are transposed.
pub const TRANSPOSED: u64 = 1 << 8;

/// Shared memory of the block, as addresses.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub base: u64,
    pub size: u64,
}

/// Which of the functions: `as u32` of the enumeration is what generated code passes.
fn function(code: u32) -> Option<CollectiveFn> {
    use CollectiveFn::*;
    [Mma, Wmma, LoadMatrix, StoreMatrix, MoveMatrix].get(code as usize).copied()
}

/// Does one operation for all lanes; returns those whose address is wrong (they are to fault).
pub fn run(code: u32, detail: u64, lanes: &Lanes, shared: Window) -> u32 {
    match function(code) {
        Some(f @ (CollectiveFn::Mma | CollectiveFn::Wmma)) => {
            let Some(p) = Product::from_code(detail) else { return 0 };
            if f == CollectiveFn::Mma {
                product(p, Layout::Mma, [p.words_a(), p.words_b()], lanes);
            } else {
                product(p, Layout::Wmma, wmma_words(p), lanes);
            }
            0
        }
        Some(CollectiveFn::LoadMatrix) => load(detail, lanes, shared),
        Some(CollectiveFn::StoreMatrix) => store(detail, lanes, shared),
        Some(CollectiveFn::MoveMatrix) => {
            transpose(lanes);
            0
        }
        None => 0,
    }
}

/// Registers of `a` and `b` in `wmma`: f16 always has eight.
pub fn wmma_words(p: Product) -> [u32; 2] {
    if p.a == crate::ir::matrix::Element::F16 { [8, 8] } else { [p.words_a(), p.words_b()] }
}

/// The address of row `row` of matrix `matrix`, which lane 8·matrix + row gave in its first two words.
fn row(lanes: &Lanes, matrix: usize, row: usize, shared: Window) -> Result<*mut u16, u32> {
    let lane = matrix * 8 + row;
    let Some(p) = lanes[lane] else { return Err(0) };
    // SAFETY: a lane's buffer has at least its operands.
    let address = unsafe { u64::from(*p) | u64::from(*p.add(1)) << 32 };
    let offset = address.wrapping_sub(shared.base);
    let inside = shared.size >= 16 && offset <= shared.size - 16;
    if inside && offset.is_multiple_of(16) { Ok(address as *mut u16) } else { Err(1 << lane) }
}

/// All rows of all matrices, or the lanes with bad addresses.
fn rows(detail: u64, lanes: &Lanes, shared: Window) -> Result<[[Option<*mut u16>; 8]; 4], u32> {
    let mut out = [[None; 8]; 4];
    let mut bad = 0;
    for (m, matrix) in out.iter_mut().enumerate().take((detail & 7) as usize) {
        for (r, slot) in matrix.iter_mut().enumerate() {
            match row(lanes, m, r, shared) {
                Ok(p) => *slot = Some(p),
                Err(lane) => bad |= lane,
            }
        }
    }
    if bad == 0 { Ok(out) } else { Err(bad) }
}

/// Where the two halves of a lane's word lie in an 8 × 8 matrix: {row, column} twice.
fn halves(lane: usize, transposed: bool) -> [(usize, usize); 2] {
    let (long, short) = (lane / 4, lane % 4 * 2);
    if transposed { [(short, long), (short + 1, long)] } else { [(long, short), (long, short + 1)] }
}

fn load(detail: u64, lanes: &Lanes, shared: Window) -> u32 {
    let rows = match rows(detail, lanes, shared) {
        Ok(r) => r,
        Err(bad) => return bad,
    };
    for (lane, p) in lanes.iter().enumerate() {
        let Some(p) = p else { continue };
        for (m, rows) in rows.iter().enumerate().take((detail & 7) as usize) {
            let [lo, hi] = halves(lane, detail & TRANSPOSED != 0).map(|(r, c)| match rows[r] {
                // SAFETY: `row` checked 16 bytes of shared memory there.
                Some(q) => u32::from(unsafe { q.add(c).read() }),
                None => 0,
            });
            // SAFETY: the buffer holds the results.
            unsafe { p.add(m).write(lo | hi << 16) };
        }
    }
    0
}

/// `stmatrix`: values follow the address in a lane's buffer.
fn store(detail: u64, lanes: &Lanes, shared: Window) -> u32 {
    let rows = match rows(detail, lanes, shared) {
        Ok(r) => r,
        Err(bad) => return bad,
    };
    for (lane, p) in lanes.iter().enumerate() {
        let Some(p) = p else { continue };
        for (m, rows) in rows.iter().enumerate().take((detail & 7) as usize) {
            // SAFETY: the buffer holds address and values.
            let v = unsafe { p.add(2 + m).read() };
            for (i, (r, c)) in halves(lane, detail & TRANSPOSED != 0).into_iter().enumerate() {
                if let Some(q) = rows[r] {
                    // SAFETY: as in `load`.
                    unsafe { q.add(c).write((v >> (16 * i)) as u16) };
                }
            }
        }
    }
    0
}

/// `movmatrix.trans`.
fn transpose(lanes: &Lanes) {
    let mut m = [[0u16; 8]; 8];
    for (lane, p) in lanes.iter().enumerate() {
        let Some(p) = p else { continue };
        for (i, (r, c)) in halves(lane, false).into_iter().enumerate() {
            // SAFETY: the buffer holds the one operand.
            m[r][c] = (unsafe { p.read() } >> (16 * i)) as u16;
        }
    }
    for (lane, p) in lanes.iter().enumerate() {
        let Some(p) = p else { continue };
        let [lo, hi] = halves(lane, true).map(|(r, c)| u32::from(m[r][c]));
        // SAFETY: as above.
        unsafe { p.write(lo | hi << 16) };
    }
}
