//! Textures and surfaces: operands go into a slot on the stack, a helper does the work, results come out of another.

use super::emit::{Emit, class_type};
use crate::ir::texture::TextureOp;
use crate::ir::{Class, Opd, Reg, Ty};
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, types};

/// Words that come back at most.
const RESULTS: u32 = 4;

impl Emit<'_> {
    fn words(&mut self, count: u32) -> cranelift_codegen::ir::StackSlot {
        self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * count.max(1), 3))
    }

    /// `to` is the type of results and of stored values, `from` that of coordinates (a layer is a number in any case).
    pub fn texture(&mut self, op: TextureOp, to: Ty, from: Ty, d: &[Option<Reg>], object: &Opd, a: &[Opd]) {
        let object = self.value(Ty::U64, object);
        let (inputs, outputs) = (self.words(a.len() as u32), self.words(RESULTS));
        for (i, operand) in a.iter().enumerate() {
            let ty = match i.checked_sub(usize::from(op.sampler)) {
                None => Ty::U64,
                Some(0) if op.shape.layered() => Ty::U32,
                Some(i) if i >= op.shape.coordinates() && d.is_empty() => to,
                _ => from,
            };
            let value = self.value(ty, operand);
            let bits = match ty.class() {
                Class::F32 => self.bitcast(types::I32, value),
                Class::F64 => self.bitcast(types::I64, value),
                _ => value,
            };
            let class = match ty.class() {
                Class::F32 => Class::I32,
                Class::F64 => Class::I64,
                class => class,
            };
            let word = self.fit(bits, class, Class::I64, false);
            self.b.ins().stack_store(types::I64, word, inputs, 8 * i as i32);
        }
        let inputs = self.b.ins().stack_addr(types::I64, inputs, 0);
        let results = self.b.ins().stack_addr(types::I64, outputs, 0);
        let code = self.imm(types::I32, i64::from(op.code()));
        let line = self.imm(types::I32, i64::from(self.line));
        self.helper(Helper::Texture, &[self.thread, object, inputs, results, code, line], None);
        for (i, register) in d.iter().enumerate() {
            if let Some(register) = register {
                let value =
                    self.b.ins().stack_load(types::I64, class_type(to.class()), outputs, 8 * i as i32);
                self.set(to, *register, value);
            }
        }
    }
}
