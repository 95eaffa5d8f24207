//! Kernels without waiting whose threads go through memory in a loop ("grid-stride"): if one group of lanes ran to its end
//! before the next one began, each would touch a little of many pages. So a group stands still on the way back of such a
//! loop, the other groups of the block take their turn, and then all go on: what lies side by side is touched one after the other.

use super::emit::{THREAD, Vector};
use super::plan::push;
use super::room::{self, REGISTERS, Stop};
use super::shape::{Setting, Shape, Shapes};
use crate::codegen::clif::emit::flags;
use crate::ir::flow::{Flow, Loop, loops};
use crate::ir::{BlockId, Function, Op, Space, Term};
use crate::runtime::context::Block as BlockContext;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, StackSlotData, StackSlotKind, Value, types};
use std::mem::offset_of;

/// Threads of the largest block.
const MOST_THREADS: u32 = 1024;
/// The largest room for what all groups of a block keep while they stand.
const ROOM: u32 = 32 << 10;
/// Puts a block on the way back of each loop that stores to memory which others see, and is neither in another one nor has one inside.
pub fn cut(f: &mut Function, leave: &mut Vec<bool>) -> Vec<Stop> {
    let all = loops(f);
    let alone = |l: &&Loop| {
        let apart = |o: &Loop| o.head == l.head || !(o.body.contains(&l.head) || l.body.contains(&o.head));
        all.iter().all(apart) && stores(f, &l.body)
    };
    let mut stops = Vec::new();
    for l in all.iter().filter(alone).cloned().collect::<Vec<_>>() {
        for from in l.back {
            let targets: Vec<&mut BlockId> = match &mut f.blocks[from as usize].term {
                Term::Jump(t) => vec![t],
                Term::Branch { then, other, .. } => vec![then, other],
                // Groups go on without a stop there.
                _ => continue,
            };
            let way = leave.len() as BlockId;
            targets.into_iter().filter(|t| **t == l.head).for_each(|t| *t = way);
            push(f, Vec::new(), Term::Jump(l.head));
            leave.push(false);
            stops.push(Stop { way, head: l.head, body: l.body.clone() });
        }
    }
    stops
}

fn outside(space: Space) -> bool {
    matches!(space, Space::Global | Space::Generic)
}

fn stores(f: &Function, body: &[BlockId]) -> bool {
    let mut insts = body.iter().flat_map(|b| &f.blocks[*b as usize].insts);
    insts.any(|i| matches!(&i.op, Op::St { addr, .. } if outside(addr.space)))
}

/// The stops that are worth it: all that the loop moves lies side by side over the lanes, and there is room for the registers.
pub fn worthwhile(
    stops: Vec<Stop>,
    f: &Function,
    flow: &Flow,
    setting: Setting,
    regs: &[Shape],
) -> Vec<Stop> {
    let shapes = Shapes { f, setting, regs };
    let streams = |s: &Stop| {
        let ops = || s.body.iter().flat_map(|b| &f.blocks[*b as usize].insts).map(|i| &i.op);
        let dense = |addr, bytes: usize| shapes.address(addr) == Shape::Affine(bytes as i64);
        ops().all(|op| match op {
            Op::Ld { ty, d, addr, .. } if outside(addr.space) => {
                shapes.address(addr).uniform() || dense(addr, ty.bytes() as usize * d.len())
            }
            Op::St { ty, a, addr, .. } if outside(addr.space) => dense(addr, ty.bytes() as usize * a.len()),
            Op::Call { .. } => false,
            _ => true,
        })
    };
    let groups = MOST_THREADS / setting.width;
    let fits = |s: &Stop| room::bytes(f, setting, regs, flow.live[s.head as usize].iter()) * groups <= ROOM;
    stops.into_iter().filter(|s| streams(s) && fits(s)).collect()
}

/// The loop over rounds while it is emitted.
pub struct Rounds {
    /// Room of the running group.
    state: Value,
    /// Groups of the block; those that had not ended when the round began; those that stand in this one.
    groups: Value,
    running: Value,
    standing: Value,
    /// Takes the next group; gets how many stand.
    next: Block,
}

impl Vector<'_> {
    /// All groups of the block in rounds, each from where it stands to its next stop.
    pub fn round_loop(&mut self) {
        let [round, head, full, again, next, done, tail, over, more, out] =
            std::array::from_fn(|_| self.e.b.create_block());
        let stops = self.plan.stops.clone();
        let live = |s: &Stop| self.plan.flow.live[s.head as usize].iter();
        let (f, setting, regs) = (&self.plan.f, self.plan.setting, &self.plan.shapes);
        let size = stops.iter().map(|s| room::bytes(f, setting, regs, live(s))).max().unwrap_or(REGISTERS);
        let bytes = size * (MOST_THREADS / self.width);
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4);
        let slot = self.e.b.create_sized_stack_slot(slot);
        let states = self.e.b.ins().stack_addr(types::I64, slot, 0);
        let threads = self.e.block_field(types::I32, offset_of!(BlockContext, threads));
        let threads = self.e.b.ins().uextend(types::I64, threads);
        let shift = self.e.imm(types::I64, i64::from(self.width.trailing_zeros()));
        let groups = self.e.b.ins().ushr(threads, shift);
        let (zero, one) = (self.e.imm(types::I64, 0), self.e.imm(types::I64, 1));
        let [resumed, running] = [(); 2].map(|()| self.e.b.append_block_param(round, types::I64));
        self.e.b.ins().jump(round, &[zero.into(), groups.into()]);

        self.e.b.switch_to_block(round);
        let [thread, frame, state, left, standing] =
            [(); 5].map(|()| self.e.b.append_block_param(head, types::I64));
        let first = [self.e.thread, self.e.frame, states, groups, zero].map(Into::into);
        self.e.b.ins().jump(head, &first);
        self.e.b.switch_to_block(head);
        self.e.b.ins().brif(left, full, &[], done, &[]);
        self.e.b.switch_to_block(full);
        self.e.b.ins().brif(resumed, again, &[], self.blocks[0], &[]);

        // A group that has ended, or is over, has 0 in its room.
        self.e.b.switch_to_block(self.over);
        let ended = self.e.imm(types::I32, 0);
        self.e.b.ins().store(flags(), ended, state, 0);
        self.e.b.ins().jump(next, &[standing.into()]);
        self.e.b.switch_to_block(next);
        let stand = self.e.b.append_block_param(next, types::I64);
        let (n, local) = (i64::from(self.width), i64::from(self.plan.setting.local));
        let next_thread = self.step(thread, one, THREAD * n);
        let next_frame = self.step(frame, one, local * n);
        let next_state = self.step(state, one, i64::from(size));
        let fewer = self.e.b.ins().isub(left, one);
        self.e.b.ins().jump(head, &[next_thread, next_frame, next_state, fewer, stand].map(Into::into));

        // Threads that fill no group run by themselves, once.
        self.e.b.switch_to_block(done);
        self.e.b.ins().brif(resumed, over, &[], tail, &[]);
        self.e.b.switch_to_block(tail);
        let mask = self.e.imm(types::I64, n - 1);
        let rest = self.e.b.ins().band(threads, mask);
        self.single_lanes(thread, frame, rest);
        self.e.b.ins().jump(over, &[]);
        self.e.b.switch_to_block(over);
        self.e.b.ins().brif(standing, more, &[], out, &[]);
        self.e.b.switch_to_block(more);
        self.e.b.ins().jump(round, &[one.into(), standing.into()]);
        self.e.b.switch_to_block(out);
        self.e.b.ins().return_(&[]);

        (self.e.thread, self.e.frame) = (thread, frame);
        let rounds = Rounds { state, groups, running, standing, next };
        self.e.b.switch_to_block(again);
        self.resume(&rounds, &stops);
        self.rounds = Some(rounds);
    }

    /// Goes to where the group stands.
    fn resume(&mut self, rounds: &Rounds, stops: &[Stop]) {
        let at = self.e.b.ins().load(types::I32, flags(), rounds.state, 0);
        for (k, stop) in stops.iter().enumerate() {
            let (here, on) = (self.e.b.create_block(), self.e.b.create_block());
            let n = self.e.imm(types::I32, k as i64 + 1);
            let p = self.e.b.ins().icmp(IntCC::Equal, at, n);
            self.e.b.ins().brif(p, here, &[], on, &[]);
            self.e.b.switch_to_block(here);
            self.take_from_room(stop, rounds.state);
            self.e.b.ins().jump(self.blocks[stop.head as usize], &[]);
            self.e.b.switch_to_block(on);
        }
        self.e.b.ins().jump(rounds.next, &[rounds.standing.into()]);
    }

    /// A stop: the other groups first, unless only few are left, which would look for each other longer than they run.
    pub fn stand(&mut self, k: usize) {
        let Some(Rounds { state, groups, running, standing, next }) = self.rounds else { return };
        let stop = self.plan.stops[k].clone();
        let stay = self.e.b.create_block();
        let four = self.e.imm(types::I64, 4);
        let many = self.e.b.ins().imul(running, four);
        // One group alone never waits for itself.
        let least = self.e.b.ins().bor(groups, four);
        let few = self.e.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, many, least);
        self.e.b.ins().brif(few, self.blocks[stop.head as usize], &[], stay, &[]);
        self.e.b.switch_to_block(stay);
        self.leave_in_room(&stop, k as u32 + 1, state);
        let one = self.e.imm(types::I64, 1);
        let more = self.e.b.ins().iadd(standing, one);
        self.e.b.ins().jump(next, &[more.into()]);
    }
}
