//! softcuda's own optimiser. Cranelift's is off (`opt_level=none`), so what compilers leave behind, and what reading PTX
//! adds, is cleaned up here: constants and copies, repeated computations, sums in addresses, branches on
//! constants, code whose results nobody reads. All of it takes time linear in the size of a function.
//!
//! A register with one definition, which is not guarded, is as good as an SSA value wherever that definition dominates:
//! the walk goes down the dominator tree, and what it knows holds for the part of the tree below. Other registers are left
//! alone, and so is one whose definition does not dominate its use: a loop may read what its last round left.

mod dead;
mod dominators;
mod facts;
mod fold;
mod key;

use super::{Base, Function, Inst, IntOp, Op, Opd, Reg, Space, Term, Ty};
use dominators::Dominators;
use facts::{Fact, Facts};

/// Optimises a function in place.
pub fn function(f: &mut Function) {
    let tree = Dominators::new(f);
    let mut walk = Walk { facts: Facts::new(single(f)), kernel: f.kernel };
    let mut open: Vec<(usize, usize, usize)> = vec![(0, 0, walk.facts.mark())];
    walk.block(f, 0);
    // Down the tree without recursion: (block, next child, where its facts begin).
    while let Some(top) = open.last_mut() {
        match tree.children(top.0).get(top.1) {
            Some(&child) => {
                top.1 += 1;
                open.push((child, 0, walk.facts.mark()));
                walk.block(f, child);
            }
            None => {
                walk.facts.forget(top.2);
                open.pop();
            }
        }
    }
    dead::remove(f);
}

/// By register: whether it has exactly one definition, and that one always takes place.
fn single(f: &Function) -> Vec<bool> {
    let mut definitions = vec![0u8; f.regs.len()];
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let count = if inst.guard.is_some() { 2 } else { 1 };
        inst.op.dests(&mut |r| definitions[r as usize] = definitions[r as usize].saturating_add(count));
    }
    definitions.into_iter().map(|n| n == 1).collect()
}

struct Walk {
    facts: Facts,
    kernel: bool,
}

impl Walk {
    fn block(&mut self, f: &mut Function, at: usize) {
        let block = &mut f.blocks[at];
        let regs = &f.regs;
        for inst in &mut block.insts {
            self.replace(inst);
            if inst.guard.is_none() {
                if let Some((ty, d, value)) = fold::value(&inst.op) {
                    inst.op = Op::Mov { ty, d, a: Opd::Imm(value) };
                }
                self.learn(inst, regs);
            }
            let facts = &mut self.facts;
            inst.op.dests(&mut |r| facts.defined(r));
        }
        self.term(&mut block.term);
    }

    /// Puts what is known in the place of an instruction's operands.
    fn replace(&mut self, inst: &mut Inst) {
        if let Some(g) = &mut inst.guard {
            match self.facts.value(g.reg) {
                Some(Opd::Reg(r)) => g.reg = r,
                Some(Opd::Imm(v)) if (v & 1 != 0) != g.negated => inst.guard = None,
                Some(Opd::Imm(_)) => {
                    inst.op = Op::Nop;
                    inst.guard = None;
                }
                _ => {}
            }
        }
        let facts = &self.facts;
        inst.op.sources_mut(&mut |o| {
            if let Opd::Reg(r) = *o
                && let Some(v) = facts.value(r)
            {
                *o = v;
            }
        });
        if let Some(a) = inst.op.address_mut()
            && let Base::Reg(r) = a.base
        {
            let r = if let Some(Opd::Reg(s)) = facts.value(r) { s } else { r };
            a.base = Base::Reg(r);
            if let Some((base, add)) = facts.sum(r)
                && let Some(offset) = a.offset.checked_add(add).filter(|o| i32::try_from(*o).is_ok())
            {
                a.base = Base::Reg(base);
                a.offset = offset;
            }
        }
    }

    /// What an instruction that always takes place says about its destination.
    fn learn(&mut self, inst: &mut Inst, regs: &[super::Class]) {
        let width = |r: Reg, ty: Ty| regs[r as usize].bits() == ty.bits();
        match inst.op {
            Op::Mov { ty, d, a: Opd::Imm(v) } if self.facts.single(d) => {
                let v = fold::extended(v, ty, regs[d as usize].bits());
                self.facts.learn(d, Fact::Value(Opd::Imm(v)));
                return;
            }
            Op::Mov { ty, d, a: Opd::Reg(s) } if self.same(regs, d, s) && width(d, ty) => {
                self.facts.learn(d, Fact::Value(Opd::Reg(s)));
                return;
            }
            // Only shared space has addresses of its own.
            Op::Cvta { space: Space::Global | Space::Const | Space::Local, d, a: Opd::Reg(s), .. }
                if self.same(regs, d, s) && width(d, Ty::U64) =>
            {
                self.facts.learn(d, Fact::Value(Opd::Reg(s)));
                return;
            }
            Op::Int { op: IntOp::Add, ty, d, a: Opd::Reg(s), b: Opd::Imm(v) }
                if self.facts.single(d)
                    && self.facts.ready(s)
                    && width(d, ty)
                    && width(s, ty)
                    && ty.bits() >= 32 =>
            {
                let add = fold::extended(v, fold::signed(ty), 64) as i64;
                let (base, sum) = match self.facts.sum(s) {
                    Some((base, before)) if width(base, ty) => (base, before.wrapping_add(add)),
                    _ => (s, add),
                };
                inst.op = Op::Int {
                    op: IntOp::Add,
                    ty,
                    d,
                    a: Opd::Reg(base),
                    b: Opd::Imm(fold::extended(sum as u64, ty, 64)),
                };
                self.facts.learn(d, Fact::Sum(base, fold::extended(sum as u64, fold::signed(ty), 64) as i64));
            }
            _ => {}
        }
        self.number(inst, regs);
    }

    /// Whether a register could stand for another one that is copied to it.
    fn same(&self, regs: &[super::Class], d: Reg, s: Reg) -> bool {
        self.facts.single(d) && self.facts.ready(s) && regs[d as usize] == regs[s as usize]
    }

    /// The result of an equal computation above, if there is one.
    fn number(&mut self, inst: &mut Inst, regs: &[super::Class]) {
        let Some((key, d)) = key::of(&inst.op, self.kernel, &|r| self.facts.ready(r)) else { return };
        if !self.facts.single(d) {
            return;
        }
        match self.facts.earlier(&key) {
            Some(e) if regs[e as usize] == regs[d as usize] => {
                inst.op = Op::Mov { ty: key::plain(regs[d as usize]), d, a: Opd::Reg(e) };
                self.facts.learn(d, Fact::Value(Opd::Reg(e)));
            }
            Some(_) => {}
            None => self.facts.keep(key, d),
        }
    }

    fn term(&mut self, term: &mut Term) {
        match term {
            Term::Branch { guard, then, other } => match self.facts.value(guard.reg) {
                Some(Opd::Reg(r)) => guard.reg = r,
                Some(Opd::Imm(v)) => {
                    *term = Term::Jump(if (v & 1 != 0) != guard.negated { *then } else { *other });
                }
                _ => {}
            },
            Term::Switch { index, .. } => {
                if let Opd::Reg(r) = *index
                    && let Some(v) = self.facts.value(r)
                {
                    *index = v;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
