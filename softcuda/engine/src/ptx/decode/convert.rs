//! Moves and conversions.

use super::{Mods, float, narrow};
use crate::ir::{Class, IntOp, IntOp3, Op, Opd, Pure, Round, Space, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// `mov`, also of addresses, and packing and unpacking of vectors.
pub fn mov(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    m.end(b)?;
    if b.module.cursor.is(b'{') {
        return unpack(b, &m, ty);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    if b.module.cursor.is(b'{') {
        let whole = ty;
        let count = elements(b);
        let Some(part) = part(whole, count) else { return m.unsupported(b) };
        let parts = b.list(|b| b.source(part))?;
        if parts.len() != count {
            return m.unsupported(b);
        }
        b.push(Op::Pack { part, d, parts });
        return Ok(());
    }
    let a = b.source(ty)?;
    b.push(Op::Mov { ty, d, a });
    Ok(())
}

fn unpack(b: &mut Body, m: &Mods, ty: Ty) -> Result<()> {
    let count = elements(b);
    let Some(part) = part(ty, count) else { return m.unsupported(b) };
    let d = b.list(|b| b.sink(part.class()))?;
    b.comma()?;
    let a = b.source(ty)?;
    if d.len() != count {
        return m.unsupported(b);
    }
    b.push(Op::Unpack { part, d, a });
    Ok(())
}

/// How many elements the vector at the cursor has.
fn elements(b: &Body) -> usize {
    let mut n = 1;
    for i in 1..64 {
        match b.module.cursor.peek_at(i).text {
            "," => n += 1,
            "}" | "" | ";" => break,
            _ => {}
        }
    }
    n
}

fn part(whole: Ty, count: usize) -> Option<Ty> {
    Some(match whole.bytes() as usize / count.max(1) {
        1 if count > 1 => Ty::B8,
        2 if count > 1 => Ty::B16,
        4 if count > 1 => Ty::B32,
        8 if count > 1 => Ty::B64,
        _ => return None,
    })
}

/// `cvt`, also to packed halves.
pub fn cvt(b: &mut Body, mut m: Mods) -> Result<()> {
    if narrow::cvt(b, &mut m)? {
        return Ok(());
    }
    let to = m.ty(b)?;
    let from = m.ty(b)?;
    let given = m.round();
    let mut mode = float::mode(&mut m);
    m.end(b)?;
    if to == Ty::Pred || from == Ty::Pred || to == Ty::B128 || from == Ty::B128 {
        return m.unsupported(b);
    }
    // Without a rounding: integers from floats are cut, everything else is exact or to nearest.
    mode.round = given.unwrap_or(if to.float() || !from.float() { Round::Near } else { Round::ZeroInt });
    if matches!(to, Ty::F16x2 | Ty::Bf16x2) {
        if from != Ty::F32 || !matches!(mode.round, Round::Near | Round::Zero) {
            return m.unsupported(b);
        }
        let d = b.dest(to.class())?;
        b.comma()?;
        let x = b.source(from)?;
        b.comma()?;
        let y = b.source(from)?;
        b.push(Op::CvtPack { to, mode, d, a: x, b: y });
        return Ok(());
    }
    if matches!(from, Ty::F16x2 | Ty::Bf16x2) {
        return m.unsupported(b);
    }
    // Any register wide enough will do: the operand's own width does not matter.
    let d = b.dest(to.class())?;
    b.comma()?;
    let a = b.source(from)?;
    b.push(Op::Cvt { to, from, mode, d, a });
    Ok(())
}

/// `szext.mode.type d, a, b`: zero or sign extend from bit `b`: the same as `bfe` from position 0.
pub fn szext(b: &mut Body, mut m: Mods) -> Result<()> {
    let wrap = m.eat("wrap");
    m.eat("clamp");
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::S32 | Ty::U32) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let a = b.source(ty)?;
    b.comma()?;
    let len = b.source(Ty::U32)?;
    // `bfe` looks at 8 bits of a length, this instruction at all of them.
    let clamped = b.temp(Class::I32);
    let (op, limit) = if wrap { (IntOp::And, 31) } else { (IntOp::Min, 32) };
    b.push(Op::Int { op, ty: Ty::U32, d: clamped, a: len, b: Opd::Imm(limit) });
    b.push(Op::Int3 { op: IntOp3::Bfe, ty, d, a, b: Opd::Imm(0), c: Opd::Reg(clamped) });
    Ok(())
}

fn space(m: &mut Mods) -> Option<Space> {
    m.one_of(&[
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Cluster),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
        ("param::entry", Space::Param),
    ])
}

/// `cvta[.to].space.u64 d, a`.
pub fn cvta(b: &mut Body, mut m: Mods) -> Result<()> {
    let to_space = m.eat("to");
    let Some(space) = space(&mut m) else { return m.unsupported(b) };
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty.bytes() != 8 || ty.float() {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let a = b.source(ty)?;
    if space == Space::Cluster {
        let (f, from) =
            if to_space { (Pure::GenericToCluster, Ty::U64) } else { (Pure::ClusterToGeneric, Ty::U32) };
        b.push(Op::Pure { f, detail: 0, ty: Ty::U64, d, a: vec![(from, a)] });
        return Ok(());
    }
    b.push(Op::Cvta { to_space, space, d, a });
    Ok(())
}

pub fn isspacep(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(space) = space(&mut m) else { return m.unsupported(b) };
    m.end(b)?;
    let d = b.dest(Class::Pred)?;
    b.comma()?;
    let a = b.source(Ty::U64)?;
    if space == Space::Cluster {
        b.push(Op::Pure { f: Pure::IsCluster, detail: 0, ty: Ty::Pred, d, a: vec![(Ty::U64, a)] });
        return Ok(());
    }
    b.push(Op::Isspacep { space, d, a });
    Ok(())
}
