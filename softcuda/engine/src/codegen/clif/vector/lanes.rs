//! Operations without a vector form: a loop over the lanes around what the scalar emitter makes of them.

use super::emit::{THREAD, Vector};
use super::shape::Shape;
use crate::codegen::clif::emit::Held;
use crate::ir::{Inst, Reg};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// What an operation reads and writes.
struct Touched {
    read: Vec<Reg>,
    written: Vec<Reg>,
}

fn touched(inst: &Inst) -> Touched {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    inst.op.uses(&mut |r| read.push(r));
    inst.op.dests(&mut |r| written.push(r));
    if let Some(g) = inst.guard {
        read.push(g.reg);
        // A lane that does not take part keeps what it has.
        read.extend(&written);
    }
    for v in [&mut read, &mut written] {
        v.sort_unstable();
        v.dedup();
    }
    Touched { read, written }
}

impl<'a> Vector<'a> {
    /// Emits an operation once in a loop over the lanes.
    pub fn lanes(&mut self, inst: &Inst) {
        let t = touched(inst);
        self.spill_for_lanes(&t);
        self.each_lane(&t, inst);
        for r in &t.written {
            self.reload(*r);
        }
    }

    fn spill_for_lanes(&mut self, t: &Touched) {
        for r in &t.read {
            if self.in_vectors(*r) {
                self.spill(*r);
            }
        }
    }

    /// The loop; what it reads is in the frame, and what it writes is there afterwards.
    fn each_lane(&mut self, t: &Touched, inst: &Inst) {
        let slopes: Vec<(Reg, Value)> = t
            .read
            .iter()
            .filter(|r| matches!(self.plan.shapes[**r as usize], Shape::Affine(s) if s != 0))
            .map(|r| (*r, self.e.get(*r)))
            .collect();
        let base = self.frame_base();
        let lane = self.begin_lanes();
        for r in &t.read {
            let (class, shape) = (self.class(*r), self.plan.shapes[*r as usize]);
            let v = match shape {
                Shape::Lanes => {
                    let at = self.place(*r);
                    self.e.take_lane(base, lane.number, at, class)
                }
                Shape::Affine(s) if s != 0 => {
                    let Some((_, v)) = slopes.iter().find(|(q, _)| q == r) else { continue };
                    self.e.at_lane(shape, class, *v, lane.number)
                }
                _ => continue,
            };
            self.e.b.def_var(self.e.regs[*r as usize], v);
        }
        self.e.inst(inst);
        for r in &t.written {
            let v = self.e.get(*r);
            let at = self.place(*r);
            self.e.put_lane(base, lane.number, at, self.class(*r), v);
        }
        self.end_lanes(lane);
        for (r, v) in slopes {
            self.e.b.def_var(self.e.regs[r as usize], v);
        }
    }

    /// Begins a loop over all lanes, with the emitter at the thread of one.
    pub fn begin_lanes(&mut self) -> Lane<'a> {
        let (head, done) = (self.e.b.create_block(), self.e.b.create_block());
        let number = self.e.b.append_block_param(head, types::I64);
        // Registers are those of one lane in here.
        let outside = (self.e.thread, self.e.frame, std::mem::take(&mut self.e.covered));
        let zero = self.e.imm(types::I64, 0);
        self.e.b.ins().jump(head, &[zero.into()]);
        self.e.b.switch_to_block(head);
        self.e.thread = self.step(outside.0, number, THREAD);
        self.e.frame = self.step(outside.1, number, i64::from(self.plan.setting.local));
        Lane { number, head, done, outside }
    }

    pub fn end_lanes(&mut self, lane: Lane<'a>) {
        let (one, all) = (self.e.imm(types::I64, 1), self.e.imm(types::I64, i64::from(self.width)));
        let next = self.e.b.ins().iadd(lane.number, one);
        let more = self.e.b.ins().icmp(IntCC::UnsignedLessThan, next, all);
        self.e.b.ins().brif(more, lane.head, &[next.into()], lane.done, &[]);
        self.e.b.switch_to_block(lane.done);
        (self.e.thread, self.e.frame, self.e.covered) = lane.outside;
    }

    /// `base` plus `number` steps.
    pub fn step(&mut self, base: Value, number: Value, step: i64) -> Value {
        if step == 0 {
            return base;
        }
        let s = self.e.imm(types::I64, step);
        let o = self.e.b.ins().imul(number, s);
        self.e.b.ins().iadd(base, o)
    }
}

/// A loop over lanes while it is emitted.
pub struct Lane<'a> {
    pub number: Value,
    head: cranelift_codegen::ir::Block,
    done: cranelift_codegen::ir::Block,
    outside: (Value, Value, Vec<Held<'a>>),
}
