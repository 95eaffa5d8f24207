//! How many registers a card would need for a function at the least.
//!
//! Counted is what must be kept and cannot be had again by a cheap instruction: what was loaded, and what floats, matrices,
//! textures and atomics gave. Addresses, indices, constants and parameters are not, as a card's compiler makes them anew
//! or has them elsewhere.

use super::flow::{RegSet, liveness, step_back};
use super::passes::successors;
use super::{BlockId, Function, Op, Space};

/// Whether the results of an operation are counted.
fn counts(op: &Op) -> bool {
    match op {
        Op::Ld { addr, .. } => addr.space != Space::Param,
        Op::Float { .. }
        | Op::FloatUnary { .. }
        | Op::Fma { .. }
        | Op::Atom { .. }
        | Op::Texture { .. }
        | Op::Memory { .. } => true,
        _ => false,
    }
}

/// The most 32-bit words that are counted and live at one point.
pub fn pressure(f: &Function) -> u32 {
    let mut counted = RegSet::new(f.regs.len());
    for inst in f.blocks.iter().flat_map(|block| &block.insts).filter(|inst| counts(&inst.op)) {
        inst.op.dests(&mut |r| counted.insert(r));
    }
    let words = |set: &RegSet| -> u32 {
        let live = set.iter().filter(|r| counted.contains(*r));
        live.map(|r| f.regs[r as usize].bits().div_ceil(32)).sum()
    };
    let live = liveness(f);
    let mut most = 0;
    for (b, block) in f.blocks.iter().enumerate() {
        let mut set = RegSet::new(f.regs.len());
        for s in successors(f, b as BlockId) {
            set.add(&live[s as usize]);
        }
        most = most.max(words(&set));
        for inst in block.insts.iter().rev() {
            step_back(inst, &mut set);
            most = most.max(words(&set));
        }
    }
    most
}
