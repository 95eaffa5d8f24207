//! Packed integers (`.u16x2`, `.s16x2`), `.relu` of integers, and pairs of f32 (`.f32x2`): their lanes one by one.

use super::build::PLAIN;
use super::{Mods, float};
use crate::ir::{FloatOp, IntOp, Op, Opd, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

const PACKED: [&str; 3] = ["u16x2", "s16x2", "f32x2"];

/// Whether an instruction belongs here.
pub fn is(m: &Mods) -> bool {
    PACKED.iter().any(|p| m.has(p)) || (m.has("relu") && m.has("s32"))
}

pub fn instruction(b: &mut Body, mut m: Mods) -> Result<()> {
    if m.eat("f32x2") {
        return floats(b, m);
    }
    let signed = m.eat("s16x2");
    if signed || m.eat("u16x2") {
        return halves(b, m, if signed { Ty::S16 } else { Ty::U16 });
    }
    let relu = m.eat("relu");
    let ty = m.ty(b)?;
    m.end(b)?;
    let Some(op) = operation(&m).filter(|op| matches!(op, IntOp::Min | IntOp::Max)) else {
        return m.unsupported(b);
    };
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    let v = lane(b, op, ty, relu, x, y);
    b.mov(ty, d, v);
    Ok(())
}

fn operation(m: &Mods) -> Option<IntOp> {
    Some(match m.name {
        "add" => IntOp::Add,
        "sub" => IntOp::Sub,
        "min" => IntOp::Min,
        "max" => IntOp::Max,
        _ => return None,
    })
}

fn lane(b: &mut Body, op: IntOp, ty: Ty, relu: bool, x: Opd, y: Opd) -> Opd {
    let v = b.int(op, ty, x, y);
    if relu { b.int(IntOp::Max, ty, v, Opd::Imm(0)) } else { v }
}

fn halves(b: &mut Body, mut m: Mods, ty: Ty) -> Result<()> {
    let relu = m.eat("relu");
    let sat = m.eat("sat");
    m.end(b)?;
    let negates = m.name == "neg" && ty == Ty::S16;
    let op = if negates { Some(IntOp::Sub) } else { operation(&m) };
    let Some(op) = op else { return m.unsupported(b) };
    if relu && !matches!(op, IntOp::Min | IntOp::Max) || sat && op != IntOp::Add && op != IntOp::Sub {
        return m.unsupported(b);
    }
    let d = b.dest(Ty::B32.class())?;
    b.comma()?;
    let x = b.source(Ty::B32)?;
    let mut xs = b.unpack(Ty::B16, 2, x);
    let ys = if negates {
        std::mem::replace(&mut xs, vec![Opd::Imm(0); 2])
    } else {
        b.comma()?;
        let y = b.source(Ty::B32)?;
        b.unpack(Ty::B16, 2, y)
    };
    let parts = (0..2)
        .map(|i| {
            if !sat {
                return lane(b, op, ty, relu, xs[i], ys[i]);
            }
            let [p, q] = [xs[i], ys[i]].map(|v| b.convert(Ty::S32, ty, PLAIN, v));
            let v = b.int(op, Ty::S32, p, q);
            b.clamp(ty, Ty::S32, v)
        })
        .collect();
    b.push(Op::Pack { part: Ty::B16, d, parts });
    Ok(())
}

fn floats(b: &mut Body, mut m: Mods) -> Result<()> {
    let mode = float::mode(&mut m);
    m.end(b)?;
    let op = match m.name {
        "add" => Some(FloatOp::Add),
        "sub" => Some(FloatOp::Sub),
        "mul" => Some(FloatOp::Mul),
        "fma" => None,
        _ => return m.unsupported(b),
    };
    if mode.sat || mode.relu || mode.nan {
        return m.unsupported(b);
    }
    let d = b.dest(Ty::B64.class())?;
    let mut lanes = Vec::new();
    for _ in 0..if op.is_some() { 2 } else { 3 } {
        b.comma()?;
        let x = b.source(Ty::B64)?;
        lanes.push(b.unpack(Ty::B32, 2, x));
    }
    let parts = (0..2)
        .map(|i| match op {
            Some(op) => b.float(op, Ty::F32, mode, lanes[0][i], lanes[1][i]),
            None => {
                let d = b.temp(Ty::F32.class());
                b.push(Op::Fma { ty: Ty::F32, mode, d, a: lanes[0][i], b: lanes[1][i], c: lanes[2][i] });
                Opd::Reg(d)
            }
        })
        .collect();
    b.push(Op::Pack { part: Ty::B32, d, parts });
    Ok(())
}
