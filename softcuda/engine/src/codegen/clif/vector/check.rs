//! What vector code takes for granted in a block and has tested once at its start. Where a value wraps, the group ends in scalar
//! code; where memory is not plainly accessible, the run time looks at each access, and ends the grid or lets it go on.

use super::plan::push;
use super::shape::{Setting, Shape, Shapes};
use crate::codegen::Covered;
use crate::ir::passes::waits;
use crate::ir::{Addr, Base, Class, Function, Inst, Op, Order, Reg, Space, Term};
use crate::memory::GRANULE_BITS;

/// A test at the start of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The 32 bits of a register do not wrap within the group; `signed` tells which numbers they are.
    Narrow { reg: Reg, signed: bool },
    /// All covers of [`Checks::tests`] with this number.
    Memory(u32),
}

/// Accesses that are tested together before the first of them.
#[derive(Debug, Clone, Default)]
pub struct Test {
    pub covers: Vec<Cover>,
    /// All of them, in their order.
    pub list: Vec<Covered>,
}

/// What an access needs of a test that is to stand for it.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    pub addr: &'a Addr,
    /// Bytes of one lane.
    pub size: u32,
    /// Lanes that lie side by side; 1 if all have one address.
    pub lanes: u32,
    pub write: bool,
}

impl Test {
    /// Whether this test stands for an access by way of one of its covers. In shared memory all between the ends may be
    /// accessed. Elsewhere the run time may have let the accesses of the list pass one by one, and then what lies between
    /// them may be closed, or what they read may not be written: it stands for no others.
    pub fn answers_for(&self, cover: usize, a: Needs) -> bool {
        let same = |c: &Covered| {
            (c.cover as usize, c.offset, c.size, c.lanes) == (cover, a.addr.offset, a.size, a.lanes)
                && (c.write || !a.write)
        };
        self.covers[cover].holds(a.addr, i64::from(a.size), i64::from(a.size) * i64::from(a.lanes))
            && (a.addr.space == Space::Shared || self.list.iter().any(same))
    }
}

/// Values that one test needs at once: each of them stays in a register.
const MOST_COVERS: usize = 8;

/// All accesses of a block by way of one register: it is enough to look at both ends, since between them lies nothing that
/// the ends do not tell (one allocation of shared memory; at most two granules of the table).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover {
    pub base: Reg,
    pub space: Space,
    /// First byte, and one behind the last, from the register's value in lane 0.
    pub low: i64,
    pub high: i64,
    /// The register plus this is a multiple of `align`.
    pub anchor: i64,
    pub align: i64,
}

impl Cover {
    /// Whether `size` bytes at `offset`, of `len` bytes over all lanes, lie in it.
    fn holds(&self, addr: &Addr, size: i64, len: i64) -> bool {
        addr.base == Base::Reg(self.base)
            && addr.space == self.space
            && addr.offset >= self.low
            && addr.offset.checked_add(len).is_some_and(|end| end <= self.high)
            && self.fits(addr.offset, size)
    }

    fn fits(&self, offset: i64, size: i64) -> bool {
        size <= self.align && offset.wrapping_sub(self.anchor) % size == 0
    }

    /// This with one more access in it, if that can be.
    fn with(self, offset: i64, size: i64, len: i64) -> Option<Cover> {
        let end = offset.checked_add(len)?;
        let mut new = Cover { low: self.low.min(offset), high: self.high.max(end), ..self };
        if size > self.align {
            (new.anchor, new.align) = (offset, size);
        }
        let near = new.high.checked_sub(new.low)? <= 1 << GRANULE_BITS;
        (near && new.fits(self.anchor, self.align.min(size)) && new.fits(offset, size)).then_some(new)
    }
}

/// An access that may stand under a cover, if it is one.
fn access<'a>(f: &Function, shapes: &Shapes, setting: Setting, inst: &'a Inst) -> Option<Needs<'a>> {
    let (ty, count, addr, write) = match &inst.op {
        Op::Ld { ty, order: Order::Weak, d, addr } => (ty, d.len(), addr, false),
        Op::St { ty, order: Order::Weak, a, addr } => (ty, a.len(), addr, true),
        _ => return None,
    };
    let Base::Reg(r) = addr.base else { return None };
    let wide = match addr.space {
        Space::Shared => matches!(f.regs[r as usize], Class::I32 | Class::I64),
        Space::Global | Space::Generic | Space::Const => f.regs[r as usize] == Class::I64,
        _ => false,
    };
    let size = ty.bytes() * count as u32;
    let lanes = match shapes.address(addr) {
        Shape::Affine(0) => 1,
        Shape::Affine(s) if s == i64::from(size) => setting.width,
        _ => return None,
    };
    let usual = wide && size.count_ones() == 1 && inst.guard.is_none();
    // A shared offset that wraps is then beyond every block's memory, also in 64 bits.
    (usual && addr.offset.unsigned_abs() < 1 << 30).then_some(Needs { addr, size, lanes, write })
}

/// A test of the first access of a run of instructions, with all that follow for certain by registers that are not written before.
fn test(
    f: &Function,
    shapes: &Shapes,
    setting: Setting,
    insts: &[Inst],
    known: &Known,
    tests: &[Test],
) -> Test {
    let mut test = Test::default();
    let mut written = Vec::new();
    for inst in insts {
        if let Some(a) = access(f, shapes, setting, inst)
            && let Base::Reg(base) = a.addr.base
            && !written.contains(&base)
            && !known.answers_for(tests, a)
            && let Some(cover) = test.take(base, a.addr, i64::from(a.size), i64::from(a.size * a.lanes))
        {
            test.list.push(Covered {
                cover: cover as u32,
                offset: a.addr.offset,
                size: a.size,
                lanes: a.lanes,
                line: inst.line,
                write: a.write,
                shared: a.addr.space == Space::Shared,
                narrow: f.regs[base as usize] == Class::I32,
            });
        }
        if waits(&inst.op) || matches!(inst.op, Op::Call { .. } | Op::Trap) {
            break;
        }
        inst.op.dests(&mut |r| written.push(r));
    }
    test
}

impl Test {
    /// The cover that takes one more access, if there can be one.
    fn take(&mut self, base: Reg, a: &Addr, size: i64, len: i64) -> Option<usize> {
        for (i, c) in self.covers.iter_mut().enumerate().filter(|(_, c)| c.base == base && c.space == a.space)
        {
            if let Some(more) = c.with(a.offset, size, len) {
                *c = more;
                return Some(i);
            }
        }
        if self.covers.len() == MOST_COVERS {
            return None;
        }
        let (low, high) = (a.offset, a.offset.checked_add(len)?);
        self.covers.push(Cover { base, space: a.space, low, high, anchor: a.offset, align: size });
        Some(self.covers.len() - 1)
    }
}

/// What is tested at the start of each block.
pub struct Checks {
    pub of_block: Vec<Vec<Check>>,
    pub tests: Vec<Test>,
}

/// What holds at a place.
#[derive(Debug, Clone, Default)]
struct Known {
    narrow: Vec<(Reg, bool)>,
    /// Tests that were made, and those of their covers whose registers are what they were.
    covers: Vec<(u32, usize)>,
}

impl Known {
    fn answers_for(&self, tests: &[Test], a: Needs) -> bool {
        self.covers.iter().any(|(test, cover)| tests[*test as usize].answers_for(*cover, a))
    }

    fn add(&mut self, check: Check, tests: &[Test]) {
        match check {
            Check::Narrow { reg, signed } => self.narrow.push((reg, signed)),
            Check::Memory(n) => self.covers.extend((0..tests[n as usize].covers.len()).map(|c| (n, c))),
        }
    }

    fn forget(&mut self, r: Reg, tests: &[Test]) {
        self.narrow.retain(|n| n.0 != r);
        self.covers.retain(|(test, cover)| tests[*test as usize].covers[*cover].base != r);
    }
}

/// Cuts blocks so that each check is made at the start of one: before an operation that widens an affine value, once for
/// each value of a register, and before the first of several accesses.
pub fn cut_at_checks(
    f: &mut Function,
    setting: Setting,
    regs: &[Shape],
    mut leave: Vec<bool>,
) -> (Checks, Vec<bool>) {
    let mut checks: Vec<Vec<Check>> = vec![Vec::new(); f.blocks.len()];
    let mut tests = Vec::new();
    // What holds at the start of a block that was cut off another one.
    let mut held: Vec<Known> = vec![Known::default(); f.blocks.len()];
    let mut b = 0;
    while b < f.blocks.len() {
        let mut known = held[b].clone();
        checks[b].iter().for_each(|c| known.add(*c, &tests));
        let Some((i, check)) = first_unknown(f, setting, regs, b, &mut known, &mut tests) else {
            b += 1;
            continue;
        };
        if i == 0 {
            checks[b].push(check);
            continue;
        }
        let tail = f.blocks[b].insts.split_off(i);
        let term = std::mem::replace(&mut f.blocks[b].term, Term::Ret);
        let rest = push(f, tail, term);
        f.blocks[b].term = Term::Jump(rest);
        checks.push(vec![check]);
        held.push(known);
        leave.push(false);
        b += 1;
    }
    (Checks { of_block: checks, tests }, leave)
}

/// The first instruction of a block that needs a check that is not in `known`, which is then what holds before it.
fn first_unknown(
    f: &Function,
    setting: Setting,
    regs: &[Shape],
    b: usize,
    known: &mut Known,
    tests: &mut Vec<Test>,
) -> Option<(usize, Check)> {
    let shapes = Shapes { f, setting, regs };
    let insts = &f.blocks[b].insts;
    for (i, inst) in insts.iter().enumerate() {
        let apart = inst.guard.is_some_and(|g| !regs[g.reg as usize].uniform());
        if let Some((reg, signed)) = shapes.widens(&inst.op).filter(|_| !apart)
            && !known.narrow.contains(&(reg, signed))
        {
            return Some((i, Check::Narrow { reg, signed }));
        }
        if let Some(a) = access(f, &shapes, setting, inst)
            && !known.answers_for(tests, a)
        {
            let test = test(f, &shapes, setting, &insts[i..], known, tests);
            if !test.covers.is_empty() {
                tests.push(test);
                return Some((i, Check::Memory(tests.len() as u32 - 1)));
            }
        }
        inst.op.dests(&mut |r| known.forget(r, tests));
    }
    None
}
