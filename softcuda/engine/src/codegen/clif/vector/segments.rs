//! Kernels whose threads wait for each other only where all of a group are together: a call of their code runs one group from a
//! barrier to the next one, so that no group needs a stack of its own (`runtime::segments`).

use super::emit::Vector;
use super::plan::{call_waits, push};
use super::room::Stop;
use crate::codegen::Unit;
use crate::codegen::clif::emit::flags;
use crate::ir::{BarOp, Function, Op, Opd, Term};
use crate::runtime::segments::{ALONE, OVER};
use cranelift_codegen::ir::{BlockCall, InstBuilder, JumpTableData, Value, types};

/// The largest room of a group.
pub const ROOM: u32 = 8 << 10;

/// The number of the only barrier by which a kernel waits (0 if it has none); `None` if it cannot run in segments.
pub fn barrier(unit: &Unit, f: &Function, waiting: &[bool]) -> Option<u32> {
    if unit.reach.unbounded || unit.reach.clusters {
        return None;
    }
    let mut number = None;
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        match &inst.op {
            Op::Bar { op: BarOp::Sync, id: Opd::Imm(id), count: None, .. }
                if *id < 16 && *number.get_or_insert(*id as u32) == *id as u32 => {}
            Op::Bar { .. } | Op::Yield | Op::ClusterBarrier { .. } => return None,
            op if call_waits(op, waiting) => return None,
            _ => {}
        }
    }
    Some(number.unwrap_or(0))
}

/// Puts each barrier into a block of its own.
pub fn cut(f: &mut Function, leave: &mut Vec<bool>) -> Vec<Stop> {
    let mut stops = Vec::new();
    let mut b = 0;
    while b < f.blocks.len() {
        let block = &mut f.blocks[b];
        if let Some(at) = block.insts.iter().position(|i| matches!(i.op, Op::Bar { .. })) {
            let tail = block.insts.split_off(at + 1);
            let bar = block.insts.split_off(at);
            let term = std::mem::replace(&mut block.term, Term::Ret);
            let head = push(f, tail, term);
            let way = push(f, bar, Term::Jump(head));
            f.blocks[b].term = Term::Jump(way);
            leave.extend([false, false]);
            stops.push(Stop { way, head, body: Vec::new() });
            // The new block with the barrier is done; what follows it is looked at in its turn.
        }
        b += 1;
        while stops.iter().any(|s| s.way as usize == b) {
            b += 1;
        }
    }
    stops
}

impl Vector<'_> {
    /// The entry: to the beginning, or to where the group stands.
    pub fn enter_segment(&mut self) {
        let room = self.e.rets;
        let stops = self.plan.stops.clone();
        let at = self.e.b.ins().load(types::I32, flags(), room, 0);
        let ways: Vec<_> = stops.iter().map(|_| self.e.b.create_block()).collect();
        let pool = &mut self.e.b.func.dfg.value_lists;
        let begin = BlockCall::new(self.blocks[0], [], pool);
        let mut table = vec![begin];
        table.extend(ways.iter().map(|w| BlockCall::new(*w, [], pool)));
        let table = self.e.b.create_jump_table(JumpTableData::new(begin, &table));
        self.e.b.ins().br_table(at, table);
        for (stop, way) in stops.iter().zip(ways) {
            self.e.b.switch_to_block(way);
            self.take_from_room(stop, room);
            self.e.b.ins().jump(self.blocks[stop.head as usize], &[]);
        }
    }

    /// A stop: back to the run time, which lets the others come here.
    pub fn end_segment(&mut self, k: usize) {
        let stop = self.plan.stops[k].clone();
        let room: Value = self.e.rets;
        if !stop.body.is_empty() {
            let alone = self.e.b.ins().load(types::I32, flags(), room, ALONE as i32);
            let stay = self.e.b.create_block();
            self.e.b.ins().brif(alone, self.blocks[stop.head as usize], &[], stay, &[]);
            self.e.b.switch_to_block(stay);
        }
        self.leave_in_room(&stop, k as u32 + 1, room);
        self.e.b.ins().return_(&[]);
    }

    /// The end of a group.
    pub fn end_in_room(&mut self) {
        let over = self.e.imm(types::I32, i64::from(OVER));
        self.e.b.ins().store(flags(), over, self.e.rets, 0);
        self.e.b.ins().return_(&[]);
    }
}
