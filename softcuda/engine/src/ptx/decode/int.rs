//! Integer arithmetic, logic and bit operations.

use super::{Mods, float};
use crate::ir::{BoolOp, Class, Cmp, IntOp, IntOp3, IntUnary, MadOp, Op, Opd, PrmtMode, Reg, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// Arithmetic with the carry flag.
#[derive(Clone, Copy, PartialEq)]
enum CarryOp {
    Add,
    Sub,
    MadLo,
    MadHi,
}

/// `d, a, b` of one type.
fn dab(b: &mut Body, ty: Ty) -> Result<(Reg, Opd, Opd)> {
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    Ok((d, x, b.source(ty)?))
}

fn dabc(b: &mut Body, d: Ty, ty: Ty, c: Ty) -> Result<(Reg, Opd, Opd, Opd)> {
    let d = b.dest(d.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    b.comma()?;
    Ok((d, x, y, b.source(c)?))
}

/// Twice as wide, for `.wide`.
pub fn widen(ty: Ty) -> Option<Ty> {
    Some(match ty {
        Ty::U16 => Ty::U32,
        Ty::S16 => Ty::S32,
        Ty::U32 => Ty::U64,
        Ty::S32 => Ty::S64,
        _ => return None,
    })
}

/// `add`, `sub`, `mul`, `div`, `min`, `max`, integer or not.
pub fn arithmetic(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    if ty.float() {
        return float::arithmetic(b, m, ty);
    }
    if m.eat("cc") {
        let name = m.name;
        let op = match name {
            "add" => CarryOp::Add,
            "sub" => CarryOp::Sub,
            _ => return m.unsupported(b),
        };
        return carry_op(b, &m, op, ty, false, true);
    }
    let name = m.name;
    let op = match name {
        "add" if m.eat("sat") => IntOp::AddSat,
        "sub" if m.eat("sat") => IntOp::SubSat,
        "add" => IntOp::Add,
        "sub" => IntOp::Sub,
        "div" => IntOp::Div,
        "min" => IntOp::Min,
        "max" => IntOp::Max,
        _ if m.eat("wide") => IntOp::MulWide,
        _ if m.eat("hi") => IntOp::MulHi,
        _ => {
            m.eat("lo");
            IntOp::Mul
        }
    };
    let saturates = matches!(op, IntOp::AddSat | IntOp::SubSat);
    if !ty.integer() || ty.bytes() < 2 || (saturates && ty != Ty::S32) {
        return m.unsupported(b);
    }
    m.end(b)?;
    int_op(b, &m, op, ty)
}

fn int_op(b: &mut Body, m: &Mods, op: IntOp, ty: Ty) -> Result<()> {
    let to = match op {
        IntOp::MulWide => match widen(ty) {
            Some(t) => t,
            None => return m.unsupported(b),
        },
        _ => ty,
    };
    let d = b.dest(to.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let amount = if matches!(op, IntOp::Shl | IntOp::Shr) { Ty::U32 } else { ty };
    let y = b.source(amount)?;
    b.push(Op::Int { op, ty, d, a: x, b: y });
    Ok(())
}

pub fn binary(b: &mut Body, mut m: Mods) -> Result<()> {
    let name = m.name;
    let op = match name {
        "rem" => IntOp::Rem,
        "and" => IntOp::And,
        "or" => IntOp::Or,
        "xor" => IntOp::Xor,
        "shl" => IntOp::Shl,
        "shr" => IntOp::Shr,
        _ => {
            if m.eat("wrap") {
                return wrapped_mask(b, m);
            }
            m.eat("clamp");
            IntOp::Bmsk
        }
    };
    let ty = m.ty(b)?;
    m.end(b)?;
    let logic = matches!(op, IntOp::And | IntOp::Or | IntOp::Xor);
    let fits = match op {
        IntOp::Rem => ty.integer() && ty.bytes() >= 2,
        _ if logic => ty == Ty::Pred || !ty.float() && ty != Ty::B128,
        _ => !ty.float() && ty != Ty::Pred && ty != Ty::B128 && ty.bytes() >= 2,
    };
    if !fits {
        return m.unsupported(b);
    }
    int_op(b, &m, op, ty)
}

/// `bmsk.wrap`: position and length modulo 32.
fn wrapped_mask(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty != Ty::B32 {
        return m.unsupported(b);
    }
    let (d, pos, len) = dab(b, ty)?;
    let [pos, len] = [pos, len].map(|v| b.int(IntOp::And, Ty::U32, v, Opd::Imm(31)));
    b.push(Op::Int { op: IntOp::Bmsk, ty, d, a: pos, b: len });
    Ok(())
}

pub fn carry(b: &mut Body, mut m: Mods) -> Result<()> {
    let sets = m.eat("cc");
    let ty = m.ty(b)?;
    let name = m.name;
    let op = match name {
        "addc" => CarryOp::Add,
        "subc" => CarryOp::Sub,
        _ if m.eat("hi") => CarryOp::MadHi,
        _ => {
            m.eat("lo");
            CarryOp::MadLo
        }
    };
    carry_op(b, &m, op, ty, true, sets)
}

/// The carry flag is a register like any other, so that all that is known of registers holds for it. A subtraction adds the
/// complement, so its carry means "no borrow": compilers mix `subc` and `addc` in that sense, whatever the manual's wording.
fn carry_op(b: &mut Body, m: &Mods, op: CarryOp, ty: Ty, uses: bool, sets: bool) -> Result<()> {
    m.end(b)?;
    if !matches!(ty.bytes(), 4 | 8) || ty.float() {
        return m.unsupported(b);
    }
    let (d, mut x, mut y) = dab(b, ty)?;
    if matches!(op, CarryOp::MadLo | CarryOp::MadHi) {
        b.comma()?;
        let part = if op == CarryOp::MadLo { IntOp::Mul } else { IntOp::MulHi };
        (x, y) = (b.int(part, ty, x, y), b.source(ty)?);
    }
    let ty = if ty.bytes() == 4 { Ty::U32 } else { Ty::U64 };
    let flag = b.carry_flag();
    let minus = op == CarryOp::Sub;
    let mut v = b.int(if minus { IntOp::Sub } else { IntOp::Add }, ty, x, y);
    // Of a sum: it has wrapped. Of a difference: it has not.
    let mut carry = if minus { b.setp(Cmp::Ge, ty, x, y, None) } else { b.setp(Cmp::Lt, ty, v, x, None) };
    if uses {
        let c = b.temp(ty.class());
        let (one, zero) = (Opd::Imm(1), Opd::Imm(0));
        let (yes, no) = if minus { (zero, one) } else { (one, zero) };
        b.push(Op::Selp { ty, d: c, a: yes, b: no, p: Opd::Reg(flag) });
        let c = Opd::Reg(c);
        let before = v;
        if minus {
            v = b.int(IntOp::Sub, ty, before, c);
            carry = b.setp(Cmp::Ge, ty, before, c, Some((BoolOp::And, carry)));
        } else {
            v = b.int(IntOp::Add, ty, before, c);
            carry = b.setp(Cmp::Lt, ty, v, c, Some((BoolOp::Or, carry)));
        }
    }
    if sets {
        b.mov(Ty::Pred, flag, carry);
    }
    b.mov(ty, d, v);
    Ok(())
}

pub fn mad(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    if ty.float() {
        return float::fma_op(b, m, ty);
    }
    let cc = m.eat("cc");
    let op = match () {
        () if m.eat("wide") => MadOp::Wide,
        () if m.eat("hi") => {
            if m.eat("sat") {
                MadOp::HiSat
            } else {
                MadOp::Hi
            }
        }
        () => {
            m.eat("lo");
            MadOp::Lo
        }
    };
    if cc {
        let op = match op {
            MadOp::Hi => CarryOp::MadHi,
            MadOp::Lo => CarryOp::MadLo,
            _ => return m.unsupported(b),
        };
        return carry_op(b, &m, op, ty, false, true);
    }
    m.end(b)?;
    if !ty.integer() || ty.bytes() < 2 || (op == MadOp::HiSat && ty != Ty::S32) {
        return m.unsupported(b);
    }
    mad_op(b, &m, op, ty)
}

fn mad_op(b: &mut Body, m: &Mods, op: MadOp, ty: Ty) -> Result<()> {
    let wide = match op {
        MadOp::Wide => match widen(ty) {
            Some(t) => t,
            None => return m.unsupported(b),
        },
        _ => ty,
    };
    let (d, x, y, c) = dabc(b, wide, ty, wide)?;
    b.push(Op::Mad { op, ty, d, a: x, b: y, c });
    Ok(())
}

pub fn mul24(b: &mut Body, mut m: Mods) -> Result<()> {
    let hi = m.eat("hi");
    m.eat("lo");
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::S32 | Ty::U32) {
        return m.unsupported(b);
    }
    if m.name == "mul24" {
        return int_op(b, &m, if hi { IntOp::Mul24Hi } else { IntOp::Mul24 }, ty);
    }
    mad_op(b, &m, if hi { MadOp::Hi24 } else { MadOp::Lo24 }, ty)
}

/// `neg` and `abs`, integer or not.
pub fn negate(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    if ty.float() {
        return float::sign(b, m, ty);
    }
    let op = if m.name == "neg" { IntUnary::Neg } else { IntUnary::Abs };
    m.end(b)?;
    if !ty.signed() || ty.bytes() < 2 {
        return m.unsupported(b);
    }
    unary_op(b, op, ty, ty.class())
}

pub fn unary(b: &mut Body, mut m: Mods) -> Result<()> {
    let name = m.name;
    let op = match name {
        "not" => IntUnary::Not,
        "cnot" => IntUnary::Cnot,
        "popc" => IntUnary::Popc,
        "clz" => IntUnary::Clz,
        "brev" => IntUnary::Brev,
        _ => IntUnary::Bfind { shift: m.eat("shiftamt") },
    };
    let ty = m.ty(b)?;
    m.end(b)?;
    let counts = matches!(op, IntUnary::Popc | IntUnary::Clz | IntUnary::Bfind { .. });
    let fits = match op {
        IntUnary::Not => ty == Ty::Pred || !ty.float() && ty != Ty::B128,
        IntUnary::Cnot => !ty.float() && matches!(ty.bytes(), 2 | 4 | 8),
        _ => !ty.float() && matches!(ty.bytes(), 4 | 8),
    };
    if !fits {
        return m.unsupported(b);
    }
    unary_op(b, op, ty, if counts { Class::I32 } else { ty.class() })
}

fn unary_op(b: &mut Body, op: IntUnary, ty: Ty, to: Class) -> Result<()> {
    let d = b.dest(to)?;
    b.comma()?;
    let a = b.source(ty)?;
    b.push(Op::IntUnary { op, ty, d, a });
    Ok(())
}

pub fn ternary(b: &mut Body, mut m: Mods) -> Result<()> {
    match m.name {
        "lop3" => lop3(b, m),
        "dp4a" | "dp2a" => dot_product(b, m),
        "prmt" => {
            let modes = [
                ("f4e", PrmtMode::F4e),
                ("b4e", PrmtMode::B4e),
                ("rc8", PrmtMode::Rc8),
                ("ecl", PrmtMode::Ecl),
                ("ecr", PrmtMode::Ecr),
                ("rc16", PrmtMode::Rc16),
            ];
            let mode = m.one_of(&modes).unwrap_or(PrmtMode::Index);
            three(b, m, |ty| ty == Ty::B32, IntOp3::Prmt(mode), Ty::B32, Ty::B32)
        }
        "shf" => {
            let left = m.eat("l");
            m.eat("r");
            let clamp = m.eat("clamp");
            m.eat("wrap");
            three(b, m, |ty| ty == Ty::B32, IntOp3::Shf { left, clamp }, Ty::B32, Ty::U32)
        }
        "fns" => three(b, m, |ty| ty == Ty::B32, IntOp3::Fns, Ty::B32, Ty::S32),
        "bfe" => three(b, m, |ty| ty.integer() && ty.bytes() >= 4, IntOp3::Bfe, Ty::U32, Ty::U32),
        _ => {
            let ty = m.ty(b)?;
            m.end(b)?;
            if !ty.integer() || ty.bytes() < 2 {
                return m.unsupported(b);
            }
            let (d, x, y, c) = dabc(b, ty, ty, ty)?;
            b.push(Op::Int3 { op: IntOp3::Sad, ty, d, a: x, b: y, c });
            Ok(())
        }
    }
}

fn three(b: &mut Body, mut m: Mods, fits: fn(Ty) -> bool, op: IntOp3, bt: Ty, ct: Ty) -> Result<()> {
    let ty = m.ty(b)?;
    m.end(b)?;
    if !fits(ty) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(bt)?;
    b.comma()?;
    let c = b.source(ct)?;
    b.push(Op::Int3 { op, ty, d, a: x, b: y, c });
    Ok(())
}

fn lop3(b: &mut Body, mut m: Mods) -> Result<()> {
    let with = m.one_of(&[("and", BoolOp::And), ("or", BoolOp::Or)]);
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty != Ty::B32 {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    let p = match with {
        Some(_) if b.module.cursor.eat(b'|') => Some(b.dest(Class::Pred)?),
        Some(_) => return b.module.cursor.expected("`|` and a predicate"),
        None => None,
    };
    let mut v = [Opd::Imm(0); 3];
    for x in &mut v {
        b.comma()?;
        *x = b.source(ty)?;
    }
    let [x, y, c] = v;
    b.comma()?;
    let lut = b.module.cursor.size(255)? as u8;
    let op = IntOp3::Lop3(lut);
    let (Some(p), Some(with)) = (p, with) else {
        b.push(Op::Int3 { op, ty, d, a: x, b: y, c });
        return Ok(());
    };
    // `p = (d != 0) op q`; `d` may be among the operands of nothing that follows.
    b.comma()?;
    let q = b.source(Ty::Pred)?;
    b.push(Op::Int3 { op, ty, d, a: x, b: y, c });
    let (zero, with) = (Opd::Imm(0), Some((with, q)));
    b.push(Op::Setp { cmp: Cmp::Ne, ty, ftz: false, d: p, d2: None, a: Opd::Reg(d), b: zero, with });
    Ok(())
}

fn dot_product(b: &mut Body, mut m: Mods) -> Result<()> {
    let (ty, bt) = (m.ty(b)?, m.ty(b)?);
    let hi = m.eat("hi");
    m.eat("lo");
    m.end(b)?;
    if !matches!((ty, bt), (Ty::S32 | Ty::U32, Ty::S32 | Ty::U32)) {
        return m.unsupported(b);
    }
    let b_signed = bt == Ty::S32;
    let op = if m.name == "dp4a" { IntOp3::Dp4a { b_signed } } else { IntOp3::Dp2a { b_signed, hi } };
    let (d, x, y, c) = dabc(b, ty, ty, ty)?;
    b.push(Op::Int3 { op, ty, d, a: x, b: y, c });
    Ok(())
}

pub fn bfi(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::B32 | Ty::B64) {
        return m.unsupported(b);
    }
    let (d, x, y, pos) = dabc(b, ty, ty, Ty::U32)?;
    b.comma()?;
    let len = b.source(Ty::U32)?;
    b.push(Op::Bfi { ty, d, a: x, b: y, pos, len });
    Ok(())
}
