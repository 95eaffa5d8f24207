//! Operations on literals.

use super::super::{Cmp, IntOp, Op, Opd, Reg, Ty};

/// The low `ty.bits()` bits of a number, extended as `ty` says, as a register of `bits` holds it.
pub fn extended(v: u64, ty: Ty, bits: u32) -> u64 {
    let cut = |v: u64, bits: u32| if bits >= 64 { v } else { v & ((1 << bits) - 1) };
    let v = cut(v, ty.bits());
    let negative = ty.signed() && ty.bits() < 64 && v >> (ty.bits() - 1) & 1 == 1;
    cut(if negative { v | u64::MAX << ty.bits() } else { v }, bits)
}

/// The signed type of the same width.
pub fn signed(ty: Ty) -> Ty {
    match ty.bytes() {
        1 => Ty::S8,
        2 => Ty::S16,
        4 => Ty::S32,
        _ => Ty::S64,
    }
}

/// Type, destination and value of an operation whose operands are all literals. Floats are left alone: how they round
/// is the generator's business.
pub fn value(op: &Op) -> Option<(Ty, Reg, u64)> {
    match *op {
        Op::Int { op, ty, d, a: Opd::Imm(a), b: Opd::Imm(b) } if plain(ty) => {
            Some((ty, d, int(op, ty, a, b)?))
        }
        Op::Setp { cmp, ty, d, d2: None, a: Opd::Imm(a), b: Opd::Imm(b), with: None, .. } if plain(ty) => {
            Some((Ty::Pred, d, u64::from(compare(cmp, ty, a, b)?)))
        }
        // 128 bits do not fit, and the literal of a float type is its bits.
        Op::Selp { ty, d, a, b, p: Opd::Imm(p) } if ty != Ty::B128 => match if p & 1 != 0 { a } else { b } {
            Opd::Imm(v) => Some((ty, d, v)),
            _ => None,
        },
        Op::Cvt { to, from, mode, d, a: Opd::Imm(v) } if plain(to) && plain(from) && !mode.sat => {
            Some((to, d, extended(extended(v, from, 64), to, 64)))
        }
        _ => None,
    }
}

fn plain(ty: Ty) -> bool {
    ty.integer() || matches!(ty, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64)
}

fn int(op: IntOp, ty: Ty, a: u64, b: u64) -> Option<u64> {
    // A shift's amount is 32 bits wide whatever the type; from the width on nothing, or the sign, is left.
    let (amount, bits) = (b & 0xffff_ffff, u64::from(ty.bits()));
    let (a, b) = (extended(a, ty, 64), extended(b, ty, 64));
    let v = match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::Min if ty.signed() => (a as i64).min(b as i64) as u64,
        IntOp::Min => a.min(b),
        IntOp::Max if ty.signed() => (a as i64).max(b as i64) as u64,
        IntOp::Max => a.max(b),
        IntOp::Shl | IntOp::Shr if amount >= bits && !(op == IntOp::Shr && ty.signed()) => 0,
        IntOp::Shl => a << amount,
        IntOp::Shr if ty.signed() => (a as i64 >> amount.min(63)) as u64,
        IntOp::Shr => a >> amount,
        _ => return None,
    };
    Some(extended(v, ty, 64))
}

fn compare(cmp: Cmp, ty: Ty, a: u64, b: u64) -> Option<bool> {
    let (a, b) = (extended(a, ty, 64), extended(b, ty, 64));
    let order = if ty.signed() { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
    Some(match cmp {
        Cmp::Eq => order.is_eq(),
        Cmp::Ne => order.is_ne(),
        Cmp::Lt => order.is_lt(),
        Cmp::Le => order.is_le(),
        Cmp::Gt => order.is_gt(),
        Cmp::Ge => order.is_ge(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_and_extended() {
        assert_eq!(extended(0xfff0, Ty::S8, 32), 0xffff_fff0);
        assert_eq!(extended(0xfff0, Ty::U8, 32), 0xf0);
        assert_eq!(extended(u64::MAX, Ty::B32, 64), 0xffff_ffff);
        assert_eq!(extended(u64::MAX, Ty::S64, 64), u64::MAX);
    }

    #[test]
    fn shifts_beyond_the_width() {
        assert_eq!(int(IntOp::Shl, Ty::B32, 1, 32), Some(0));
        assert_eq!(int(IntOp::Shl, Ty::B32, 1, 31), Some(1 << 31));
        assert_eq!(int(IntOp::Shl, Ty::B16, 1, 0x1_0001), Some(0));
        assert_eq!(int(IntOp::Shr, Ty::S32, 0x8000_0000, 40), Some(u64::from(u32::MAX) | u64::MAX << 32));
        assert_eq!(int(IntOp::Shr, Ty::U64, u64::MAX, 64), Some(0));
        assert_eq!(int(IntOp::Mul, Ty::S32, u64::MAX, 7), Some(-7i64 as u64));
    }
}
