//! Operations that the run time computes: of registers, of memory, of a whole warp.

use super::emit::{Emit, Phase, class_type, flags};
use crate::ir::{Addr, Class, CollectiveFn, MemoryFn, Opd, Pure, Reg, Ty};
use crate::memory::Access;
use crate::runtime::collective::WORDS;
use crate::runtime::helpers::Helper;
use crate::runtime::warp::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

impl Emit<'_> {
    pub fn pure(&mut self, f: Pure, detail: u32, ty: Ty, d: Reg, a: &[(Ty, Opd)]) {
        let (code, detail) = (self.imm(types::I32, f as i64), self.imm(types::I32, i64::from(detail)));
        let mut args = vec![self.thread, code, detail];
        for i in 0..3 {
            args.push(match a.get(i) {
                Some((ty, o)) => {
                    let v = self.value(*ty, o);
                    self.fit(v, ty.class(), Class::I64, ty.signed())
                }
                None => self.imm(types::I64, 0),
            });
        }
        let v = self.helper(Helper::Pure, &args, Some(types::I64));
        let v = self.fit(v, Class::I64, ty.class(), false);
        self.set(ty, d, v);
    }

    /// The function's buffer, which operations with many operands share.
    fn buffer(&mut self) -> Value {
        let slot = *self.slot.get_or_insert_with(|| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 4 * WORDS as u32, 4);
            self.b.create_sized_stack_slot(data)
        });
        self.b.ins().stack_addr(types::I64, slot, 0)
    }

    /// A buffer for each of 32 lanes: that of the running thread.
    fn buffer_of_lane(&mut self) -> Value {
        let size = 4 * WORDS as u32;
        let slot = *self.lane_slots.get_or_insert_with(|| {
            self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 32 * size, 4))
        });
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        let lane = self.lane();
        let lane = self.b.ins().uextend(types::I64, lane);
        let size = self.imm(types::I64, i64::from(size));
        let offset = self.b.ins().imul(lane, size);
        self.b.ins().iadd(base, offset)
    }

    /// Operands into the buffer, each in as many words as it needs.
    fn spill(&mut self, buffer: Value, a: &[(Ty, Opd)]) {
        let mut at = 0;
        for (ty, o) in a {
            let v = self.value(*ty, o);
            let (class, size) = word_class(*ty);
            let v = self.fit(v, ty.class(), class, ty.signed());
            self.b.ins().store(flags(), v, buffer, at);
            at += size;
        }
    }

    /// Results from the buffer.
    fn fill(&mut self, buffer: Value, d: &[(Ty, Option<Reg>)]) {
        let mut at = 0;
        for (ty, r) in d {
            let (class, size) = word_class(*ty);
            if let Some(r) = r {
                let v = self.b.ins().load(class_type(class), flags(), buffer, at);
                let v = self.fit(v, class, ty.class(), false);
                self.set(*ty, *r, v);
            }
            at += size;
        }
    }

    pub fn memory(
        &mut self,
        f: MemoryFn,
        (detail, size): (u32, u32),
        d: &[(Ty, Option<Reg>)],
        addr: &Addr,
        a: &[(Ty, Opd)],
    ) {
        let buffer = self.buffer();
        self.spill(buffer, a);
        let reads = matches!(f, MemoryFn::Load128 | MemoryFn::MbarrierTest);
        let p = self.address(addr, size, if reads { Access::Read } else { Access::ReadWrite });
        let (code, detail) = (self.imm(types::I32, f as i64), self.imm(types::I32, i64::from(detail)));
        self.helper(Helper::Memory, &[self.thread, code, detail, p, buffer], None);
        self.fill(buffer, d);
    }

    pub fn collective(&mut self, f: CollectiveFn, detail: u64, d: &[(Ty, Option<Reg>)], a: &[(Ty, Opd)]) {
        // Of a group of lanes all bring their operands before any takes its results.
        let buffer = if self.phase == Phase::Whole { self.buffer() } else { self.buffer_of_lane() };
        if self.phase != Phase::Take {
            self.spill(buffer, a);
        }
        let detail = self.imm(types::I64, detail as i64);
        let all = Opd::Imm(u64::from(u32::MAX));
        let bad = self.warp(Kind::Collective, f as u32, Some(&all), Some(buffer), Some(detail));
        if self.phase == Phase::Bring {
            return;
        }
        if matches!(f, CollectiveFn::LoadMatrix | CollectiveFn::StoreMatrix) {
            let zero = self.imm(types::I64, 0);
            let bad = self.b.ins().icmp(IntCC::NotEqual, bad, zero);
            self.cold_if(bad, |e| {
                let (n, line) = (e.imm(types::I32, 16), e.imm(types::I32, i64::from(e.line)));
                let address = e.value(Ty::U64, &a[0].1);
                let base = e.shared_base();
                let offset = e.b.ins().isub(address, base);
                e.helper(Helper::BadShared, &[e.thread, offset, n, line], None);
            });
        }
        self.fill(buffer, d);
    }

    pub fn cluster_barrier(&mut self, wait: bool) {
        let wait = self.imm(types::I32, i64::from(wait));
        self.helper(Helper::ClusterBarrier, &[self.thread, wait], None);
    }
}

/// How a value lies in a buffer, and its bytes there.
fn word_class(ty: Ty) -> (Class, i32) {
    match ty.class() {
        Class::Pred | Class::I8 | Class::I16 | Class::I32 => (Class::I32, 4),
        Class::F32 => (Class::F32, 4),
        c @ (Class::I64 | Class::F64) => (c, 8),
        Class::I128 => (Class::I128, 16),
    }
}
