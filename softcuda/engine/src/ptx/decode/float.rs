//! Floating point, comparisons and selections.

use super::Mods;
use super::build::PLAIN;
use crate::ir::{BoolOp, Class, Cmp, FloatMode, FloatOp, FloatUnary, IntOp, Op, Opd, Round, TestOp, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// Takes rounding, `.ftz`, `.sat`, `.NaN`, `.relu`.
pub fn mode(m: &mut Mods) -> FloatMode {
    FloatMode {
        round: m.round().unwrap_or(Round::Near),
        ftz: m.eat("ftz"),
        sat: m.eat("sat"),
        nan: m.eat("NaN"),
        relu: m.eat("relu"),
    }
}

fn directed_needs_wide(mode: &FloatMode, ty: Ty) -> bool {
    mode.round == Round::Near || matches!(ty, Ty::F32 | Ty::F64)
}

/// `add`, `sub`, `mul`, `div`, `min`, `max` of floats.
pub fn arithmetic(b: &mut Body, mut m: Mods, ty: Ty) -> Result<()> {
    let op = match m.name {
        "add" => FloatOp::Add,
        "sub" => FloatOp::Sub,
        "mul" => FloatOp::Mul,
        "div" => FloatOp::Div,
        "min" => FloatOp::Min,
        _ => FloatOp::Max,
    };
    if op == FloatOp::Div {
        m.eat("approx");
        m.eat("full");
    }
    let mode = mode(&mut m);
    let extreme = matches!(op, FloatOp::Min | FloatOp::Max);
    let xorsign = extreme && m.eat("xorsign");
    let magnitudes = extreme && m.eat("abs");
    m.end(b)?;
    let div16 = op == FloatOp::Div && !matches!(ty, Ty::F32 | Ty::F64);
    if div16 || mode.relu || !directed_needs_wide(&mode, ty) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    if !extreme || !(xorsign || magnitudes || b.module.cursor.is(b',')) {
        b.push(Op::Float { op, ty, mode, d, a: x, b: y });
        return Ok(());
    }
    let mut v = vec![x, y];
    while b.module.cursor.eat(b',') {
        v.push(b.source(ty)?);
    }
    if v.len() > 3 || xorsign && v.len() > 2 {
        return m.unsupported(b);
    }
    let result = extreme_of(b, op, ty, mode, &v, magnitudes);
    if xorsign {
        with_product_sign(b, ty, d, result, x, y);
    } else {
        b.mov(ty, d, result);
    }
    Ok(())
}

/// The least or greatest of two or three numbers, or of their magnitudes.
fn extreme_of(b: &mut Body, op: FloatOp, ty: Ty, mode: FloatMode, v: &[Opd], magnitudes: bool) -> Opd {
    let mut all = v.to_vec();
    if magnitudes {
        for x in &mut all {
            let d = b.temp(ty.class());
            b.push(Op::FloatUnary { op: FloatUnary::Abs, ty, mode: PLAIN, d, a: *x });
            *x = Opd::Reg(d);
        }
    }
    let mut best = all[0];
    for x in &all[1..] {
        best = b.float(op, ty, mode, best, *x);
    }
    best
}

/// `.xorsign`: the magnitude of `v` with the sign that `x · y` has; NaN stays as it is.
fn with_product_sign(b: &mut Body, ty: Ty, d: u32, v: Opd, x: Opd, y: Opd) {
    // `above` added to a magnitude reaches the sign's bit if that is NaN.
    let (bits, mask, above) = match ty {
        Ty::F16 => (Ty::B16, 0x8000, 0x03ff),
        Ty::Bf16 => (Ty::B16, 0x8000, 0x007f),
        Ty::F16x2 => (Ty::B32, 0x8000_8000, 0x03ff_03ff),
        Ty::Bf16x2 => (Ty::B32, 0x8000_8000, 0x007f_007f),
        _ => (Ty::B32, 0x8000_0000, 0x007f_ffff),
    };
    let magnitude =
        b.int(IntOp::And, bits, v, Opd::Imm(if bits == Ty::B16 { 0x7fff } else { !mask & 0xffff_ffff }));
    let nan = b.int(IntOp::Add, if bits == Ty::B16 { Ty::U16 } else { Ty::U32 }, magnitude, Opd::Imm(above));
    let number = b.int(IntOp::Xor, bits, nan, Opd::Imm(mask));
    let sign = b.int(IntOp::Xor, bits, x, y);
    let sign = b.int(IntOp::And, bits, sign, number);
    let sign = b.int(IntOp::And, bits, sign, Opd::Imm(mask));
    b.push(Op::Int { op: IntOp::Or, ty: bits, d, a: v, b: sign });
}

pub fn fma(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    fma_op(b, m, ty)
}

/// `fma`, and `mad` of floats, which has been the same for long.
pub fn fma_op(b: &mut Body, mut m: Mods, ty: Ty) -> Result<()> {
    let mode = mode(&mut m);
    m.end(b)?;
    if !ty.float() || !directed_needs_wide(&mode, ty) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    b.comma()?;
    let c = b.source(ty)?;
    b.push(Op::Fma { ty, mode, d, a: x, b: y, c });
    Ok(())
}

/// `neg` and `abs` of floats.
pub fn sign(b: &mut Body, m: Mods, ty: Ty) -> Result<()> {
    let op = if m.name == "neg" { FloatUnary::Neg } else { FloatUnary::Abs };
    unary_op(b, m, op, ty)
}

pub fn unary(b: &mut Body, mut m: Mods) -> Result<()> {
    let op = match m.name {
        "sqrt" => FloatUnary::Sqrt,
        "rcp" => FloatUnary::Rcp,
        "rsqrt" => FloatUnary::Rsqrt,
        "sin" => FloatUnary::Sin,
        "cos" => FloatUnary::Cos,
        "lg2" => FloatUnary::Lg2,
        "ex2" => FloatUnary::Ex2,
        _ => FloatUnary::Tanh,
    };
    let approx = m.eat("approx");
    let ty = m.ty(b)?;
    if approx && ty == Ty::F64 && m.has("ftz") && matches!(op, FloatUnary::Rcp | FloatUnary::Rsqrt) {
        return by_upper_half(b, m, op);
    }
    if ty == Ty::F64 && !matches!(op, FloatUnary::Sqrt | FloatUnary::Rcp | FloatUnary::Rsqrt) {
        return m.unsupported(b);
    }
    if !matches!(ty, Ty::F32 | Ty::F64) && !matches!(op, FloatUnary::Ex2 | FloatUnary::Tanh) {
        return m.unsupported(b);
    }
    unary_op(b, m, op, ty)
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: of the upper 32 bits of the operand, into those of the result; the lower half
/// of the result is zero. Denormals count as zeros.
fn by_upper_half(b: &mut Body, mut m: Mods, op: FloatUnary) -> Result<()> {
    m.eat("ftz");
    m.end(b)?;
    let d = b.dest(Class::F64)?;
    b.comma()?;
    let a = b.source(Ty::F64)?;
    let a = upper_half(b, a, 0);
    let v = b.temp(Class::F64);
    b.push(Op::FloatUnary { op, ty: Ty::F64, mode: PLAIN, d: v, a });
    // To the nearest of 20 bits of mantissa; infinity stays what it is, and so does NaN, whose upper half is not zero.
    let v = upper_half(b, Opd::Reg(v), 1 << 31);
    b.mov(Ty::B64, d, v);
    Ok(())
}

/// The upper 32 bits of the float `v` after an addition to its bits; a zero of its sign if that is denormal.
fn upper_half(b: &mut Body, v: Opd, add: u64) -> Opd {
    const EXPONENT: u64 = 0x7ff0_0000_0000_0000;
    let v = b.int(IntOp::Add, Ty::U64, v, Opd::Imm(add));
    let v = b.int(IntOp::And, Ty::B64, v, Opd::Imm(!0xffff_ffff));
    let sign = b.int(IntOp::And, Ty::B64, v, Opd::Imm(1 << 63));
    let exponent = b.int(IntOp::And, Ty::B64, v, Opd::Imm(EXPONENT));
    let small = b.setp(Cmp::Eq, Ty::B64, exponent, Opd::Imm(0), None);
    let d = b.temp(Class::I64);
    b.push(Op::Selp { ty: Ty::B64, d, a: sign, b: v, p: small });
    Opd::Reg(d)
}

fn unary_op(b: &mut Body, mut m: Mods, op: FloatUnary, ty: Ty) -> Result<()> {
    let mode = mode(&mut m);
    m.end(b)?;
    if mode.sat || mode.relu || mode.nan {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let a = b.source(ty)?;
    b.push(Op::FloatUnary { op, ty, mode, d, a });
    Ok(())
}

pub fn copysign(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    let mode = mode(&mut m);
    m.end(b)?;
    if !matches!(ty, Ty::F32 | Ty::F64) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    b.push(Op::Float { op: FloatOp::Copysign, ty, mode, d, a: x, b: y });
    Ok(())
}

pub fn testp(b: &mut Body, mut m: Mods) -> Result<()> {
    let tests = [
        ("finite", TestOp::Finite),
        ("infinite", TestOp::Infinite),
        ("number", TestOp::Number),
        ("notanumber", TestOp::NotANumber),
        ("normal", TestOp::Normal),
        ("subnormal", TestOp::Subnormal),
    ];
    let Some(test) = m.one_of(&tests) else { return m.unsupported(b) };
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::F32 | Ty::F64) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::Pred)?;
    b.comma()?;
    let a = b.source(ty)?;
    b.push(Op::Testp { test, ty, d, a });
    Ok(())
}

pub fn comparison(m: &mut Mods) -> Option<Cmp> {
    m.one_of(&[
        ("eq", Cmp::Eq),
        ("ne", Cmp::Ne),
        ("lt", Cmp::Lt),
        ("le", Cmp::Le),
        ("gt", Cmp::Gt),
        ("ge", Cmp::Ge),
        ("lo", Cmp::Lo),
        ("ls", Cmp::Ls),
        ("hi", Cmp::Hi),
        ("hs", Cmp::Hs),
        ("equ", Cmp::Equ),
        ("neu", Cmp::Neu),
        ("ltu", Cmp::Ltu),
        ("leu", Cmp::Leu),
        ("gtu", Cmp::Gtu),
        ("geu", Cmp::Geu),
        ("num", Cmp::Num),
        ("nan", Cmp::Nan),
    ])
}

fn bool_op(m: &mut Mods) -> Option<BoolOp> {
    m.one_of(&[("and", BoolOp::And), ("or", BoolOp::Or), ("xor", BoolOp::Xor)])
}

fn comparable(cmp: Cmp, ty: Ty) -> bool {
    match cmp {
        Cmp::Eq | Cmp::Ne => ty != Ty::Pred && ty != Ty::B128,
        Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge => ty.float() || ty.integer(),
        Cmp::Lo | Cmp::Ls | Cmp::Hi | Cmp::Hs => !ty.float() && ty != Ty::Pred && ty != Ty::B128,
        _ => ty.float(),
    }
}

/// `setp.cmp[.bool].type p[|q], a, b[, c]`.
pub fn setp(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(cmp) = comparison(&mut m) else { return m.unsupported(b) };
    let bool_op = bool_op(&mut m);
    let ftz = m.eat("ftz");
    let ty = m.ty(b)?;
    m.end(b)?;
    if !comparable(cmp, ty) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::Pred)?;
    let d2 = if b.module.cursor.eat(b'|') { b.sink(Class::Pred)? } else { None };
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    let with = third(b, bool_op)?;
    b.push(Op::Setp { cmp, ty, ftz, d, d2, a: x, b: y, with });
    Ok(())
}

fn third(b: &mut Body, bool_op: Option<BoolOp>) -> Result<Option<(BoolOp, Opd)>> {
    let Some(op) = bool_op else { return Ok(None) };
    b.comma()?;
    Ok(Some((op, b.source(Ty::Pred)?)))
}

/// `set.cmp[.bool].dtype.stype d, a, b[, c]`.
pub fn set(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(cmp) = comparison(&mut m) else { return m.unsupported(b) };
    let bool_op = bool_op(&mut m);
    let ftz = m.eat("ftz");
    let to = m.ty(b)?;
    let ty = m.ty(b)?;
    m.end(b)?;
    let pair = matches!(ty, Ty::F16x2 | Ty::Bf16x2);
    let fits = if pair {
        to == ty || matches!(to, Ty::U32 | Ty::S32)
    } else {
        matches!(to, Ty::U16 | Ty::S16 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16 | Ty::Bf16)
    };
    if !comparable(cmp, ty) || !fits {
        return m.unsupported(b);
    }
    let d = b.dest(to.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    let with = third(b, bool_op)?;
    b.push(Op::Set { cmp, to, ty, ftz, d, a: x, b: y, with });
    Ok(())
}

pub fn selp(b: &mut Body, mut m: Mods) -> Result<()> {
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty == Ty::Pred || ty == Ty::B128 || ty.bytes() < 2 {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    b.comma()?;
    let p = b.source(Ty::Pred)?;
    b.push(Op::Selp { ty, d, a: x, b: y, p });
    Ok(())
}

pub fn slct(b: &mut Body, mut m: Mods) -> Result<()> {
    let ftz = m.eat("ftz");
    let ty = m.ty(b)?;
    let by = m.ty(b)?;
    m.end(b)?;
    if !matches!(by, Ty::S32 | Ty::F32) || ty == Ty::Pred || ty == Ty::B128 {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.comma()?;
    let y = b.source(ty)?;
    b.comma()?;
    let c = b.source(by)?;
    b.push(Op::Slct { ty, by, ftz, d, a: x, b: y, c });
    Ok(())
}
