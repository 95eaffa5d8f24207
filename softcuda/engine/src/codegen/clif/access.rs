//! Memory: address checks, loads, stores, atomics.

use super::emit::{Emit, class_type, flags};
use super::vector::Needs;
use crate::ir::{Addr, AtomOp, Base, Class, Opd, Order, Reg, Space, Symbol, Ty};
use crate::memory::{Access, GRANULE_BITS, SPACE_BITS};
use crate::runtime::checks::READ_ONLY;
use crate::runtime::context::Block as BlockContext;
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use std::mem::offset_of;

/// How a class is held when it is moved by an atomic access.
fn bits_type(c: Class) -> Type {
    match c {
        Class::F32 => types::I32,
        Class::F64 => types::I64,
        c => class_type(c),
    }
}

/// Whether the elements of an access go in one piece. A card moves up to 16 aligned bytes at once, and programs that share a
/// flag and a value as a pair (look-back scans) live on it, although the PTX manual promises it for each element only. A
/// processor with AVX does so for aligned moves of 16 bytes (Intel SDM 3A, "Guaranteed Atomic Operations").
fn at_once(ty: Ty, order: Order, elements: usize) -> bool {
    order != Order::Weak && elements > 1 && ty.bytes() * elements as u32 <= 16
}

/// Says which half of 128 bits is lane 0.
fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

/// The integer of so many bytes, 1 to 8.
fn word(bytes: u32) -> Type {
    Type::int(8 * bytes as u16).expect("a power of two")
}

impl Emit<'_> {
    /// The host address of an access of `size` bytes, checked.
    pub fn address(&mut self, a: &Addr, size: u32, access: Access) -> Value {
        match a.base {
            Base::Sym(s @ Symbol::Shared(i)) => {
                let o = self.symbol(s, a.offset);
                let known = self.inside(i, a.offset, size);
                self.shared(o, size, known)
            }
            Base::Sym(s @ Symbol::Var(i)) => {
                let v = self.symbol(s, a.offset);
                if !self.inside(i, a.offset, size) {
                    self.check(v, size, access);
                }
                v
            }
            // Offsets in frames and parameters were checked when they were read.
            Base::Sym(s) => self.symbol(s, a.offset),
            Base::None => {
                let v = self.imm(types::I64, a.offset);
                if a.space == Space::Shared {
                    return self.shared(v, size, false);
                }
                self.check(v, size, access);
                v
            }
            Base::Reg(r) => {
                if let Some(v) = self.covered_address(a, size, 1, access) {
                    return v;
                }
                let v = self.register_address(r, a.offset);
                if a.space == Space::Shared {
                    return self.shared(v, size, false);
                }
                self.check(v, size, access);
                v
            }
        }
    }

    /// The host address of an access of `size` bytes in each of `lanes` lanes that was found good before.
    pub fn covered_address(&mut self, a: &Addr, size: u32, lanes: u32, access: Access) -> Option<Value> {
        let needs = Needs { addr: a, size, lanes, write: access == Access::ReadWrite };
        let host = self.covered.iter().find(|c| c.test.answers_for(c.cover, needs))?.host;
        let offset = self.imm(types::I64, a.offset);
        Some(self.b.ins().iadd(host, offset))
    }

    /// Register plus offset, in the register's own width, as 64 bits.
    pub fn register_address(&mut self, r: Reg, offset: i64) -> Value {
        let class = self.f.regs[r as usize];
        let v = self.get(r);
        let int = match class {
            Class::F32 => Class::I32,
            Class::F64 => Class::I64,
            c => c,
        };
        let mut v = self.fit(v, class, int, false);
        if offset != 0 {
            let add = self.imm(class_type(int), offset);
            v = self.b.ins().iadd(v, add);
        }
        self.fit(v, int, Class::I64, false)
    }

    /// A constant offset in a variable that needs no check.
    fn inside(&self, var: u32, offset: i64, size: u32) -> bool {
        let v = &self.unit.program.vars[var as usize];
        let size = u64::from(size.max(1));
        // A shared variable's place is known; of others only the alignment is.
        let aligned = v.space == Space::Shared || u64::from(v.align).is_multiple_of(size);
        let address = self.unit.shared[var as usize].wrapping_add(offset as u64);
        let end = offset.checked_add(size as i64);
        offset >= 0 && end.is_some_and(|e| e as u64 <= v.size) && aligned && address.is_multiple_of(size)
    }

    /// Base of the block's shared memory plus a checked offset.
    fn shared(&mut self, offset: Value, size: u32, known: bool) -> Value {
        let k = size.max(1).trailing_zeros();
        if !known {
            let slot = self.rotated(offset, k);
            let at = offset_of!(BlockContext, shared_slots) + 8 * k as usize;
            let slots = self.block_field(types::I64, at);
            let bad = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, slot, slots);
            self.cold_if(bad, |e| {
                let (n, line) = (e.imm(types::I32, i64::from(size)), e.imm(types::I32, i64::from(e.line)));
                e.helper(Helper::BadShared, &[e.thread, offset, n, line], None);
            });
        }
        let base = self.block_field(types::I64, offset_of!(BlockContext, shared_base));
        self.b.ins().iadd(base, offset)
    }

    /// Rotating an offset by log2 of the size puts misaligned bits on top, where the range check sees them.
    fn rotated(&mut self, v: Value, k: u32) -> Value {
        if k == 0 {
            return v;
        }
        let n = self.imm(types::I64, i64::from(k));
        self.b.ins().rotr(v, n)
    }

    /// Checks an address against the granule table, which covers all 47 bits of addresses. What is not there goes to a helper,
    /// which knows the ends of registered host memory and what may only be read, and comes back only if the access may go on.
    pub fn check(&mut self, address: Value, size: u32, access: Access) {
        let k = size.max(1).trailing_zeros();
        let (slow, near, good) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(slow);
        let slot = self.rotated(address, k);
        let n = self.imm(types::I64, i64::from(SPACE_BITS - k));
        let outside = self.b.ins().ushr(slot, n);
        self.b.ins().brif(outside, slow, &[], near, &[]);
        self.b.switch_to_block(near);
        let table = self.block_field(types::I64, offset_of!(BlockContext, mem_table));
        let n = self.imm(types::I64, i64::from(GRANULE_BITS));
        let granule = self.b.ins().ushr(address, n);
        let at = self.b.ins().iadd(table, granule);
        let mapped = self.b.ins().load(types::I8, flags(), at, 0);
        self.b.ins().brif(mapped, good, &[], slow, &[]);
        self.b.switch_to_block(slow);
        let reads = if access == Access::Read { READ_ONLY } else { 0 };
        let n = self.imm(types::I32, i64::from(size | reads));
        let line = self.imm(types::I32, i64::from(self.line));
        self.helper(Helper::SlowAddress, &[self.thread, address, n, line], None);
        self.b.ins().jump(good, &[]);
        self.b.switch_to_block(good);
    }

    pub fn load(&mut self, ty: Ty, order: Order, d: &[Option<Reg>], addr: &Addr) {
        let p = self.address(addr, ty.bytes() * d.len() as u32, Access::Read);
        if at_once(ty, order, d.len()) {
            let words = self.load_words(p, ty.bytes() * d.len() as u32);
            for (i, r) in (0..).zip(d).filter_map(|(i, r)| Some((i, (*r)?))) {
                let v = self.part_of(&words, i, ty);
                self.set(ty, r, v);
            }
            return;
        }
        let mut values = Vec::with_capacity(d.len());
        for i in 0..d.len() as u32 {
            let at = (i * ty.bytes()) as i32;
            let class = ty.class();
            let v = if order == Order::Weak || ty == Ty::B128 {
                self.b.ins().load(class_type(class), flags(), p, at)
            } else {
                let add = self.imm(types::I64, i64::from(at));
                let q = self.b.ins().iadd(p, add);
                let v = self.b.ins().atomic_load(bits_type(class), flags(), q);
                self.bitcast(class_type(class), v)
            };
            values.push(v);
        }
        for (r, v) in d.iter().zip(values) {
            if let Some(r) = r {
                self.set(ty, *r, v);
            }
        }
    }

    pub fn store(&mut self, ty: Ty, order: Order, a: &[Opd], addr: &Addr) {
        let values: Vec<Value> = a.iter().map(|o| self.value(ty, o)).collect();
        let p = self.address(addr, ty.bytes() * a.len() as u32, Access::ReadWrite);
        if at_once(ty, order, a.len()) {
            return self.store_words(p, ty, &values);
        }
        for (i, v) in values.into_iter().enumerate() {
            let at = (i as u32 * ty.bytes()) as i32;
            if order == Order::Weak || ty == Ty::B128 {
                self.b.ins().store(flags(), v, p, at);
            } else {
                let add = self.imm(types::I64, i64::from(at));
                let q = self.b.ins().iadd(p, add);
                let v = self.bitcast(bits_type(ty.class()), v);
                self.b.ins().atomic_store(flags(), v, q);
            }
        }
    }

    /// The `bytes` (2 to 16) at an address as words of at most 64 bits.
    fn load_words(&mut self, p: Value, bytes: u32) -> Vec<Value> {
        if bytes < 16 {
            return vec![self.b.ins().atomic_load(word(bytes), flags(), p)];
        }
        let both = self.b.ins().load(types::I64X2, flags(), p, 0);
        let both = self.b.ins().bitcast(types::I128, little(), both);
        let (low, high) = self.b.ins().isplit(both);
        vec![low, high]
    }

    /// Element `i` of what [`Self::load_words`] has read.
    fn part_of(&mut self, words: &[Value], i: u32, ty: Ty) -> Value {
        let bit = 8 * ty.bytes() * i;
        let mut v = words[(bit / 64) as usize];
        if !bit.is_multiple_of(64) {
            let n = self.imm(types::I64, i64::from(bit % 64));
            v = self.b.ins().ushr(v, n);
        }
        let part = word(ty.bytes());
        if self.b.func.dfg.value_type(v) != part {
            v = self.b.ins().ireduce(part, v);
        }
        self.bitcast(class_type(ty.class()), v)
    }

    /// Stores elements of `ty`, 2 to 16 bytes in all, at once.
    fn store_words(&mut self, p: Value, ty: Ty, values: &[Value]) {
        let bytes = ty.bytes() * values.len() as u32;
        let each = (8 / ty.bytes()).max(1) as usize;
        let whole = word(bytes.min(8));
        let words: Vec<Value> = values.chunks(each).map(|part| self.gathered(whole, ty, part)).collect();
        match words[..] {
            [low, high] => {
                let both = self.b.ins().iconcat(low, high);
                let both = self.b.ins().bitcast(types::I64X2, little(), both);
                self.b.ins().store(flags(), both, p, 0);
            }
            _ => {
                self.b.ins().atomic_store(flags(), words[0], p);
            }
        }
    }

    /// Elements of `ty` side by side in a word, the first one lowest.
    fn gathered(&mut self, whole: Type, ty: Ty, part: &[Value]) -> Value {
        let mut all = None;
        for (i, v) in (0..).zip(part) {
            let mut v = self.bitcast(bits_type(ty.class()), *v);
            if self.b.func.dfg.value_type(v) != whole {
                v = self.b.ins().uextend(whole, v);
            }
            if i > 0 {
                let n = self.imm(types::I64, i * i64::from(8 * ty.bytes()));
                v = self.b.ins().ishl(v, n);
            }
            all = Some(all.map_or(v, |all| self.b.ins().bor(all, v)));
        }
        all.expect("an access has elements")
    }

    pub fn atomic(&mut self, op: AtomOp, ty: Ty, d: Option<Reg>, addr: &Addr, x: &Opd, y: &Opd) {
        let (x, y) = (self.value(ty, x), self.value(ty, y));
        let p = self.address(addr, ty.bytes(), Access::ReadWrite);
        let t = bits_type(ty.class());
        let old = match op {
            AtomOp::Add if matches!(ty, Ty::F32 | Ty::F64) => {
                let keeps = self.keeps_denormals(addr.space, p);
                self.update(p, t, |e, old| {
                    let f = e.bitcast(class_type(ty.class()), old);
                    let exact = e.b.ins().fadd(f, x);
                    let (f, x) = (e.flush(ty, f, true), e.flush(ty, x, true));
                    let s = e.b.ins().fadd(f, x);
                    let s = e.flush(ty, s, true);
                    let s = match keeps {
                        Some(p) => e.b.ins().select(p, exact, s),
                        None => s,
                    };
                    e.bitcast(t, s)
                })
            }
            AtomOp::Add if ty.float() => {
                let kind = match ty {
                    Ty::F16 => 0,
                    Ty::F16x2 => 1,
                    Ty::Bf16 => 2,
                    _ => 3,
                };
                let kind = self.imm(types::I32, kind);
                let v = self.fit(x, ty.class(), Class::I32, false);
                let old = self.helper(Helper::AtomHalf, &[p, v, kind], Some(types::I32));
                self.fit(old, Class::I32, ty.class(), false)
            }
            AtomOp::Inc => self.update(p, t, |e, old| {
                let (one, zero) = (e.imm(t, 1), e.imm(t, 0));
                let next = e.b.ins().iadd(old, one);
                let wrap = e.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, old, x);
                e.b.ins().select(wrap, zero, next)
            }),
            AtomOp::Dec => self.update(p, t, |e, old| {
                let (one, zero) = (e.imm(t, 1), e.imm(t, 0));
                let next = e.b.ins().isub(old, one);
                let is_zero = e.b.ins().icmp(IntCC::Equal, old, zero);
                let above = e.b.ins().icmp(IntCC::UnsignedGreaterThan, old, x);
                let wrap = e.b.ins().bor(is_zero, above);
                e.b.ins().select(wrap, x, next)
            }),
            AtomOp::Cas => {
                let (x, y) = (self.bitcast(t, x), self.bitcast(t, y));
                self.b.ins().atomic_cas(flags(), p, x, y)
            }
            _ => {
                let x = self.bitcast(t, x);
                self.b.ins().atomic_rmw(t, flags(), rmw(op, ty), p, x)
            }
        };
        if let Some(d) = d {
            let old = self.bitcast(class_type(ty.class()), old);
            self.set(ty, d, old);
        }
    }

    /// Additions of f32 flush denormals in global memory and keep them in shared memory (PTX manual, `atom`): a predicate, or
    /// `None` where it is always flushed.
    fn keeps_denormals(&mut self, space: Space, p: Value) -> Option<Value> {
        match space {
            Space::Shared => Some(self.imm(types::I8, 1)),
            Space::Generic => {
                let base = self.shared_base();
                let bytes = self.block_field(types::I64, offset_of!(BlockContext, shared_slots));
                let offset = self.b.ins().isub(p, base);
                Some(self.b.ins().icmp(IntCC::UnsignedLessThan, offset, bytes))
            }
            _ => None,
        }
    }

    /// Compare-and-swap until it holds; the old value.
    fn update(&mut self, p: Value, t: Type, f: impl FnOnce(&mut Self, Value) -> Value) -> Value {
        let (again, done) = (self.b.create_block(), self.b.create_block());
        let old = self.b.append_block_param(again, t);
        let first = self.b.ins().load(t, flags(), p, 0);
        self.b.ins().jump(again, &[first.into()]);
        self.b.switch_to_block(again);
        let new = f(self, old);
        let seen = self.b.ins().atomic_cas(flags(), p, old, new);
        let same = self.b.ins().icmp(IntCC::Equal, seen, old);
        self.b.ins().brif(same, done, &[], again, &[seen.into()]);
        self.b.switch_to_block(done);
        old
    }
}

fn rmw(op: AtomOp, ty: Ty) -> AtomicRmwOp {
    match (op, ty.signed()) {
        (AtomOp::Min, true) => AtomicRmwOp::Smin,
        (AtomOp::Min, false) => AtomicRmwOp::Umin,
        (AtomOp::Max, true) => AtomicRmwOp::Smax,
        (AtomOp::Max, false) => AtomicRmwOp::Umax,
        (AtomOp::And, _) => AtomicRmwOp::And,
        (AtomOp::Or, _) => AtomicRmwOp::Or,
        (AtomOp::Xor, _) => AtomicRmwOp::Xor,
        (AtomOp::Exch, _) => AtomicRmwOp::Xchg,
        _ => AtomicRmwOp::Add,
    }
}
