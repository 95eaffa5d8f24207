//! Operations that the run time computes for all lanes in one call; see [`crate::runtime::rows`].

use super::emit::Vector;
use super::value::{Row, vector_type};
use crate::codegen::clif::float::round_number;
use crate::ir::{FloatUnary, Round, Ty};
use crate::runtime::helpers::{FloatKind, Helper};
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

/// Three rows of 32 values of 8 bytes.
const SCRATCH: u32 = 3 * 32 * 8;

impl Vector<'_> {
    /// A function that has no instruction; `None`: one that has, or not of this type.
    pub fn special(&mut self, op: FloatUnary, ty: Ty, x: Row) -> Option<Row> {
        let helper = match op {
            FloatUnary::Sin => Helper::SinRow,
            FloatUnary::Cos => Helper::CosRow,
            FloatUnary::Lg2 => Helper::Lg2Row,
            FloatUnary::Ex2 => Helper::Ex2Row,
            FloatUnary::Tanh => Helper::TanhRow,
            _ => return None,
        };
        if ty != Ty::F32 {
            return None;
        }
        let rows = self.scratch(&[&x]);
        let count = self.e.imm(types::I32, i64::from(self.width));
        self.e.helper(helper, &[rows, count], None);
        self.result_row(ty, rows)
    }

    /// An operation in another rounding than to nearest. All three rows are looked at, also where the operation has fewer operands.
    pub fn rounded(&mut self, kind: FloatKind, ty: Ty, round: Round, operands: [&Row; 3]) -> Option<Row> {
        let helper = match ty {
            Ty::F32 => Helper::RoundedRowF32,
            Ty::F64 => Helper::RoundedRowF64,
            _ => return None,
        };
        let rows = self.scratch(&operands);
        let [kind, round, count] =
            [kind as i64, round_number(round), i64::from(self.width)].map(|n| self.e.imm(types::I32, n));
        self.e.helper(helper, &[kind, round, rows, count], None);
        self.result_row(ty, rows)
    }

    /// Writes rows one behind the other; where.
    fn scratch(&mut self, rows: &[&Row]) -> Value {
        let slot = *self.scratch.get_or_insert_with(|| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, SCRATCH, 4);
            self.e.b.create_sized_stack_slot(data)
        });
        for (i, v) in rows.iter().flat_map(|r| r.iter()).enumerate() {
            self.e.b.ins().stack_store(types::I64, *v, slot, 16 * i as i32);
        }
        self.e.b.ins().stack_addr(types::I64, slot, 0)
    }

    fn result_row(&mut self, ty: Ty, at: Value) -> Option<Row> {
        let t = vector_type(ty.class())?;
        let count = self.vectors(t);
        let vector = |i: usize| self.e.b.ins().load(t, super::value::unaligned(), at, 16 * i as i32);
        Some((0..count).map(vector).collect())
    }
}
