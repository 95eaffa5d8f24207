//! Loads and stores of neighbouring addresses as vectors, with one check of the whole span.

use super::check::Cover;
use super::emit::Vector;
use super::shape::Shape;
use super::value::{Row, unaligned, vector_type};
use crate::codegen::clif::emit::{Held, flags};
use crate::ir::{Addr, Base, Class, Inst, Op, Opd, Order, Reg, Space, Symbol, Ty};
use crate::memory::{Access, GRANULE_BITS, SPACE_BITS};
use crate::runtime::checks::{IN_SHARED, READ_ONLY};
use crate::runtime::context::Block as BlockContext;
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::{Block, InstBuilder, StackSlotData, StackSlotKind, Value, types};
use std::mem::offset_of;

impl Vector<'_> {
    /// A load or store whose lanes lie side by side. Whether it was one.
    pub fn access(&mut self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Ld { ty, order: Order::Weak, d, addr } => {
                let [Some(d)] = d[..] else { return false };
                self.side_by_side(*ty, addr) && self.load(*ty, d, addr)
            }
            Op::St { ty, order: Order::Weak, a, addr } => {
                let [a] = &a[..] else { return false };
                self.side_by_side(*ty, addr) && self.store(*ty, a, addr)
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

    fn load(&mut self, ty: Ty, d: Reg, addr: &Addr) -> bool {
        let (Some(t), Some(_)) = (vector_type(ty.class()), vector_type(self.class(d))) else { return false };
        if ty == Ty::Pred || self.fits(ty, d).is_none() {
            return false;
        }
        let p = self.span(ty, addr, Access::Read);
        let row: Row =
            (0..self.vectors(t)).map(|i| self.e.b.ins().load(t, unaligned(), p, 16 * i as i32)).collect();
        if let Some(row) = self.fit(row, ty.class(), self.class(d), ty.signed()) {
            self.define(d, &row);
        }
        true
    }

    /// Whether a row of `ty` can go to a register.
    fn fits(&self, ty: Ty, d: Reg) -> Option<()> {
        let pred = crate::ir::Class::Pred;
        ((ty.class() == pred) == (self.class(d) == pred)).then_some(())
    }

    fn store(&mut self, ty: Ty, a: &Opd, addr: &Addr) -> bool {
        let Some(row) = self.operand(ty, a) else { return false };
        let p = self.span(ty, addr, Access::ReadWrite);
        for (i, v) in row.into_iter().enumerate() {
            self.e.b.ins().store(unaligned(), v, p, 16 * i as i32);
        }
        true
    }

    /// Lane 0's host address, when all lanes were found to may access theirs.
    fn span(&mut self, ty: Ty, addr: &Addr, access: Access) -> Value {
        let (size, lanes) = (ty.bytes(), self.width);
        if let Some(v) = self.e.covered_address(addr, size, lanes, access) {
            return v;
        }
        let at = match addr.base {
            Base::Reg(r) => self.e.register_address(r, addr.offset),
            Base::Sym(s) => self.e.symbol(s, addr.offset),
            Base::None => self.e.imm(types::I64, addr.offset),
        };
        let span = i64::from(size * lanes);
        let [slow, good] = std::array::from_fn(|_| self.e.b.create_block());
        self.e.b.set_cold_block(slow);
        let shared = addr.space == Space::Shared;
        let tested = Tested { first: at, len: span, aligned: at, align: size.into(), shared };
        self.all_accessible(&[tested], slow, good);
        self.e.b.switch_to_block(slow);
        let reads = if access == Access::Read { READ_ONLY } else { 0 };
        let what = size | reads | if shared { IN_SHARED } else { 0 };
        let numbers = [what, lanes, self.e.line].map(|n| self.e.imm(types::I32, i64::from(n)));
        self.e.helper(Helper::SlowSpan, &[self.e.thread, at, numbers[0], numbers[1], numbers[2]], None);
        self.e.b.ins().jump(good, &[]);
        self.e.b.switch_to_block(good);
        if shared { self.in_block(at) } else { at }
    }

    /// The host address of a shared offset.
    fn in_block(&mut self, offset: Value) -> Value {
        let base = self.e.shared_base();
        self.e.b.ins().iadd(base, offset)
    }

    /// Goes to `good` if all of these may be accessed, else (or if that takes longer to find out) to `slow`.
    fn all_accessible(&mut self, all: &[Tested], slow: Block, good: Block) {
        let near = self.e.b.create_block();
        let bad: Vec<Value> = all.iter().map(|t| self.far_or_misaligned(t)).collect();
        let bad = self.fold(bad, |v, x, y| v.e.b.ins().bor(x, y));
        self.e.b.ins().brif(bad, slow, &[], near, &[]);
        self.e.b.switch_to_block(near);
        let outside = all.iter().filter(|t| !t.shared);
        let used: Vec<Value> = outside.flat_map(|t| self.granules(t)).collect();
        if used.is_empty() {
            self.e.b.ins().jump(good, &[]);
            return;
        }
        // Each is 0 or a few bits, and there are not so many that their product could overflow.
        let used = self.fold(used, |v, x, y| v.e.b.ins().imul(x, y));
        self.e.b.ins().brif(used, good, &[], slow, &[]);
    }

    /// One of all values, as a tree.
    fn fold(&mut self, mut all: Vec<Value>, f: impl Fn(&mut Self, Value, Value) -> Value) -> Value {
        while all.len() > 1 {
            all = all.chunks(2).map(|p| if let [x, y] = *p { f(self, x, y) } else { p[0] }).collect();
        }
        all[0]
    }

    /// Not 0 if an end lies beyond the block's shared memory, or beyond all addresses, or if the alignment is wrong.
    fn far_or_misaligned(&mut self, t: &Tested) -> Value {
        let far = if t.shared {
            let size = self.e.block_field(types::I64, offset_of!(BlockContext, shared_slots));
            let n = self.e.imm(types::I64, t.len);
            let end = self.e.b.ins().iadd(t.first, n);
            let left = self.e.b.ins().isub(size, end);
            // None of the three may be negative; a block never has so much that a good end is.
            let far = self.e.b.ins().bor(left, t.first);
            let far = self.e.b.ins().bor(far, end);
            let top = self.e.imm(types::I64, 63);
            self.e.b.ins().ushr(far, top)
        } else {
            let last = self.last(t);
            // A last byte that has wrapped is near, but then the first one is not.
            let both = self.e.b.ins().bor(t.first, last);
            let n = self.e.imm(types::I64, i64::from(SPACE_BITS));
            self.e.b.ins().ushr(both, n)
        };
        let m = self.e.imm(types::I64, t.align - 1);
        let low = self.e.b.ins().band(t.aligned, m);
        self.e.b.ins().bor(far, low)
    }

    fn last(&mut self, t: &Tested) -> Value {
        let n = self.e.imm(types::I64, t.len - 1);
        self.e.b.ins().iadd(t.first, n)
    }

    /// What the table says of both ends.
    fn granules(&mut self, t: &Tested) -> [Value; 2] {
        let last = self.last(t);
        let table = self.e.block_field(types::I64, offset_of!(BlockContext, mem_table));
        [t.first, last].map(|o| {
            let n = self.e.imm(types::I64, i64::from(GRANULE_BITS));
            let granule = self.e.b.ins().ushr(o, n);
            let at = self.e.b.ins().iadd(table, granule);
            self.e.b.ins().uload8(types::I64, flags(), at, 0)
        })
    }

    /// Makes a test, and remembers its covers for the accesses that they answer for.
    pub fn memory_test(&mut self, number: u32) {
        let plan = self.plan;
        let test = &plan.tests[number as usize];
        let covers = &test.covers;
        // Shared offsets wrap in 32 bits, and a register may lie before what its offsets reach.
        let value = |v: &mut Self, c: &Cover| {
            let r = v.e.get(c.base);
            v.e.fit(r, v.class(c.base), Class::I64, c.space == Space::Shared)
        };
        let values: Vec<Value> = covers.iter().map(|c| value(self, c)).collect();
        let tested: Vec<Tested> = covers.iter().zip(&values).map(|(c, v)| self.tested(c, *v)).collect();
        let [slow, good] = std::array::from_fn(|_| self.e.b.create_block());
        self.e.b.set_cold_block(slow);
        self.all_accessible(&tested, slow, good);
        self.e.b.switch_to_block(slow);
        let place = self.values_of_tests();
        for (i, v) in values.iter().enumerate() {
            self.e.b.ins().store(flags(), *v, place, 8 * i as i32);
        }
        let number = self.e.imm(types::I32, i64::from(number));
        self.e.helper(Helper::SlowCover, &[self.e.thread, place, number], None);
        self.e.b.ins().jump(good, &[]);
        self.e.b.switch_to_block(good);
        for (cover, v) in values.into_iter().enumerate() {
            let host = if covers[cover].space == Space::Shared { self.in_block(v) } else { v };
            self.e.covered.push(Held { test, cover, host });
        }
    }

    fn tested(&mut self, c: &Cover, value: Value) -> Tested {
        let at = |v: &mut Self, offset: i64| {
            let o = v.e.imm(types::I64, offset);
            v.e.b.ins().iadd(value, o)
        };
        let shared = c.space == Space::Shared;
        Tested {
            first: at(self, c.low),
            len: c.high - c.low,
            aligned: at(self, c.anchor),
            align: c.align,
            shared,
        }
    }

    /// Where the values of a test are put for the run time.
    fn values_of_tests(&mut self) -> Value {
        let b = &mut self.e.b;
        let bytes = 8 * self.plan.tests.iter().map(|t| t.covers.len() as u32).max().unwrap_or(1);
        let new = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3);
        let slot = *self.values.get_or_insert_with(|| b.create_sized_stack_slot(new));
        self.e.b.ins().stack_addr(types::I64, slot, 0)
    }
}

/// What is to be accessed.
struct Tested {
    /// Address of the first byte, or its offset in shared memory, and how many bytes.
    first: Value,
    len: i64,
    /// What is to be a multiple of `align`, a power of two.
    aligned: Value,
    align: i64,
    shared: bool,
}
