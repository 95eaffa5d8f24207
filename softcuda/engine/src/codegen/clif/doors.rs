//! The scalar version of a kernel whose quick version is vector code: it begins at any block where lanes may have to part and
//! stops where they come together again, with its registers in the group's frame.

use super::Clif;
use super::emit::{Emit, class_type, flags};
use super::vector::{Doors, Frame, Plan, Shape};
use crate::codegen::Unit;
use crate::ir::passes::listens;
use crate::ir::{BlockId, Class, Reg};
use crate::runtime::context::Thread;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockCall, InstBuilder, JumpTableData, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::FunctionBuilderContext;
use std::mem::offset_of;

/// As [`Thread::until`]: run to the end.
pub const NEVER: u32 = u32::MAX;
/// As [`Thread::start`]: at the beginning, with nothing in the frame.
pub const BEGIN: u32 = 0;

/// The number of a block in [`Thread::start`] and [`Thread::until`].
pub fn door(b: BlockId) -> u32 {
    b + 1
}

/// Emits the scalar version. `rets` of the entry is the group's frame.
pub fn function<'a>(
    clif: &'a Clif,
    unit: &'a Unit<'a>,
    plan: &'a Plan,
    into: &'a mut cranelift_codegen::ir::Function,
    context: &'a mut FunctionBuilderContext,
    config: TargetFrontendConfig,
) {
    let mut e = Emit::new(clif, unit, &plan.f, into, context);
    e.through_doors(plan, &plan.doors());
    e.b.seal_all_blocks();
    e.b.finalize(config);
}

impl Emit<'_> {
    fn through_doors(&mut self, plan: &Plan, doors: &Doors) {
        let blocks: Vec<Block> = self.f.blocks.iter().map(|_| self.b.create_block()).collect();
        let linear = self.thread_field(types::I32, offset_of!(Thread, linear));
        let mask = self.imm(types::I32, i64::from(plan.setting.width) - 1);
        let lane = self.b.ins().band(linear, mask);
        let lane = self.b.ins().uextend(types::I64, lane);
        let start = self.thread_field(types::I32, offset_of!(Thread, start));
        let until = self.thread_field(types::I32, offset_of!(Thread, until));
        let nowhere = self.b.create_block();
        let entries: Vec<(BlockId, Block)> =
            doors.entries.iter().map(|b| (*b, self.b.create_block())).collect();
        let mut targets = vec![nowhere; blocks.len() + 1];
        targets[BEGIN as usize] = blocks[0];
        entries.iter().for_each(|(b, at)| targets[door(*b) as usize] = *at);
        let pool = &mut self.b.func.dfg.value_lists;
        let table: Vec<BlockCall> = targets.iter().map(|t| BlockCall::new(*t, [], pool)).collect();
        let default = BlockCall::new(nowhere, [], pool);
        let table = self.b.create_jump_table(JumpTableData::new(default, &table));
        self.b.ins().br_table(start, table);
        self.b.switch_to_block(nowhere);
        self.b.ins().return_(&[]);
        for (b, at) in entries {
            self.b.switch_to_block(at);
            for r in plan.flow.live[b as usize].iter() {
                self.restore(plan, lane, r);
            }
            self.b.ins().jump(blocks[b as usize], &[]);
        }
        let listens = listens(self.f);
        for (i, source) in self.f.blocks.iter().enumerate() {
            self.b.switch_to_block(blocks[i]);
            if doors.stops.contains(&(i as BlockId)) {
                self.stop(plan, i as BlockId, until, lane);
            }
            for inst in &source.insts {
                self.inst(inst);
            }
            if listens[i] {
                self.listen();
            }
            self.term(&source.term, &blocks);
        }
    }

    /// Leaves if this is where the lanes come together.
    fn stop(&mut self, plan: &Plan, b: BlockId, until: Value, lane: Value) {
        let (here, on) = (self.b.create_block(), self.b.create_block());
        let id = self.imm(types::I32, i64::from(door(b)));
        let p = self.b.ins().icmp(IntCC::Equal, until, id);
        self.b.ins().brif(p, here, &[], on, &[]);
        self.b.switch_to_block(here);
        for r in plan.flow.live[b as usize].iter().filter(|r| plan.differs(*r)) {
            let Some(at) = plan.frame.known(r) else { continue };
            let base = self.rets;
            let v = self.get(r);
            self.put_lane(base, lane, at, self.f.regs[r as usize], v);
        }
        let one = self.imm(types::I32, 1);
        self.b.ins().store(flags(), one, self.thread, offset_of!(Thread, joined) as i32);
        self.b.ins().return_(&[]);
        self.b.switch_to_block(on);
    }

    /// A register from the group's frame.
    fn restore(&mut self, plan: &Plan, lane: Value, r: Reg) {
        // One without a place was never written: it holds nothing that counts.
        let Some(at) = plan.frame.known(r) else { return };
        let class = self.f.regs[r as usize];
        let base = self.rets;
        let v = match plan.shapes[r as usize] {
            Shape::Lanes => self.take_lane(base, lane, at, class),
            shape => {
                let v = self.b.ins().load(class_type(class), flags(), base, at as i32);
                self.at_lane(shape, class, v, lane)
            }
        };
        self.b.def_var(self.regs[r as usize], v);
    }

    /// Lane `lane`'s value, given lane 0's.
    pub fn at_lane(&mut self, shape: Shape, class: Class, v: Value, lane: Value) -> Value {
        let Shape::Affine(s @ (1.. | ..=-1)) = shape else { return v };
        let t = class_type(class);
        let lane = self.fit(lane, Class::I64, class, false);
        let s = self.imm(t, s);
        let add = self.b.ins().imul(lane, s);
        self.b.ins().iadd(v, add)
    }

    fn lane_address(&mut self, base: Value, lane: Value, class: Class) -> Value {
        let n = self.imm(types::I64, i64::from(Frame::lane_bytes(class).trailing_zeros()));
        let o = self.b.ins().ishl(lane, n);
        self.b.ins().iadd(base, o)
    }

    /// One lane of a register in the frame at `base`.
    pub fn take_lane(&mut self, base: Value, lane: Value, at: u32, class: Class) -> Value {
        let p = self.lane_address(base, lane, class);
        if class == Class::Pred {
            let v = self.b.ins().load(types::I32, flags(), p, at as i32);
            let zero = self.imm(types::I32, 0);
            return self.b.ins().icmp(IntCC::NotEqual, v, zero);
        }
        self.b.ins().load(class_type(class), flags(), p, at as i32)
    }

    /// Writes one lane of a register in the frame at `base`.
    pub fn put_lane(&mut self, base: Value, lane: Value, at: u32, class: Class, v: Value) {
        let p = self.lane_address(base, lane, class);
        let v = if class == Class::Pred {
            let v = self.b.ins().uextend(types::I32, v);
            self.b.ins().ineg(v)
        } else {
            v
        };
        self.b.ins().store(flags(), v, p, at as i32);
    }
}
