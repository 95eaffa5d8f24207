//! Mixed precision: `add.f32.f16`, `fma.rn.f32.bf16` and their like (PTX 8.6). The short operands are widened, which is exact.

use super::build::PLAIN;
use super::{Mods, float};
use crate::ir::{FloatOp, Op, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// Whether an instruction names f32 and a 16-bit float.
pub fn is(m: &Mods) -> bool {
    m.has("f32") && (m.has("f16") || m.has("bf16"))
}

pub fn instruction(b: &mut Body, mut m: Mods) -> Result<()> {
    let (to, from) = (m.ty(b)?, m.ty(b)?);
    let mode = float::mode(&mut m);
    m.end(b)?;
    if to != Ty::F32 || mode.ftz || mode.relu || mode.nan {
        return m.unsupported(b);
    }
    let d = b.dest(to.class())?;
    b.comma()?;
    let x = b.source(from)?;
    let x = b.convert(to, from, PLAIN, x);
    b.comma()?;
    if m.name == "fma" {
        let y = b.source(from)?;
        let y = b.convert(to, from, PLAIN, y);
        b.comma()?;
        let c = b.source(to)?;
        b.push(Op::Fma { ty: to, mode, d, a: x, b: y, c });
        return Ok(());
    }
    let c = b.source(to)?;
    let op = if m.name == "add" { FloatOp::Add } else { FloatOp::Sub };
    b.push(Op::Float { op, ty: to, mode, d, a: x, b: c });
    Ok(())
}
