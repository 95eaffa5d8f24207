//! When two computations are the same.

use super::super::{Base, Class, IntOp, Op, Opd, Order, Reg, Space, Sreg, Symbol, Ty};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A computation without its destination.
pub struct Key {
    pub hash: u64,
    pub op: Op,
}

/// The key and destination of an operation that gives one register a value, depends on nothing but its operands, and whose
/// operands keep their values (`ready` tells that of a register).
pub fn of(op: &Op, kernel: bool, ready: &dyn Fn(Reg) -> bool) -> Option<(Key, Reg)> {
    let mut op = op.clone();
    let d = std::mem::take(destination(&mut op, kernel)?);
    if let Op::Int { op: IntOp::Add | IntOp::Mul | IntOp::And | IntOp::Or | IntOp::Xor, a, b, .. } = &mut op
        && rank(a) > rank(b)
    {
        std::mem::swap(a, b);
    }
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(&op).hash(&mut hasher);
    if let Some(a) = op.address() {
        a.offset.hash(&mut hasher);
        let Base::Sym(s) = a.base else { return None };
        s.hash(&mut hasher);
    }
    let mut lasting = true;
    op.sources_mut(&mut |o| {
        rank(o).hash(&mut hasher);
        lasting &= match *o {
            Opd::Reg(r) => ready(r),
            Opd::Special(s) => constant(s),
            Opd::Imm(_) | Opd::Sym(..) => true,
        };
    });
    lasting.then(|| (Key { hash: hasher.finish(), op }, d))
}

/// The one destination of an operation that can be done once for many.
fn destination(op: &mut Op, kernel: bool) -> Option<&mut Reg> {
    match op {
        Op::Mov { d, a: Opd::Special(_) | Opd::Sym(..), .. }
        | Op::Int { d, .. }
        | Op::IntUnary { d, .. }
        | Op::Int3 { d, .. }
        | Op::Bfi { d, .. }
        | Op::Mad { d, .. }
        | Op::Float { d, .. }
        | Op::FloatUnary { d, .. }
        | Op::Fma { d, .. }
        | Op::Setp { d, d2: None, .. }
        | Op::Set { d, .. }
        | Op::Selp { d, .. }
        | Op::Slct { d, .. }
        | Op::Testp { d, .. }
        | Op::Cvt { d, .. }
        | Op::CvtPack { d, .. }
        | Op::Cvta { d, .. }
        | Op::Isspacep { d, .. } => Some(d),
        // A kernel's parameters stay as they are.
        Op::Ld { order: Order::Weak, d, addr, .. }
            if kernel && addr.space == Space::Param && matches!(addr.base, Base::Sym(Symbol::Arg(_))) =>
        {
            match &mut d[..] {
                [Some(d)] => Some(d),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A special register that a thread always finds the same in.
fn constant(s: Sreg) -> bool {
    matches!(
        s,
        Sreg::Tid(_)
            | Sreg::Ntid(_)
            | Sreg::Ctaid(_)
            | Sreg::Nctaid(_)
            | Sreg::LaneId
            | Sreg::WarpId
            | Sreg::NWarpId
            | Sreg::LaneMaskEq
            | Sreg::LaneMaskLe
            | Sreg::LaneMaskLt
            | Sreg::LaneMaskGe
            | Sreg::LaneMaskGt
            | Sreg::WarpSize
    )
}

/// Some order of operands, different for different ones of a kind.
fn rank(o: &Opd) -> (u8, u64) {
    match *o {
        Opd::Reg(r) => (0, u64::from(r)),
        Opd::Special(s) => {
            let mut hasher = DefaultHasher::new();
            s.hash(&mut hasher);
            (1, hasher.finish())
        }
        Opd::Sym(s, offset) => {
            let mut hasher = DefaultHasher::new();
            (s, offset).hash(&mut hasher);
            (2, hasher.finish())
        }
        Opd::Imm(v) => (3, v),
    }
}

/// The type that moves a whole register of a class.
pub fn plain(c: Class) -> Ty {
    match c {
        Class::Pred => Ty::Pred,
        Class::I8 => Ty::B8,
        Class::I16 => Ty::B16,
        Class::I32 => Ty::B32,
        Class::I64 => Ty::B64,
        Class::I128 => Ty::B128,
        Class::F32 => Ty::F32,
        Class::F64 => Ty::F64,
    }
}
