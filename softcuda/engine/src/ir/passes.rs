//! Analyses and clean-ups of the intermediate representation.

use super::{BlockId, Callee, Function, Inst, Op, Opd, Order, Program, Space, Symbol, Term};

/// What runs over a module once, when it is loaded.
pub fn prepare(p: &mut Program, optimise: bool) {
    for f in p.functions.iter_mut().filter(|f| optimise && !f.external) {
        super::optimise::function(f);
    }
    let looks = functions_that_look(p);
    let debug = p.debug;
    for f in p.functions.iter_mut().filter(|f| !f.external) {
        yields(f, &looks, debug);
    }
}

/// By function: whether it, or something that it calls, reads what other threads write.
fn functions_that_look(p: &Program) -> Vec<bool> {
    let mut looks = vec![false; p.functions.len()];
    let mut callers = vec![Vec::new(); p.functions.len()];
    let mut work = Vec::new();
    for (i, f) in p.functions.iter().enumerate() {
        for inst in f.blocks.iter().flat_map(|b| &b.insts) {
            if let Op::Call { callee: Callee::Function(g), .. } = inst.op {
                callers[g as usize].push(i);
            } else if sees_others(&inst.op, &[], p.debug) {
                work.push(i);
            }
        }
    }
    while let Some(f) = work.pop() {
        if !std::mem::replace(&mut looks[f], true) {
            work.extend(&callers[f]);
        }
    }
    looks
}

/// Blocks that control can go to from `b`.
pub fn successors(f: &Function, b: BlockId) -> Vec<BlockId> {
    match &f.blocks[b as usize].term {
        Term::Jump(t) => vec![*t],
        Term::Branch { then, other, .. } => vec![*then, *other],
        Term::Switch { targets, .. } => targets.clone(),
        Term::Ret | Term::Exit => vec![],
    }
}

/// Whether an operation does nothing but give its destinations values.
pub fn pure(op: &Op) -> bool {
    matches!(
        op,
        Op::Mov { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::Int { .. }
            | Op::IntUnary { .. }
            | Op::Int3 { .. }
            | Op::Bfi { .. }
            | Op::Mad { .. }
            | Op::Float { .. }
            | Op::FloatUnary { .. }
            | Op::Fma { .. }
            | Op::Setp { .. }
            | Op::Set { .. }
            | Op::Selp { .. }
            | Op::Slct { .. }
            | Op::Testp { .. }
            | Op::Cvt { .. }
            | Op::CvtPack { .. }
            | Op::Cvta { .. }
            | Op::Pure { .. }
            | Op::Isspacep { .. }
    )
}

/// The back edges of a depth-first walk: from where to where. Every cycle has one.
pub fn back_edges(f: &Function) -> Vec<(BlockId, BlockId)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut mark = vec![Mark::New; f.blocks.len()];
    let mut out = Vec::new();
    let mut stack = vec![(0 as BlockId, successors(f, 0), 0)];
    mark[0] = Mark::Open;
    while let Some((b, next, i)) = stack.last_mut() {
        let Some(&s) = next.get(*i) else {
            mark[*b as usize] = Mark::Done;
            stack.pop();
            continue;
        };
        *i += 1;
        match mark[s as usize] {
            Mark::Open => out.push((*b, s)),
            Mark::New => {
                mark[s as usize] = Mark::Open;
                stack.push((s, successors(f, s), 0));
            }
            Mark::Done => {}
        }
    }
    out
}

/// By block: whether code looks at its end whether it is to go on, as it may be the way back in a loop. Where it yields it does so
/// there.
pub fn listens(f: &Function) -> Vec<bool> {
    let mut out = vec![false; f.blocks.len()];
    for (from, _) in back_edges(f) {
        let block = &f.blocks[from as usize];
        out[from as usize] = !block.insts.iter().any(|i| i.guard.is_none() && i.op == Op::Yield);
    }
    out
}

/// The blocks of the loop of a back edge: what reaches `from` without passing `to`.
fn loop_body(preds: &[Vec<BlockId>], from: BlockId, to: BlockId) -> Vec<BlockId> {
    let mut seen = vec![false; preds.len()];
    seen[to as usize] = true;
    let mut body = vec![to];
    let mut work = vec![from];
    while let Some(b) = work.pop() {
        if !std::mem::replace(&mut seen[b as usize], true) {
            body.push(b);
            work.extend(&preds[b as usize]);
        }
    }
    body
}

/// Whether an operation may read what another thread writes at any time: what a loop can wait for.
fn sees_others(op: &Op, looks: &[bool], debug: bool) -> bool {
    match op {
        // An optimiser may take a weak load out of its loop, so nobody waits by one; without it they do.
        Op::Ld { order: Order::Weak, addr, .. } => {
            debug && matches!(addr.space, Space::Generic | Space::Global | Space::Shared)
        }
        Op::Ld { .. } => true,
        Op::Atom { d, .. } => d.is_some(),
        // What other threads do decides how these come out; stores and additions nobody looks at are the exception.
        Op::Memory { d, .. } => !d.is_empty(),
        Op::ClusterBarrier { wait } => *wait,
        // A fence makes weak loads around it look again; what is called by a pointer may do anything.
        Op::Fence | Op::Nanosleep | Op::Call { callee: Callee::Pointer(_), .. } => true,
        Op::Call { callee: Callee::Function(f), .. } => looks.get(*f as usize) == Some(&true),
        _ => false,
    }
}

/// Puts a [`Op::Yield`] at the end of each loop that may wait for another thread.
fn yields(f: &mut Function, looks: &[bool], debug: bool) {
    let edges = back_edges(f);
    if edges.is_empty() {
        return;
    }
    let mut preds = vec![Vec::new(); f.blocks.len()];
    for b in 0..f.blocks.len() as BlockId {
        for s in successors(f, b) {
            preds[s as usize].push(b);
        }
    }
    for (from, to) in edges {
        let body = loop_body(&preds, from, to);
        let waits =
            body.iter().flat_map(|b| &f.blocks[*b as usize].insts).any(|i| sees_others(&i.op, looks, debug));
        let block = &mut f.blocks[from as usize].insts;
        if waits && block.last().is_none_or(|i| i.op != Op::Yield) {
            let line = block.last().map_or(f.line, |i| i.line);
            block.push(Inst { guard: None, line, op: Op::Yield });
        }
    }
}

/// What a kernel needs to be compiled and run.
#[derive(Debug, Default, Clone)]
pub struct Reach {
    /// The kernel first, then every function that it may call.
    pub functions: Vec<u32>,
    /// A thread may have to wait for another one, or to leave from inside a function: each needs a stack of its own.
    pub waits: bool,
    /// Bytes of local memory a thread, as far as it can be known.
    pub local: u32,
    /// Frames may need more than the text shows (recursion, pointers, `alloca`): `local` is then a limit that is checked.
    pub unbounded: bool,
    /// Some function of the module has its address taken: [`Program::functions`] by number.
    pub indirect: bool,
    /// There is a barrier of the cluster in it.
    pub clusters: bool,
    /// Bytes that a function called by a pointer may reach beyond what its caller gave it, if the caller's prototype is not its own.
    pub slack: u32,
}

/// Local memory of a thread whose frames cannot be counted.
const DEEP_LOCAL: u32 = 64 << 10;

/// Follows the calls from a kernel.
pub fn reach(p: &Program, kernel: u32) -> Reach {
    let mut r = Reach { functions: vec![kernel], ..Reach::default() };
    let (mut at, mut allocates) = (0, false);
    while at < r.functions.len() {
        let f = &p.functions[r.functions[at] as usize];
        at += 1;
        for inst in f.blocks.iter().flat_map(|b| &b.insts) {
            match &inst.op {
                Op::Call { callee: Callee::Function(g), .. } if !r.functions.contains(g) => {
                    r.functions.push(*g)
                }
                Op::Call { callee: Callee::Pointer(_), .. } if !r.indirect => {
                    r.indirect = true;
                    for g in address_taken(p) {
                        let f = &p.functions[g as usize];
                        for x in f.params.iter().chain(&f.rets) {
                            r.slack = r.slack.max(x.offset + x.size);
                        }
                        if !r.functions.contains(&g) {
                            r.functions.push(g);
                        }
                    }
                }
                op => {
                    r.waits |= waits(op);
                    r.clusters |= matches!(op, Op::ClusterBarrier { .. });
                    allocates |= matches!(op, Op::Alloca { .. });
                }
            }
        }
        r.waits |= !f.kernel && f.blocks.iter().any(|b| b.term == Term::Exit);
    }
    let counted = !r.indirect && !allocates;
    let depth = frame_depth(p, kernel, &mut vec![0; p.functions.len()], MAX_CALLS).filter(|_| counted);
    r.unbounded = depth.is_none();
    r.local = depth.unwrap_or(DEEP_LOCAL + p.functions[kernel as usize].frame());
    r
}

pub fn waits(op: &Op) -> bool {
    matches!(
        op,
        Op::Bar { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::ActiveMask { .. }
            | Op::Elect { .. }
            | Op::BarWarp { .. }
            | Op::Collective { .. }
            | Op::ClusterBarrier { .. }
            | Op::Yield
    )
}

/// Functions whose address is in a register or variable somewhere in the module.
fn address_taken(p: &Program) -> Vec<u32> {
    let mut out = Vec::new();
    for f in &p.functions {
        for inst in f.blocks.iter().flat_map(|b| &b.insts) {
            inst.op.clone().sources_mut(&mut |o| {
                if let Opd::Sym(Symbol::Function(g), _) = o {
                    out.push(*g);
                }
            });
        }
    }
    for fixup in p.vars.iter().flat_map(|v| &v.fixups) {
        out.extend(p.functions.iter().position(|f| f.name == fixup.symbol).map(|i| i as u32));
    }
    out.sort_unstable();
    out.dedup();
    // A kernel's address is for launches by the device, not for calls.
    out.retain(|g| !p.functions[*g as usize].external && !p.functions[*g as usize].kernel);
    out
}

/// Calls nested deeper than this count as recursion.
const MAX_CALLS: u32 = 100;

/// The deepest stack of frames below a function; `None` for recursion.
fn frame_depth(p: &Program, f: u32, state: &mut [u64], calls: u32) -> Option<u32> {
    const OPEN: u64 = 1;
    const DONE: u64 = 2;
    match state[f as usize] & 3 {
        OPEN => return None,
        DONE => return Some((state[f as usize] >> 2) as u32),
        _ => {}
    }
    state[f as usize] = OPEN;
    let mut below = 0;
    for inst in p.functions[f as usize].blocks.iter().flat_map(|b| &b.insts) {
        if let Op::Call { callee: Callee::Function(g), .. } = &inst.op {
            below = below.max(frame_depth(p, *g, state, calls.checked_sub(1)?)?);
        }
    }
    let total = p.functions[f as usize].frame().saturating_add(below);
    state[f as usize] = DONE | u64::from(total) << 2;
    Some(total)
}
