//! Control flow and data flow of a function: predecessors, post-dominators, regions, liveness.

use super::passes::{back_edges, successors};
use super::{BlockId, Function, Inst, Opd, Reg, Term};

/// A set of registers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegSet {
    words: Vec<u64>,
}

impl RegSet {
    pub fn new(registers: usize) -> RegSet {
        RegSet { words: vec![0; registers.div_ceil(64)] }
    }

    pub fn insert(&mut self, r: Reg) {
        self.words[r as usize / 64] |= 1 << (r % 64);
    }

    pub fn remove(&mut self, r: Reg) {
        self.words[r as usize / 64] &= !(1 << (r % 64));
    }

    pub fn contains(&self, r: Reg) -> bool {
        self.words[r as usize / 64] >> (r % 64) & 1 == 1
    }

    /// Adds all of `other`; whether that changed anything.
    pub fn add(&mut self, other: &RegSet) -> bool {
        let mut changed = false;
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            changed |= *b & !*a != 0;
            *a |= b;
        }
        changed
    }

    /// The registers in rising order.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        self.words.iter().enumerate().flat_map(|(i, w)| {
            let mut left = *w;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(i as Reg * 64 + bit)
            })
        })
    }
}

/// What is known of a function's flow.
pub struct Flow {
    /// Immediate post-dominators; [`Flow::exit`] where a path leads to the end of the thread first.
    pub post: Vec<BlockId>,
    /// Registers whose value at the start of a block may still be read.
    pub live: Vec<RegSet>,
}

impl Flow {
    pub fn new(f: &Function) -> Flow {
        Flow { post: post_dominators(f), live: liveness(f) }
    }

    /// The number that stands for "the thread has ended".
    pub fn exit(&self) -> BlockId {
        self.post.len() as BlockId
    }
}

/// The blocks that can be reached from `from` without passing `until`.
pub fn region(f: &Function, from: &[BlockId], until: BlockId) -> Vec<BlockId> {
    let mut seen = vec![false; f.blocks.len()];
    let mut out = Vec::new();
    let mut work: Vec<BlockId> = from.to_vec();
    while let Some(b) = work.pop() {
        if b != until && !std::mem::replace(&mut seen[b as usize], true) {
            out.push(b);
            work.extend(successors(f, b));
        }
    }
    out
}

/// A loop: all that can come back to its head by one of its back edges.
#[derive(Debug, Clone)]
pub struct Loop {
    pub head: BlockId,
    /// Blocks that lead back to the head.
    pub back: Vec<BlockId>,
    /// All its blocks, the head among them.
    pub body: Vec<BlockId>,
}

/// The loops of a function.
pub fn loops(f: &Function) -> Vec<Loop> {
    let mut out: Vec<Loop> = Vec::new();
    for (from, head) in back_edges(f) {
        match out.iter_mut().find(|l| l.head == head) {
            Some(l) => l.back.push(from),
            None => out.push(Loop { head, back: vec![from], body: Vec::new() }),
        }
    }
    if out.is_empty() {
        return out;
    }
    let mut before = vec![Vec::new(); f.blocks.len()];
    for b in 0..f.blocks.len() as BlockId {
        successors(f, b).into_iter().for_each(|s| before[s as usize].push(b));
    }
    for l in &mut out {
        let mut inside = vec![false; f.blocks.len()];
        inside[l.head as usize] = true;
        let mut work = l.back.clone();
        while let Some(b) = work.pop() {
            if !std::mem::replace(&mut inside[b as usize], true) {
                work.extend(&before[b as usize]);
            }
        }
        l.body = (0..f.blocks.len() as BlockId).filter(|b| inside[*b as usize]).collect();
    }
    out
}

/// Cooper, Harvey and Kennedy's scheme on the reversed graph, with one virtual exit behind every end.
fn post_dominators(f: &Function) -> Vec<BlockId> {
    let n = f.blocks.len();
    let exit = n as BlockId;
    let mut preds = vec![Vec::new(); n + 1];
    for b in 0..exit {
        let next = successors(f, b);
        for s in &next {
            preds[*s as usize].push(b);
        }
        if next.is_empty() {
            preds[n].push(b);
        }
    }
    // Post-order of the reversed graph, from the exit.
    let mut order = Vec::new();
    let mut number = vec![usize::MAX; n + 1];
    let mut stack = vec![(exit, 0usize)];
    let mut seen = vec![false; n + 1];
    seen[n] = true;
    while let Some((b, i)) = stack.last_mut() {
        if let Some(&p) = preds[*b as usize].get(*i) {
            *i += 1;
            if !std::mem::replace(&mut seen[p as usize], true) {
                stack.push((p, 0));
            }
        } else {
            number[*b as usize] = order.len();
            order.push(*b);
            stack.pop();
        }
    }
    let mut idom: Vec<Option<BlockId>> = vec![None; n + 1];
    idom[n] = Some(exit);
    let meet = |idom: &[Option<BlockId>], mut a: BlockId, mut b: BlockId| {
        while a != b {
            while number[a as usize] < number[b as usize] {
                a = idom[a as usize].unwrap_or(exit);
            }
            while number[b as usize] < number[a as usize] {
                b = idom[b as usize].unwrap_or(exit);
            }
        }
        a
    };
    let mut again = true;
    while again {
        again = false;
        for &b in order.iter().rev().filter(|b| **b != exit) {
            let mut next = successors(f, b);
            if next.is_empty() {
                next.push(exit);
            }
            let known = next.into_iter().filter(|s| idom[*s as usize].is_some());
            let new = known.reduce(|x, y| meet(&idom, x, y));
            if new != idom[b as usize] {
                idom[b as usize] = new;
                again = true;
            }
        }
    }
    // A block that never comes to an end (an endless loop) has none: nothing joins there.
    idom.truncate(n);
    idom.into_iter().map(|d| d.unwrap_or(exit)).collect()
}

/// Adds what an instruction reads, after taking away what it writes for certain.
pub(super) fn step_back(inst: &Inst, live: &mut RegSet) {
    if inst.guard.is_none() {
        inst.op.dests(&mut |r| live.remove(r));
    }
    inst.op.uses(&mut |r| live.insert(r));
    if let Some(g) = inst.guard {
        live.insert(g.reg);
    }
}

pub(super) fn liveness(f: &Function) -> Vec<RegSet> {
    let n = f.blocks.len();
    let mut live = vec![RegSet::new(f.regs.len()); n];
    let mut again = true;
    while again {
        again = false;
        for b in (0..n).rev() {
            let mut set = RegSet::new(f.regs.len());
            for s in successors(f, b as BlockId) {
                set.add(&live[s as usize]);
            }
            match &f.blocks[b].term {
                Term::Branch { guard, .. } => set.insert(guard.reg),
                Term::Switch { index: Opd::Reg(r), .. } => set.insert(*r),
                _ => {}
            }
            for inst in f.blocks[b].insts.iter().rev() {
                step_back(inst, &mut set);
            }
            again |= live[b].add(&set);
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::parse;

    /// Blocks are numbered in the order of the text.
    fn kernel(body: &str) -> Function {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n\
             .reg .pred p<4>; .reg .b32 r<8>;\n{body}\n}}"
        );
        parse(&text).unwrap_or_else(|e| panic!("{e}")).functions.remove(0)
    }

    #[test]
    fn arms_of_a_branch_join_behind_it() {
        let f = kernel(
            "setp.eq.u32 p0, r0, 1; @p0 bra A; mov.u32 r1, 1; bra J; A: mov.u32 r1, 2; J: mov.u32 r2, r1; ret;",
        );
        let flow = Flow::new(&f);
        let Term::Branch { then, other, .. } = f.blocks[0].term else { panic!("a branch") };
        let join = flow.post[0];
        assert_eq!(flow.post[then as usize], join);
        assert_eq!(flow.post[other as usize], join);
        assert_eq!(flow.post[join as usize], flow.exit());
        assert_eq!(flow.live[join as usize].iter().count(), 1, "r1 alone");
        assert_eq!(region(&f, &[then, other], join).len(), 2);
    }

    #[test]
    fn an_early_end_leaves_nothing_to_join_at() {
        let f = kernel("setp.eq.u32 p0, r0, 1; @p0 bra A; ret; A: mov.u32 r1, 2; ret;");
        let flow = Flow::new(&f);
        assert_eq!(flow.post[0], flow.exit());
    }

    #[test]
    fn a_loop_is_the_region_of_its_exit_branch() {
        let f = kernel(
            "mov.u32 r1, 0; L: add.u32 r1, r1, 1; setp.lt.u32 p0, r1, r0; @p0 bra L; mov.u32 r2, r1; ret;",
        );
        let flow = Flow::new(&f);
        let at =
            (0..f.blocks.len()).find(|b| matches!(f.blocks[*b].term, Term::Branch { .. })).expect("a branch");
        let Term::Branch { then, other, .. } = f.blocks[at].term else { panic!("a branch") };
        assert_eq!(flow.post[at], other);
        assert!(region(&f, &[then, other], other).contains(&(at as BlockId)));
    }

    #[test]
    fn an_endless_loop_joins_nowhere() {
        let f = kernel("L: add.u32 r1, r1, 1; bra L;");
        let flow = Flow::new(&f);
        assert!(flow.post.iter().all(|p| *p == flow.exit()));
    }
}
