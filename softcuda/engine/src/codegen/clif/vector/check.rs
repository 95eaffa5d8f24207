//! What vector code takes for granted in a block and has tested once at its start. Where a test fails the group ends in scalar
//! code, which looks at each access by itself.

use super::plan::push;
use super::shape::{Setting, Shape, Shapes};
use crate::ir::{Addr, Base, Class, Function, Inst, Op, Order, Reg, Space, Term};
use crate::memory::GRANULE_BITS;

/// A test at the start of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The 32 bits of a register do not wrap within the group; `signed` tells which numbers they are.
    Narrow { reg: Reg, signed: bool },
    /// Memory around a register may be accessed.
    Cover(Cover),
}

/// All accesses of a block by way of one register: it is enough to look at both ends, since between them lies nothing that
/// the ends do not tell (one allocation of shared memory; at most two granules of the table).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover {
    pub base: Reg,
    pub space: Space,
    /// First byte, and one behind the last, from the register's value in lane 0.
    pub low: i64,
    pub high: i64,
    /// The register plus this is a multiple of `align`.
    pub anchor: i64,
    pub align: i64,
}

impl Cover {
    /// Whether it answers for `size` bytes at `offset`, of `len` bytes over all lanes.
    pub fn answers_for(&self, addr: &Addr, size: i64, len: i64) -> bool {
        addr.base == Base::Reg(self.base)
            && addr.space == self.space
            && addr.offset >= self.low
            && addr.offset.checked_add(len).is_some_and(|end| end <= self.high)
            && self.fits(addr.offset, size)
    }

    fn fits(&self, offset: i64, size: i64) -> bool {
        size <= self.align && offset.wrapping_sub(self.anchor) % size == 0
    }

    /// This with one more access in it, if that can be.
    fn with(self, offset: i64, size: i64, len: i64) -> Option<Cover> {
        let end = offset.checked_add(len)?;
        let mut new = Cover { low: self.low.min(offset), high: self.high.max(end), ..self };
        if size > self.align {
            (new.anchor, new.align) = (offset, size);
        }
        let near = new.high.checked_sub(new.low)? <= 1 << GRANULE_BITS;
        (near && new.fits(self.anchor, self.align.min(size)) && new.fits(offset, size)).then_some(new)
    }
}

/// An access that may stand under a cover: its address, bytes a lane, bytes of all lanes.
fn access<'a>(
    f: &Function,
    shapes: &Shapes,
    setting: Setting,
    inst: &'a Inst,
) -> Option<(&'a Addr, i64, i64)> {
    let (ty, count, addr) = match &inst.op {
        Op::Ld { ty, order: Order::Weak, d, addr } => (ty, d.len(), addr),
        Op::St { ty, order: Order::Weak, a, addr } => (ty, a.len(), addr),
        _ => return None,
    };
    let Base::Reg(r) = addr.base else { return None };
    let wide = match addr.space {
        Space::Shared => matches!(f.regs[r as usize], Class::I32 | Class::I64),
        Space::Global | Space::Generic | Space::Const => f.regs[r as usize] == Class::I64,
        _ => false,
    };
    let size = i64::from(ty.bytes()) * count as i64;
    let len = match shapes.address(addr) {
        Shape::Affine(0) => size,
        Shape::Affine(s) if s == size => size * i64::from(setting.width),
        _ => return None,
    };
    let usual = wide && size.count_ones() == 1 && inst.guard.is_none();
    (usual && addr.offset.unsigned_abs() < 1 << 31).then_some((addr, size, len))
}

/// The cover of the first access of a run of instructions, with those that follow by the same register.
fn cover(f: &Function, shapes: &Shapes, setting: Setting, insts: &[Inst]) -> Option<Cover> {
    let (addr, size, len) = access(f, shapes, setting, &insts[0])?;
    let Base::Reg(base) = addr.base else { return None };
    let (low, high) = (addr.offset, addr.offset + len);
    let mut all = Cover { base, space: addr.space, low, high, anchor: addr.offset, align: size };
    let mut count = 0;
    for inst in insts {
        if let Some((a, size, len)) = access(f, shapes, setting, inst)
            && a.base == addr.base
            && a.space == addr.space
            && let Some(more) = all.with(a.offset, size, len)
        {
            all = more;
            count += 1;
        }
        let mut over = false;
        inst.op.dests(&mut |r| over |= r == base);
        if over {
            break;
        }
    }
    (count > 1).then_some(all)
}

/// Cuts blocks so that each check is made at the start of one: before an operation that widens an affine value, once for
/// each value of a register, and before the first of several accesses by one register.
pub fn cut_at_checks(
    f: &mut Function,
    setting: Setting,
    regs: &[Shape],
    mut leave: Vec<bool>,
) -> (Vec<Vec<Check>>, Vec<bool>) {
    let mut checks: Vec<Vec<Check>> = vec![Vec::new(); f.blocks.len()];
    // What holds at the start of a block that was cut off another one.
    let mut held: Vec<Vec<Check>> = vec![Vec::new(); f.blocks.len()];
    let mut b = 0;
    while b < f.blocks.len() {
        let mut known = [held[b].clone(), checks[b].clone()].concat();
        let Some((i, check)) = first_unknown(f, setting, regs, b, &mut known) else {
            b += 1;
            continue;
        };
        if i == 0 {
            checks[b].push(check);
            continue;
        }
        let tail = f.blocks[b].insts.split_off(i);
        let term = std::mem::replace(&mut f.blocks[b].term, Term::Ret);
        let rest = push(f, tail, term);
        f.blocks[b].term = Term::Jump(rest);
        checks.push(vec![check]);
        held.push(known);
        leave.push(false);
        b += 1;
    }
    (checks, leave)
}

/// The first instruction of a block that needs a check that is not in `known`, which is then what holds before it.
fn first_unknown(
    f: &Function,
    setting: Setting,
    regs: &[Shape],
    b: usize,
    known: &mut Vec<Check>,
) -> Option<(usize, Check)> {
    let shapes = Shapes { f, setting, regs };
    let insts = &f.blocks[b].insts;
    for (i, inst) in insts.iter().enumerate() {
        let apart = inst.guard.is_some_and(|g| !regs[g.reg as usize].uniform());
        if let Some((reg, signed)) = shapes.widens(&inst.op).filter(|_| !apart) {
            let check = Check::Narrow { reg, signed };
            if !known.contains(&check) {
                return Some((i, check));
            }
        }
        if let Some((addr, size, len)) = access(f, &shapes, setting, inst) {
            let held = known.iter().any(|k| matches!(k, Check::Cover(c) if c.answers_for(addr, size, len)));
            if !held && let Some(c) = cover(f, &shapes, setting, &insts[i..]) {
                return Some((i, Check::Cover(c)));
            }
        }
        inst.op.dests(&mut |r| {
            known.retain(|k| match k {
                Check::Narrow { reg, .. } => *reg != r,
                Check::Cover(c) => c.base != r,
            });
        });
    }
    None
}
