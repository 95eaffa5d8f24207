//! Floating point as vectors.

use super::emit::Vector;
use super::ops::Results;
use super::value::{Row, vector_type};
use crate::ir::{FloatMode, FloatOp, FloatUnary, Opd, Reg, Round, Ty};
use crate::runtime::helpers::FloatKind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

impl Vector<'_> {
    /// Denormals become zeros of their sign.
    pub fn flush(&mut self, ty: Ty, row: Row, ftz: bool) -> Row {
        if !ftz || ty != Ty::F32 {
            return row;
        }
        let t = types::I32X4;
        let magnitude = self.all(t, 0x7fff_ffff);
        let sign = self.all(t, 0x8000_0000);
        let least = self.all(t, u64::from(f32::MIN_POSITIVE.to_bits()));
        let mut out = Vec::with_capacity(row.len());
        for v in row {
            let bits = self.cast(t, v);
            let m = self.e.b.ins().band(bits, magnitude);
            let small = self.e.b.ins().icmp(IntCC::SignedLessThan, m, least);
            let zero = self.e.b.ins().band(bits, sign);
            let v = self.e.b.ins().blendv(small, zero, bits);
            out.push(self.cast(types::F32X4, v));
        }
        out
    }

    pub fn input(&mut self, ty: Ty, mode: &FloatMode, o: &Opd) -> Option<Row> {
        let row = self.operand(ty, o)?;
        if matches!(o, Opd::Imm(v) if ty == Ty::F32 && f32::from_bits(*v as u32).is_normal()) {
            return Some(row);
        }
        Some(self.flush(ty, row, mode.ftz))
    }

    pub fn finish(&mut self, ty: Ty, mode: &FloatMode, d: Reg, row: Row) -> Option<Results> {
        let row = self.flush(ty, row, mode.ftz);
        let row = self.saturate(ty, row, mode.sat)?;
        self.result(ty, d, row)
    }

    fn one(&mut self, ty: Ty) -> Option<Value> {
        let t = vector_type(ty.class())?;
        let bits = if ty == Ty::F64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) };
        Some(self.all(t, bits))
    }

    /// Clamps to [0, 1]; NaN becomes 0.
    pub fn saturate(&mut self, ty: Ty, row: Row, sat: bool) -> Option<Row> {
        if !sat {
            return Some(row);
        }
        let t = vector_type(ty.class())?;
        let (zero, one) = (self.all(t, 0), self.one(ty)?);
        let above = self.float_mask(FloatCC::GreaterThan, t, &row, &vec![zero; row.len()]);
        let row = self.choose(&above, t, &row, &vec![zero; row.len()]);
        let below = self.float_mask(FloatCC::LessThan, t, &row, &vec![one; row.len()]);
        Some(self.choose(&below, t, &row, &vec![one; row.len()]))
    }

    /// A comparison as a mask of 32 bits a lane.
    pub fn float_mask(&mut self, cc: FloatCC, t: Type, x: &Row, y: &Row) -> Row {
        // Two conditions have no instruction.
        let row = match cc {
            FloatCC::OrderedNotEqual | FloatCC::UnorderedOrEqual => {
                let wide = if cc == FloatCC::OrderedNotEqual { FloatCC::NotEqual } else { FloatCC::Equal };
                let and = if cc == FloatCC::OrderedNotEqual { FloatCC::Ordered } else { FloatCC::Unordered };
                self.zip(x, y, |e, x, y| {
                    let (p, q) = (e.ins().fcmp(wide, x, y), e.ins().fcmp(and, x, y));
                    if cc == FloatCC::OrderedNotEqual { e.ins().band(p, q) } else { e.ins().bor(p, q) }
                })
            }
            FloatCC::UnorderedOrLessThan => {
                self.zip(x, y, |e, x, y| e.ins().fcmp(FloatCC::UnorderedOrGreaterThan, y, x))
            }
            FloatCC::UnorderedOrLessThanOrEqual => {
                self.zip(x, y, |e, x, y| e.ins().fcmp(FloatCC::UnorderedOrGreaterThanOrEqual, y, x))
            }
            FloatCC::GreaterThan => self.zip(x, y, |e, x, y| e.ins().fcmp(FloatCC::LessThan, y, x)),
            FloatCC::GreaterThanOrEqual => {
                self.zip(x, y, |e, x, y| e.ins().fcmp(FloatCC::LessThanOrEqual, y, x))
            }
            cc => self.zip(x, y, |e, x, y| e.ins().fcmp(cc, x, y)),
        };
        self.narrowed_mask(row, t)
    }

    pub fn float(&mut self, op: FloatOp, ty: Ty, mode: &FloatMode, a: &Opd, b: &Opd) -> Option<Row> {
        let (x, y) = (self.input(ty, mode, a)?, self.input(ty, mode, b)?);
        if mode.round != Round::Near {
            let kind = match op {
                FloatOp::Add => Some(FloatKind::Add),
                FloatOp::Sub => Some(FloatKind::Sub),
                FloatOp::Mul => Some(FloatKind::Mul),
                FloatOp::Div => Some(FloatKind::Div),
                FloatOp::Min | FloatOp::Max | FloatOp::Copysign => None,
            };
            if let Some(kind) = kind {
                return self.rounded(kind, ty, mode.round, [&x, &y, &y]);
            }
        }
        Some(match op {
            FloatOp::Add => self.zip(&x, &y, |e, x, y| e.ins().fadd(x, y)),
            FloatOp::Sub => self.zip(&x, &y, |e, x, y| e.ins().fsub(x, y)),
            FloatOp::Mul => self.zip(&x, &y, |e, x, y| e.ins().fmul(x, y)),
            FloatOp::Div => self.zip(&x, &y, |e, x, y| e.ins().fdiv(x, y)),
            // The sign is of the first operand, the magnitude of the second.
            FloatOp::Copysign => self.copysign(ty, &x, &y)?,
            op => {
                let min = op == FloatOp::Min;
                let v = self.zip(&x, &y, |e, x, y| if min { e.ins().fmin(x, y) } else { e.ins().fmax(x, y) });
                if mode.nan {
                    return Some(v);
                }
                // The number wins over NaN.
                let t = vector_type(ty.class())?;
                let (x_nan, y_nan) = (
                    self.float_mask(FloatCC::Unordered, t, &x, &x),
                    self.float_mask(FloatCC::Unordered, t, &y, &y),
                );
                let v = self.choose(&y_nan, t, &x, &v);
                self.choose(&x_nan, t, &y, &v)
            }
        })
    }

    pub fn float_unary(&mut self, op: FloatUnary, ty: Ty, mode: &FloatMode, a: &Opd) -> Option<Row> {
        let one = self.one(ty)?;
        let directed = mode.round != Round::Near;
        match op {
            FloatUnary::Sqrt if directed => {
                let x = self.input(ty, mode, a)?;
                self.rounded(FloatKind::Sqrt, ty, mode.round, [&x, &x, &x])
            }
            FloatUnary::Rcp if directed => {
                let x = self.input(ty, mode, a)?;
                let ones = vec![one; x.len()];
                self.rounded(FloatKind::Div, ty, mode.round, [&ones, &x, &x])
            }
            FloatUnary::Neg => {
                let x = self.input(ty, mode, a)?;
                Some(self.map(&x, |e, v| e.ins().fneg(v)))
            }
            FloatUnary::Abs => {
                let x = self.input(ty, mode, a)?;
                Some(self.map(&x, |e, v| e.ins().fabs(v)))
            }
            FloatUnary::Sqrt => {
                let x = self.input(ty, mode, a)?;
                Some(self.map(&x, |e, v| e.ins().sqrt(v)))
            }
            FloatUnary::Rcp => {
                let x = self.input(ty, mode, a)?;
                Some(self.map(&x, |e, v| e.ins().fdiv(one, v)))
            }
            FloatUnary::Rsqrt => {
                let x = self.input(ty, mode, a)?;
                Some(self.map(&x, |e, v| {
                    let r = e.ins().sqrt(v);
                    e.ins().fdiv(one, r)
                }))
            }
            op => {
                let x = self.input(ty, mode, a)?;
                self.special(op, ty, x)
            }
        }
    }

    /// The sign of `x` and the magnitude of `y`.
    fn copysign(&mut self, ty: Ty, x: &Row, y: &Row) -> Option<Row> {
        let t = vector_type(ty.class())?;
        let (int, sign) = if ty == Ty::F64 { (types::I64X2, 1u64 << 63) } else { (types::I32X4, 1u64 << 31) };
        let (sign, rest) = (self.all(int, sign), self.all(int, sign - 1u64));
        let mut out = Vec::with_capacity(x.len());
        for (x, y) in x.iter().zip(y) {
            let (x, y) = (self.cast(int, *x), self.cast(int, *y));
            let (x, y) = (self.e.b.ins().band(x, sign), self.e.b.ins().band(y, rest));
            let v = self.e.b.ins().bor(x, y);
            out.push(self.cast(t, v));
        }
        Some(out)
    }
}
