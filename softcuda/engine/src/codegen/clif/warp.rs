//! Barriers and warp operations: all by helpers, which know who else is there.

use super::emit::{Emit, Phase, flags};
use crate::ir::{BarOp, Class, Opd, ReduxOp, Reg, ShflMode, Ty, VoteMode};
use crate::runtime::context::Thread;
use crate::runtime::helpers::Helper;
use crate::runtime::warp::{self, Kind, Post};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::mem::offset_of;

impl Emit<'_> {
    /// `kind` with a detail; without a mask the threads that happen to be there take part.
    pub fn warp(
        &mut self,
        kind: Kind,
        detail: u32,
        mask: Option<&Opd>,
        a: Option<Value>,
        b: Option<Value>,
    ) -> Value {
        let code = self.imm(types::I32, i64::from(warp::code(kind, detail)));
        let mask = match mask {
            Some(m) => {
                let m = self.value(Ty::U32, m);
                self.b.ins().uextend(types::I64, m)
            }
            // The line tells which instruction the threads are at.
            None => self.imm(types::I64, (warp::WHOEVER | u64::from(self.line)) as i64),
        };
        let zero = self.imm(types::I64, 0);
        let args = [self.thread, code, mask, a.unwrap_or(zero), b.unwrap_or(zero)];
        match self.phase {
            Phase::Whole => self.helper(Helper::Warp, &args, Some(types::I64)),
            Phase::Bring => {
                for (v, at) in args[1..].iter().zip(warp::POST_FIELDS) {
                    self.b.ins().store(flags(), *v, self.thread, (offset_of!(Thread, post) + at) as i32);
                }
                zero
            }
            Phase::Take => self.thread_field(types::I64, offset_of!(Thread, post) + offset_of!(Post, result)),
        }
    }

    /// Bit 32 of a result: its predicate.
    fn flag(&mut self, v: Value) -> Value {
        let n = self.imm(types::I64, 32);
        let v = self.b.ins().ushr(v, n);
        let v = self.b.ins().ireduce(types::I8, v);
        let one = self.imm(types::I8, 1);
        self.b.ins().band(v, one)
    }

    fn low(&mut self, d: Reg, v: Value) {
        let v = self.b.ins().ireduce(types::I32, v);
        self.set(Ty::U32, d, v);
    }

    fn wide(&mut self, ty: Ty, o: &Opd) -> Value {
        let v = self.value(ty, o);
        self.fit(v, ty.class(), Class::I64, ty.signed())
    }

    pub fn shuffle(&mut self, mode: ShflMode, d: Reg, p: Option<Reg>, o: [&Opd; 3], mask: Option<&Opd>) {
        let a = self.wide(Ty::B32, o[0]);
        let (b, c) = (self.wide(Ty::U32, o[1]), self.wide(Ty::U32, o[2]));
        let n = self.imm(types::I64, 32);
        let c = self.b.ins().ishl(c, n);
        let b = self.b.ins().bor(b, c);
        let r = self.warp(Kind::Shfl, mode as u32, mask, Some(a), Some(b));
        if let Some(p) = p {
            let f = self.flag(r);
            self.set(Ty::Pred, p, f);
        }
        self.low(d, r);
    }

    pub fn vote(&mut self, mode: VoteMode, d: Reg, p: &Opd, mask: Option<&Opd>) {
        let a = self.wide(Ty::Pred, p);
        let r = self.warp(Kind::Vote, mode as u32, mask, Some(a), None);
        if mode == VoteMode::Ballot {
            return self.low(d, r);
        }
        let f = self.flag(r);
        self.set(Ty::Pred, d, f);
    }

    pub fn matching(&mut self, all: bool, ty: Ty, d: Reg, p: Option<Reg>, a: &Opd, mask: &Opd) {
        let a = self.wide(ty, a);
        let r = self.warp(Kind::Match, u32::from(all), Some(mask), Some(a), None);
        if let Some(p) = p {
            let f = self.flag(r);
            self.set(Ty::Pred, p, f);
        }
        self.low(d, r);
    }

    pub fn redux(&mut self, op: ReduxOp, ty: Ty, d: Reg, a: &Opd, mask: &Opd) {
        let a = self.wide(ty, a);
        let detail = op as u32 | u32::from(ty.signed()) << 4 | u32::from(ty.float()) << 5;
        let r = self.warp(Kind::Redux, detail, Some(mask), Some(a), None);
        self.low(d, r);
    }

    pub fn activemask(&mut self, d: Reg) {
        let r = self.warp(Kind::Active, 0, None, None, None);
        self.low(d, r);
    }

    pub fn elect(&mut self, d: Option<Reg>, p: Reg, mask: &Opd) {
        let r = self.warp(Kind::Elect, 0, Some(mask), None, None);
        let f = self.flag(r);
        if let Some(d) = d {
            self.low(d, r);
        }
        self.set(Ty::Pred, p, f);
    }

    pub fn bar_warp(&mut self, mask: &Opd) {
        self.warp(Kind::Sync, 0, Some(mask), None, None);
    }

    pub fn barrier(&mut self, op: BarOp, d: Option<Reg>, id: &Opd, count: Option<&Opd>, p: Option<&Opd>) {
        let code = self.imm(types::I32, op as i64);
        let id = self.value(Ty::U32, id);
        let count = match count {
            Some(c) => self.value(Ty::U32, c),
            None => self.imm(types::I32, 0),
        };
        let p = match p {
            Some(p) => self.value(Ty::Pred, p),
            None => self.imm(types::I8, 0),
        };
        let p = self.b.ins().uextend(types::I32, p);
        let r = self.helper(Helper::Barrier, &[self.thread, code, id, count, p], Some(types::I32));
        let Some(d) = d else { return };
        if op == BarOp::RedPopc {
            return self.set(Ty::U32, d, r);
        }
        let r = self.b.ins().ireduce(types::I8, r);
        self.set(Ty::Pred, d, r);
    }
}
