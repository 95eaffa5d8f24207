//! Operations that have a vector form.

use super::emit::Vector;
use super::value::{Row, vector_type};
use crate::codegen::clif::float::{float_cc, int_cc};
use crate::ir::{
    BoolOp, Class, Cmp, FloatMode, IntOp, IntOp3, IntUnary, MadOp, Op, Opd, Reg, Round, Space, Ty,
};
use crate::runtime::helpers::FloatKind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// Rows for the registers that an operation writes.
pub type Results = Vec<(Reg, Row)>;

fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F32 | Ty::F64)
}

impl Vector<'_> {
    /// The results of an operation as vectors; `None`: it has no such form here.
    pub fn form(&mut self, op: &Op) -> Option<Results> {
        let mut fits = true;
        op.dests(&mut |d| fits &= self.in_vectors(d));
        if !fits {
            return None;
        }
        match op {
            Op::Mov { ty, d, a } => {
                let row = self.operand(*ty, a)?;
                self.result(*ty, *d, row)
            }
            Op::Cvta { to_space: false, space, d, a } | Op::Cvta { to_space: true, space, d, a }
                if *space != Space::Shared =>
            {
                let row = self.operand(Ty::U64, a)?;
                self.result(Ty::U64, *d, row)
            }
            Op::Int { op, ty, d, a, b } => self.int(*op, *ty, *d, a, b),
            Op::IntUnary { op, ty, d, a } => {
                let x = self.operand(*ty, a)?;
                let row = self.int_unary(*op, *ty, &x)?;
                self.result(*ty, *d, row)
            }
            Op::Int3 { op, ty, d, a, b, c } => {
                let row = self.int3(*op, *ty, a, b, c)?;
                self.result(*ty, *d, row)
            }
            Op::Mad { op: MadOp::Lo, ty, d, a, b, c } => {
                let (x, y, z) = (self.operand(*ty, a)?, self.operand(*ty, b)?, self.operand(*ty, c)?);
                let m = self.zip(&x, &y, |e, x, y| e.ins().imul(x, y));
                let row = self.zip(&m, &z, |e, x, y| e.ins().iadd(x, y));
                self.result(*ty, *d, row)
            }
            Op::Mad { op: MadOp::Wide, ty, d, a, b, c } if ty.bits() == 32 => {
                let to = if ty.signed() { Ty::S64 } else { Ty::U64 };
                let m = self.mul_wide(*ty, a, b)?;
                let z = self.operand(to, c)?;
                let row = self.zip(&m, &z, |e, x, y| e.ins().iadd(x, y));
                self.result(to, *d, row)
            }
            Op::Float { op, ty, mode, d, a, b } if is_float(*ty) => {
                let row = self.float(*op, *ty, mode, a, b)?;
                self.finish(*ty, mode, *d, row)
            }
            Op::FloatUnary { op, ty, mode, d, a } if is_float(*ty) => {
                let row = self.float_unary(*op, *ty, mode, a)?;
                self.finish(*ty, mode, *d, row)
            }
            Op::Fma { ty, mode, d, a, b, c } if is_float(*ty) && !mode.relu && self.e.clif.has_fma => {
                // The instruction's first factor is lost: better a row than a value that all vectors of the other row need.
                let once = self.plan.shapes().operand(*ty, a).uniform();
                let (a, b) = if once { (b, a) } else { (a, b) };
                let (x, y, z) =
                    (self.input(*ty, mode, a)?, self.input(*ty, mode, b)?, self.input(*ty, mode, c)?);
                let row = if mode.round == Round::Near {
                    x.into_iter().zip(y).zip(z).map(|((x, y), z)| self.e.b.ins().fma(x, y, z)).collect()
                } else {
                    self.rounded(FloatKind::Fma, *ty, mode.round, [&x, &y, &z])?
                };
                self.finish(*ty, mode, *d, row)
            }
            Op::Setp { cmp, ty, ftz, d, d2, a, b, with } => {
                let p = self.compare(*cmp, *ty, *ftz, a, b)?;
                let mut out = Vec::new();
                if let Some(d2) = d2 {
                    let n = self.map(&p, |e, v| e.ins().bnot(v));
                    out.push((*d2, self.combine(n, with.as_ref())?));
                }
                let p = self.combine(p, with.as_ref())?;
                out.insert(0, (*d, p));
                Some(out)
            }
            Op::Set { cmp, to, ty, ftz, d, a, b, with }
                if to.bits() == 32 && !matches!(to, Ty::F16x2 | Ty::Bf16x2) =>
            {
                let p = self.compare(*cmp, *ty, *ftz, a, b)?;
                let p = self.combine(p, with.as_ref())?;
                let row = if *to == Ty::F32 {
                    let one = self.all(types::I32X4, u64::from(1f32.to_bits()));
                    self.map(&p, |e, v| e.ins().band(v, one))
                } else {
                    p
                };
                self.result(Ty::B32, *d, row)
            }
            Op::Selp { ty, d, a, b, p } => {
                let (x, y, p) = (self.operand(*ty, a)?, self.operand(*ty, b)?, self.operand(Ty::Pred, p)?);
                let row = self.choose(&p, vector_type(ty.class())?, &x, &y);
                self.result(*ty, *d, row)
            }
            Op::Cvt { to, from, mode, d, a } => {
                let row = self.cvt(*to, *from, mode, a)?;
                self.result(*to, *d, row)
            }
            Op::Pack { part: part @ (Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32), d, parts }
                if parts.len() == 2 =>
            {
                let (lo, hi) = (self.operand(*part, &parts[0])?, self.operand(*part, &parts[1])?);
                let mut row = Vec::new();
                for (l, h) in lo.into_iter().zip(hi) {
                    for picks in [[0, 4, 1, 5], [2, 6, 3, 7]] {
                        let v = self.shuffle(l, h, 4, &picks);
                        row.push(self.cast(types::I64X2, v));
                    }
                }
                self.result(Ty::B64, *d, row)
            }
            Op::Unpack { part: Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32, d, a } if d.len() == 2 => {
                let row = self.operand(Ty::B64, a)?;
                let mut out = Vec::new();
                for (r, picks) in d.iter().zip([[0, 2, 4, 6], [1, 3, 5, 7]]) {
                    let Some(r) = r else { continue };
                    let half: Row = row
                        .chunks(2)
                        .map(|p| {
                            let v = self.shuffle(p[0], p[1], 4, &picks);
                            self.cast(types::I32X4, v)
                        })
                        .collect();
                    out.extend(self.result(Ty::B32, *r, half)?);
                }
                Some(out)
            }
            _ => None,
        }
    }

    /// A row of `ty` for a register.
    pub fn result(&mut self, ty: Ty, d: Reg, row: Row) -> Option<Results> {
        let row = self.fit(row, ty.class(), self.class(d), ty.signed())?;
        Some(vec![(d, row)])
    }

    pub fn map(
        &mut self,
        x: &Row,
        f: impl Fn(&mut cranelift_frontend::FunctionBuilder, Value) -> Value,
    ) -> Row {
        x.iter().map(|v| f(&mut self.e.b, *v)).collect()
    }

    pub fn zip(
        &mut self,
        x: &Row,
        y: &Row,
        f: impl Fn(&mut cranelift_frontend::FunctionBuilder, Value, Value) -> Value,
    ) -> Row {
        x.iter().zip(y).map(|(x, y)| f(&mut self.e.b, *x, *y)).collect()
    }

    fn int(&mut self, op: IntOp, ty: Ty, d: Reg, a: &Opd, b: &Opd) -> Option<Results> {
        if op == IntOp::MulWide {
            if ty.bits() != 32 {
                return None;
            }
            let row = self.mul_wide(ty, a, b)?;
            return self.result(if ty.signed() { Ty::S64 } else { Ty::U64 }, d, row);
        }
        if matches!(op, IntOp::Shl | IntOp::Shr) {
            let row = self.shift(op == IntOp::Shl, ty, a, b)?;
            return self.result(ty, d, row);
        }
        if matches!(op, IntOp::Mul) && ty == Ty::Pred {
            return None;
        }
        let (x, y) = (self.operand(ty, a)?, self.operand(ty, b)?);
        let row = match op {
            IntOp::Add => self.zip(&x, &y, |e, x, y| e.ins().iadd(x, y)),
            IntOp::Sub => self.zip(&x, &y, |e, x, y| e.ins().isub(x, y)),
            IntOp::Mul => self.zip(&x, &y, |e, x, y| e.ins().imul(x, y)),
            IntOp::And => self.zip(&x, &y, |e, x, y| e.ins().band(x, y)),
            IntOp::Or => self.zip(&x, &y, |e, x, y| e.ins().bor(x, y)),
            IntOp::Xor => self.zip(&x, &y, |e, x, y| e.ins().bxor(x, y)),
            IntOp::Min | IntOp::Max if ty.bits() == 32 => {
                let signed = ty.signed();
                self.zip(&x, &y, |e, x, y| match (op == IntOp::Min, signed) {
                    (true, true) => e.ins().smin(x, y),
                    (true, false) => e.ins().umin(x, y),
                    (false, true) => e.ins().smax(x, y),
                    (false, false) => e.ins().umax(x, y),
                })
            }
            IntOp::Min | IntOp::Max if ty.bits() == 64 => {
                let cmp = if op == IntOp::Min { Cmp::Lt } else { Cmp::Gt };
                let cc = int_cc(cmp, ty.signed());
                let wide = self.zip(&x, &y, |e, x, y| e.ins().icmp(cc, x, y));
                let mask = self.narrowed_mask(wide, types::I64X2);
                self.choose(&mask, types::I64X2, &x, &y)
            }
            IntOp::MulHi if ty.bits() == 32 => {
                let wide = self.mul_wide(ty, a, b)?;
                wide.chunks(2)
                    .map(|p| {
                        let v = self.shuffle(p[0], p[1], 4, &[1, 3, 5, 7]);
                        self.cast(types::I32X4, v)
                    })
                    .collect()
            }
            _ => return None,
        };
        self.result(ty, d, row)
    }

    /// 32 × 32 bits to 64.
    fn mul_wide(&mut self, ty: Ty, a: &Opd, b: &Opd) -> Option<Row> {
        let (x, y) = (self.operand(ty, a)?, self.operand(ty, b)?);
        let (x, y) = (
            self.fit(x, Class::I32, Class::I64, ty.signed())?,
            self.fit(y, Class::I32, Class::I64, ty.signed())?,
        );
        Some(self.zip(&x, &y, |e, x, y| e.ins().imul(x, y)))
    }

    /// By an amount that all lanes share.
    fn shift(&mut self, left: bool, ty: Ty, a: &Opd, n: &Opd) -> Option<Row> {
        let (t, bits) = (vector_type(ty.class())?, u64::from(ty.bits()));
        let x = self.operand(ty, a)?;
        let arithmetic = !left && ty.signed();
        let shift = |v: &mut Self, x: &Row, n: Value| {
            v.map(x, |e, x| match (left, arithmetic) {
                (true, _) => e.ins().ishl(x, n),
                (false, true) => e.ins().sshr(x, n),
                (false, false) => e.ins().ushr(x, n),
            })
        };
        if let Opd::Imm(n) = n {
            let n = n & 0xffff_ffff;
            if n >= bits && !arithmetic {
                let zero = self.all(t, 0);
                return Some(vec![zero; x.len()]);
            }
            let n = self.e.imm(types::I32, n.min(bits - 1) as i64);
            return Some(shift(self, &x, n));
        }
        if !self.plan.shapes().operand(Ty::U32, n).uniform() {
            return None;
        }
        let n = self.e.value(Ty::U32, n);
        let limit = self.e.imm(types::I32, bits as i64 - 1);
        let over = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, n, limit);
        let by = self.e.b.ins().select(over, limit, n);
        let row = shift(self, &x, by);
        if arithmetic {
            return Some(row);
        }
        let mask = self.spread(Class::Pred, over)?;
        let zero = self.all(t, 0);
        let zeros = vec![zero; row.len()];
        Some(self.choose(&mask, t, &zeros, &row))
    }

    fn int_unary(&mut self, op: IntUnary, ty: Ty, x: &Row) -> Option<Row> {
        match op {
            IntUnary::Neg => Some(self.map(x, |e, v| e.ins().ineg(v))),
            IntUnary::Not => Some(self.map(x, |e, v| e.ins().bnot(v))),
            IntUnary::Abs if ty.bits() == 32 => Some(self.map(x, |e, v| e.ins().iabs(v))),
            _ => None,
        }
    }

    fn int3(&mut self, op: IntOp3, ty: Ty, a: &Opd, b: &Opd, c: &Opd) -> Option<Row> {
        match (op, b, c) {
            (IntOp3::Lop3(lut), ..) => {
                let v = [self.operand(Ty::B32, a)?, self.operand(Ty::B32, b)?, self.operand(Ty::B32, c)?];
                Some((0..v[0].len()).map(|i| self.lop3(lut, [v[0][i], v[1][i], v[2][i]])).collect())
            }
            (IntOp3::Shf { left, clamp }, _, Opd::Imm(n)) => {
                let (lo, hi) = (self.operand(Ty::U32, a)?, self.operand(Ty::U32, b)?);
                let n = if clamp { (*n & 0xffff_ffff).min(32) } else { n & 31 };
                let whole = if left { (&hi, &lo) } else { (&lo, &hi) };
                match n {
                    0 => return Some(whole.0.clone()),
                    32 => return Some(whole.1.clone()),
                    _ => {}
                }
                let (n, m) = (self.e.imm(types::I32, n as i64), self.e.imm(types::I32, 32 - n as i64));
                let (by_left, by_right) = if left { (n, m) } else { (m, n) };
                Some(self.zip(&lo, &hi, |e, lo, hi| {
                    let (h, l) = (e.ins().ishl(hi, by_left), e.ins().ushr(lo, by_right));
                    e.ins().bor(h, l)
                }))
            }
            (IntOp3::Bfe, Opd::Imm(pos), Opd::Imm(len)) if ty.bits() == 32 => {
                let (pos, len) = (pos & 255, len & 255);
                if len == 0 || pos + len > 32 {
                    return None;
                }
                let x = self.operand(ty, a)?;
                let (up, down) = (
                    self.e.imm(types::I32, 32 - (pos + len) as i64),
                    self.e.imm(types::I32, 32 - len as i64),
                );
                let signed = ty.signed();
                Some(self.map(&x, |e, v| {
                    let v = e.ins().ishl(v, up);
                    if signed { e.ins().sshr(v, down) } else { e.ins().ushr(v, down) }
                }))
            }
            _ => None,
        }
    }

    /// The sum of the minterms.
    fn lop3(&mut self, lut: u8, v: [Value; 3]) -> Value {
        if lut == 0x96 {
            let x = self.e.b.ins().bxor(v[0], v[1]);
            return self.e.b.ins().bxor(x, v[2]);
        }
        let n = v.map(|v| self.e.b.ins().bnot(v));
        let mut sum = self.all(types::I32X4, 0);
        for term in (0..8u8).filter(|t| lut >> t & 1 == 1) {
            let pick = |i: usize| if term >> (2 - i) & 1 == 1 { v[i] } else { n[i] };
            let x = self.e.b.ins().band(pick(0), pick(1));
            let x = self.e.b.ins().band(x, pick(2));
            sum = self.e.b.ins().bor(sum, x);
        }
        sum
    }

    // ---- comparisons and conversions

    fn compare(&mut self, cmp: Cmp, ty: Ty, ftz: bool, a: &Opd, b: &Opd) -> Option<Row> {
        let t = vector_type(ty.class())?;
        if matches!(ty, Ty::Pred | Ty::F16x2 | Ty::Bf16x2) {
            return None;
        }
        let (x, y) = (self.operand(ty, a)?, self.operand(ty, b)?);
        if is_float(ty) {
            let (x, y) = (self.flush(ty, x, ftz), self.flush(ty, y, ftz));
            return Some(self.float_mask(float_cc(cmp), t, &x, &y));
        }
        let cc = int_cc(cmp, ty.signed());
        let row = self.zip(&x, &y, |e, x, y| e.ins().icmp(cc, x, y));
        Some(self.narrowed_mask(row, t))
    }

    fn combine(&mut self, p: Row, with: Option<&(BoolOp, Opd)>) -> Option<Row> {
        let Some((op, c)) = with else { return Some(p) };
        let c = self.operand(Ty::Pred, c)?;
        Some(self.zip(&p, &c, |e, x, y| match op {
            BoolOp::And => e.ins().band(x, y),
            BoolOp::Or => e.ins().bor(x, y),
            BoolOp::Xor => e.ins().bxor(x, y),
        }))
    }

    fn cvt(&mut self, to: Ty, from: Ty, mode: &FloatMode, a: &Opd) -> Option<Row> {
        let halves = |t| matches!(t, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2);
        if to.bits() < 32 || from.bits() < 32 || halves(to) || halves(from) {
            return None;
        }
        match (from.float(), to.float()) {
            (false, false) if !mode.sat => {
                let x = self.operand(from, a)?;
                self.fit(x, from.class(), to.class(), from.signed())
            }
            (false, true) if from.bits() == 32 && to == Ty::F32 && mode.round == Round::Near && !mode.sat => {
                let x = self.operand(from, a)?;
                let signed = from.signed();
                Some(self.map(&x, |e, v| {
                    if signed {
                        e.ins().fcvt_from_sint(types::F32X4, v)
                    } else {
                        e.ins().fcvt_from_uint(types::F32X4, v)
                    }
                }))
            }
            (true, false) if from == Ty::F32 && to.bits() == 32 => {
                let x = self.input(from, mode, a)?;
                let x = self.integral(mode.round, &x);
                let signed = to.signed();
                Some(self.map(&x, |e, v| {
                    if signed {
                        e.ins().fcvt_to_sint_sat(types::I32X4, v)
                    } else {
                        e.ins().fcvt_to_uint_sat(types::I32X4, v)
                    }
                }))
            }
            (true, true) => self.float_to_float(to, from, mode, a),
            _ => None,
        }
    }

    fn integral(&mut self, round: Round, x: &Row) -> Row {
        self.map(x, |e, v| match round {
            Round::NearInt | Round::Near => e.ins().nearest(v),
            Round::ZeroInt | Round::Zero => e.ins().trunc(v),
            Round::DownInt | Round::Down => e.ins().floor(v),
            Round::UpInt | Round::Up => e.ins().ceil(v),
        })
    }

    fn float_to_float(&mut self, to: Ty, from: Ty, mode: &FloatMode, a: &Opd) -> Option<Row> {
        let integral = matches!(mode.round, Round::NearInt | Round::ZeroInt | Round::DownInt | Round::UpInt);
        if mode.relu {
            return None;
        }
        match (from, to) {
            (Ty::F32, Ty::F32) | (Ty::F64, Ty::F64) => {
                let x = self.input(from, mode, a)?;
                let x = if integral { self.integral(mode.round, &x) } else { x };
                self.saturate(to, x, mode.sat)
            }
            (Ty::F32, Ty::F64) if !integral => {
                let x = self.input(from, mode, a)?;
                let mut out = Vec::new();
                for v in x {
                    let high = self.shuffle(v, v, 4, &[2, 3, 2, 3]);
                    out.push(self.e.b.ins().fvpromote_low(v));
                    out.push(self.e.b.ins().fvpromote_low(high));
                }
                self.saturate(to, out, mode.sat)
            }
            (Ty::F64, Ty::F32) if !integral && mode.round == Round::Near => {
                let x = self.operand(from, a)?;
                let low: Row = x.iter().map(|v| self.e.b.ins().fvdemote(*v)).collect();
                let row = low.chunks(2).map(|p| self.shuffle(p[0], p[1], 4, &[0, 1, 4, 5])).collect();
                let row = self.flush(to, row, mode.ftz);
                self.saturate(to, row, mode.sat)
            }
            _ => None,
        }
    }
}
