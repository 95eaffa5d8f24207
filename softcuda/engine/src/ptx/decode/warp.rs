//! Barriers and the operations among the lanes of a warp.

use super::build::PLAIN;
use super::{Mods, sync};
use crate::ir::{BarOp, Class, FloatUnary, Op, Opd, ReduxOp, ShflMode, Ty, VoteMode};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// `bar`, `barrier`: among the threads of a block, and `bar.warp.sync`.
pub fn barrier(b: &mut Body, mut m: Mods) -> Result<()> {
    if m.eat("warp") {
        m.eat("sync");
        m.end(b)?;
        let mask = b.source(Ty::B32)?;
        b.push(Op::BarWarp { mask });
        return Ok(());
    }
    if m.has("cluster") {
        return sync::cluster_barrier(b, m);
    }
    m.eat("cta");
    m.eat("aligned");
    let red = m.eat("red");
    let op = match () {
        () if red && m.eat("popc") => BarOp::RedPopc,
        () if red && m.eat("and") => BarOp::RedAnd,
        () if red && m.eat("or") => BarOp::RedOr,
        () if m.eat("arrive") => BarOp::Arrive,
        () if !red && m.eat("sync") => BarOp::Sync,
        () => return m.unsupported(b),
    };
    if red {
        m.ty(b)?;
    }
    m.end(b)?;
    let mut d = None;
    if red {
        d = b.sink(if op == BarOp::RedPopc { Class::I32 } else { Class::Pred })?;
        b.comma()?;
    }
    let id = b.source(Ty::U32)?;
    if let Opd::Imm(16..) = id {
        return b.error("there are barriers 0 to 15");
    }
    let mut rest = Vec::new();
    while b.module.cursor.eat(b',') {
        // Of `bar.red` the last operand is the predicate.
        let is_predicate = red && (b.module.cursor.is(b'!') || next_is_predicate(b));
        rest.push((is_predicate, b.source(if is_predicate { Ty::Pred } else { Ty::U32 })?));
    }
    let p = rest.pop_if(|(is_predicate, _)| *is_predicate).map(|x| x.1);
    let count = rest.pop().map(|x| x.1);
    if !rest.is_empty() || red != p.is_some() || (op == BarOp::Arrive && count.is_none()) {
        return b.error(format!("wrong operands of `{}`", m.full()));
    }
    b.push(Op::Bar { op, d, id, count, p });
    Ok(())
}

/// Whether the operand at the cursor is a predicate register.
pub fn next_is_predicate(b: &Body) -> bool {
    let name = b.module.cursor.peek().text;
    matches!(b.name(name), Some(crate::ptx::function::Name::Reg(_, Ty::Pred)))
}

/// `shfl[.sync].mode.b32 d[|p], a, b, c[, membermask]`.
pub fn shuffle(b: &mut Body, mut m: Mods) -> Result<()> {
    let sync = m.eat("sync");
    let modes =
        [("up", ShflMode::Up), ("down", ShflMode::Down), ("bfly", ShflMode::Bfly), ("idx", ShflMode::Idx)];
    let Some(mode) = m.one_of(&modes) else { return m.unsupported(b) };
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty.bytes() != 4 {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    let p = if b.module.cursor.eat(b'|') { b.sink(Class::Pred)? } else { None };
    b.comma()?;
    let a = b.source(ty)?;
    b.comma()?;
    let x = b.source(Ty::U32)?;
    b.comma()?;
    let c = b.source(Ty::U32)?;
    let mask = mask(b, sync)?;
    b.push(Op::Shfl { mode, d, p, a, b: x, c, mask });
    Ok(())
}

fn mask(b: &mut Body, sync: bool) -> Result<Option<Opd>> {
    if !sync {
        return Ok(None);
    }
    b.comma()?;
    Ok(Some(b.source(Ty::B32)?))
}

pub fn vote(b: &mut Body, mut m: Mods) -> Result<()> {
    let sync = m.eat("sync");
    let modes = [
        ("all", VoteMode::All),
        ("any", VoteMode::Any),
        ("uni", VoteMode::Uni),
        ("ballot", VoteMode::Ballot),
    ];
    let Some(mode) = m.one_of(&modes) else { return m.unsupported(b) };
    m.ty(b)?;
    m.end(b)?;
    let d = b.dest(if mode == VoteMode::Ballot { Class::I32 } else { Class::Pred })?;
    b.comma()?;
    let p = b.source(Ty::Pred)?;
    let mask = mask(b, sync)?;
    b.push(Op::Vote { mode, d, p, mask });
    Ok(())
}

/// `match.any.sync.type d, a, mask`, `match.all.sync.type d[|p], a, mask`.
pub fn matching(b: &mut Body, mut m: Mods) -> Result<()> {
    let all = m.eat("all");
    if !(all || m.eat("any")) || !m.eat("sync") {
        return m.unsupported(b);
    }
    let ty = m.ty(b)?;
    m.end(b)?;
    if !matches!(ty.bytes(), 4 | 8) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    let p = if b.module.cursor.eat(b'|') { b.sink(Class::Pred)? } else { None };
    b.comma()?;
    let a = b.source(ty)?;
    b.comma()?;
    let mask = b.source(Ty::B32)?;
    b.push(Op::Match { all, ty, d, p, a, mask });
    Ok(())
}

pub fn redux(b: &mut Body, mut m: Mods) -> Result<()> {
    let ops = [
        ("add", ReduxOp::Add),
        ("min", ReduxOp::Min),
        ("max", ReduxOp::Max),
        ("and", ReduxOp::And),
        ("or", ReduxOp::Or),
        ("xor", ReduxOp::Xor),
    ];
    m.eat("sync");
    let Some(op) = m.one_of(&ops) else { return m.unsupported(b) };
    let (absolute, nan) = (m.eat("abs"), m.eat("NaN"));
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty == Ty::F32 && matches!(op, ReduxOp::Min | ReduxOp::Max) {
        return redux_float(b, op, absolute, nan);
    }
    if absolute || nan || !matches!(ty, Ty::S32 | Ty::U32 | Ty::B32) {
        return m.unsupported(b);
    }
    let d = b.dest(Class::I32)?;
    b.comma()?;
    let a = b.source(ty)?;
    b.comma()?;
    let mask = b.source(Ty::B32)?;
    b.push(Op::Redux { op, ty, d, a, mask });
    Ok(())
}

/// `redux.sync.op{.abs}{.NaN}.f32 d, a, mask`.
fn redux_float(b: &mut Body, op: ReduxOp, absolute: bool, nan: bool) -> Result<()> {
    let ty = Ty::F32;
    let d = b.dest(ty.class())?;
    b.comma()?;
    let mut a = b.source(ty)?;
    if absolute {
        let r = b.temp(ty.class());
        b.push(Op::FloatUnary { op: FloatUnary::Abs, ty, mode: PLAIN, d: r, a });
        a = Opd::Reg(r);
    }
    b.comma()?;
    let mask = b.source(Ty::B32)?;
    let op = match (op, nan) {
        (ReduxOp::Min, true) => ReduxOp::MinNan,
        (ReduxOp::Max, true) => ReduxOp::MaxNan,
        _ => op,
    };
    b.push(Op::Redux { op, ty, d, a, mask });
    Ok(())
}

pub fn activemask(b: &mut Body, mut m: Mods) -> Result<()> {
    m.ty(b)?;
    m.end(b)?;
    let d = b.dest(Class::I32)?;
    b.push(Op::ActiveMask { d });
    Ok(())
}

/// `elect.sync d|p, mask`.
pub fn elect(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("sync");
    m.end(b)?;
    let d = b.sink(Class::I32)?;
    if !b.module.cursor.eat(b'|') {
        return b.module.cursor.expected("`|` and a predicate");
    }
    let p = b.dest(Class::Pred)?;
    b.comma()?;
    let mask = b.source(Ty::B32)?;
    b.push(Op::Elect { d, p, mask });
    Ok(())
}
