//! `stacksave`, `stackrestore` and `alloca`: what a thread takes of the end of its local memory while it runs.

use super::emit::{Emit, flags};
use crate::ir::{Opd, Reg, Ty};
use crate::runtime::context::Thread;
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::mem::offset_of;

impl Emit<'_> {
    fn local_top(&mut self) -> Value {
        self.thread_field(types::I64, offset_of!(Thread, local_top))
    }

    fn set_local_top(&mut self, v: Value) {
        self.b.ins().store(flags(), v, self.thread, offset_of!(Thread, local_top) as i32);
    }

    pub fn stack_save(&mut self, d: Reg) {
        let v = self.local_top();
        self.set(Ty::U64, d, v);
    }

    /// A value that no `stacksave` of this function gave could only be between its frame and the end of its memory; what is not
    /// there is a fault.
    pub fn stack_restore(&mut self, a: &Opd) {
        let v = self.value(Ty::U64, a);
        let low = self.frame_end();
        let end = self.thread_field(types::I64, offset_of!(Thread, local_end));
        let under = self.b.ins().icmp(IntCC::UnsignedLessThan, v, low);
        let over = self.b.ins().icmp(IntCC::UnsignedGreaterThan, v, end);
        let bad = self.b.ins().bor(under, over);
        self.overflow_if(bad);
        self.set_local_top(v);
    }

    pub fn alloca(&mut self, d: Reg, size: &Opd, align: u32) {
        let size = self.value(Ty::U64, size);
        let (top, low) = (self.local_top(), self.frame_end());
        let room = self.b.ins().isub(top, low);
        let large = self.b.ins().icmp(IntCC::UnsignedGreaterThan, size, room);
        let v = self.b.ins().isub(top, size);
        let mask = self.imm(types::I64, -i64::from(align));
        let v = self.b.ins().band(v, mask);
        let under = self.b.ins().icmp(IntCC::UnsignedLessThan, v, low);
        let bad = self.b.ins().bor(large, under);
        self.overflow_if(bad);
        self.set_local_top(v);
        self.set(Ty::U64, d, v);
    }

    /// First byte behind the function's frame.
    fn frame_end(&mut self) -> Value {
        let size = self.imm(types::I64, i64::from(self.f.frame()));
        self.b.ins().iadd(self.frame, size)
    }

    fn overflow_if(&mut self, bad: Value) {
        self.cold_if(bad, |e| {
            let line = e.imm(types::I32, i64::from(e.line));
            e.helper(Helper::StackOverflow, &[e.thread, line], None);
        });
    }
}
