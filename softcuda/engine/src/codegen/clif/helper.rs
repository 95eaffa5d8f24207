//! Calls of the run time, and the dispatch over operations.

use super::emit::{Emit, flags};
use crate::ir::{Class, Op, Ty};
use crate::runtime::context::Block as BlockContext;
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::{AbiParam, InstBuilder, SigRef, Signature, Type, Value, types};
use cranelift_codegen::isa::CallConv;
use std::mem::offset_of;

impl Emit<'_> {
    fn signature(&mut self, args: &[Value], ret: Option<Type>, convention: CallConv) -> SigRef {
        let types: Vec<Type> = args.iter().map(|a| self.b.func.dfg.value_type(*a)).collect();
        let key = (types, ret, convention);
        if let Some(s) = self.sigs.get(&key) {
            return *s;
        }
        let mut s = Signature::new(convention);
        s.params.extend(key.0.iter().map(|t| AbiParam::new(*t)));
        s.returns.extend(ret.map(AbiParam::new));
        let r = self.b.import_signature(s);
        self.sigs.insert(key, r);
        r
    }

    /// Calls a helper of the run time. Without a result type the value that comes back means nothing.
    pub fn helper(&mut self, h: Helper, args: &[Value], ret: Option<Type>) -> Value {
        let quiet = h.quiet();
        let sig = self.signature(args, ret, if quiet { CallConv::PreserveAll } else { CallConv::SystemV });
        let table = self.block_field(types::I64, offset_of!(BlockContext, helpers));
        let f = self.b.ins().load(types::I64, flags(), table, 8 * h as i32);
        let call = self.b.ins().call_indirect(sig, f, args);
        match ret {
            Some(_) => self.b.inst_results(call)[0],
            None => self.thread,
        }
    }

    /// Calls a compiled function at an address.
    pub fn enter(&mut self, f: Value, args: Value, rets: Value, frame: Value) {
        let all = [self.thread, args, rets, frame];
        let sig = self.signature(&all, None, CallConv::SystemV);
        self.b.ins().call_indirect(sig, f, &all);
    }

    /// Emits one operation.
    pub fn op(&mut self, op: &Op) {
        match op {
            Op::Mov { ty, d, a } => {
                let v = self.value(*ty, a);
                self.set(*ty, *d, v);
            }
            Op::Pack { part, d, parts } => self.pack(*part, *d, parts),
            Op::Unpack { part, d, a } => self.unpack(*part, d, a),
            Op::Int { op, ty, d, a, b } => self.int(*op, *ty, *d, a, b),
            Op::IntUnary { op, ty, d, a } => self.int_unary(*op, *ty, *d, a),
            Op::Int3 { op, ty, d, a, b, c } => self.int3(*op, *ty, *d, a, b, c),
            Op::Bfi { ty, d, a, b, pos, len } => self.bfi(*ty, *d, [a, b, pos, len]),
            Op::Mad { op, ty, d, a, b, c } => self.mad(*op, *ty, *d, [a, b, c]),
            Op::Float { op, ty, mode, d, a, b } => self.float(*op, *ty, mode, *d, a, b),
            Op::FloatUnary { op, ty, mode, d, a } => self.float_unary(*op, *ty, mode, *d, a),
            Op::Fma { ty, mode, d, a, b, c } => self.fma(*ty, mode, *d, [a, b, c]),
            Op::Setp { cmp, ty: ty @ (Ty::F16x2 | Ty::Bf16x2), ftz, d, d2, a, b, with } => {
                let [lo, hi] =
                    self.compare_pair(*cmp, *ty, *ftz, a, b).map(|p| self.combine(p, with.as_ref()));
                self.set(Ty::Pred, *d, lo);
                if let Some(d2) = d2 {
                    self.set(Ty::Pred, *d2, hi);
                }
            }
            Op::Set { cmp, to, ty: ty @ (Ty::F16x2 | Ty::Bf16x2), ftz, d, a, b, with } => {
                let yes = match to {
                    Ty::F16x2 => 0x3c00,
                    Ty::Bf16x2 => 0x3f80,
                    _ => 0xffff,
                };
                let (yes, no, n) =
                    (self.imm(types::I32, yes), self.imm(types::I32, 0), self.imm(types::I32, 16));
                let [lo, hi] = self.compare_pair(*cmp, *ty, *ftz, a, b).map(|p| {
                    let p = self.combine(p, with.as_ref());
                    self.b.ins().select(p, yes, no)
                });
                let hi = self.b.ins().ishl(hi, n);
                let v = self.b.ins().bor(hi, lo);
                self.set(Ty::B32, *d, v);
            }
            Op::Setp { cmp, ty, ftz, d, d2, a, b, with } => {
                let p = self.compare(*cmp, *ty, *ftz, a, b);
                if let Some(d2) = d2 {
                    let n = self.not(p);
                    let n = self.combine(n, with.as_ref());
                    // The operands may be the destinations: both are computed before one is written.
                    let p = self.combine(p, with.as_ref());
                    self.set(Ty::Pred, *d, p);
                    self.set(Ty::Pred, *d2, n);
                } else {
                    let p = self.combine(p, with.as_ref());
                    self.set(Ty::Pred, *d, p);
                }
            }
            Op::Set { cmp, to, ty, ftz, d, a, b, with } => {
                let p = self.compare(*cmp, *ty, *ftz, a, b);
                let p = self.combine(p, with.as_ref());
                let yes = match to {
                    Ty::F32 => u64::from(1f32.to_bits()),
                    Ty::F16 => 0x3c00,
                    Ty::Bf16 => 0x3f80,
                    _ => u64::MAX,
                };
                let (yes, no) = (self.literal(*to, yes), self.literal(*to, 0));
                let v = self.b.ins().select(p, yes, no);
                self.set(*to, *d, v);
            }
            Op::Selp { ty, d, a, b, p } => {
                let (a, b, p) = (self.value(*ty, a), self.value(*ty, b), self.value(Ty::Pred, p));
                let v = self.b.ins().select(p, a, b);
                self.set(*ty, *d, v);
            }
            Op::Slct { ty, by, ftz, d, a, b, c } => self.slct(*ty, *by, *ftz, *d, [a, b, c]),
            Op::Testp { test, ty, d, a } => self.testp(*test, *ty, *d, a),
            Op::Cvt { to, from, mode, d, a } => self.cvt(*to, *from, mode, *d, a),
            Op::CvtPack { to, mode, d, a, b } => self.cvt_pack(*to, mode, *d, a, b),
            Op::Cvta { to_space, space, d, a } => self.cvta(*to_space, *space, *d, a),
            Op::Isspacep { space, d, a } => self.isspacep(*space, *d, a),
            Op::Ld { ty, order, d, addr } => self.load(*ty, *order, d, addr),
            Op::St { ty, order, a, addr } => self.store(*ty, *order, a, addr),
            Op::Atom { op, ty, d, addr, b, c } => self.atomic(*op, *ty, *d, addr, b, c),
            Op::Texture { op, to, from, d, object, a } => self.texture(*op, *to, *from, d, object, a),
            Op::Fence => {
                self.b.ins().fence();
            }
            Op::Call { callee, args, ret } => self.call(callee, *args, *ret),
            Op::Bar { op, d, id, count, p } => self.barrier(*op, *d, id, count.as_ref(), p.as_ref()),
            Op::Shfl { mode, d, p, a, b, c, mask } => self.shuffle(*mode, *d, *p, [a, b, c], mask.as_ref()),
            Op::Vote { mode, d, p, mask } => self.vote(*mode, *d, p, mask.as_ref()),
            Op::Match { all, ty, d, p, a, mask } => self.matching(*all, *ty, *d, *p, a, mask),
            Op::Redux { op, ty, d, a, mask } => self.redux(*op, *ty, *d, a, mask),
            Op::ActiveMask { d } => self.activemask(*d),
            Op::Elect { d, p, mask } => self.elect(*d, *p, mask),
            Op::BarWarp { mask } => self.bar_warp(mask),
            Op::Pure { f, detail, ty, d, a } => self.pure(*f, *detail, *ty, *d, a),
            Op::Memory { f, detail, size, d, addr, a } => self.memory(*f, (*detail, *size), d, addr, a),
            Op::Collective { f, detail, d, a } => self.collective(*f, *detail, d, a),
            Op::ClusterBarrier { wait } => self.cluster_barrier(*wait),
            Op::StackSave { d } => self.stack_save(*d),
            Op::StackRestore { a } => self.stack_restore(a),
            Op::Alloca { d, size, align } => self.alloca(*d, size, *align),
            // Nobody needs to sleep: the loop around it yields.
            Op::Nanosleep | Op::Nop => {}
            Op::Yield => {
                self.helper(Helper::Yield, &[self.thread], None);
            }
            Op::Trap => {
                let line = self.imm(types::I32, i64::from(self.line));
                self.helper(Helper::Trap, &[self.thread, line], None);
            }
        }
    }

    fn pack(&mut self, part: Ty, d: u32, parts: &[crate::ir::Opd]) {
        let whole = match part.bytes() * parts.len() as u32 {
            2 => Ty::B16,
            4 => Ty::B32,
            8 => Ty::B64,
            _ => Ty::B128,
        };
        if part == Ty::B64 {
            let (lo, hi) = (self.value(part, &parts[0]), self.value(part, &parts[1]));
            let v = self.b.ins().iconcat(lo, hi);
            return self.set(whole, d, v);
        }
        if whole == Ty::B128 {
            // Four 32-bit parts: two halves first.
            let half = |e: &mut Self, lo: usize| {
                let (x, y) = (e.value(part, &parts[lo]), e.value(part, &parts[lo + 1]));
                let (x, y) =
                    (e.fit(x, Class::I32, Class::I64, false), e.fit(y, Class::I32, Class::I64, false));
                let n = e.imm(types::I64, 32);
                let y = e.b.ins().ishl(y, n);
                e.b.ins().bor(x, y)
            };
            let (lo, hi) = (half(self, 0), half(self, 2));
            let v = self.b.ins().iconcat(lo, hi);
            return self.set(whole, d, v);
        }
        let mut all = self.literal(whole, 0);
        for (i, p) in parts.iter().enumerate() {
            let v = self.value(part, p);
            let v = self.fit(v, part.class(), whole.class(), false);
            let n = self.literal(whole, u64::from(part.bits()) * i as u64);
            let v = self.b.ins().ishl(v, n);
            all = self.b.ins().bor(all, v);
        }
        self.set(whole, d, all);
    }

    fn unpack(&mut self, part: Ty, d: &[Option<u32>], a: &crate::ir::Opd) {
        let whole = match part.bytes() * d.len() as u32 {
            2 => Ty::B16,
            4 => Ty::B32,
            8 => Ty::B64,
            _ => Ty::B128,
        };
        let v = self.value(whole, a);
        let mut parts = Vec::new();
        if whole == Ty::B128 {
            let (lo, hi) = self.b.ins().isplit(v);
            let per = d.len() / 2;
            for i in 0..d.len() {
                let half = if i / per == 0 { lo } else { hi };
                let n = self.imm(types::I64, i64::from(part.bits()) * (i % per) as i64);
                let x = self.b.ins().ushr(half, n);
                parts.push(self.fit(x, Class::I64, part.class(), false));
            }
        } else {
            for i in 0..d.len() {
                let n = self.literal(whole, u64::from(part.bits()) * i as u64);
                let x = self.b.ins().ushr(v, n);
                parts.push(self.fit(x, whole.class(), part.class(), false));
            }
        }
        for (r, v) in d.iter().zip(parts) {
            if let Some(r) = r {
                self.set(part, *r, v);
            }
        }
    }
}
