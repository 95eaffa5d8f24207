//! Conversions between types and address spaces.

use super::emit::{Emit, class_type};
use super::float::{half_kind, round_number};
use crate::ir::{Class, FloatMode, Opd, Reg, Round, Space, Ty};
use crate::runtime::context::Block as BlockContext;
use crate::runtime::helpers::Helper;
use crate::runtime::math::TO_ODD;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::mem::offset_of;

impl Emit<'_> {
    /// A 16-bit float as f32.
    pub fn half_to_f32(&mut self, ty: Ty, v: Value) -> Value {
        let v = self.fit(v, ty.class(), Class::I32, false);
        let kind = self.imm(types::I32, half_kind(ty));
        self.helper(Helper::HalfToF32, &[v, kind], Some(types::F32))
    }

    /// An f64 rounded once to a 16-bit float.
    fn narrowed_half(&mut self, ty: Ty, v: Value, round: Round) -> Value {
        let (kind, round) = (self.imm(types::I32, half_kind(ty)), self.imm(types::I32, round_number(round)));
        let v = self.helper(Helper::F64ToHalf, &[v, kind, round], Some(types::I32));
        self.fit(v, Class::I32, Class::I16, false)
    }

    pub fn cvt(&mut self, to: Ty, from: Ty, mode: &FloatMode, d: Reg, a: &Opd) {
        let x = self.value(from, a);
        let v = match (from.float(), to.float()) {
            (false, false) => self.int_to_int(to, from, mode.sat, x),
            (false, true) => self.int_to_float(to, from, mode, x),
            (true, false) => self.float_to_int(to, from, mode, x),
            (true, true) => self.float_to_float(to, from, mode, x),
        };
        self.set(to, d, v);
    }

    fn int_to_int(&mut self, to: Ty, from: Ty, sat: bool, x: Value) -> Value {
        if !sat {
            return self.fit(x, from.class(), to.class(), from.signed());
        }
        let v = self.fit(x, from.class(), Class::I64, from.signed());
        let v = self.clamp(v, from.signed(), to);
        self.fit(v, Class::I64, to.class(), false)
    }

    /// A 64-bit integer clamped to the range of `to`.
    fn clamp(&mut self, v: Value, signed: bool, to: Ty) -> Value {
        let t = types::I64;
        let top = if to.signed() { u64::MAX >> (65 - to.bits()) } else { u64::MAX >> (64 - to.bits()) };
        let most = self.imm(t, top as i64);
        let less = if signed && (to.signed() || to.bits() < 64) {
            IntCC::SignedLessThan
        } else {
            IntCC::UnsignedLessThan
        };
        let mut v = v;
        if signed {
            let least = if to.signed() { -(top as i64) - 1 } else { 0 };
            let least = self.imm(t, least);
            let p = self.b.ins().icmp(IntCC::SignedGreaterThan, v, least);
            v = self.b.ins().select(p, v, least);
        }
        let p = self.b.ins().icmp(less, v, most);
        self.b.ins().select(p, v, most)
    }

    fn int_to_float(&mut self, to: Ty, from: Ty, mode: &FloatMode, x: Value) -> Value {
        let c = if from.bytes() < 4 { Class::I32 } else { from.class() };
        let x = self.fit(x, from.class(), c, from.signed());
        if !matches!(to, Ty::F32 | Ty::F64) {
            // 32 bits are exact in f64; of 64 the last bit must tell what was lost.
            let f = if c == Class::I64 {
                let kind = self.imm(types::I32, i64::from(from.signed()) | i64::from(TO_ODD) << 1);
                self.helper(Helper::IntToF64, &[x, kind], Some(types::F64))
            } else {
                self.int_as_float(Ty::F64, from.signed(), x)
            };
            let f = self.float_sat(Ty::F64, mode, f);
            return self.narrowed_half(to, f, mode.round);
        }
        let exact = to == Ty::F64 && c == Class::I32;
        let v = if mode.round == Round::Near || exact {
            self.int_as_float(to, from.signed(), x)
        } else {
            let x = self.fit(x, c, Class::I64, from.signed());
            let kind = self.imm(types::I32, i64::from(from.signed()) | round_number(mode.round) << 1);
            let v = self.helper(Helper::IntToF64, &[x, kind], Some(types::F64));
            if to == Ty::F32 { self.helper(Helper::IntToF32, &[x, kind], Some(types::F32)) } else { v }
        };
        self.float_sat(to, mode, v)
    }

    fn int_as_float(&mut self, to: Ty, signed: bool, x: Value) -> Value {
        let t = class_type(to.class());
        if signed { self.b.ins().fcvt_from_sint(t, x) } else { self.b.ins().fcvt_from_uint(t, x) }
    }

    /// Out of range is the nearest end. NaN is 0, or the topmost bit alone where source or destination have 64 bits.
    fn float_to_int(&mut self, to: Ty, from: Ty, mode: &FloatMode, x: Value) -> Value {
        let top_for_nan = from == Ty::F64 || to.bits() == 64;
        let (x, from) =
            if matches!(from, Ty::F32 | Ty::F64) { (x, from) } else { (self.half_to_f32(from, x), Ty::F32) };
        let x = self.flush(from, x, mode.ftz);
        let x = self.integral(mode.round, x);
        let c = if to.bytes() < 4 { Class::I32 } else { to.class() };
        let t = class_type(c);
        let v = if to.bytes() < 4 {
            let v = self.b.ins().fcvt_to_sint_sat(types::I64, x);
            let v = self.clamp(v, true, to);
            self.fit(v, Class::I64, to.class(), false)
        } else if to.signed() {
            self.b.ins().fcvt_to_sint_sat(t, x)
        } else {
            self.b.ins().fcvt_to_uint_sat(t, x)
        };
        if !top_for_nan {
            return v;
        }
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let top = self.imm(class_type(to.class()), (1u64 << (to.bits() - 1)) as i64);
        self.b.ins().select(nan, top, v)
    }

    fn integral(&mut self, round: Round, x: Value) -> Value {
        match round {
            Round::NearInt | Round::Near => self.b.ins().nearest(x),
            Round::ZeroInt | Round::Zero => self.b.ins().trunc(x),
            Round::DownInt | Round::Down => self.b.ins().floor(x),
            Round::UpInt | Round::Up => self.b.ins().ceil(x),
        }
    }

    fn float_to_float(&mut self, to: Ty, from: Ty, mode: &FloatMode, x: Value) -> Value {
        let integral = matches!(mode.round, Round::NearInt | Round::ZeroInt | Round::DownInt | Round::UpInt);
        let (x, from) =
            if matches!(from, Ty::F32 | Ty::F64) { (x, from) } else { (self.half_to_f32(from, x), Ty::F32) };
        let x = self.flush(from, x, mode.ftz);
        let x = if integral { self.integral(mode.round, x) } else { x };
        match (from, to) {
            (Ty::F32, Ty::F32) | (Ty::F64, Ty::F64) => self.float_sat(to, mode, x),
            (Ty::F32, Ty::F64) => {
                let v = self.b.ins().fpromote(types::F64, x);
                self.float_sat(to, mode, v)
            }
            (Ty::F64, Ty::F32) => {
                let v = if integral || mode.round == Round::Near {
                    self.b.ins().fdemote(types::F32, x)
                } else {
                    let r = self.imm(types::I32, round_number(mode.round));
                    self.helper(Helper::F64ToF32, &[x, r], Some(types::F32))
                };
                let v = self.flush(to, v, mode.ftz);
                self.float_sat(to, mode, v)
            }
            (Ty::F32, _) => {
                let v = self.float_relu(x, mode);
                let v = self.b.ins().fpromote(types::F64, v);
                self.narrowed_half(to, v, mode.round)
            }
            _ => {
                let v = self.float_sat(Ty::F64, mode, x);
                self.narrowed_half(to, v, mode.round)
            }
        }
    }

    fn float_relu(&mut self, v: Value, mode: &FloatMode) -> Value {
        let v = if mode.sat { self.float_sat(Ty::F32, mode, v) } else { v };
        if !mode.relu {
            return v;
        }
        let zero = self.literal(Ty::F32, 0);
        let p = self.b.ins().fcmp(FloatCC::LessThan, v, zero);
        self.b.ins().select(p, zero, v)
    }

    fn float_sat(&mut self, ty: Ty, mode: &FloatMode, v: Value) -> Value {
        if !mode.sat {
            return v;
        }
        let zero = self.literal(ty, 0);
        let one = self.literal(ty, if ty == Ty::F64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) });
        let p = self.b.ins().fcmp(FloatCC::GreaterThan, v, zero);
        let v = self.b.ins().select(p, v, zero);
        let p = self.b.ins().fcmp(FloatCC::LessThan, v, one);
        self.b.ins().select(p, v, one)
    }

    /// Two floats to a pair of halves, the first one on top.
    pub fn cvt_pack(&mut self, to: Ty, mode: &FloatMode, d: Reg, a: &Opd, b: &Opd) {
        let part = if to == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
        let [hi, lo] = [a, b].map(|o| {
            let v = self.value(Ty::F32, o);
            let v = self.float_relu(v, mode);
            let v = self.b.ins().fpromote(types::F64, v);
            let v = self.narrowed_half(part, v, mode.round);
            self.fit(v, Class::I16, Class::I32, false)
        });
        let n = self.imm(types::I32, 16);
        let hi = self.b.ins().ishl(hi, n);
        let v = self.b.ins().bor(hi, lo);
        self.set(Ty::B32, d, v);
    }

    /// Only shared space has addresses of its own.
    pub fn cvta(&mut self, to_space: bool, space: Space, d: Reg, a: &Opd) {
        let v = self.value(Ty::U64, a);
        let v = if space == Space::Shared {
            let base = self.block_field(types::I64, offset_of!(BlockContext, shared_base));
            if to_space { self.b.ins().isub(v, base) } else { self.b.ins().iadd(v, base) }
        } else {
            v
        };
        self.set(Ty::U64, d, v);
    }

    pub fn isspacep(&mut self, space: Space, d: Reg, a: &Opd) {
        let v = self.value(Ty::U64, a);
        let shared_size = offset_of!(BlockContext, shared_slots);
        let within = |e: &mut Self, base: usize, size: usize| {
            let (b, n) = (e.block_field(types::I64, base), e.block_field(types::I64, size));
            let o = e.b.ins().isub(v, b);
            e.b.ins().icmp(IntCC::UnsignedLessThan, o, n)
        };
        let shared = |e: &mut Self| within(e, offset_of!(BlockContext, shared_base), shared_size);
        let local = |e: &mut Self| {
            within(e, offset_of!(BlockContext, local_base), offset_of!(BlockContext, local_size))
        };
        let constant = |e: &mut Self| {
            within(e, offset_of!(BlockContext, const_base), offset_of!(BlockContext, const_size))
        };
        let p = match space {
            Space::Shared | Space::Cluster => shared(self),
            Space::Local => local(self),
            Space::Const => constant(self),
            Space::Param => {
                within(self, offset_of!(BlockContext, params_base), offset_of!(BlockContext, params_size))
            }
            Space::Global | Space::Generic => {
                let (s, l, c) = (shared(self), local(self), constant(self));
                let any = self.b.ins().bor(s, l);
                let any = self.b.ins().bor(any, c);
                self.not(any)
            }
        };
        self.set(Ty::Pred, d, p);
    }
}
