//! Operations whose results nobody reads.

use super::super::passes::pure;
use super::super::{Function, Inst, Op, Opd, Reg, Term};

/// Removes them, and what only they read.
pub fn remove(f: &mut Function) {
    let mut readers = vec![0u32; f.regs.len()];
    // By register: the operations that could go if nobody reads it, as (block, index).
    let mut writers: Vec<Vec<(u32, u32)>> = vec![Vec::new(); f.regs.len()];
    let mut work = Vec::new();
    for (b, block) in f.blocks.iter().enumerate() {
        for (i, inst) in block.insts.iter().enumerate() {
            reads(inst, &mut |r| readers[r as usize] += 1);
            if pure(&inst.op) {
                let at = (b as u32, i as u32);
                inst.op.dests(&mut |r| writers[r as usize].push(at));
                work.push(at);
            }
        }
        match &block.term {
            Term::Branch { guard, .. } => readers[guard.reg as usize] += 1,
            Term::Switch { index: Opd::Reg(r), .. } => readers[*r as usize] += 1,
            _ => {}
        }
    }
    // Each entry is looked at once, and again for each register that loses its last reader.
    while let Some((b, i)) = work.pop() {
        let inst = &mut f.blocks[b as usize].insts[i as usize];
        let mut read = !pure(&inst.op);
        inst.op.dests(&mut |r| read |= readers[r as usize] > 0);
        if read {
            continue;
        }
        reads(inst, &mut |r| {
            readers[r as usize] -= 1;
            if readers[r as usize] == 0 {
                work.append(&mut writers[r as usize]);
            }
        });
        (inst.op, inst.guard) = (Op::Nop, None);
    }
    for b in &mut f.blocks {
        b.insts.retain(|i| i.op != Op::Nop);
    }
}

fn reads(inst: &Inst, f: &mut dyn FnMut(Reg)) {
    inst.op.uses(f);
    if let Some(g) = inst.guard {
        f(g.reg);
    }
}
