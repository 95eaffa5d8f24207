//! Loads and stores of neighbouring addresses as vectors, with one check of the whole span.

use super::emit::Vector;
use super::shape::Shape;
use super::value::{Row, unaligned, vector_type};
use crate::codegen::clif::emit::flags;
use crate::ir::{Addr, Base, Inst, Op, Opd, Order, Reg, Space, Symbol, Ty};
use crate::memory::{GRANULE_BITS, SPACE_BITS};
use crate::runtime::context::Block as BlockContext;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use std::mem::offset_of;

impl Vector<'_> {
    /// A load or store whose lanes lie side by side. Whether it was one.
    pub fn access(&mut self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Ld { ty, order: Order::Weak, d, addr } => {
                let [Some(d)] = d[..] else { return false };
                self.side_by_side(*ty, addr) && self.load(*ty, d, addr, inst)
            }
            Op::St { ty, order: Order::Weak, a, addr } => {
                let [a] = &a[..] else { return false };
                self.side_by_side(*ty, addr) && self.store(*ty, a, addr, inst)
            }
            _ => false,
        }
    }

    fn side_by_side(&self, ty: Ty, addr: &Addr) -> bool {
        let stride = self.plan.shapes().address(addr);
        let space = matches!(addr.space, Space::Global | Space::Generic | Space::Shared | Space::Const);
        stride == Shape::Affine(i64::from(ty.bytes()))
            && matches!(ty.bytes(), 4 | 8)
            && space
            && matches!(addr.base, Base::Reg(_) | Base::Sym(Symbol::Var(_) | Symbol::Shared(_)))
    }

    fn load(&mut self, ty: Ty, d: Reg, addr: &Addr, inst: &Inst) -> bool {
        let (Some(t), Some(_)) = (vector_type(ty.class()), vector_type(self.class(d))) else { return false };
        if ty == Ty::Pred || self.fits(ty, d).is_none() {
            return false;
        }
        let (slow, after) = (self.e.b.create_block(), self.e.b.create_block());
        self.e.b.set_cold_block(slow);
        let p = self.span(ty, addr, slow);
        let row: Row =
            (0..self.vectors(t)).map(|i| self.e.b.ins().load(t, unaligned(), p, 16 * i as i32)).collect();
        if let Some(row) = self.fit(row, ty.class(), self.class(d), ty.signed()) {
            self.define(d, &row);
        }
        self.e.b.ins().jump(after, &[]);
        self.e.b.switch_to_block(slow);
        self.lanes(inst);
        self.e.b.ins().jump(after, &[]);
        self.e.b.switch_to_block(after);
        true
    }

    /// Whether a row of `ty` can go to a register.
    fn fits(&self, ty: Ty, d: Reg) -> Option<()> {
        let pred = crate::ir::Class::Pred;
        ((ty.class() == pred) == (self.class(d) == pred)).then_some(())
    }

    fn store(&mut self, ty: Ty, a: &Opd, addr: &Addr, inst: &Inst) -> bool {
        let Some(row) = self.operand(ty, a) else { return false };
        let (slow, after) = (self.e.b.create_block(), self.e.b.create_block());
        self.e.b.set_cold_block(slow);
        let p = self.span(ty, addr, slow);
        for (i, v) in row.into_iter().enumerate() {
            self.e.b.ins().store(unaligned(), v, p, 16 * i as i32);
        }
        self.e.b.ins().jump(after, &[]);
        self.e.b.switch_to_block(slow);
        self.lanes(inst);
        self.e.b.ins().jump(after, &[]);
        self.e.b.switch_to_block(after);
        true
    }

    /// Lane 0's host address, if all lanes may be accessed; else it goes to `slow`, where each lane is looked at.
    fn span(&mut self, ty: Ty, addr: &Addr, slow: Block) -> Value {
        let at = match addr.base {
            Base::Reg(r) => self.e.register_address(r, addr.offset),
            Base::Sym(s) => self.e.symbol(s, addr.offset),
            Base::None => self.e.imm(types::I64, addr.offset),
        };
        let span = i64::from(ty.bytes() * self.width);
        if addr.space == Space::Shared {
            self.shared_span(at, ty, span, slow)
        } else {
            self.global_span(at, ty, span, slow)
        }
    }

    fn go_on_unless(&mut self, bad: Value, slow: Block) {
        let on = self.e.b.create_block();
        self.e.b.ins().brif(bad, slow, &[], on, &[]);
        self.e.b.switch_to_block(on);
    }

    fn shared_span(&mut self, offset: Value, ty: Ty, span: i64, slow: Block) -> Value {
        let size = self.e.block_field(types::I64, offset_of!(BlockContext, shared_slots));
        let n = self.e.imm(types::I64, span);
        // Offsets have 32 bits, or are wild ones of 64: the end of those may wrap, and their beginning is too far.
        let end = self.e.b.ins().iadd(offset, n);
        let far = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, end, size);
        self.go_on_unless(far, slow);
        self.aligned(offset, ty, slow);
        let base = self.e.block_field(types::I64, offset_of!(BlockContext, shared_base));
        self.e.b.ins().iadd(base, offset)
    }

    fn aligned(&mut self, address: Value, ty: Ty, slow: Block) {
        let m = self.e.imm(types::I64, i64::from(ty.bytes()) - 1);
        let low = self.e.b.ins().band(address, m);
        self.go_on_unless(low, slow);
    }

    fn global_span(&mut self, address: Value, ty: Ty, span: i64, slow: Block) -> Value {
        let base = self.e.block_field(types::I64, offset_of!(BlockContext, mem_base));
        let offset = self.e.b.ins().isub(address, base);
        let limit = self.e.imm(types::I64, (1i64 << SPACE_BITS) - span);
        let far = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, offset, limit);
        self.go_on_unless(far, slow);
        self.aligned(address, ty, slow);
        let table = self.e.block_field(types::I64, offset_of!(BlockContext, mem_table));
        let n = self.e.imm(types::I64, i64::from(GRANULE_BITS));
        let last = self.e.imm(types::I64, span - 1);
        let last = self.e.b.ins().iadd(offset, last);
        for o in [offset, last] {
            let granule = self.e.b.ins().ushr(o, n);
            let at = self.e.b.ins().iadd(table, granule);
            let used = self.e.b.ins().load(types::I8, flags(), at, 0);
            let on = self.e.b.create_block();
            self.e.b.ins().brif(used, on, &[], slow, &[]);
            self.e.b.switch_to_block(on);
        }
        address
    }
}
