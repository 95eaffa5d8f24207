//! The loop over groups, blocks and their ends: where lanes part and where they meet.

use super::check::Check;
use super::plan::Plan;
use super::shape::Shape;
use super::value::{Row, vector_type};
use crate::codegen::clif::Clif;
use crate::codegen::clif::doors::{BEGIN, NEVER, door};
use crate::codegen::clif::emit::{Emit, Held, flags};
use crate::codegen::{Mode, Unit};
use crate::ir::flow::RegSet;
use crate::ir::passes::{listens, pure};
use crate::ir::{BlockId, Guard, Inst, Op, Opd, Reg, Term, Ty};
use crate::runtime::context::{Block as BlockContext, Thread};
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, StackSlot, StackSlotData, StackSlotKind, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilderContext, Variable};
use std::mem::offset_of;

/// Bytes from one thread to the next one.
pub const THREAD: i64 = size_of::<Thread>() as i64;

/// The vector code of a kernel while it is emitted. Registers that do not differ are the scalar emitter's.
pub struct Vector<'a> {
    pub e: Emit<'a>,
    pub plan: &'a Plan,
    pub width: u32,
    /// By register: its row of vectors, if it is one.
    pub vars: Vec<Vec<Variable>>,
    /// The running group, where groups have stacks of their own; the emitter is at its first lane.
    pub group: Value,
    pub slot: StackSlot,
    pub blocks: Vec<Block>,
    /// Where a group goes that has ended.
    pub over: Block,
    /// Where rows lie that the run time works on.
    pub scratch: Option<StackSlot>,
    /// Where values lie that the run time is to test.
    pub values: Option<StackSlot>,
}

/// Emits the vector code of a kernel.
pub fn function<'a>(
    clif: &'a Clif,
    unit: &'a Unit<'a>,
    plan: &'a Plan,
    into: &'a mut cranelift_codegen::ir::Function,
    context: &'a mut FunctionBuilderContext,
    config: TargetFrontendConfig,
) {
    let mut e = Emit::new(clif, unit, &plan.f, into, context);
    let slot = e.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 16, 4));
    let width = plan.setting.width;
    let row = |(r, class): (usize, &crate::ir::Class)| match vector_type(*class) {
        Some(t) if plan.differs(r as Reg) => {
            (0..width / t.lane_count()).map(|_| e.b.declare_var(t)).collect()
        }
        _ => Vec::new(),
    };
    let vars = plan.f.regs.iter().enumerate().map(row).collect();
    let blocks = plan.f.blocks.iter().map(|_| e.b.create_block()).collect();
    let over = e.b.create_block();
    let group = e.thread;
    let mut v = Vector { e, plan, width, vars, group, slot, blocks, over, scratch: None, values: None };
    v.body(unit.variant.mode);
    v.e.b.func.sized_stack_slots[slot].size = plan.frame.size();
    v.e.b.seal_all_blocks();
    v.e.b.finalize(config);
}

/// Where the lanes of a group go when they part.
enum Parting {
    /// All to one block.
    All(BlockId),
    /// By a predicate.
    Two { guard: Guard, then: BlockId, other: BlockId },
}

impl Vector<'_> {
    fn body(&mut self, mode: Mode) {
        match mode {
            Mode::WarpLoop if self.plan.segments.is_none() => self.group_loop(),
            _ => {
                if mode != Mode::WarpLoop {
                    self.e.thread = self.e.thread_field(types::I64, offset_of!(Thread, first));
                }
                if self.plan.segments.is_some() {
                    self.enter_segment();
                    self.e.b.switch_to_block(self.over);
                    self.end_in_room();
                } else {
                    self.e.b.ins().jump(self.blocks[0], &[]);
                    self.e.b.switch_to_block(self.over);
                    self.e.b.ins().return_(&[]);
                }
            }
        }
        let mut covered: Vec<Vec<Held>> = vec![Vec::new(); self.plan.f.blocks.len()];
        let listens = listens(&self.plan.f);
        for b in 0..self.plan.f.blocks.len() {
            self.e.b.switch_to_block(self.blocks[b]);
            self.e.covered = std::mem::take(&mut covered[b]);
            self.checks(b as BlockId);
            let source = &self.plan.f.blocks[b];
            if self.plan.leave[b] {
                self.leave(b as BlockId);
                continue;
            }
            if let Some(k) = self.plan.stop(b as BlockId) {
                if listens[b] {
                    self.e.listen();
                }
                self.end_segment(k);
                continue;
            }
            for inst in &source.insts {
                self.inst(inst);
                inst.op.dests(&mut |r| self.e.covered.retain(|c| c.base() != r));
            }
            // What was found here holds behind a cut, too.
            if let Term::Jump(next) = source.term
                && self.plan.cut(next)
                && next as usize > b
            {
                covered[next as usize] = self.e.covered.clone();
            }
            if listens[b] {
                self.e.listen();
            }
            self.term(b as BlockId, &source.term);
        }
    }

    /// All groups of the block one after the other; threads that fill no group run by themselves.
    fn group_loop(&mut self) {
        let [head, full, rest] = std::array::from_fn(|_| self.e.b.create_block());
        let step = i64::from(self.plan.setting.local);
        let threads = self.e.block_field(types::I32, offset_of!(BlockContext, threads));
        let threads = self.e.b.ins().uextend(types::I64, threads);
        let [thread, frame, left] = std::array::from_fn(|_| self.e.b.append_block_param(head, types::I64));
        let first = [self.e.thread.into(), self.e.frame.into(), threads.into()];
        self.e.b.ins().jump(head, &first);

        self.e.b.switch_to_block(head);
        let width = self.e.imm(types::I64, i64::from(self.width));
        let p = self.e.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, left, width);
        self.e.b.ins().brif(p, full, &[], rest, &[]);
        self.e.b.switch_to_block(full);
        self.e.b.ins().jump(self.blocks[0], &[]);

        self.e.b.switch_to_block(self.over);
        let one = self.e.imm(types::I64, 1);
        let (n, bytes) = (self.e.imm(types::I64, i64::from(self.width)), i64::from(self.width));
        let next = [self.step(thread, one, THREAD * bytes), self.step(frame, one, step * bytes)];
        let fewer = self.e.b.ins().isub(left, n);
        self.e.b.ins().jump(head, &[next[0].into(), next[1].into(), fewer.into()]);

        self.e.b.switch_to_block(rest);
        self.single_lanes(thread, frame, left);
        self.e.b.ins().return_(&[]);
        // The body belongs to the group that the loop is at.
        (self.e.thread, self.e.frame) = (thread, frame);
    }

    /// `count` threads from `thread` on by themselves, one after the other.
    pub fn single_lanes(&mut self, thread: Value, frame: Value, count: Value) {
        let [rest, lane, out] = std::array::from_fn(|_| self.e.b.create_block());
        let step = i64::from(self.plan.setting.local);
        let [t, f, l] = std::array::from_fn(|_| self.e.b.append_block_param(rest, types::I64));
        self.e.b.ins().jump(rest, &[thread.into(), frame.into(), count.into()]);
        self.e.b.switch_to_block(rest);
        self.e.b.ins().brif(l, lane, &[], out, &[]);
        self.e.b.switch_to_block(lane);
        let start = self.e.imm(types::I32, i64::from(BEGIN));
        self.run_lane(t, f, start, NEVER);
        let one = self.e.imm(types::I64, 1);
        let next = [self.step(t, one, THREAD), self.step(f, one, step)];
        let fewer = self.e.b.ins().isub(l, one);
        self.e.b.ins().jump(rest, &[next[0].into(), next[1].into(), fewer.into()]);
        self.e.b.switch_to_block(out);
    }

    /// Runs the scalar version for one thread.
    fn run_lane(&mut self, thread: Value, frame: Value, start: Value, until: u32) {
        let until = self.e.imm(types::I32, i64::from(until));
        self.e.b.ins().store(flags(), start, thread, offset_of!(Thread, start) as i32);
        self.e.b.ins().store(flags(), until, thread, offset_of!(Thread, until) as i32);
        let f = self.scalar_code();
        let base = self.frame_base();
        let outside = std::mem::replace(&mut self.e.thread, thread);
        let args = self.e.args;
        self.e.enter(f, args, base, frame);
        self.e.thread = outside;
    }

    /// The entry of the scalar version, which follows the functions.
    fn scalar_code(&mut self) -> Value {
        let table = self.e.block_field(types::I64, offset_of!(BlockContext, functions));
        let at = 8 * self.e.unit.reach.functions.len() as i32;
        self.e.b.ins().load(types::I64, flags(), table, at)
    }

    /// Tests what the block takes for granted; a group in which a value wraps ends in scalar code.
    fn checks(&mut self, b: BlockId) {
        for check in &self.plan.checks[b as usize] {
            match check {
                Check::Narrow { reg, signed } => {
                    let cold = self.e.b.create_block();
                    self.e.b.set_cold_block(cold);
                    self.narrow(*reg, *signed, cold);
                    let on = self.e.b.create_block();
                    self.e.b.ins().jump(on, &[]);
                    self.e.b.switch_to_block(cold);
                    self.part(&Parting::All(b), self.plan.flow.exit());
                    self.e.b.switch_to_block(on);
                }
                Check::Memory(n) => self.memory_test(*n),
            }
        }
    }

    /// Goes to `cold` if the 32 bits of a register wrap within the group: then they are not what their shape says when widened.
    fn narrow(&mut self, r: Reg, signed: bool, cold: Block) {
        let Shape::Affine(stride) = self.plan.shapes[r as usize] else { return };
        let class = self.class(r);
        let v = self.e.get(r);
        let v = self.e.fit(v, class, crate::ir::Class::I32, false);
        let lanes = i64::from(self.width) - 1;
        let far = i64::from(stride as i32) * lanes;
        let add = self.e.imm(types::I32, far);
        let last = self.e.b.ins().iadd(v, add);
        let wide = |e: &mut Emit, v| {
            if signed { e.b.ins().sextend(types::I64, v) } else { e.b.ins().uextend(types::I64, v) }
        };
        let (first, last) = (wide(&mut self.e, v), wide(&mut self.e, last));
        let far = self.e.imm(types::I64, far);
        let want = self.e.b.ins().iadd(first, far);
        let wraps = self.e.b.ins().icmp(IntCC::NotEqual, last, want);
        let on = self.e.b.create_block();
        self.e.b.ins().brif(wraps, cold, &[], on, &[]);
        self.e.b.switch_to_block(on);
    }

    fn leave(&mut self, b: BlockId) {
        self.part(&Parting::All(b), self.plan.flow.post[b as usize]);
    }

    fn inst(&mut self, inst: &Inst) {
        self.e.line = inst.line;
        let apart = inst.guard.is_some_and(|g| self.plan.parts(g));
        if self.waits_together(inst) {
            return;
        }
        if !apart && self.once(inst) {
            return;
        }
        if !apart && let Some(guard) = inst.guard {
            // All lanes, or none.
            let (then, after) = (self.e.b.create_block(), self.e.b.create_block());
            self.e.guarded(guard, then, after);
            self.e.b.switch_to_block(then);
            let plain = Inst { guard: None, line: inst.line, op: inst.op.clone() };
            self.plain(&plain);
            self.e.b.ins().jump(after, &[]);
            self.e.b.switch_to_block(after);
            return;
        }
        if !apart {
            return self.plain(inst);
        }
        match inst.guard {
            Some(guard) if pure(&inst.op) => self.masked(guard, inst),
            _ => self.lanes(inst),
        }
    }

    /// An operation that scalar code does for all lanes at once. Whether it was one.
    fn once(&mut self, inst: &Inst) -> bool {
        let shapes = self.plan.shapes();
        let uniform = |ty, o: &Opd| shapes.operand(ty, o).uniform();
        let once = match &inst.op {
            Op::St { ty, a, addr, .. } => shapes.address(addr).uniform() && a.iter().all(|o| uniform(*ty, o)),
            Op::Fence | Op::Trap | Op::Nop | Op::Nanosleep => true,
            op => {
                let (mut any, mut all) = (false, true);
                let raw = shapes.raw(op);
                op.dests(&mut |d| {
                    any = true;
                    all &= raw.uniform() || shapes.result(op, d) != Shape::Lanes;
                });
                any && all
            }
        };
        if !once {
            return false;
        }
        let stride = match shapes.raw(&inst.op) {
            Shape::Affine(s) => s,
            _ => 0,
        };
        let mut apart = Vec::new();
        inst.op.dests(&mut |d| apart.extend(self.differs(d).then_some(d)));
        let after = inst.guard.map(|guard| {
            let (then, after) = (self.e.b.create_block(), self.e.b.create_block());
            self.e.guarded(guard, then, after);
            self.e.b.switch_to_block(then);
            after
        });
        self.e.op(&inst.op);
        for d in apart {
            self.widen_result(d, stride);
        }
        if let Some(after) = after {
            self.e.b.ins().jump(after, &[]);
            self.e.b.switch_to_block(after);
        }
        true
    }

    /// An operation of all lanes.
    fn plain(&mut self, inst: &Inst) {
        if self.access(inst) {
            return;
        }
        match self.form(&inst.op) {
            Some(results) => results.into_iter().for_each(|(r, row)| self.define(r, &row)),
            None => self.lanes(inst),
        }
    }

    /// An operation without side effects of some lanes.
    fn masked(&mut self, guard: Guard, inst: &Inst) {
        let Some(results) = self.form(&inst.op) else { return self.lanes(inst) };
        let Some(mask) = self.guard_mask(guard) else { return self.lanes(inst) };
        for (r, new) in results {
            let (Some(old), Some(t)) = (self.row(r), vector_type(self.class(r))) else { continue };
            let row = self.choose(&mask, t, &new, &old);
            self.define(r, &row);
        }
    }

    /// Lanes where the guard holds.
    pub fn guard_mask(&mut self, guard: Guard) -> Option<Row> {
        let row = self.operand(Ty::Pred, &Opd::Reg(guard.reg))?;
        if !guard.negated {
            return Some(row);
        }
        Some(row.into_iter().map(|v| self.e.b.ins().bnot(v)).collect())
    }

    fn term(&mut self, b: BlockId, term: &Term) {
        let until = self.plan.flow.post[b as usize];
        match term {
            Term::Jump(t) => {
                self.e.b.ins().jump(self.blocks[*t as usize], &[]);
            }
            Term::Ret | Term::Exit => {
                self.e.b.ins().jump(self.over, &[]);
            }
            Term::Branch { guard, then, other } if self.plan.parts(*guard) => {
                self.branch(*guard, *then, *other, until);
            }
            Term::Branch { guard, then, other } => {
                self.e.guarded(*guard, self.blocks[*then as usize], self.blocks[*other as usize]);
            }
            Term::Switch { index, targets, line } => {
                if self.plan.shapes().operand(Ty::U32, index).uniform() {
                    let blocks = self.blocks.clone();
                    self.e.switch(index, targets, *line, &blocks);
                } else {
                    self.part(&Parting::All(b), until);
                }
            }
        }
    }

    /// All, none, or some.
    fn branch(&mut self, guard: Guard, then: BlockId, other: BlockId, until: BlockId) {
        if then == other {
            self.e.b.ins().jump(self.blocks[then as usize], &[]);
            return;
        }
        let Some(mask) = self.row(guard.reg) else { return };
        let fold = |v: &mut Self, and: bool| {
            let mut all = mask[0];
            for m in &mask[1..] {
                all = if and { v.e.b.ins().band(all, *m) } else { v.e.b.ins().bor(all, *m) };
            }
            v.e.b.ins().vhigh_bits(types::I32, all)
        };
        let (some, some_not, mixed) =
            (self.e.b.create_block(), self.e.b.create_block(), self.e.b.create_block());
        self.e.b.set_cold_block(mixed);
        let (yes, no) = if guard.negated { (other, then) } else { (then, other) };
        let any = fold(self, false);
        self.e.b.ins().brif(any, some, &[], self.blocks[no as usize], &[]);
        self.e.b.switch_to_block(some);
        let all = fold(self, true);
        let full = self.e.imm(types::I32, 15);
        let p = self.e.b.ins().icmp(IntCC::Equal, all, full);
        self.e.b.ins().brif(p, self.blocks[yes as usize], &[], some_not, &[]);
        self.e.b.switch_to_block(some_not);
        self.e.b.ins().jump(mixed, &[]);
        self.e.b.switch_to_block(mixed);
        self.part(&Parting::Two { guard, then, other }, until);
    }

    /// Lets each lane go its own way until they meet, and goes on with all of them.
    fn part(&mut self, parting: &Parting, until: BlockId) {
        let from = match parting {
            Parting::All(b) => vec![*b],
            Parting::Two { then, other, .. } => vec![*then, *other],
        };
        let mut live = RegSet::new(self.plan.f.regs.len());
        for b in &from {
            if let Some(l) = self.plan.flow.live.get(*b as usize) {
                live.add(l);
            }
        }
        if let Parting::Two { guard, .. } = parting {
            live.insert(guard.reg);
        }
        for r in live.iter() {
            self.spill(r);
        }
        let changed = self.plan.changed(&from, until);
        // Lanes put there what they have; they must have a place.
        for r in &changed {
            let _ = self.place(*r);
        }
        let stop = if until == self.plan.flow.exit() { NEVER } else { door(until) };
        if self.e.unit.variant.mode == Mode::WarpFibers && self.plan.region_waits(&from, until) {
            let lock = self.plan.region_locks(&from, until);
            self.part_as_fibers(parting, stop, lock);
        } else {
            match *parting {
                Parting::Two { guard, then, other } if door(other) == stop => {
                    self.part_some(guard, then, stop);
                }
                Parting::Two { guard, then, other } if door(then) == stop => {
                    self.part_some(Guard { negated: !guard.negated, ..guard }, other, stop);
                }
                _ => self.part_in_turn(parting, stop),
            }
        }
        if stop == NEVER {
            self.e.b.ins().jump(self.over, &[]);
            return;
        }
        for r in changed {
            self.reload(r);
        }
        self.e.b.ins().jump(self.blocks[until as usize], &[]);
    }

    /// One lane after the other: none of them can wait.
    fn part_in_turn(&mut self, parting: &Parting, until: u32) {
        let base = self.frame_base();
        let lane = self.begin_lanes();
        let (thread, frame) = (self.e.thread, self.e.frame);
        let start = match parting {
            Parting::All(b) => self.e.imm(types::I32, i64::from(door(*b))),
            Parting::Two { guard, then, other } => {
                let at = self.place(guard.reg);
                let p = self.e.take_lane(base, lane.number, at, crate::ir::Class::Pred);
                let (yes, no) = if guard.negated { (other, then) } else { (then, other) };
                let (yes, no) = (
                    self.e.imm(types::I32, i64::from(door(*yes))),
                    self.e.imm(types::I32, i64::from(door(*no))),
                );
                self.e.b.ins().select(p, yes, no)
            }
        };
        let (run, next) = (self.e.b.create_block(), self.e.b.create_block());
        let stop = self.e.imm(types::I32, i64::from(until));
        let there = self.e.b.ins().icmp(IntCC::Equal, start, stop);
        self.e.b.ins().brif(there, next, &[], run, &[]);
        self.e.b.switch_to_block(run);
        self.run_lane(thread, frame, start, until);
        self.e.b.ins().jump(next, &[]);
        self.e.b.switch_to_block(next);
        self.end_lanes(lane);
    }

    /// Only the lanes where the guard holds, one after the other; the others stand at `until` already.
    fn part_some(&mut self, guard: Guard, to: BlockId, until: u32) {
        let mask = self.row(guard.reg).unwrap_or_default();
        let mut bits = self.bits(&mask);
        if guard.negated {
            let all = self.e.imm(types::I32, i64::from(u32::MAX >> (32 - self.width)));
            bits = self.e.b.ins().bxor(bits, all);
        }
        let start = self.e.imm(types::I32, i64::from(door(to)));
        let [head, run, done] = std::array::from_fn(|_| self.e.b.create_block());
        let left = self.e.b.append_block_param(head, types::I32);
        let outside = (self.e.thread, self.e.frame);
        self.e.b.ins().jump(head, &[bits.into()]);
        self.e.b.switch_to_block(head);
        self.e.b.ins().brif(left, run, &[], done, &[]);
        self.e.b.switch_to_block(run);
        let lane = self.e.b.ins().ctz(left);
        let lane = self.e.b.ins().uextend(types::I64, lane);
        let one = self.e.imm(types::I32, 1);
        let less = self.e.b.ins().isub(left, one);
        let less = self.e.b.ins().band(left, less);
        let thread = self.step(outside.0, lane, THREAD);
        let frame = self.step(outside.1, lane, i64::from(self.plan.setting.local));
        self.run_lane(thread, frame, start, until);
        self.e.b.ins().jump(head, &[less.into()]);
        self.e.b.switch_to_block(done);
    }

    /// Each lane on a stack of its own, since lanes may wait for each other or for other groups.
    fn part_as_fibers(&mut self, parting: &Parting, until: u32, lock: bool) {
        let (bits, yes, no) = match parting {
            Parting::All(b) => (self.e.imm(types::I32, -1), *b, *b),
            Parting::Two { guard, then, other } => {
                let mask = self.row(guard.reg).unwrap_or_default();
                let bits = self.bits(&mask);
                if guard.negated { (bits, *other, *then) } else { (bits, *then, *other) }
            }
        };
        let base = self.frame_base();
        let numbers =
            [door(yes), door(no), until, u32::from(lock)].map(|n| self.e.imm(types::I32, i64::from(n)));
        let args = [self.group, base, bits, numbers[0], numbers[1], numbers[2], numbers[3]];
        self.e.helper(Helper::Part, &args, None);
    }
}
