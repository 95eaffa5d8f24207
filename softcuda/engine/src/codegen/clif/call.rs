//! Calls.

use super::emit::{Emit, flags};
use crate::ir::{Builtin, Callee, Symbol, Ty};
use crate::runtime::context::Block as BlockContext;
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::{InstBuilder, types};
use std::mem::offset_of;

impl Emit<'_> {
    /// Calls with arguments at `args` and results at `ret` in the call area; the callee's frame begins behind ours.
    pub fn call(&mut self, callee: &Callee, args: u32, ret: u32) {
        let args = self.symbol(Symbol::Call(args), 0);
        let ret = self.symbol(Symbol::Call(ret), 0);
        let line = self.imm(types::I32, i64::from(self.line));
        if let Callee::Builtin(b) = callee {
            let h = match b {
                Builtin::Vprintf => Helper::Vprintf,
                Builtin::AssertFail => Helper::AssertFail,
                Builtin::Malloc => Helper::Malloc,
                Builtin::Free => Helper::Free,
                // Decoded into a store.
                Builtin::SetConditional => return,
            };
            self.helper(h, &[self.thread, args, ret, line], None);
            return;
        }
        let size = self.imm(types::I64, i64::from(self.f.frame()));
        let frame = self.b.ins().iadd(self.frame, size);
        let target = match callee {
            Callee::Function(f) => {
                let i = self.unit.reach.functions.iter().position(|g| g == f).unwrap_or(0);
                let table = self.block_field(types::I64, offset_of!(BlockContext, functions));
                self.b.ins().load(types::I64, flags(), table, 8 * i as i32)
            }
            Callee::Pointer(p) => {
                let token = self.value(Ty::U64, p);
                self.helper(Helper::Resolve, &[self.thread, token, line], Some(types::I64))
            }
            Callee::Builtin(_) => return,
        };
        self.enter(target, args, ret, frame);
    }
}
