//! Short ways to write operations, for instructions that are made of several.

use crate::ir::{BoolOp, Class, Cmp, FloatMode, FloatOp, IntOp, IntOp3, IntUnary, Op, Opd, Reg, Round, Ty};
use crate::ptx::function::Body;

/// To nearest, and nothing else.
pub const PLAIN: FloatMode =
    FloatMode { round: Round::Near, ftz: false, sat: false, nan: false, relu: false };

/// A literal operand.
pub fn imm(v: u64) -> Opd {
    Opd::Imm(v)
}

impl Body<'_, '_> {
    /// `op` into a new register.
    pub fn int(&mut self, op: IntOp, ty: Ty, a: Opd, b: Opd) -> Opd {
        let class = match (op, ty) {
            (IntOp::MulWide, Ty::S32 | Ty::U32) => Class::I64,
            (IntOp::MulWide, _) => Class::I32,
            _ => ty.class(),
        };
        let d = self.temp(class);
        self.push(Op::Int { op, ty, d, a, b });
        Opd::Reg(d)
    }

    /// A unary operation into a new register of the same type.
    pub fn int1(&mut self, op: IntUnary, ty: Ty, a: Opd) -> Opd {
        let d = self.temp(ty.class());
        self.push(Op::IntUnary { op, ty, d, a });
        Opd::Reg(d)
    }

    /// Bits `pos` to `pos + len` of `a`, extended as `ty` says.
    pub fn field(&mut self, ty: Ty, a: Opd, pos: u32, len: u32) -> Opd {
        let d = self.temp(ty.class());
        let (b, c) = (imm(u64::from(pos)), imm(u64::from(len)));
        self.push(Op::Int3 { op: IntOp3::Bfe, ty, d, a, b, c });
        Opd::Reg(d)
    }

    /// `base` with the low bits of `a` in bits `pos` to `pos + len`.
    pub fn insert(&mut self, ty: Ty, a: Opd, base: Opd, pos: u32, len: u32) -> Opd {
        let d = self.temp(ty.class());
        let (pos, len) = (imm(u64::from(pos)), imm(u64::from(len)));
        self.push(Op::Bfi { ty, d, a, b: base, pos, len });
        Opd::Reg(d)
    }

    pub fn convert(&mut self, to: Ty, from: Ty, mode: FloatMode, a: Opd) -> Opd {
        let d = self.temp(to.class());
        self.push(Op::Cvt { to, from, mode, d, a });
        Opd::Reg(d)
    }

    /// An integer in another width, clamped to its range.
    pub fn clamp(&mut self, to: Ty, from: Ty, a: Opd) -> Opd {
        self.convert(to, from, FloatMode { sat: true, ..PLAIN }, a)
    }

    pub fn float(&mut self, op: FloatOp, ty: Ty, mode: FloatMode, a: Opd, b: Opd) -> Opd {
        let d = self.temp(ty.class());
        self.push(Op::Float { op, ty, mode, d, a, b });
        Opd::Reg(d)
    }

    pub fn setp(&mut self, cmp: Cmp, ty: Ty, a: Opd, b: Opd, with: Option<(BoolOp, Opd)>) -> Opd {
        let d = self.temp(Class::Pred);
        self.push(Op::Setp { cmp, ty, ftz: false, d, d2: None, a, b, with });
        Opd::Reg(d)
    }

    /// The parts of a register, lowest first.
    pub fn unpack(&mut self, part: Ty, count: usize, a: Opd) -> Vec<Opd> {
        let d: Vec<Reg> = (0..count).map(|_| self.temp(part.class())).collect();
        self.push(Op::Unpack { part, d: d.iter().copied().map(Some).collect(), a });
        d.into_iter().map(Opd::Reg).collect()
    }

    pub fn mov(&mut self, ty: Ty, d: Reg, a: Opd) {
        self.push(Op::Mov { ty, d, a });
    }
}
