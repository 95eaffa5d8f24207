//! Floating point and comparisons.

use super::emit::{Emit, class_type};
use crate::ir::{BoolOp, Class, Cmp, FloatMode, FloatOp, FloatUnary, Opd, Reg, Round, TestOp, Ty};
use crate::runtime::helpers::{FloatKind, Helper};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// Number of a half type in helpers.
pub fn half_kind(ty: Ty) -> i64 {
    match ty {
        Ty::F16 => 0,
        Ty::F16x2 => 1,
        Ty::Bf16 => 2,
        _ => 3,
    }
}

fn is_half(ty: Ty) -> bool {
    !matches!(ty, Ty::F32 | Ty::F64)
}

/// Number of a rounding in helpers: that of MXCSR.
pub fn round_number(r: Round) -> i64 {
    match r {
        Round::Near | Round::NearInt => 0,
        Round::Down | Round::DownInt => 1,
        Round::Up | Round::UpInt => 2,
        Round::Zero | Round::ZeroInt => 3,
    }
}

impl Emit<'_> {
    /// Denormals become zeros of their sign.
    pub fn flush(&mut self, ty: Ty, v: Value, ftz: bool) -> Value {
        if ftz && ty == Ty::F32 { self.flush_below(f32::MIN_POSITIVE, v) } else { v }
    }

    /// As [`Emit::flush`], of a 16-bit float that is held as f32.
    fn flush_half(&mut self, ty: Ty, v: Value, ftz: bool) -> Value {
        let least = if matches!(ty, Ty::F16 | Ty::F16x2) { 1.0 / 16384.0 } else { f32::MIN_POSITIVE };
        if ftz { self.flush_below(least, v) } else { v }
    }

    fn flush_below(&mut self, least: f32, v: Value) -> Value {
        let bits = self.bitcast(types::I32, v);
        let (magnitude, sign) = (self.imm(types::I32, 0x7fff_ffff), self.imm(types::I32, 0x8000_0000));
        let least = self.imm(types::I32, i64::from(least.to_bits()));
        let m = self.b.ins().band(bits, magnitude);
        let small = self.b.ins().icmp(IntCC::UnsignedLessThan, m, least);
        let zero = self.b.ins().band(bits, sign);
        let v = self.b.ins().select(small, zero, bits);
        self.bitcast(types::F32, v)
    }

    /// Clamps to [0, 1]; NaN becomes 0.
    fn saturate(&mut self, ty: Ty, v: Value, sat: bool) -> Value {
        if !sat {
            return v;
        }
        let zero = self.literal(ty, 0);
        let one = self.literal(ty, if ty == Ty::F64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) });
        let p = self.b.ins().fcmp(FloatCC::GreaterThan, v, zero);
        let v = self.b.ins().select(p, v, zero);
        let p = self.b.ins().fcmp(FloatCC::LessThan, v, one);
        self.b.ins().select(p, v, one)
    }

    /// After an operation: `.ftz` and `.sat`, and into the register.
    fn finish(&mut self, ty: Ty, mode: &FloatMode, d: Reg, v: Value) {
        let v = self.flush(ty, v, mode.ftz);
        let v = self.saturate(ty, v, mode.sat);
        self.set(ty, d, v);
    }

    fn input(&mut self, ty: Ty, mode: &FloatMode, o: &Opd) -> Value {
        let v = self.value(ty, o);
        self.flush(ty, v, mode.ftz)
    }

    /// An operation in another rounding than to nearest, by a helper.
    fn directed(&mut self, kind: FloatKind, ty: Ty, round: Round, v: [Value; 3]) -> Value {
        let (h, t) =
            if ty == Ty::F32 { (Helper::RoundedF32, types::F32) } else { (Helper::RoundedF64, types::F64) };
        let (kind, round) = (self.imm(types::I32, kind as i64), self.imm(types::I32, round_number(round)));
        self.helper(h, &[kind, round, v[0], v[1], v[2]], Some(t))
    }

    /// Any operation on 16-bit floats or pairs of them.
    fn half(&mut self, kind: FloatKind, ty: Ty, mode: &FloatMode, d: Reg, o: &[&Opd]) {
        let mut args = vec![];
        let flags = kind as i64
            | half_kind(ty) << 8
            | i64::from(mode.sat) << 16
            | i64::from(mode.nan) << 17
            | i64::from(mode.relu) << 18
            | i64::from(mode.ftz) << 19;
        args.push(self.imm(types::I32, flags));
        for i in 0..3 {
            let v = match o.get(i) {
                Some(o) => {
                    let v = self.value(ty, o);
                    self.fit(v, ty.class(), Class::I32, false)
                }
                None => self.imm(types::I32, 0),
            };
            args.push(v);
        }
        let v = self.helper(Helper::Half, &args, Some(types::I32));
        let v = self.fit(v, Class::I32, ty.class(), false);
        self.set(ty, d, v);
    }

    pub fn float(&mut self, op: FloatOp, ty: Ty, mode: &FloatMode, d: Reg, a: &Opd, b: &Opd) {
        let kind = match op {
            FloatOp::Add => FloatKind::Add,
            FloatOp::Sub => FloatKind::Sub,
            FloatOp::Mul => FloatKind::Mul,
            FloatOp::Div => FloatKind::Div,
            FloatOp::Min => FloatKind::Min,
            FloatOp::Max => FloatKind::Max,
            FloatOp::Copysign => FloatKind::Neg,
        };
        if is_half(ty) {
            return self.half(kind, ty, mode, d, &[a, b]);
        }
        let (x, y) = (self.input(ty, mode, a), self.input(ty, mode, b));
        let directed = mode.round != Round::Near;
        let v = match op {
            FloatOp::Min | FloatOp::Max => self.extreme(op == FloatOp::Min, mode.nan, x, y),
            // The sign is of the first operand, the magnitude of the second.
            FloatOp::Copysign => self.b.ins().fcopysign(y, x),
            _ if directed => self.directed(kind, ty, mode.round, [x, y, y]),
            FloatOp::Add => self.b.ins().fadd(x, y),
            FloatOp::Sub => self.b.ins().fsub(x, y),
            FloatOp::Mul => self.b.ins().fmul(x, y),
            FloatOp::Div => self.b.ins().fdiv(x, y),
        };
        self.finish(ty, mode, d, v);
    }

    /// The number wins over NaN, unless `.NaN`; -0 is below +0.
    fn extreme(&mut self, min: bool, nan: bool, x: Value, y: Value) -> Value {
        let v = if min { self.b.ins().fmin(x, y) } else { self.b.ins().fmax(x, y) };
        if nan {
            return v;
        }
        let x_nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let y_nan = self.b.ins().fcmp(FloatCC::Unordered, y, y);
        let v = self.b.ins().select(y_nan, x, v);
        self.b.ins().select(x_nan, y, v)
    }

    pub fn fma(&mut self, ty: Ty, mode: &FloatMode, d: Reg, o: [&Opd; 3]) {
        if is_half(ty) {
            return self.half(FloatKind::Fma, ty, mode, d, &o);
        }
        let v = o.map(|o| self.input(ty, mode, o));
        let mut v = if mode.round == Round::Near && self.clif.has_fma {
            self.b.ins().fma(v[0], v[1], v[2])
        } else {
            self.directed(FloatKind::Fma, ty, mode.round, v)
        };
        if mode.relu {
            let zero = self.literal(ty, 0);
            v = self.extreme(false, true, v, zero);
        }
        self.finish(ty, mode, d, v);
    }

    pub fn float_unary(&mut self, op: FloatUnary, ty: Ty, mode: &FloatMode, d: Reg, a: &Opd) {
        if is_half(ty) {
            let kind = match op {
                FloatUnary::Neg => FloatKind::Neg,
                FloatUnary::Abs => FloatKind::Abs,
                FloatUnary::Ex2 => FloatKind::Ex2,
                _ => FloatKind::Tanh,
            };
            return self.half(kind, ty, mode, d, &[a]);
        }
        let x = self.input(ty, mode, a);
        let one = self.literal(ty, if ty == Ty::F64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) });
        let t = class_type(ty.class());
        let directed = mode.round != Round::Near;
        let v = match op {
            FloatUnary::Neg => self.b.ins().fneg(x),
            FloatUnary::Abs => self.b.ins().fabs(x),
            FloatUnary::Sqrt if directed => self.directed(FloatKind::Sqrt, ty, mode.round, [x, x, x]),
            FloatUnary::Sqrt => self.b.ins().sqrt(x),
            FloatUnary::Rcp if directed => self.directed(FloatKind::Div, ty, mode.round, [one, x, x]),
            FloatUnary::Rcp => self.b.ins().fdiv(one, x),
            FloatUnary::Rsqrt => {
                let r = self.b.ins().sqrt(x);
                self.b.ins().fdiv(one, r)
            }
            FloatUnary::Sin => self.helper(Helper::Sin, &[x], Some(t)),
            FloatUnary::Cos => self.helper(Helper::Cos, &[x], Some(t)),
            FloatUnary::Lg2 => self.helper(Helper::Lg2, &[x], Some(t)),
            FloatUnary::Ex2 => self.helper(Helper::Ex2, &[x], Some(t)),
            FloatUnary::Tanh => self.helper(Helper::Tanh, &[x], Some(t)),
        };
        self.finish(ty, mode, d, v);
    }

    pub fn testp(&mut self, test: TestOp, ty: Ty, d: Reg, a: &Opd) {
        let x = self.value(ty, a);
        let (t, exponent, least) = if ty == Ty::F32 {
            (types::I32, 0x7f80_0000i64, 0x0080_0000i64)
        } else {
            (types::I64, 0x7ff0_0000_0000_0000, 0x0010_0000_0000_0000)
        };
        let x = self.b.ins().fabs(x);
        let m = self.bitcast(t, x);
        let (inf, least, zero) = (self.imm(t, exponent), self.imm(t, least), self.imm(t, 0));
        let below = self.b.ins().icmp(IntCC::UnsignedLessThan, m, inf);
        let p = match test {
            TestOp::Finite => below,
            TestOp::Infinite => self.b.ins().icmp(IntCC::Equal, m, inf),
            TestOp::Number => self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, m, inf),
            TestOp::NotANumber => self.b.ins().icmp(IntCC::UnsignedGreaterThan, m, inf),
            TestOp::Normal => {
                let q = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, m, least);
                self.b.ins().band(q, below)
            }
            TestOp::Subnormal => {
                let q = self.b.ins().icmp(IntCC::UnsignedLessThan, m, least);
                let r = self.b.ins().icmp(IntCC::NotEqual, m, zero);
                self.b.ins().band(q, r)
            }
        };
        self.set(Ty::Pred, d, p);
    }

    /// A comparison as a predicate.
    pub fn compare(&mut self, cmp: Cmp, ty: Ty, ftz: bool, a: &Opd, b: &Opd) -> Value {
        let (mut x, mut y) = (self.value(ty, a), self.value(ty, b));
        if ty.float() {
            if is_half(ty) {
                (x, y) = (self.half_to_f32(ty, x), self.half_to_f32(ty, y));
                (x, y) = (self.flush_half(ty, x, ftz), self.flush_half(ty, y, ftz));
            }
            let (x, y) = (self.flush(ty, x, ftz), self.flush(ty, y, ftz));
            return self.b.ins().fcmp(float_cc(cmp), x, y);
        }
        self.b.ins().icmp(int_cc(cmp, ty.signed()), x, y)
    }

    /// A comparison of pairs of 16-bit floats: the lower ones, the upper ones.
    pub fn compare_pair(&mut self, cmp: Cmp, ty: Ty, ftz: bool, a: &Opd, b: &Opd) -> [Value; 2] {
        let part = if ty == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
        let (x, y) = (self.value(Ty::B32, a), self.value(Ty::B32, b));
        [0, 16].map(|n| {
            let n = self.imm(types::I32, n);
            let [x, y] = [x, y].map(|v| {
                let v = self.b.ins().ushr(v, n);
                let v = self.fit(v, Class::I32, Class::I16, false);
                let v = self.half_to_f32(part, v);
                self.flush_half(part, v, ftz)
            });
            self.b.ins().fcmp(float_cc(cmp), x, y)
        })
    }

    /// `p bool c`.
    pub fn combine(&mut self, p: Value, with: Option<&(BoolOp, Opd)>) -> Value {
        let Some((op, c)) = with else { return p };
        let c = self.value(Ty::Pred, c);
        match op {
            BoolOp::And => self.b.ins().band(p, c),
            BoolOp::Or => self.b.ins().bor(p, c),
            BoolOp::Xor => self.b.ins().bxor(p, c),
        }
    }

    /// `c >= 0 ? a : b`; a NaN chooses `b`.
    pub fn slct(&mut self, ty: Ty, by: Ty, ftz: bool, d: Reg, o: [&Opd; 3]) {
        let (a, b) = (self.value(ty, o[0]), self.value(ty, o[1]));
        let c = self.value(by, o[2]);
        let zero = self.literal(by, 0);
        let p = if by == Ty::F32 {
            let c = self.flush(by, c, ftz);
            self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, c, zero)
        } else {
            self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, c, zero)
        };
        let v = self.b.ins().select(p, a, b);
        self.set(ty, d, v);
    }
}

pub fn float_cc(cmp: Cmp) -> FloatCC {
    match cmp {
        Cmp::Eq => FloatCC::Equal,
        // `ne` is false for NaN; `neu` is the one that is true.
        Cmp::Ne => FloatCC::OrderedNotEqual,
        Cmp::Lt | Cmp::Lo => FloatCC::LessThan,
        Cmp::Le | Cmp::Ls => FloatCC::LessThanOrEqual,
        Cmp::Gt | Cmp::Hi => FloatCC::GreaterThan,
        Cmp::Ge | Cmp::Hs => FloatCC::GreaterThanOrEqual,
        Cmp::Equ => FloatCC::UnorderedOrEqual,
        Cmp::Neu => FloatCC::NotEqual,
        Cmp::Ltu => FloatCC::UnorderedOrLessThan,
        Cmp::Leu => FloatCC::UnorderedOrLessThanOrEqual,
        Cmp::Gtu => FloatCC::UnorderedOrGreaterThan,
        Cmp::Geu => FloatCC::UnorderedOrGreaterThanOrEqual,
        Cmp::Num => FloatCC::Ordered,
        Cmp::Nan => FloatCC::Unordered,
    }
}

pub fn int_cc(cmp: Cmp, signed: bool) -> IntCC {
    match (cmp, signed) {
        (Cmp::Eq, _) => IntCC::Equal,
        (Cmp::Ne, _) => IntCC::NotEqual,
        (Cmp::Lt, true) => IntCC::SignedLessThan,
        (Cmp::Le, true) => IntCC::SignedLessThanOrEqual,
        (Cmp::Gt, true) => IntCC::SignedGreaterThan,
        (Cmp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (Cmp::Lt | Cmp::Lo, _) => IntCC::UnsignedLessThan,
        (Cmp::Le | Cmp::Ls, _) => IntCC::UnsignedLessThanOrEqual,
        (Cmp::Gt | Cmp::Hi, _) => IntCC::UnsignedGreaterThan,
        _ => IntCC::UnsignedGreaterThanOrEqual,
    }
}
