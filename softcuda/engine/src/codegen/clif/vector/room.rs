//! What a group keeps while it stands and others run: the registers that are still read behind its stop, in a room of memory.

use super::emit::Vector;
use super::plan::Frame;
use super::shape::{Setting, Shape};
use super::value::{unaligned, vector_type};
use crate::codegen::clif::emit::{class_type, flags};
use crate::ir::{BlockId, Function, Reg};
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// Where the registers begin in a room, behind the number of the stop.
pub const REGISTERS: u32 = 16;

/// Where groups stop: a block of its own, from which they go on at `head`.
#[derive(Debug, Clone)]
pub struct Stop {
    pub way: BlockId,
    pub head: BlockId,
    /// Blocks of the loop that it belongs to, if it is on the way back of one.
    pub body: Vec<BlockId>,
}

/// Bytes that a group needs while it stands.
pub fn bytes(f: &Function, setting: Setting, regs: &[Shape], live: impl Iterator<Item = Reg>) -> u32 {
    let bytes = |r: Reg| register_bytes(f, setting, regs, r);
    (live.map(bytes).sum::<u32>() + REGISTERS).next_multiple_of(16)
}

fn register_bytes(f: &Function, setting: Setting, regs: &[Shape], r: Reg) -> u32 {
    let bytes = Frame::lane_bytes(f.regs[r as usize]);
    if regs[r as usize] == Shape::Lanes { (bytes * setting.width).next_multiple_of(8) } else { 8 }
}

impl Vector<'_> {
    /// Registers that a group keeps at a stop, with their places.
    fn kept(&self, stop: &Stop) -> Vec<(Reg, i32)> {
        let mut at = REGISTERS;
        let mut out = Vec::new();
        for r in self.plan.flow.live[stop.head as usize].iter() {
            out.push((r, at as i32));
            at += register_bytes(&self.plan.f, self.plan.setting, &self.plan.shapes, r);
        }
        out
    }

    /// Leaves what the group needs behind a stop, and the stop's number, in its room.
    pub fn leave_in_room(&mut self, stop: &Stop, number: u32, room: Value) {
        for (r, place) in self.kept(stop) {
            self.keep(r, room, place);
        }
        let n = self.e.imm(types::I32, i64::from(number));
        self.e.b.ins().store(flags(), n, room, 0);
    }

    /// Takes it back.
    pub fn take_from_room(&mut self, stop: &Stop, room: Value) {
        for (r, place) in self.kept(stop) {
            self.take(r, room, place);
        }
    }

    fn keep(&mut self, r: Reg, room: Value, place: i32) {
        if !self.differs(r) {
            let v = self.e.get(r);
            self.e.b.ins().store(flags(), v, room, place);
        } else if let Some(row) = self.row(r) {
            for (i, v) in row.into_iter().enumerate() {
                self.e.b.ins().store(unaligned(), v, room, place + 16 * i as i32);
            }
        } else {
            // It has no vectors, and lies in the frame.
            let frame = self.frame_base();
            self.move_words(r, (frame, self.place(r) as i32), (room, place));
        }
    }

    fn take(&mut self, r: Reg, room: Value, place: i32) {
        let class = self.class(r);
        if !self.differs(r) {
            let v = self.e.b.ins().load(class_type(class), flags(), room, place);
            self.e.b.def_var(self.e.regs[r as usize], v);
        } else if let Some(t) = vector_type(class) {
            let load = |i: usize| self.e.b.ins().load(t, unaligned(), room, place + 16 * i as i32);
            let row: Vec<Value> = (0..(self.width / t.lane_count()) as usize).map(load).collect();
            self.define(r, &row);
        } else {
            let frame = self.frame_base();
            self.move_words(r, (room, place), (frame, self.place(r) as i32));
        }
    }

    fn move_words(&mut self, r: Reg, from: (Value, i32), to: (Value, i32)) {
        let bytes = Frame::lane_bytes(self.class(r)) * self.width;
        for at in (0..bytes as i32).step_by(8) {
            let v = self.e.b.ins().load(types::I64, unaligned(), from.0, from.1 + at);
            self.e.b.ins().store(unaligned(), v, to.0, to.1 + at);
        }
    }
}
