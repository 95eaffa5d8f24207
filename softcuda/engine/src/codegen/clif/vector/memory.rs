//! Loads and stores of neighbouring addresses as vectors, with one check of the whole span.

use super::check::Cover;
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
        if let Some(v) = self.e.covered_address(addr, ty.bytes(), ty.bytes() * self.width) {
            return v;
        }
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
        self.in_shared(offset, span, slow);
        self.aligned(offset, i64::from(ty.bytes()), slow);
        let base = self.e.block_field(types::I64, offset_of!(BlockContext, shared_base));
        self.e.b.ins().iadd(base, offset)
    }

    /// Goes to `slow` unless `len` bytes from a shared offset on are the block's.
    fn in_shared(&mut self, offset: Value, len: i64, slow: Block) {
        let size = self.e.block_field(types::I64, offset_of!(BlockContext, shared_slots));
        let n = self.e.imm(types::I64, len);
        let end = self.e.b.ins().iadd(offset, n);
        // A wild offset's end may have wrapped.
        let begins = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, offset, size);
        let ends = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, end, size);
        let far = self.e.b.ins().bor(begins, ends);
        self.go_on_unless(far, slow);
    }

    fn aligned(&mut self, address: Value, size: i64, slow: Block) {
        if size == 1 {
            return;
        }
        let m = self.e.imm(types::I64, size - 1);
        let low = self.e.b.ins().band(address, m);
        self.go_on_unless(low, slow);
    }

    fn global_span(&mut self, address: Value, ty: Ty, span: i64, slow: Block) -> Value {
        self.in_range(address, span, slow);
        self.aligned(address, i64::from(ty.bytes()), slow);
        address
    }

    /// Goes to `slow` unless both ends of `len` bytes lie in granules in use.
    fn in_range(&mut self, address: Value, len: i64, slow: Block) {
        let limit = self.e.imm(types::I64, (1i64 << SPACE_BITS) - len);
        let far = self.e.b.ins().icmp(IntCC::UnsignedGreaterThan, address, limit);
        self.go_on_unless(far, slow);
        let table = self.e.block_field(types::I64, offset_of!(BlockContext, mem_table));
        let n = self.e.imm(types::I64, i64::from(GRANULE_BITS));
        let last = self.e.imm(types::I64, len - 1);
        let last = self.e.b.ins().iadd(address, last);
        for o in [address, last] {
            let granule = self.e.b.ins().ushr(o, n);
            let at = self.e.b.ins().iadd(table, granule);
            let used = self.e.b.ins().load(types::I8, flags(), at, 0);
            let on = self.e.b.create_block();
            self.e.b.ins().brif(used, on, &[], slow, &[]);
            self.e.b.switch_to_block(on);
        }
    }

    /// Tests a cover, and remembers it for the accesses that it answers for.
    pub fn cover(&mut self, c: Cover, slow: Block) {
        let value = self.e.register_address(c.base, 0);
        let at = |v: &mut Self, offset: i64| {
            let o = v.e.imm(types::I64, offset);
            v.e.b.ins().iadd(value, o)
        };
        let (first, anchor) = (at(self, c.low), at(self, c.anchor));
        let host = if c.space == Space::Shared {
            self.in_shared(first, c.high - c.low, slow);
            let base = self.e.block_field(types::I64, offset_of!(BlockContext, shared_base));
            self.e.b.ins().iadd(base, value)
        } else {
            self.in_range(first, c.high - c.low, slow);
            value
        };
        self.aligned(anchor, c.align, slow);
        self.e.covered.push((c, host));
    }
}
