//! Integer operations.

use super::emit::{Emit, class_type};
use crate::ir::{Class, IntOp, IntOp3, IntUnary, MadOp, Opd, Reg, Ty};
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

fn wide(ty: Ty) -> Ty {
    match ty {
        Ty::U16 => Ty::U32,
        Ty::S16 => Ty::S32,
        Ty::S32 => Ty::S64,
        _ => Ty::U64,
    }
}

impl Emit<'_> {
    /// A shift amount as PTX takes it: 32 bits, unsigned.
    fn amount(&mut self, o: &Opd) -> Value {
        self.value(Ty::U32, o)
    }

    fn lesser(&mut self, cc: IntCC, a: Value, b: Value) -> Value {
        let p = self.b.ins().icmp(cc, a, b);
        self.b.ins().select(p, a, b)
    }

    pub fn int(&mut self, op: IntOp, ty: Ty, d: Reg, a: &Opd, b: &Opd) {
        if matches!(op, IntOp::Shl | IntOp::Shr) {
            let v = self.shift(op == IntOp::Shl, ty, a, b);
            return self.set(ty, d, v);
        }
        let (x, y) = (self.value(ty, a), self.value(ty, b));
        let t = class_type(ty.class());
        let v = match op {
            IntOp::Add => self.b.ins().iadd(x, y),
            IntOp::Sub => self.b.ins().isub(x, y),
            IntOp::AddSat | IntOp::SubSat => self.saturated(op == IntOp::AddSat, x, y),
            IntOp::Mul => self.b.ins().imul(x, y),
            IntOp::MulHi => self.mul_hi(ty, x, y),
            IntOp::MulWide => {
                let v = self.mul_wide(ty, x, y);
                return self.set(wide(ty), d, v);
            }
            IntOp::Mul24 | IntOp::Mul24Hi => self.mul24(ty, x, y, op == IntOp::Mul24Hi),
            IntOp::Div | IntOp::Rem => self.divide(ty, x, y, b, op == IntOp::Div),
            IntOp::Min if ty.signed() => self.lesser(IntCC::SignedLessThan, x, y),
            IntOp::Min => self.lesser(IntCC::UnsignedLessThan, x, y),
            IntOp::Max if ty.signed() => self.lesser(IntCC::SignedGreaterThan, x, y),
            IntOp::Max => self.lesser(IntCC::UnsignedGreaterThan, x, y),
            IntOp::And => self.b.ins().band(x, y),
            IntOp::Or => self.b.ins().bor(x, y),
            IntOp::Xor => self.b.ins().bxor(x, y),
            IntOp::Bmsk => self.bit_mask(t, x, y),
            IntOp::Shl | IntOp::Shr => x,
        };
        self.set(ty, d, v);
    }

    /// Amounts from the width on give 0, or the sign.
    fn shift(&mut self, left: bool, ty: Ty, a: &Opd, n: &Opd) -> Value {
        let x = self.value(ty, a);
        let t = class_type(ty.class());
        let bits = u64::from(ty.bits());
        let arithmetic = !left && ty.signed();
        if let Opd::Imm(n) = *n {
            let n = n & 0xffff_ffff;
            if n >= bits && !arithmetic {
                return self.imm(t, 0);
            }
            let n = self.imm(types::I32, n.min(bits - 1) as i64);
            return self.shift_raw(left, arithmetic, x, n);
        }
        let n = self.amount(n);
        let limit = self.imm(types::I32, bits as i64 - 1);
        if arithmetic {
            let n = self.lesser(IntCC::UnsignedLessThan, n, limit);
            return self.shift_raw(left, true, x, n);
        }
        let over = self.b.ins().icmp(IntCC::UnsignedGreaterThan, n, limit);
        let (v, zero) = (self.shift_raw(left, false, x, n), self.imm(t, 0));
        self.b.ins().select(over, zero, v)
    }

    fn shift_raw(&mut self, left: bool, arithmetic: bool, x: Value, n: Value) -> Value {
        match (left, arithmetic) {
            (true, _) => self.b.ins().ishl(x, n),
            (false, true) => self.b.ins().sshr(x, n),
            (false, false) => self.b.ins().ushr(x, n),
        }
    }

    /// Signed 32-bit addition or subtraction that clamps.
    fn saturated(&mut self, add: bool, x: Value, y: Value) -> Value {
        let (x, y) = (self.b.ins().sextend(types::I64, x), self.b.ins().sextend(types::I64, y));
        let v = if add { self.b.ins().iadd(x, y) } else { self.b.ins().isub(x, y) };
        self.clamp_signed(v, types::I32)
    }

    fn clamp_signed(&mut self, v: Value, to: Type) -> Value {
        let (lo, hi) = (self.imm(types::I64, i64::from(i32::MIN)), self.imm(types::I64, i64::from(i32::MAX)));
        let v = self.lesser(IntCC::SignedGreaterThan, v, lo);
        let v = self.lesser(IntCC::SignedLessThan, v, hi);
        self.b.ins().ireduce(to, v)
    }

    fn mul_wide(&mut self, ty: Ty, x: Value, y: Value) -> Value {
        let w = wide(ty).class();
        let (x, y) = (self.fit(x, ty.class(), w, ty.signed()), self.fit(y, ty.class(), w, ty.signed()));
        self.b.ins().imul(x, y)
    }

    pub fn mul_hi(&mut self, ty: Ty, x: Value, y: Value) -> Value {
        if ty.bytes() == 8 {
            return if ty.signed() { self.b.ins().smulhi(x, y) } else { self.b.ins().umulhi(x, y) };
        }
        let v = self.mul_wide(ty, x, y);
        let w = class_type(wide(ty).class());
        let n = self.imm(w, i64::from(ty.bits()));
        let v = self.b.ins().ushr(v, n);
        self.b.ins().ireduce(class_type(ty.class()), v)
    }

    /// The lower 24 bits of both, multiplied to 48: bits 31..0, or 47..16.
    fn mul24(&mut self, ty: Ty, x: Value, y: Value, high: bool) -> Value {
        let eight = self.imm(types::I32, 8);
        let low24 = |e: &mut Self, v| {
            let v = e.b.ins().ishl(v, eight);
            let v = e.shift_raw(false, ty.signed(), v, eight);
            e.fit(v, Class::I32, Class::I64, ty.signed())
        };
        let (x, y) = (low24(self, x), low24(self, y));
        let mut v = self.b.ins().imul(x, y);
        if high {
            let n = self.imm(types::I64, 16);
            v = self.b.ins().ushr(v, n);
        }
        self.b.ins().ireduce(types::I32, v)
    }

    /// The CPU traps where PTX says "unspecified": by zero gives all ones (the dividend for `rem`), as a card does; the one
    /// overflow gives the dividend (0).
    fn divide(&mut self, ty: Ty, x: Value, y: Value, divisor: &Opd, quotient: bool) -> Value {
        // 16-bit division is done in 32 bits, which the CPU does best.
        let c = if ty.bytes() < 4 { Class::I32 } else { ty.class() };
        let t = class_type(c);
        let (x, y) = (self.fit(x, ty.class(), c, ty.signed()), self.fit(y, ty.class(), c, ty.signed()));
        // Only the bits of the type count: a literal may have come by way of a wider register.
        let safe = |v: u64| {
            let cut = (v as i64) << (64 - ty.bits()) >> (64 - ty.bits());
            cut != 0 && !(ty.signed() && cut == -1)
        };
        let v = match divisor {
            Opd::Imm(v) if safe(*v) => self.divide_raw(ty, x, y, quotient),
            _ => {
                let (zero, one) = (self.imm(t, 0), self.imm(t, 1));
                let by_zero = self.b.ins().icmp(IntCC::Equal, y, zero);
                let mut divisor = self.b.ins().select(by_zero, one, y);
                let mut minus = None;
                if ty.signed() {
                    let all = self.imm(t, -1);
                    let m = self.b.ins().icmp(IntCC::Equal, y, all);
                    divisor = self.b.ins().select(m, one, divisor);
                    minus = Some(m);
                }
                let mut v = self.divide_raw(ty, x, divisor, quotient);
                if let (Some(m), true) = (minus, quotient) {
                    let n = self.b.ins().ineg(x);
                    v = self.b.ins().select(m, n, v);
                }
                let other = if quotient { self.imm(t, -1) } else { x };
                self.b.ins().select(by_zero, other, v)
            }
        };
        self.fit(v, c, ty.class(), false)
    }

    fn divide_raw(&mut self, ty: Ty, x: Value, y: Value, quotient: bool) -> Value {
        match (quotient, ty.signed()) {
            (true, true) => self.b.ins().sdiv(x, y),
            (true, false) => self.b.ins().udiv(x, y),
            (false, true) => self.b.ins().srem(x, y),
            (false, false) => self.b.ins().urem(x, y),
        }
    }

    /// `len` ones from bit `pos` on; both clamp at 32.
    fn bit_mask(&mut self, t: Type, pos: Value, len: Value) -> Value {
        let (pos, len) =
            (self.fit(pos, Class::I32, Class::I64, false), self.fit(len, Class::I32, Class::I64, false));
        let (limit, one) = (self.imm(types::I64, 32), self.imm(types::I64, 1));
        let pos = self.lesser(IntCC::UnsignedLessThan, pos, limit);
        let len = self.lesser(IntCC::UnsignedLessThan, len, limit);
        let m = self.b.ins().ishl(one, len);
        let m = self.b.ins().isub(m, one);
        let m = self.b.ins().ishl(m, pos);
        self.b.ins().ireduce(t, m)
    }

    pub fn not(&mut self, p: Value) -> Value {
        let one = self.imm(types::I8, 1);
        self.b.ins().bxor(p, one)
    }

    pub fn int_unary(&mut self, op: IntUnary, ty: Ty, d: Reg, a: &Opd) {
        let x = self.value(ty, a);
        let t = class_type(ty.class());
        let zero = self.imm(t, 0);
        let v = match op {
            IntUnary::Neg => self.b.ins().ineg(x),
            IntUnary::Abs => {
                let n = self.b.ins().ineg(x);
                let p = self.b.ins().icmp(IntCC::SignedLessThan, x, zero);
                self.b.ins().select(p, n, x)
            }
            IntUnary::Not if ty == Ty::Pred => self.not(x),
            IntUnary::Not => self.b.ins().bnot(x),
            IntUnary::Cnot => {
                let p = self.b.ins().icmp(IntCC::Equal, x, zero);
                let one = self.imm(t, 1);
                self.b.ins().select(p, one, zero)
            }
            IntUnary::Brev => self.b.ins().bitrev(x),
            IntUnary::Popc | IntUnary::Clz => {
                let v = if op == IntUnary::Popc { self.b.ins().popcnt(x) } else { self.b.ins().clz(x) };
                let v = self.fit(v, ty.class(), Class::I32, false);
                return self.set(Ty::U32, d, v);
            }
            IntUnary::Bfind { shift } => {
                let v = self.bfind(ty, x, shift);
                return self.set(Ty::U32, d, v);
            }
        };
        self.set(ty, d, v);
    }

    /// The highest bit that is not the sign; -1 if there is none.
    fn bfind(&mut self, ty: Ty, x: Value, shift: bool) -> Value {
        let t = class_type(ty.class());
        let mut x = x;
        if ty.signed() {
            let n = self.imm(t, i64::from(ty.bits()) - 1);
            let sign = self.b.ins().sshr(x, n);
            x = self.b.ins().bxor(x, sign);
        }
        let zeros = self.b.ins().clz(x);
        let zeros = self.fit(zeros, ty.class(), Class::I32, false);
        let all = self.imm(types::I32, -1);
        let none = {
            let zero = self.imm(t, 0);
            self.b.ins().icmp(IntCC::Equal, x, zero)
        };
        let v = if shift {
            zeros
        } else {
            let top = self.imm(types::I32, i64::from(ty.bits()) - 1);
            self.b.ins().isub(top, zeros)
        };
        self.b.ins().select(none, all, v)
    }

    pub fn int3(&mut self, op: IntOp3, ty: Ty, d: Reg, a: &Opd, b: &Opd, c: &Opd) {
        let v = match op {
            IntOp3::Sad => {
                let (x, y, z) = (self.value(ty, a), self.value(ty, b), self.value(ty, c));
                let cc = if ty.signed() { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan };
                let p = self.b.ins().icmp(cc, x, y);
                let (m, n) = (self.b.ins().isub(x, y), self.b.ins().isub(y, x));
                let v = self.b.ins().select(p, n, m);
                self.b.ins().iadd(z, v)
            }
            IntOp3::Bfe => self.bfe(ty, a, b, c),
            IntOp3::Lop3(lut) => self.lop3(lut, [a, b, c]),
            IntOp3::Shf { left, clamp } => self.funnel(left, clamp, [a, b, c]),
            IntOp3::Prmt(mode) => self.three(Helper::Prmt, mode as i64, [a, b, c]),
            IntOp3::Dp4a { b_signed } => {
                self.three(Helper::DotProduct, i64::from(ty.signed()) | i64::from(b_signed) << 1, [a, b, c])
            }
            IntOp3::Dp2a { b_signed, hi } => {
                let kind = i64::from(ty.signed()) | i64::from(b_signed) << 1 | 4 | i64::from(hi) << 3;
                self.three(Helper::DotProduct, kind, [a, b, c])
            }
            IntOp3::Fns => self.three(Helper::Fns, 0, [a, b, c]),
        };
        self.set(ty, d, v);
    }

    fn three(&mut self, h: Helper, kind: i64, o: [&Opd; 3]) -> Value {
        let v = o.map(|o| self.value(Ty::U32, o));
        let kind = self.imm(types::I32, kind);
        self.helper(h, &[v[0], v[1], v[2], kind], Some(types::I32))
    }

    /// Bits `pos` to `pos + len`, extended; position and length are 8 bits each.
    fn bfe(&mut self, ty: Ty, a: &Opd, pos: &Opd, len: &Opd) -> Value {
        let x = self.value(ty, a);
        let t = class_type(ty.class());
        let bits = i64::from(ty.bits());
        let (byte, limit) = (self.imm(types::I32, 255), self.imm(types::I32, bits));
        let (pos, len) = (self.amount(pos), self.amount(len));
        let (pos, len) = (self.b.ins().band(pos, byte), self.b.ins().band(len, byte));
        // What lies above the value is its sign (or 0): shifting by min(pos, width - 1) is exact enough for that.
        let top = self.imm(types::I32, bits - 1);
        let shift = self.lesser(IntCC::UnsignedLessThan, pos, top);
        let down = self.shift_raw(false, ty.signed(), x, shift);
        let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, pos, top);
        let zero = self.imm(t, 0);
        let sign = if ty.signed() {
            let n = self.imm(types::I32, bits - 1);
            self.b.ins().sshr(x, n)
        } else {
            zero
        };
        let down = self.b.ins().select(beyond, sign, down);
        let len = self.lesser(IntCC::UnsignedLessThan, len, limit);
        let rest = self.b.ins().isub(limit, len); // 0..=bits
        let by = self.lesser(IntCC::UnsignedLessThan, rest, top);
        let up = self.b.ins().ishl(down, by);
        let v = self.shift_raw(false, ty.signed(), up, by);
        let empty = {
            let z = self.imm(types::I32, 0);
            self.b.ins().icmp(IntCC::Equal, len, z)
        };
        self.b.ins().select(empty, zero, v)
    }

    /// `a` into bits `pos` to `pos + len` of `b`.
    pub fn bfi(&mut self, ty: Ty, d: Reg, o: [&Opd; 4]) {
        let (x, y) = (self.value(ty, o[0]), self.value(ty, o[1]));
        let (pos, len) = (self.amount(o[2]), self.amount(o[3]));
        let t = class_type(ty.class());
        let (byte, width) = (self.imm(types::I32, 255), self.imm(types::I32, i64::from(ty.bits())));
        let (pos, len) = (self.b.ins().band(pos, byte), self.b.ins().band(len, byte));
        let (zero, one, all) = (self.imm(t, 0), self.imm(t, 1), self.imm(t, -1));
        let m = self.b.ins().ishl(one, len);
        let m = self.b.ins().isub(m, one);
        let full = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, len, width);
        let m = self.b.ins().select(full, all, m);
        let m = self.b.ins().ishl(m, pos);
        let outside = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, pos, width);
        let m = self.b.ins().select(outside, zero, m);
        let up = self.b.ins().ishl(x, pos);
        let new = self.b.ins().band(up, m);
        let keep = self.b.ins().bnot(m);
        let old = self.b.ins().band(y, keep);
        let v = self.b.ins().bor(new, old);
        self.set(ty, d, v);
    }

    /// Any function of three bits: the sum of its minterms, with the common ones short.
    fn lop3(&mut self, lut: u8, o: [&Opd; 3]) -> Value {
        let v = o.map(|o| self.value(Ty::B32, o));
        let table = |f: fn(u8, u8, u8) -> u8| f(0xf0, 0xcc, 0xaa);
        if lut == table(|a, b, c| a ^ b ^ c) {
            let x = self.b.ins().bxor(v[0], v[1]);
            return self.b.ins().bxor(x, v[2]);
        }
        if lut == table(|a, b, c| (a & b) | c) {
            let x = self.b.ins().band(v[0], v[1]);
            return self.b.ins().bor(x, v[2]);
        }
        let n = v.map(|v| self.b.ins().bnot(v));
        let mut sum = self.imm(types::I32, 0);
        for term in 0..8u8 {
            if lut >> term & 1 == 1 {
                let pick = |i: usize| if term >> (2 - i) & 1 == 1 { v[i] } else { n[i] };
                let x = self.b.ins().band(pick(0), pick(1));
                let x = self.b.ins().band(x, pick(2));
                sum = self.b.ins().bor(sum, x);
            }
        }
        sum
    }

    /// `[b, a]` shifted as 64 bits: the upper half of a left shift, the lower one of a right shift.
    fn funnel(&mut self, left: bool, clamp: bool, o: [&Opd; 3]) -> Value {
        let (lo, hi, n) = (self.value(Ty::U32, o[0]), self.value(Ty::U32, o[1]), self.amount(o[2]));
        let (lo, hi) = (self.b.ins().uextend(types::I64, lo), self.b.ins().uextend(types::I64, hi));
        let half = self.imm(types::I64, 32);
        let hi = self.b.ins().ishl(hi, half);
        let both = self.b.ins().bor(hi, lo);
        let n = if clamp {
            let limit = self.imm(types::I32, 32);
            self.lesser(IntCC::UnsignedLessThan, n, limit)
        } else {
            let m = self.imm(types::I32, 31);
            self.b.ins().band(n, m)
        };
        let v = if left {
            let v = self.b.ins().ishl(both, n);
            self.b.ins().ushr(v, half)
        } else {
            self.b.ins().ushr(both, n)
        };
        self.b.ins().ireduce(types::I32, v)
    }

    pub fn mad(&mut self, op: MadOp, ty: Ty, d: Reg, o: [&Opd; 3]) {
        let (x, y) = (self.value(ty, o[0]), self.value(ty, o[1]));
        let to = if op == MadOp::Wide { wide(ty) } else { ty };
        let z = self.value(to, o[2]);
        let product = match op {
            MadOp::Lo => self.b.ins().imul(x, y),
            MadOp::Hi | MadOp::HiSat => self.mul_hi(ty, x, y),
            MadOp::Wide => self.mul_wide(ty, x, y),
            MadOp::Lo24 => self.mul24(ty, x, y, false),
            MadOp::Hi24 => self.mul24(ty, x, y, true),
        };
        let v =
            if op == MadOp::HiSat { self.saturated(true, product, z) } else { self.b.ins().iadd(product, z) };
        self.set(to, d, v);
    }
}
