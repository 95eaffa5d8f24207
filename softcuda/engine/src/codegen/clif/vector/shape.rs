//! How the values of a register differ over the lanes of a group.

use crate::ir::flow::{Flow, region};
use crate::ir::passes::{pure, successors, waits};
use crate::ir::{
    Addr, Base, Class, Function, Inst, IntOp, MadOp, Op, Opd, Reg, Sreg, Symbol, Term, Ty, VoteMode,
};

/// What the lanes of a group have in common in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing was assigned yet.
    None,
    /// Lane 0's value plus lane times this, in the width of the value; 0 where all lanes agree.
    Affine(i64),
    /// Any value in any lane.
    Lanes,
}

pub const UNIFORM: Shape = Shape::Affine(0);

impl Shape {
    fn join(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::None, s) | (s, Shape::None) => s,
            (a, b) if a == b => a,
            _ => Shape::Lanes,
        }
    }

    /// Two shapes of operands that are combined lane by lane, with `f` for the strides.
    fn with(self, other: Shape, f: impl Fn(i64, i64) -> i64) -> Shape {
        match (self, other) {
            (Shape::Affine(a), Shape::Affine(b)) => Shape::Affine(f(a, b)),
            (Shape::None, _) | (_, Shape::None) => Shape::None,
            _ => Shape::Lanes,
        }
    }

    fn scaled(self, by: i64) -> Shape {
        match self {
            Shape::Affine(s) => Shape::Affine(s.wrapping_mul(by)),
            s => s,
        }
    }

    /// Only "all agree" survives an operation that is not linear.
    fn opaque(self) -> Shape {
        match self {
            Shape::None | UNIFORM => self,
            _ => Shape::Lanes,
        }
    }

    pub fn uniform(self) -> bool {
        matches!(self, UNIFORM | Shape::None)
    }
}

/// What the classification depends on besides the text.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// A group never holds threads of two rows in x.
    pub rows: bool,
    /// Lanes of a group.
    pub width: u32,
    /// Bytes from one thread's local memory to the next one's.
    pub local: u32,
}

/// The shape of each register of a function: the least solution over all its definitions.
pub fn registers(f: &Function, flow: &Flow, setting: Setting, leave: &[bool]) -> Vec<Shape> {
    let mut a = Analysis { f, setting, regs: vec![Shape::None; f.regs.len()], changed: true };
    let mut split = vec![false; f.blocks.len()];
    while a.changed {
        a.changed = false;
        for b in &f.blocks {
            for inst in &b.insts {
                a.inst(inst);
            }
        }
        for (i, b) in f.blocks.iter().enumerate() {
            if !split[i] && (a.splits(&b.term) || leave[i]) {
                split[i] = true;
                a.changed = true;
            }
            if split[i] {
                let next = if leave[i] { vec![i as u32] } else { successors(f, i as u32) };
                a.rejoin(flow, &next, flow.post[i]);
            }
        }
    }
    a.regs
}

struct Analysis<'a> {
    f: &'a Function,
    setting: Setting,
    regs: Vec<Shape>,
    changed: bool,
}

impl Analysis<'_> {
    fn raise(&mut self, r: Reg, s: Shape) {
        let old = self.regs[r as usize];
        let new = old.join(s);
        if new != old {
            self.regs[r as usize] = new;
            self.changed = true;
        }
    }

    fn inst(&mut self, inst: &Inst) {
        let shapes = Shapes { f: self.f, setting: self.setting, regs: &self.regs };
        let guard = inst.guard.map_or(UNIFORM, |g| self.regs[g.reg as usize]);
        let mut new = Vec::new();
        inst.op.dests(&mut |r| {
            let mut s = shapes.result(&inst.op, r);
            if s != Shape::None && !guard.uniform() {
                s = Shape::Lanes;
            }
            new.push((r, s));
        });
        for (r, s) in new {
            self.raise(r, s);
        }
    }

    /// Whether lanes may part at the end of a block.
    fn splits(&self, term: &Term) -> bool {
        match term {
            Term::Branch { guard, .. } => !self.regs[guard.reg as usize].uniform(),
            Term::Switch { index: Opd::Reg(r), .. } => !self.regs[*r as usize].uniform(),
            Term::Switch { index: Opd::Special(s), .. } => !self.special(*s),
            _ => false,
        }
    }

    fn special(&self, s: Sreg) -> bool {
        Shapes { f: self.f, setting: self.setting, regs: &self.regs }.special(s).uniform()
    }

    /// Lanes that parted come together at `until`: whatever one of them may have written on the way differs there, also
    /// what was the same for all lanes at any time (a counter, when the lanes leave a loop in different rounds).
    fn rejoin(&mut self, flow: &Flow, from: &[u32], until: u32) {
        if until == flow.exit() {
            return;
        }
        let mut written = Vec::new();
        for b in region(self.f, from, until) {
            for inst in &self.f.blocks[b as usize].insts {
                inst.op.dests(&mut |r| written.push(r));
            }
        }
        for r in written {
            if flow.live[until as usize].contains(r) {
                self.raise(r, Shape::Lanes);
            }
        }
    }
}

/// Shapes of operands and results, given those of the registers.
pub struct Shapes<'a> {
    pub f: &'a Function,
    pub setting: Setting,
    pub regs: &'a [Shape],
}

fn word(class: Class) -> bool {
    matches!(class, Class::I32 | Class::I64)
}

impl Shapes<'_> {
    pub fn special(&self, s: Sreg) -> Shape {
        match s {
            Sreg::Tid(0) if self.setting.rows => Shape::Affine(1),
            Sreg::Tid(_) if self.setting.rows => UNIFORM,
            Sreg::LaneId => Shape::Affine(1),
            Sreg::Tid(_)
            | Sreg::LaneMaskEq
            | Sreg::LaneMaskLe
            | Sreg::LaneMaskLt
            | Sreg::LaneMaskGe
            | Sreg::LaneMaskGt => Shape::Lanes,
            _ => UNIFORM,
        }
    }

    pub fn symbol(&self, s: Symbol) -> Shape {
        match s {
            Symbol::Frame(_) | Symbol::Call(_) => Shape::Affine(i64::from(self.setting.local)),
            _ => UNIFORM,
        }
    }

    /// An operand that is read as `ty`.
    pub fn operand(&self, ty: Ty, o: &Opd) -> Shape {
        match *o {
            Opd::Imm(_) => UNIFORM,
            Opd::Special(s) => match self.special(s) {
                s if s.uniform() || ty.bits() == 32 => s,
                _ => Shape::Lanes,
            },
            Opd::Sym(s, _) => match self.symbol(s) {
                s if s.uniform() || ty.bits() == 64 => s,
                _ => Shape::Lanes,
            },
            Opd::Reg(r) => match self.regs[r as usize] {
                // Wraps as the register does only if it is not read wider than that.
                Shape::Affine(s) if s != 0 && self.f.regs[r as usize].bits() < ty.bits() => Shape::Lanes,
                s => s,
            },
        }
    }

    /// The shape of an address.
    pub fn address(&self, a: &Addr) -> Shape {
        match a.base {
            Base::Reg(r) => self.regs[r as usize],
            Base::Sym(s) => self.symbol(s),
            Base::None => UNIFORM,
        }
    }

    /// A value is widened from 32 bits and stays affine if it does not wrap within the group: what is to be tested, and
    /// whether as a signed number.
    pub fn widens(&self, op: &Op) -> Option<(Reg, bool)> {
        let (a, ty) = match op {
            Op::Cvt { to, from, a, mode, .. }
                if !to.float() && !from.float() && !mode.sat && to.bits() == 64 && from.bits() == 32 =>
            {
                (a, from)
            }
            Op::Int { op: IntOp::MulWide, ty, a, b: Opd::Imm(_), .. }
            | Op::Mad { op: MadOp::Wide, ty, a, b: Opd::Imm(_), .. }
                if ty.bits() == 32 =>
            {
                (a, ty)
            }
            _ => return None,
        };
        match a {
            Opd::Reg(r) if word(self.f.regs[*r as usize]) => match self.operand(*ty, a) {
                Shape::Affine(s) if s != 0 => Some((*r, ty.signed())),
                _ => None,
            },
            _ => None,
        }
    }

    /// What an operation makes of its operands; `d` tells which of its results is meant.
    pub fn result(&self, op: &Op, d: Reg) -> Shape {
        let s = self.raw(op);
        // Results are affine in the width of the operation; a register of another width wraps elsewhere.
        let fits = |bits: u32| self.f.regs[d as usize].bits() == bits && word(self.f.regs[d as usize]);
        match (s, result_bits(op)) {
            (UNIFORM | Shape::None | Shape::Lanes, _) => s,
            (Shape::Affine(_), Some(bits)) if !fits(bits) => Shape::Lanes,
            (Shape::Affine(_), None) => Shape::Lanes,
            (Shape::Affine(s), Some(32)) => Shape::Affine(i64::from(s as i32)),
            (s, _) => s,
        }
    }

    pub fn raw(&self, op: &Op) -> Shape {
        match op {
            Op::Mov { ty, a, .. } => self.operand(*ty, a),
            Op::Cvta { a, .. } => self.operand(Ty::U64, a),
            Op::Int { op, ty, a, b, .. } => self.int(*op, *ty, a, b),
            Op::Mad { op: MadOp::Lo, ty, a, b, c, .. } => {
                self.int(IntOp::Mul, *ty, a, b).with(self.operand(*ty, c), i64::wrapping_add)
            }
            Op::Mad { op: MadOp::Wide, ty, a, b, c, .. } if ty.bits() == 32 => {
                self.int(IntOp::MulWide, *ty, a, b).with(self.operand(Ty::U64, c), i64::wrapping_add)
            }
            Op::Cvt { to, from, a, mode, .. } if !to.float() && !from.float() && !mode.sat => {
                let s = match self.operand(*from, a) {
                    s if to.bits() <= from.bits() => s,
                    _ if self.widens(op).is_some() => self.operand(*from, a),
                    s => s.opaque(),
                };
                if to.bits() >= 32 { s } else { s.opaque() }
            }
            Op::Selp { ty, a, b, p, .. } => {
                let (a, b, p) = (self.operand(*ty, a), self.operand(*ty, b), self.operand(Ty::Pred, p));
                if p.uniform() { a.join(b) } else { Shape::Lanes }
            }
            // A load at one address gives all lanes the same, whatever others write meanwhile.
            Op::Ld { addr, .. } => self.address(addr).opaque(),
            Op::Atom { .. } | Op::Shfl { .. } | Op::Match { .. } | Op::Redux { .. } | Op::Elect { .. } => {
                Shape::Lanes
            }
            Op::Vote { mode, mask, .. } if *mode == VoteMode::Ballot || mask.is_none() => full(mask.as_ref()),
            Op::Vote { mask, .. } => full(mask.as_ref()),
            Op::ActiveMask { .. } | Op::Bar { .. } => UNIFORM,
            op if pure(op) && !waits(op) => self.any(op),
            // What is not known to depend on its operands alone.
            _ => Shape::Lanes,
        }
    }

    fn int(&self, op: IntOp, ty: Ty, a: &Opd, b: &Opd) -> Shape {
        let (x, y) = (self.operand(ty, a), self.operand(ty, b));
        if ty.bits() < 32 {
            return x.with(y, |a, b| a | b).opaque();
        }
        match (op, a, b) {
            (IntOp::Add, ..) => x.with(y, i64::wrapping_add),
            (IntOp::Sub, ..) => x.with(y, i64::wrapping_sub),
            (IntOp::Mul, _, Opd::Imm(n)) => x.scaled(signed(ty, *n)),
            (IntOp::Mul, Opd::Imm(n), _) => y.scaled(signed(ty, *n)),
            (IntOp::Shl, _, Opd::Imm(n)) if *n < u64::from(ty.bits()) => x.scaled(1i64 << n),
            (IntOp::MulWide, Opd::Reg(r), Opd::Imm(n))
                if ty.bits() == 32 && word(self.f.regs[*r as usize]) =>
            {
                x.scaled(if ty.signed() { i64::from(*n as i32) } else { i64::from(*n as u32) })
            }
            _ if x.uniform() && y.uniform() => x.with(y, |a, b| a | b),
            _ => x.with(y, |_, _| 1).opaque(),
        }
    }

    /// All operands agree, or nothing is known.
    fn any(&self, op: &Op) -> Shape {
        let mut s = UNIFORM;
        op.clone().sources_mut(&mut |o| {
            // Of no width: only whether it is uniform counts.
            let shape = match o {
                Opd::Reg(r) => self.regs[*r as usize],
                o => self.operand(Ty::B64, o),
            };
            s = if shape == Shape::None { Shape::None } else { s.with(shape.opaque(), |a, b| a | b) };
        });
        s
    }
}

/// Votes of a full warp are the same for all its lanes.
fn full(mask: Option<&Opd>) -> Shape {
    match mask {
        None => UNIFORM,
        Some(Opd::Imm(m)) if *m as u32 == u32::MAX => UNIFORM,
        _ => Shape::Lanes,
    }
}

fn signed(ty: Ty, n: u64) -> i64 {
    if ty.bits() == 32 { i64::from(n as i32) } else { n as i64 }
}

/// Bits of the result of an operation that keeps affine values affine.
fn result_bits(op: &Op) -> Option<u32> {
    match op {
        Op::Mov { ty, .. } | Op::Selp { ty, .. } => Some(ty.bits()),
        Op::Cvta { .. } => Some(64),
        Op::Int { op: IntOp::MulWide, .. } | Op::Mad { op: MadOp::Wide, .. } => Some(64),
        Op::Int { ty, .. } | Op::Mad { ty, .. } => Some(ty.bits()),
        Op::Cvt { to, .. } => Some(to.bits()),
        _ => None,
    }
}
