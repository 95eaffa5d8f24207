//! Loads, stores, atomics, fences.

use super::Mods;
use crate::ir::{Addr, AtomOp, Base, Class, Cmp, Guard, Op, Opd, Order, Space, Symbol, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

fn space(m: &mut Mods) -> Space {
    m.one_of(&[
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
        ("param::func", Space::Param),
        ("param::entry", Space::Param),
    ])
    .unwrap_or(Space::Generic)
}

/// Scopes make no difference: everything is system scope here.
fn scope(m: &mut Mods) {
    m.one_of(&[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())]);
}

fn order(m: &mut Mods) -> Order {
    let o = m.one_of(&[
        ("weak", Order::Weak),
        ("volatile", Order::Volatile),
        ("relaxed", Order::Relaxed),
        ("acquire", Order::Acquire),
        ("release", Order::Release),
        ("mmio", Order::Volatile),
    ]);
    scope(m);
    // `.mmio` comes with `.relaxed`.
    m.eat("mmio");
    o.unwrap_or(Order::Weak)
}

/// Cache hints change nothing but one: `.cv` is a load that must see the newest value. Returns whether a cache-policy operand follows.
fn cache(m: &mut Mods, order: &mut Order) -> bool {
    if m.eat("cv") || m.eat("wt") {
        *order = Order::Volatile;
    }
    let hint = |w: &str| {
        matches!(w, "ca" | "cg" | "cs" | "lu" | "wb" | "nc") || (w.starts_with('L') && w.contains("::"))
    };
    let mut policy = false;
    while let Some(w) = m.take(hint) {
        policy |= w == "L2::cache_hint";
    }
    policy
}

fn lanes(m: &mut Mods) -> usize {
    m.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
}

/// The longest access that PTX has, in bytes: `.v8.b32` and `.v4.b64`.
const LONGEST: u32 = 32;

/// Whether memory holds vectors of `n` of this type.
fn accessible(ty: Ty, n: usize) -> bool {
    ty != Ty::Pred && (n == 1 || ty != Ty::B128 && ty.bytes() * n as u32 <= LONGEST)
}

fn policy_operand(b: &mut Body, present: bool) -> Result<()> {
    if present {
        b.comma()?;
        b.source(Ty::U64)?;
    }
    Ok(())
}

pub fn load(b: &mut Body, mut m: Mods) -> Result<()> {
    let mut order = order(&mut m);
    let space = space(&mut m);
    let policy = cache(&mut m, &mut order);
    m.eat("unified");
    let n = lanes(&mut m);
    let ty = m.ty(b)?;
    m.end(b)?;
    if !accessible(ty, n) {
        return m.unsupported(b);
    }
    let d = b.list(|b| b.sink(ty.class()))?;
    if d.len() != n {
        return b.error(format!("`{}` wants {n} destinations, {} are given", m.full(), d.len()));
    }
    b.comma()?;
    let addr = b.address(space, ty.bytes() * n as u32)?;
    policy_operand(b, policy)?;
    b.push(Op::Ld { ty, order, d, addr });
    Ok(())
}

pub fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    if m.eat("async") || m.eat("bulk") {
        return m.unsupported(b);
    }
    let mut order = order(&mut m);
    let space = space(&mut m);
    let policy = cache(&mut m, &mut order);
    let n = lanes(&mut m);
    let ty = m.ty(b)?;
    m.end(b)?;
    if !accessible(ty, n) || space == Space::Const {
        return m.unsupported(b);
    }
    let addr = b.address(space, ty.bytes() * n as u32)?;
    b.comma()?;
    let a = b.list(|b| b.source(ty))?;
    if a.len() != n {
        return b.error(format!("`{}` wants {n} values, {} are given", m.full(), a.len()));
    }
    policy_operand(b, policy)?;
    b.push(Op::St { ty, order, a, addr });
    Ok(())
}

pub fn atomic(b: &mut Body, mut m: Mods) -> Result<()> {
    let red = m.name == "red";
    if m.eat("async") {
        return m.unsupported(b);
    }
    m.one_of(&[("relaxed", ()), ("acquire", ()), ("release", ()), ("acq_rel", ())]);
    scope(&mut m);
    let space = space(&mut m);
    m.eat("noftz");
    let ops = [
        ("add", AtomOp::Add),
        ("min", AtomOp::Min),
        ("max", AtomOp::Max),
        ("and", AtomOp::And),
        ("or", AtomOp::Or),
        ("xor", AtomOp::Xor),
        ("exch", AtomOp::Exch),
        ("cas", AtomOp::Cas),
        ("inc", AtomOp::Inc),
        ("dec", AtomOp::Dec),
    ];
    let Some(op) = m.one_of(&ops) else { return m.unsupported(b) };
    let policy = cache(&mut m, &mut Order::Weak);
    let ty = m.ty(b)?;
    m.end(b)?;
    let fits = match op {
        AtomOp::Add => ty.integer() && ty.bytes() >= 4 || ty.float(),
        AtomOp::Min | AtomOp::Max => ty.integer() && ty.bytes() >= 4,
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
        AtomOp::Cas => !ty.float() && matches!(ty.bytes(), 2 | 4 | 8) || ty == Ty::F32 || ty == Ty::F64,
        _ => matches!(ty.bytes(), 4 | 8) && !matches!(ty, Ty::F16x2 | Ty::Bf16x2),
    };
    if !fits || matches!(space, Space::Const | Space::Param | Space::Local) {
        return m.unsupported(b);
    }
    let mut d = None;
    if !red {
        d = b.sink(ty.class())?;
        b.comma()?;
    }
    let addr = b.address(space, ty.bytes())?;
    b.comma()?;
    let x = b.source(ty)?;
    let c = if op == AtomOp::Cas {
        b.comma()?;
        b.source(ty)?
    } else {
        Opd::Imm(0)
    };
    policy_operand(b, policy)?;
    b.push(Op::Atom { op, ty, d, addr, b: x, c });
    Ok(())
}

/// All fences are full ones here.
pub fn fence(b: &mut Body, mut m: Mods) -> Result<()> {
    m.one_of(&[("sc", ()), ("acq_rel", ()), ("acquire", ()), ("release", ())]);
    m.one_of(&[("cta", ()), ("gl", ()), ("sys", ()), ("gpu", ()), ("cluster", ())]);
    m.end(b)?;
    b.push(Op::Fence);
    Ok(())
}

/// Hints about caches: read and dropped.
pub fn hint(b: &mut Body, mut m: Mods) -> Result<()> {
    while m.take(|_| true).is_some() {}
    b.address(Space::Generic, 0)?;
    if b.module.cursor.eat(b',') {
        b.source(Ty::U64)?;
    }
    Ok(())
}

/// `cp.async`: the copy is made at once, and what waits for it finds it done.
pub fn copy_async(b: &mut Body, mut m: Mods) -> Result<()> {
    if !m.eat("async") || m.eat("bulk") || m.eat("mbarrier") {
        return m.unsupported(b);
    }
    if m.eat("commit_group") || m.eat("wait_all") {
        return m.end(b);
    }
    if m.eat("wait_group") {
        m.end(b)?;
        b.source(Ty::U32)?;
        return Ok(());
    }
    let policy = cache(&mut m, &mut Order::Weak);
    // The two spaces stand next to each other: destination, source.
    m.one_of(&[("shared", ()), ("shared::cta", ())]);
    m.eat("global");
    m.end(b)?;
    let to = b.address(Space::Shared, 0)?;
    b.comma()?;
    let from = b.address(Space::Global, 0)?;
    b.comma()?;
    // What is reached without a check at run time is checked where the operand is read, and its size was not known there.
    if [&to, &from]
        .into_iter()
        .any(|a| !matches!(a.base, Base::Reg(_) | Base::None | Base::Sym(Symbol::Var(_) | Symbol::Shared(_))))
    {
        return b.error("`cp.async` copies from global to shared memory");
    }
    let size = b.module.cursor.size(16)? as u32;
    let (ty, lanes) = match size {
        4 => (Ty::B32, 1),
        8 => (Ty::B64, 1),
        16 => (Ty::B64, 2),
        _ => return m.unsupported(b),
    };
    let mut rest = Vec::new();
    while b.module.cursor.eat(b',') {
        rest.push(b.source(Ty::U64)?);
    }
    // With a cache policy that is the last operand; what is before it is the number of bytes to copy.
    if policy {
        rest.pop();
    }
    match rest.first() {
        None => {}
        Some(Opd::Imm(n)) if *n == u64::from(size) => {}
        Some(valid) => return partial_copy(b, to, from, *valid, size),
    }
    let d: Vec<_> = (0..lanes).map(|_| b.temp(ty.class())).collect();
    b.push(Op::Ld { ty, order: Order::Weak, d: d.iter().copied().map(Some).collect(), addr: from });
    b.push(Op::St { ty, order: Order::Weak, a: d.into_iter().map(Opd::Reg).collect(), addr: to });
    Ok(())
}

/// A copy of the first `valid` bytes, a multiple of 4; the rest becomes zero.
fn partial_copy(b: &mut Body, to: Addr, from: Addr, valid: Opd, size: u32) -> Result<()> {
    if b.guard.is_some() {
        return b.error("a guarded `cp.async` with a variable source size is not supported");
    }
    for at in (0..size).step_by(4) {
        let (p, v) = (b.temp(Class::Pred), b.temp(Class::I32));
        b.push(Op::Mov { ty: Ty::B32, d: v, a: Opd::Imm(0) });
        let n = Opd::Imm(u64::from(at));
        b.push(Op::Setp {
            cmp: Cmp::Gt,
            ty: Ty::U32,
            ftz: false,
            d: p,
            d2: None,
            a: valid,
            b: n,
            with: None,
        });
        b.guard = Some(Guard { reg: p, negated: false });
        let addr = Addr { offset: from.offset + i64::from(at), ..from };
        b.push(Op::Ld { ty: Ty::B32, order: Order::Weak, d: vec![Some(v)], addr });
        b.guard = None;
        let addr = Addr { offset: to.offset + i64::from(at), ..to };
        b.push(Op::St { ty: Ty::B32, order: Order::Weak, a: vec![Opd::Reg(v)], addr });
    }
    Ok(())
}

/// `createpolicy`: a cache policy is a number that nobody looks at.
pub fn policy(b: &mut Body, mut m: Mods) -> Result<()> {
    while m.take(|_| true).is_some() {}
    let d = b.dest(Class::I64)?;
    while b.module.cursor.eat(b',') {
        if b.module.cursor.is(b'[') {
            b.address(Space::Generic, 0)?;
        } else {
            b.source(Ty::B32)?;
        }
    }
    b.push(Op::Mov { ty: Ty::B64, d, a: Opd::Imm(0) });
    Ok(())
}
