//! Video instructions (PTX manual, "Scalar Video Instructions" and "SIMD Video Instructions"), as ordinary operations on
//! 64-bit numbers: their parts have at most 33 bits, so nothing is lost before saturation.

use super::Mods;
use super::build::imm;
use super::float::comparison;
use crate::ir::{Cmp, IntOp, IntUnary, Op, Opd, Pure, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::ptx::lexer::Kind;

/// Position and width of a part of a 32-bit register.
#[derive(Clone, Copy, PartialEq)]
struct Part {
    pos: u32,
    len: u32,
}

const WHOLE: Part = Part { pos: 0, len: 32 };

impl Part {
    fn parse(word: &str) -> Option<Part> {
        let index = word.get(1..)?.parse::<u32>().ok()?;
        match (word.as_bytes()[0], index) {
            (b'b', 0..4) => Some(Part { pos: index * 8, len: 8 }),
            (b'h', 0..2) => Some(Part { pos: index * 16, len: 16 }),
            _ => None,
        }
    }

    /// The type of saturation to this part.
    fn ty(self, signed: bool) -> Ty {
        match (self.len, signed) {
            (8, true) => Ty::S8,
            (8, false) => Ty::U8,
            (16, true) => Ty::S16,
            (16, false) => Ty::U16,
            (_, true) => Ty::S32,
            (_, false) => Ty::U32,
        }
    }
}

/// `.b1` or `.h0` behind an operand.
fn part(b: &mut Body) -> Result<Part> {
    let t = b.module.cursor.peek();
    if t.kind != Kind::Dot {
        return Ok(WHOLE);
    }
    let Some(p) = Part::parse(t.text) else {
        return b.module.cursor.expected("`.b0` to `.b3`, `.h0` or `.h1`");
    };
    b.module.cursor.next();
    Ok(p)
}

fn word_type(b: &mut Body, m: &mut Mods) -> Result<Ty> {
    let ty = m.ty(b)?;
    if matches!(ty, Ty::S32 | Ty::U32) { Ok(ty) } else { m.unsupported(b) }
}

/// A part of a register as a signed 64-bit number.
fn extended(b: &mut Body, ty: Ty, a: Opd, p: Part) -> Opd {
    let wide = b.convert(Ty::U64, Ty::U32, super::build::PLAIN, a);
    b.field(if ty.signed() { Ty::S64 } else { Ty::U64 }, wide, p.pos, p.len)
}

/// An operand with its part, extended.
fn operand(b: &mut Body, ty: Ty) -> Result<Opd> {
    let a = b.source(ty)?;
    let p = part(b)?;
    Ok(extended(b, ty, a, p))
}

#[derive(Clone, Copy)]
enum Second {
    Add,
    Min,
    Max,
}

fn second(m: &mut Mods) -> Option<Second> {
    m.one_of(&[("add", Second::Add), ("min", Second::Min), ("max", Second::Max)])
}

/// `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`, `vshl`, `vshr`.
pub fn scalar(b: &mut Body, mut m: Mods) -> Result<()> {
    let (dt, at, bt) = (word_type(b, &mut m)?, word_type(b, &mut m)?, word_type(b, &mut m)?);
    let sat = m.eat("sat");
    let shift = matches!(m.name, "vshl" | "vshr");
    let wrap = shift && m.eat("wrap");
    if shift && !wrap && !m.eat("clamp") || shift && bt != Ty::U32 {
        return m.unsupported(b);
    }
    let op2 = second(&mut m);
    m.end(b)?;
    let d = b.dest(dt.class())?;
    let to = part(b)?;
    b.comma()?;
    let x = operand(b, at)?;
    b.comma()?;
    let y = operand(b, bt)?;
    let name = m.name;
    let mut v = match name {
        "vadd" => b.int(IntOp::Add, Ty::S64, x, y),
        "vsub" => b.int(IntOp::Sub, Ty::S64, x, y),
        "vabsdiff" => {
            let v = b.int(IntOp::Sub, Ty::S64, x, y);
            b.int1(IntUnary::Abs, Ty::S64, v)
        }
        "vmin" => b.int(IntOp::Min, Ty::S64, x, y),
        "vmax" => b.int(IntOp::Max, Ty::S64, x, y),
        _ => {
            let (op, limit) = if wrap { (IntOp::And, 31) } else { (IntOp::Min, 32) };
            let n = b.int(op, Ty::U64, y, imm(limit));
            let op = if name == "vshl" { IntOp::Shl } else { IntOp::Shr };
            b.int(op, Ty::S64, x, n)
        }
    };
    if sat {
        v = b.clamp(to.ty(dt.signed()), Ty::S64, v);
    }
    finish(b, d, dt, v, to, op2)
}

/// The secondary operation, or the merge into `c`.
fn finish(b: &mut Body, d: u32, dt: Ty, v: Opd, to: Part, op2: Option<Second>) -> Result<()> {
    if op2.is_none() && to == WHOLE {
        b.mov(dt, d, v);
        return Ok(());
    }
    b.comma()?;
    let c = b.source(dt)?;
    let op = match op2 {
        _ if to != WHOLE => {
            let v = b.insert(Ty::B32, v, c, to.pos, to.len);
            b.mov(dt, d, v);
            return Ok(());
        }
        Some(Second::Min) => IntOp::Min,
        Some(Second::Max) => IntOp::Max,
        _ => IntOp::Add,
    };
    b.push(Op::Int { op, ty: dt, d, a: v, b: c });
    Ok(())
}

/// `vset.atype.btype.cmp`.
pub fn set(b: &mut Body, mut m: Mods) -> Result<()> {
    let (at, bt) = (word_type(b, &mut m)?, word_type(b, &mut m)?);
    let Some(cmp) = ordered(&mut m) else { return m.unsupported(b) };
    let op2 = second(&mut m);
    m.end(b)?;
    let d = b.dest(Ty::U32.class())?;
    let to = part(b)?;
    b.comma()?;
    let x = operand(b, at)?;
    b.comma()?;
    let y = operand(b, bt)?;
    let v = truth(b, cmp, x, y);
    finish(b, d, Ty::U32, v, to, op2)
}

fn ordered(m: &mut Mods) -> Option<Cmp> {
    comparison(m).filter(|c| matches!(c, Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge))
}

/// 1 or 0 for a comparison of extended numbers.
fn truth(b: &mut Body, cmp: Cmp, x: Opd, y: Opd) -> Opd {
    let p = b.setp(cmp, Ty::S64, x, y, None);
    let d = b.temp(Ty::S64.class());
    b.push(Op::Selp { ty: Ty::S64, d, a: imm(1), b: imm(0), p });
    Opd::Reg(d)
}

/// `vmad`: the product may need more than 64 bits, so the run time does it; see `runtime::pure`.
pub fn mad(b: &mut Body, mut m: Mods) -> Result<()> {
    let (dt, at, bt) = (word_type(b, &mut m)?, word_type(b, &mut m)?, word_type(b, &mut m)?);
    let plus_one = m.eat("po");
    let sat = m.eat("sat");
    let scale = m.one_of(&[("shr7", 7), ("shr15", 15)]).unwrap_or(0);
    m.end(b)?;
    let d = b.dest(dt.class())?;
    let mut negated = [false; 3];
    let mut v = Vec::new();
    for (i, ty) in [at, bt].into_iter().enumerate() {
        b.comma()?;
        negated[i] = negative(b);
        let x = operand(b, ty)?;
        v.push((Ty::S64, x));
    }
    b.comma()?;
    negated[2] = negative(b);
    v.push((Ty::U32, b.source(Ty::U32)?));
    let signed = at.signed() || bt.signed() || negated[0] != negated[1] || negated[2];
    if plus_one && negated.contains(&true) {
        return b.error("`.po` and negated operands exclude each other");
    }
    let bits = [plus_one, negated[0] != negated[1], negated[2], signed, sat];
    let detail = bits.iter().enumerate().map(|(i, x)| u32::from(*x) << i).sum::<u32>() | scale << 8;
    b.push(Op::Pure { f: Pure::Vmad, detail, ty: dt, d, a: v });
    Ok(())
}

fn negative(b: &mut Body) -> bool {
    let yes = b.module.cursor.is(b'-') && b.module.cursor.peek_at(1).kind == Kind::Ident;
    if yes {
        b.module.cursor.next();
    }
    yes
}

/// `.h10` or `.b3210` with the letter `kind`: one index a lane, lowest lane first.
fn lanes_of(b: &mut Body, count: usize, limit: u32, default: &[u32]) -> Result<Vec<u32>> {
    let t = b.module.cursor.peek();
    if t.kind != Kind::Dot {
        return Ok(default.to_vec());
    }
    b.module.cursor.next();
    let kind = if count == 2 { 'h' } else { 'b' };
    let all: Option<Vec<u32>> =
        t.text.strip_prefix(kind).and_then(|s| s.chars().rev().map(|c| c.to_digit(limit)).collect());
    match all {
        Some(v) if v.len() == count => Ok(v),
        _ => b.error(format!("`.{}` does not select {count} parts", t.text)),
    }
}

/// The lanes that are written: `.h0`, `.b31`; all by default.
fn mask(b: &mut Body, count: u32) -> Result<Vec<bool>> {
    let t = b.module.cursor.peek();
    if t.kind != Kind::Dot {
        return Ok(vec![true; count as usize]);
    }
    b.module.cursor.next();
    let mut out = vec![false; count as usize];
    let digits = t.text.strip_prefix(if count == 2 { 'h' } else { 'b' }).unwrap_or("");
    for c in digits.chars() {
        match c.to_digit(count) {
            Some(i) => out[i as usize] = true,
            None => return b.error(format!("`.{}` is not a mask", t.text)),
        }
    }
    if digits.is_empty() {
        return b.error(format!("`.{}` is not a mask", t.text));
    }
    Ok(out)
}

/// `vadd2`, `vsub4`, `vset2` and their like: `d{.mask}, a{.asel}, b{.bsel}, c`.
pub fn simd(b: &mut Body, mut m: Mods) -> Result<()> {
    let (name, count) = m.name.split_at(m.name.len() - 1);
    let count: usize = if count == "2" { 2 } else { 4 };
    let compares = name == "vset";
    let dt = if compares { Ty::U32 } else { word_type(b, &mut m)? };
    let (at, bt) = (word_type(b, &mut m)?, word_type(b, &mut m)?);
    let cmp = if compares { ordered(&mut m) } else { None };
    if compares && cmp.is_none() {
        return m.unsupported(b);
    }
    let (sat, add) = (m.eat("sat"), m.eat("add"));
    m.end(b)?;
    let n = count as u32;
    let d = b.dest(dt.class())?;
    let written = mask(b, n)?;
    b.comma()?;
    let x = b.source(Ty::U32)?;
    let low: Vec<u32> = (0..n).collect();
    let high: Vec<u32> = (n..2 * n).collect();
    let xs = lanes_of(b, count, 2 * n, &low)?;
    b.comma()?;
    let y = b.source(Ty::U32)?;
    let ys = lanes_of(b, count, 2 * n, &high)?;
    b.comma()?;
    let c = b.source(dt)?;
    let width = 32 / n;
    let pick = |b: &mut Body, ty: Ty, i: u32| {
        let (from, i) = if i >= n { (y, i - n) } else { (x, i) };
        extended(b, ty, from, Part { pos: i * width, len: width })
    };
    let part_type = Part { pos: 0, len: width }.ty(dt.signed());
    let mut sum = c;
    for i in 0..count {
        if !written[i] {
            continue;
        }
        let (p, q) = (pick(b, at, xs[i]), pick(b, bt, ys[i]));
        let mut v = lane(b, name, cmp, p, q);
        if sat {
            v = b.clamp(part_type, Ty::S64, v);
        }
        sum = if add {
            b.int(IntOp::Add, Ty::U32, sum, v)
        } else {
            b.insert(Ty::B32, v, sum, i as u32 * width, width)
        };
    }
    b.mov(dt, d, sum);
    Ok(())
}

/// One lane of a SIMD instruction.
fn lane(b: &mut Body, name: &str, cmp: Option<Cmp>, x: Opd, y: Opd) -> Opd {
    if let Some(cmp) = cmp {
        return truth(b, cmp, x, y);
    }
    match name {
        "vadd" => b.int(IntOp::Add, Ty::S64, x, y),
        "vsub" => b.int(IntOp::Sub, Ty::S64, x, y),
        "vmin" => b.int(IntOp::Min, Ty::S64, x, y),
        "vmax" => b.int(IntOp::Max, Ty::S64, x, y),
        "vabsdiff" => {
            let v = b.int(IntOp::Sub, Ty::S64, x, y);
            b.int1(IntUnary::Abs, Ty::S64, v)
        }
        // The average rounds away from zero: one more before the shift unless the sum is negative.
        _ => {
            let sum = b.int(IntOp::Add, Ty::S64, x, y);
            let p = b.setp(Cmp::Ge, Ty::S64, sum, imm(0), None);
            let one = b.temp(Ty::S64.class());
            b.push(Op::Selp { ty: Ty::S64, d: one, a: imm(1), b: imm(0), p });
            let sum = b.int(IntOp::Add, Ty::S64, sum, Opd::Reg(one));
            b.int(IntOp::Shr, Ty::S64, sum, imm(1))
        }
    }
}
