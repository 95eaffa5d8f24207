//! `mbarrier`, `barrier.cluster`, and addresses in other blocks of a cluster.

use super::Mods;
use crate::ir::{Addr, Class, Cmp, IntOp, MemoryFn, Op, Opd, Order, Pure, Space, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::ptx::lexer::Kind;
use crate::runtime::mbarrier::{ARRIVE_DROP, ARRIVE_EXPECTS, TEST_PARITY};

/// The space of an mbarrier object.
pub fn space(m: &mut Mods) -> Space {
    m.one_of(&[
        ("shared::cluster", Space::Cluster),
        ("shared::cta", Space::Shared),
        ("shared", Space::Shared),
    ])
    .unwrap_or(Space::Generic)
}

/// Semantics and scope: everything is sequentially consistent and of system scope.
fn order(m: &mut Mods) {
    m.one_of(&[("acquire", ()), ("release", ()), ("relaxed", ())]);
    m.one_of(&[("cta", ()), ("cluster", ())]);
}

pub fn push(
    b: &mut Body,
    f: MemoryFn,
    detail: u32,
    d: Vec<(Ty, Option<u32>)>,
    addr: Addr,
    a: Vec<(Ty, Opd)>,
) {
    b.push(Op::Memory { f, detail, size: 8, d, addr, a });
}

fn count(b: &mut Body) -> Result<Opd> {
    b.comma()?;
    b.source(Ty::U32)
}

/// `mbarrier.*`.
pub fn mbarrier(b: &mut Body, mut m: Mods) -> Result<()> {
    let operations = [
        "init",
        "inval",
        "expect_tx",
        "complete_tx",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "pending_count",
    ];
    let Some(&operation) = m.all().first().filter(|w| operations.contains(w)) else {
        return m.unsupported(b);
    };
    m.eat(operation);
    match operation {
        "arrive" | "arrive_drop" => return arrive(b, m, operation == "arrive_drop"),
        "test_wait" | "try_wait" => return test(b, m),
        "pending_count" => {
            m.eat("b64");
            m.end(b)?;
            let d = b.dest(Class::I32)?;
            b.comma()?;
            let state = b.source(Ty::B64)?;
            let v = b.int(IntOp::And, Ty::U64, state, Opd::Imm((1 << 20) - 1));
            b.mov(Ty::U32, d, v);
            return Ok(());
        }
        _ => {}
    }
    order(&mut m);
    let space = space(&mut m);
    m.eat("b64");
    m.end(b)?;
    let addr = b.address(space, 8)?;
    let f = match operation {
        // The memory may be used for anything now; nothing needs to be done.
        "inval" => return Ok(()),
        "init" => MemoryFn::MbarrierInit,
        "expect_tx" => MemoryFn::MbarrierExpect,
        _ => MemoryFn::MbarrierComplete,
    };
    let n = count(b)?;
    push(b, f, 0, vec![], addr, vec![(Ty::U32, n)]);
    Ok(())
}

/// `mbarrier.arrive{.expect_tx}{.noComplete}… state, [addr]{, count}`.
fn arrive(b: &mut Body, mut m: Mods, drop: bool) -> Result<()> {
    let expects = m.eat("expect_tx");
    m.eat("noComplete");
    order(&mut m);
    let space = space(&mut m);
    m.eat("b64");
    m.end(b)?;
    let state = if b.module.cursor.is(b'[') {
        None
    } else {
        let d = b.sink(Class::I64)?;
        b.comma()?;
        d
    };
    let addr = b.address(space, 8)?;
    let operand = if b.module.cursor.is(b',') { count(b)? } else { Opd::Imm(1) };
    let detail = if drop { ARRIVE_DROP } else { 0 } | if expects { ARRIVE_EXPECTS } else { 0 };
    let a = if expects { vec![(Ty::U32, Opd::Imm(1)), (Ty::U32, operand)] } else { vec![(Ty::U32, operand)] };
    let d = state.map(|r| (Ty::B64, Some(r))).into_iter().collect();
    push(b, MemoryFn::MbarrierArrive, detail, d, addr, a);
    Ok(())
}

/// `mbarrier.test_wait{.parity}… p, [addr], state`; `try_wait` may have a time limit behind that, and may give up at any time.
fn test(b: &mut Body, mut m: Mods) -> Result<()> {
    let parity = m.eat("parity");
    order(&mut m);
    let space = space(&mut m);
    m.eat("b64");
    m.end(b)?;
    let d = b.dest(Class::Pred)?;
    b.comma()?;
    let addr = b.address(space, 8)?;
    b.comma()?;
    let ty = if parity { Ty::U32 } else { Ty::B64 };
    let state = b.source(ty)?;
    if b.module.cursor.eat(b',') {
        b.source(Ty::U32)?;
    }
    let state = b.convert(Ty::U64, if parity { Ty::U32 } else { Ty::U64 }, super::build::PLAIN, state);
    let detail = if parity { TEST_PARITY } else { 0 };
    push(b, MemoryFn::MbarrierTest, detail, vec![(Ty::Pred, Some(d))], addr, vec![(Ty::U64, state)]);
    Ok(())
}

/// `cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr]`: copies are done when they are issued. Without `.noinc` one more arrival is
/// expected and made, which comes to nothing.
pub fn arrive_of_copies(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("mbarrier");
    if !m.eat("arrive") {
        return m.unsupported(b);
    }
    let counted = m.eat("noinc");
    let space = space(&mut m);
    m.eat("b64");
    m.end(b)?;
    let addr = b.address(space, 8)?;
    if counted {
        push(b, MemoryFn::MbarrierArrive, 0, vec![], addr, vec![(Ty::U32, Opd::Imm(1))]);
    }
    Ok(())
}

/// `clusterlaunchcontrol`: a request to take the place of a block that has not begun. The answer is always that there is none, which it
/// may be on a card at any time: 16 bytes of zeros, whose lowest bit would say that a block was cancelled.
pub fn cancel(b: &mut Body, mut m: Mods) -> Result<()> {
    if m.eat("try_cancel") {
        m.eat("async");
        let to = space(&mut m);
        let completes = m.eat("mbarrier::complete_tx::bytes");
        m.eat("b128");
        if !completes {
            return m.unsupported(b);
        }
        m.end(b)?;
        let addr = b.address(to, 16)?;
        b.comma()?;
        let object = b.address(to, 8)?;
        b.push(Op::St { ty: Ty::B64, order: Order::Relaxed, a: vec![Opd::Imm(0), Opd::Imm(0)], addr });
        push(b, MemoryFn::MbarrierComplete, 0, vec![], object, vec![(Ty::U32, Opd::Imm(16))]);
        return Ok(());
    }
    if !m.eat("query_cancel") {
        return m.unsupported(b);
    }
    let cancelled = m.eat("is_canceled");
    let part = m.one_of(&[
        ("get_first_ctaid", None),
        ("get_first_ctaid::x", Some(1)),
        ("get_first_ctaid::y", Some(2)),
        ("get_first_ctaid::z", Some(3)),
    ]);
    m.one_of(&[("v4", ()), ("pred", ())]);
    while m.eat("b32") {}
    m.eat("b128");
    m.end(b)?;
    let class = if cancelled { Class::Pred } else { Class::I32 };
    let d = b.list(|b| b.sink(class))?;
    b.comma()?;
    let response = b.source(Ty::B128)?;
    let words = b.unpack(Ty::B32, 4, response);
    if cancelled {
        let bit = b.int(IntOp::And, Ty::B32, words[0], Opd::Imm(1));
        let p = b.setp(Cmp::Ne, Ty::B32, bit, Opd::Imm(0), None);
        d[0].into_iter().for_each(|d| b.mov(Ty::Pred, d, p));
        return Ok(());
    }
    // The number of the block in words 1 to 3; nothing is said of the last one of four.
    let first = match part {
        Some(Some(word)) => word,
        Some(None) => 1,
        None => return m.unsupported(b),
    };
    for (d, word) in d.into_iter().zip(first..) {
        d.into_iter().for_each(|d| b.mov(Ty::B32, d, words.get(word).copied().unwrap_or(Opd::Imm(0))));
    }
    Ok(())
}

/// `barrier.cluster.arrive` and `.wait`.
pub fn cluster_barrier(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("cluster");
    let wait = m.eat("wait");
    if !wait && !m.eat("arrive") {
        return m.unsupported(b);
    }
    m.one_of(&[("acquire", ()), ("release", ()), ("relaxed", ())]);
    m.eat("aligned");
    m.end(b)?;
    if !wait {
        b.push(Op::Fence);
    }
    b.push(Op::ClusterBarrier { wait });
    Ok(())
}

/// `mapa{.shared::cluster}.type d, a, rank`.
pub fn map_address(b: &mut Body, mut m: Mods) -> Result<()> {
    let shared = m.eat("shared::cluster");
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::U32 | Ty::U64) {
        return m.unsupported(b);
    }
    let d = b.dest(ty.class())?;
    b.comma()?;
    let a = place(b, ty)?;
    b.comma()?;
    let rank = b.source(Ty::U32)?;
    let f = if shared { Pure::MapShared } else { Pure::MapGeneric };
    b.push(Op::Pure { f, detail: 0, ty, d, a: vec![(ty, a), (Ty::U32, rank)] });
    Ok(())
}

/// A register, or a shared variable with an offset.
fn place(b: &mut Body, ty: Ty) -> Result<Opd> {
    let a = b.source(ty)?;
    if let (Opd::Reg(_), Kind::Punct(b'+')) = (a, b.module.cursor.peek().kind) {
        b.module.cursor.next();
        let offset = b.module.cursor.integer()?;
        return Ok(b.int(IntOp::Add, ty, a, Opd::Imm(offset as u64)));
    }
    Ok(a)
}

/// `getctarank{.shared::cluster}.type d, a`.
pub fn rank(b: &mut Body, mut m: Mods) -> Result<()> {
    let shared = m.eat("shared::cluster");
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty, Ty::U32 | Ty::U64) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    b.comma()?;
    let a = place(b, ty)?;
    let f = if shared { Pure::RankOfShared } else { Pure::RankOfGeneric };
    b.push(Op::Pure { f, detail: 0, ty: Ty::U32, d, a: vec![(ty, a)] });
    Ok(())
}
