//! What is known of a kernel before its vector code is made: blocks cut so that scalar code can begin wherever the lanes
//! may have to part, the shapes of its registers, and where they live while scalar code runs.

use super::check::{Check, Checks, Test, cut_at_checks};
use super::room::{self, REGISTERS, Stop};
use super::rounds;
use super::segments;
use super::shape::{self, Setting, Shape, Shapes};
use crate::codegen::{Mode, NOWHERE, Segments, Unit};
use crate::ir::flow::{Flow, RegSet, region};
use crate::ir::passes::{successors, waits};
use crate::ir::{BlockId, Callee, Class, Function, Guard, Inst, Op, Opd, Program, Reg, Term};
use std::cell::{Cell, RefCell};

/// A kernel made ready.
pub struct Plan {
    pub f: Function,
    pub flow: Flow,
    pub shapes: Vec<Shape>,
    pub setting: Setting,
    /// By block: all its lanes run it in scalar code, each by itself.
    pub leave: Vec<bool>,
    /// By block: what must hold at its start, or the group ends in scalar code.
    pub checks: Vec<Vec<Check>>,
    /// By the number in [`Check::Memory`].
    pub tests: Vec<Test>,
    /// Where a group lets the others of its block go first.
    pub stops: Vec<Stop>,
    /// A call runs a group to its next stop.
    pub segments: Option<Segments>,
    /// By function of the program: whether it may have to wait for other threads.
    waiting: Vec<bool>,
    pub frame: Frame,
    /// By block: how many others lead there.
    ways: Vec<u32>,
}

impl Plan {
    pub fn new(unit: &Unit, setting: Setting) -> Plan {
        let program = unit.program;
        let waiting = waiting_functions(program, &unit.reach.functions);
        let mut f = program.functions[unit.reach.functions[0] as usize].clone();
        let mut leave = isolate(&mut f, &waiting);
        let looped = unit.variant.mode == Mode::WarpLoop;
        let barrier = if looped { None } else { segments::barrier(unit, &f, &waiting) };
        let mut stops = match barrier {
            Some(_) => segments::cut(&mut f, &mut leave),
            None if looped => rounds::cut(&mut f, &mut leave),
            None => Vec::new(),
        };
        let flow = Flow::new(&f);
        let shapes = shape::registers(&f, &flow, setting, &leave);
        if looped {
            stops = rounds::worthwhile(stops, &f, &flow, setting, &shapes);
        }
        let bytes = |s: &Stop| room::bytes(&f, setting, &shapes, flow.live[s.head as usize].iter());
        let room = stops.iter().map(bytes).max().unwrap_or(REGISTERS);
        let barrier = if looped { (!stops.is_empty()).then_some(0) } else { barrier };
        let segments = barrier.filter(|_| room <= segments::ROOM).map(|barrier| Segments { room, barrier });
        if segments.is_none() {
            stops.clear();
        }
        let (Checks { of_block: checks, tests }, leave) = cut_at_checks(&mut f, setting, &shapes, leave);
        let flow = Flow::new(&f);
        let frame = Frame::new(f.regs.len());
        let mut ways = vec![0; f.blocks.len()];
        for b in 0..f.blocks.len() {
            successors(&f, b as BlockId).iter().for_each(|s| ways[*s as usize] += 1);
        }
        Plan { ways, f, flow, shapes, setting, leave, checks, tests, stops, segments, waiting, frame }
    }

    /// Whether only one block leads to this one.
    pub fn cut(&self, b: BlockId) -> bool {
        b > 0 && self.ways[b as usize] == 1
    }

    /// The number of the stop that a block is, if it is one.
    pub fn stop(&self, b: BlockId) -> Option<usize> {
        self.stops.iter().position(|s| s.way == b)
    }

    pub fn shapes(&self) -> Shapes<'_> {
        Shapes { f: &self.f, setting: self.setting, regs: &self.shapes }
    }

    /// Whether a register may differ in any way over the lanes.
    pub fn differs(&self, r: Reg) -> bool {
        self.shapes[r as usize] == Shape::Lanes
    }

    /// Whether a thread may have to wait for another one on the way to `until`.
    pub fn region_waits(&self, from: &[BlockId], until: BlockId) -> bool {
        let blocks = region(&self.f, from, until);
        let mut insts = blocks.iter().flat_map(|b| &self.f.blocks[*b as usize].insts);
        insts.any(|i| waits(&i.op) || call_waits(&i.op, &self.waiting))
    }

    /// Whether a loop on the way to `until` has an atomic operation in it, as those have that wait for a lock.
    pub fn region_locks(&self, from: &[BlockId], until: BlockId) -> bool {
        let atomic = |b: &BlockId| {
            self.f.blocks[*b as usize]
                .insts
                .iter()
                .any(|i| matches!(i.op, Op::Atom { d: Some(_), .. } | Op::Call { .. }))
        };
        let again = |b: &BlockId| region(&self.f, &successors(&self.f, *b), until).contains(b);
        region(&self.f, from, until).iter().any(|b| atomic(b) && again(b))
    }

    /// Registers that lanes may have written on the way to `until`, and that are read there.
    pub fn changed(&self, from: &[BlockId], until: BlockId) -> Vec<Reg> {
        let Some(live) = self.flow.live.get(until as usize) else { return Vec::new() };
        let mut out = RegSet::new(self.f.regs.len());
        for b in region(&self.f, from, until) {
            for inst in &self.f.blocks[b as usize].insts {
                inst.op.dests(&mut |r| {
                    if live.contains(r) && self.differs(r) {
                        out.insert(r);
                    }
                });
            }
        }
        out.iter().collect()
    }
}

/// Where registers lie while scalar code runs: `[register][lane]`, places given as they are asked for.
pub struct Frame {
    places: RefCell<Vec<Option<u32>>>,
    size: Cell<u32>,
}

impl Frame {
    fn new(registers: usize) -> Frame {
        Frame { places: RefCell::new(vec![None; registers]), size: Cell::new(0) }
    }

    /// Bytes of one lane's value: predicates are masks of 32 bits.
    pub fn lane_bytes(class: Class) -> u32 {
        if class == Class::Pred { 4 } else { class.bits() / 8 }
    }

    /// The place of a register, if it has one.
    pub fn known(&self, r: Reg) -> Option<u32> {
        self.places.borrow()[r as usize]
    }

    /// The place of a register.
    pub fn place(&self, r: Reg, class: Class, width: u32) -> u32 {
        let mut places = self.places.borrow_mut();
        *places[r as usize].get_or_insert_with(|| {
            let at = self.size.get();
            self.size.set(at + (Self::lane_bytes(class) * width).next_multiple_of(16));
            at
        })
    }

    pub fn size(&self) -> u32 {
        self.size.get().max(16)
    }

    /// All places, by register.
    pub fn places(&self) -> Vec<u32> {
        self.places.borrow().iter().map(|p| p.unwrap_or(NOWHERE)).collect()
    }

    /// Gives registers the places that another plan of the same kernel gave them.
    pub fn restore(&self, places: &[u32]) {
        *self.places.borrow_mut() = places.iter().map(|p| (*p != NOWHERE).then_some(*p)).collect();
    }
}

/// Whether vector code can run an operation by which threads wait for each other.
fn handled(op: &Op) -> bool {
    match op {
        Op::Bar { id, count, .. } => {
            let fixed = |o: &Opd| matches!(o, Opd::Imm(_));
            fixed(id) && count.as_ref().is_none_or(fixed)
        }
        Op::Shfl { .. }
        | Op::Vote { .. }
        | Op::Match { .. }
        | Op::Redux { .. }
        | Op::ActiveMask { .. }
        | Op::Elect { .. }
        | Op::BarWarp { .. }
        | Op::Collective { .. }
        | Op::ClusterBarrier { .. }
        | Op::Yield => true,
        _ => false,
    }
}

/// Whether an operation calls something that may wait.
pub fn call_waits(op: &Op, waiting: &[bool]) -> bool {
    match op {
        Op::Call { callee: Callee::Function(g), .. } => waiting[*g as usize],
        Op::Call { callee: Callee::Pointer(_), .. } => waiting.contains(&true),
        _ => false,
    }
}

/// Only functions are asked for that the kernel can reach; the kernel itself is the first.
fn waiting_functions(p: &Program, reached: &[u32]) -> Vec<bool> {
    let mut out = vec![false; p.functions.len()];
    let mut again = true;
    while again {
        again = false;
        for &g in &reached[1..] {
            let mut insts = p.functions[g as usize].blocks.iter().flat_map(|b| &b.insts);
            if !out[g as usize] && insts.any(|i| waits(&i.op) || call_waits(&i.op, &out)) {
                out[g as usize] = true;
                again = true;
            }
        }
    }
    out
}

/// A new block at the end, for the rest of another one.
pub fn push(f: &mut Function, insts: Vec<Inst>, term: Term) -> BlockId {
    f.blocks.push(crate::ir::Block { insts, term });
    f.blocks.len() as BlockId - 1
}

/// Cuts blocks so that an operation that vector code leaves to the lanes, and each indexed branch, is alone in its block, and
/// that waiting operations have no guard but a branch around them.
fn isolate(f: &mut Function, waiting: &[bool]) -> Vec<bool> {
    let mut leave = vec![false; f.blocks.len()];
    let mut b = 0;
    while b < f.blocks.len() {
        let alone = |i: &Inst| (waits(&i.op) && !handled(&i.op)) || call_waits(&i.op, waiting);
        let block = &mut f.blocks[b];
        let at = block.insts.iter().position(|i| alone(i) || (i.guard.is_some() && waits(&i.op)));
        let Some(at) = at else {
            if matches!(block.term, Term::Switch { index: Opd::Reg(_) | Opd::Special(_), .. })
                && !block.insts.is_empty()
            {
                let term = std::mem::replace(&mut block.term, Term::Ret);
                let rest = push(f, Vec::new(), term);
                f.blocks[b].term = Term::Jump(rest);
                leave.push(false);
            }
            b += 1;
            continue;
        };
        if at > 0 {
            let tail = block.insts.split_off(at);
            let term = std::mem::replace(&mut block.term, Term::Ret);
            let rest = push(f, tail, term);
            f.blocks[b].term = Term::Jump(rest);
            leave.push(false);
            b += 1;
            continue;
        }
        let tail = block.insts.split_off(1);
        let term = std::mem::replace(&mut block.term, Term::Ret);
        if let Some(guard) = block.insts[0].guard.take() {
            let mut inst = block.insts.remove(0);
            inst.guard = None;
            let rest = push(f, tail, term);
            let then = push(f, vec![inst], Term::Jump(rest));
            f.blocks[b].term = Term::Branch { guard, then, other: rest };
            leave.extend([false, false]);
        } else {
            leave[b] = alone(&block.insts[0]);
            let rest = push(f, tail, term);
            f.blocks[b].term = Term::Jump(rest);
            leave.push(false);
        }
        b += 1;
    }
    leave
}

/// Blocks at which scalar code may have to begin or to stop.
pub struct Doors {
    pub entries: Vec<BlockId>,
    pub stops: Vec<BlockId>,
}

impl Plan {
    pub fn doors(&self) -> Doors {
        let n = self.f.blocks.len();
        let (mut entry, mut stop) = (vec![false; n], vec![false; n]);
        entry[0] = true;
        for b in 0..n {
            let term = &self.f.blocks[b].term;
            if self.leave[b] || self.checks[b].iter().any(|c| matches!(c, Check::Narrow { .. })) {
                entry[b] = true;
            }
            let parts = match term {
                Term::Branch { guard, .. } => self.parts(*guard),
                Term::Switch { index, .. } => {
                    let apart = !self.shapes().operand(crate::ir::Ty::U32, index).uniform();
                    entry[b] |= apart;
                    apart
                }
                _ => false,
            };
            if parts && matches!(term, Term::Branch { .. }) {
                successors(&self.f, b as BlockId).iter().for_each(|s| entry[*s as usize] = true);
            }
            let post = self.flow.post[b] as usize;
            if (parts || self.leave[b]) && post < n {
                stop[post] = true;
                // Lanes may have to go on from there without the others.
                entry[post] = true;
            }
        }
        let list = |v: Vec<bool>| (0..n as BlockId).filter(|b| v[*b as usize]).collect();
        Doors { entries: list(entry), stops: list(stop) }
    }

    pub fn parts(&self, guard: Guard) -> bool {
        !self.shapes[guard.reg as usize].uniform()
    }
}
