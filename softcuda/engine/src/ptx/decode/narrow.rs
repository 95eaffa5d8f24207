//! Conversions to and from the narrow formats: fp8 and smaller, tf32, saturation to finite numbers, `cvt.pack`.

use super::Mods;
use super::build::PLAIN;
use crate::ir::{Class, IntOp, Op, Opd, Pure, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::runtime::pure::{
    FROM_BF16X2, FROM_F16X2, FROM_F32, NARROW_FINITE, NARROW_RELU, NARROW_ROUND, TO_BF16X2,
};

/// Number of a format in `runtime::small_float::FORMATS`.
const F16: u32 = 0;
const BF16: u32 = 1;
const PAIRS: [(&str, u32); 5] = [("e4m3x2", 3), ("e5m2x2", 4), ("e2m1x2", 5), ("e2m3x2", 6), ("e3m2x2", 7)];

fn round_bits(m: &mut Mods) -> u32 {
    m.one_of(&[("rn", 0), ("rz", 3), ("rna", 4)]).unwrap_or(0) << NARROW_ROUND
}

fn flags(m: &mut Mods) -> u32 {
    let relu = if m.eat("relu") { NARROW_RELU } else { 0 };
    let finite = if m.eat("satfinite") { NARROW_FINITE } else { 0 };
    relu | finite
}

/// Takes the instruction if it is one of these.
pub fn cvt(b: &mut Body, m: &mut Mods) -> Result<bool> {
    if m.has("tf32") {
        tf32(b, m)?;
    } else if PAIRS.iter().any(|(name, _)| m.has(name)) {
        pair(b, m)?;
    } else if m.has("satfinite") {
        finite(b, m)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn tf32(b: &mut Body, m: &mut Mods) -> Result<()> {
    m.eat("tf32");
    let detail = round_bits(m) | flags(m);
    let from = m.ty(b)?;
    m.end(b)?;
    if from != Ty::F32 {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    b.comma()?;
    let a = b.source(Ty::F32)?;
    b.push(Op::Pure { f: Pure::Tf32, detail, ty: Ty::B32, d, a: vec![(Ty::F32, a)] });
    Ok(())
}

/// The register of a pair of narrow numbers: 8 bits for 4-bit numbers, else 16.
fn packed_type(format: u32) -> Ty {
    if format == 5 { Ty::B8 } else { Ty::B16 }
}

fn pair(b: &mut Body, m: &mut Mods) -> Result<()> {
    let Some(format) = m.one_of(&PAIRS) else { return m.unsupported(b) };
    let other = m.ty(b)?;
    let widens = m.first_type_is_not(&PAIRS);
    let detail = format | round_bits(m) | flags(m);
    m.end(b)?;
    if widens {
        let to = match other {
            Ty::F16x2 => 0,
            Ty::Bf16x2 => TO_BF16X2,
            _ => return m.unsupported(b),
        };
        let d = b.dest(Class::I32)?;
        b.comma()?;
        let a = b.source(packed_type(format))?;
        b.push(Op::Pure { f: Pure::Widen, detail: detail | to, ty: Ty::B32, d, a: vec![(Ty::B32, a)] });
        return Ok(());
    }
    let ty = packed_type(format);
    let d = b.dest(ty.class())?;
    b.comma()?;
    let (from, a) = sources(b, m, other)?;
    b.push(Op::Pure { f: Pure::Narrow, detail: detail | from, ty, d, a });
    Ok(())
}

/// One pair, or two floats.
fn sources(b: &mut Body, m: &Mods, ty: Ty) -> Result<(u32, Vec<(Ty, Opd)>)> {
    let x = b.source(ty)?;
    match ty {
        Ty::F16x2 => Ok((FROM_F16X2, vec![(Ty::B32, x)])),
        Ty::Bf16x2 => Ok((FROM_BF16X2, vec![(Ty::B32, x)])),
        Ty::F32 => {
            b.comma()?;
            Ok((FROM_F32, vec![(Ty::F32, x), (Ty::F32, b.source(ty)?)]))
        }
        _ => m.unsupported(b),
    }
}

/// 16-bit floats that become their largest number rather than infinity.
fn finite(b: &mut Body, m: &mut Mods) -> Result<()> {
    let detail = round_bits(m) | flags(m);
    let (to, from) = (m.ty(b)?, m.ty(b)?);
    m.end(b)?;
    let format = match to {
        Ty::F16 | Ty::F16x2 => F16,
        Ty::Bf16 | Ty::Bf16x2 => BF16,
        _ => return m.unsupported(b),
    };
    if from != Ty::F32 {
        return m.unsupported(b);
    }
    let d = b.dest(to.class())?;
    b.comma()?;
    let detail = detail | format;
    if to.bytes() == 2 {
        let a = b.source(from)?;
        b.push(Op::Pure { f: Pure::NarrowOne, detail, ty: to, d, a: vec![(from, a)] });
        return Ok(());
    }
    let (_, a) = sources(b, m, from)?;
    b.push(Op::Pure { f: Pure::Narrow, detail, ty: to, d, a });
    Ok(())
}

/// `cvt.pack.sat.type.abtype[.ctype] d, a, b[, c]`.
pub fn pack(b: &mut Body, mut m: Mods) -> Result<()> {
    let widths = [
        ("u16", (16, false)),
        ("s16", (16, true)),
        ("u8", (8, false)),
        ("s8", (8, true)),
        ("u4", (4, false)),
        ("s4", (4, true)),
        ("u2", (2, false)),
        ("s2", (2, true)),
    ];
    m.eat("pack");
    let (Some((width, signed)), true) = (m.one_of(&widths), m.eat("sat")) else { return m.unsupported(b) };
    let ty = m.ty(b)?;
    let with_c = m.eat("b32");
    m.end(b)?;
    if !matches!(ty, Ty::S32 | Ty::U32) || with_c != (width < 16) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    let base = if with_c {
        b.comma()?;
        let c = b.source(Ty::B32)?;
        b.int(IntOp::Shl, Ty::B32, c, Opd::Imm(2 * width))
    } else {
        Opd::Imm(0)
    };
    let (x, y) = (limited(b, ty, x, width, signed), limited(b, ty, y, width, signed));
    let v = b.insert(Ty::B32, y, base, 0, width as u32);
    let v = b.insert(Ty::B32, x, v, width as u32, width as u32);
    b.mov(Ty::B32, d, v);
    Ok(())
}

/// A 32-bit integer clamped to `width` bits.
fn limited(b: &mut Body, ty: Ty, a: Opd, width: u64, signed: bool) -> Opd {
    let (least, most) =
        if signed { (-(1i64 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) };
    let v = b.convert(Ty::S64, ty, PLAIN, a);
    let v = b.int(IntOp::Max, Ty::S64, v, Opd::Imm(least as u64));
    b.int(IntOp::Min, Ty::S64, v, Opd::Imm(most as u64))
}
