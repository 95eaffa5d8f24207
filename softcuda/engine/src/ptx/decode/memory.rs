//! Loads, stores, atomics, fences.

use super::warp::next_is_predicate;
use super::{Mods, asynchronous, sync};
use crate::ir::{
    Addr, AtomOp, Base, BoolOp, Class, Cmp, Guard, IntUnary, MemoryFn, Op, Opd, Order, Space, Symbol, Ty,
};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::runtime::access::{LANES_F32, vector_operation};

pub fn space(m: &mut Mods) -> Space {
    m.one_of(&[
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Cluster),
        ("local", Space::Local),
        ("const", Space::Const),
        ("param", Space::Param),
        ("param::func", Space::Param),
        ("param::entry", Space::Param),
    ])
    .unwrap_or(Space::Generic)
}

/// Scopes make no difference: everything is system scope here.
pub fn scope(m: &mut Mods) {
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

pub fn lanes(m: &mut Mods) -> usize {
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
    if ty == Ty::B128 && order != Order::Weak {
        let d = vec![(ty, d[0])];
        b.push(Op::Memory { f: MemoryFn::Load128, detail: 0, size: 16, d, addr, a: vec![] });
        return Ok(());
    }
    b.push(Op::Ld { ty, order, d, addr });
    Ok(())
}

pub fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    if m.eat("async") {
        return asynchronous::store(b, m);
    }
    if m.eat("bulk") {
        return asynchronous::zeros(b, m);
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
    if b.f.kernel && matches!(addr.base, Base::Sym(Symbol::Arg(_))) {
        return b.error("parameters of a kernel cannot be written");
    }
    b.comma()?;
    let a = b.list(|b| b.source(ty))?;
    if a.len() != n {
        return b.error(format!("`{}` wants {n} values, {} are given", m.full(), a.len()));
    }
    policy_operand(b, policy)?;
    if ty == Ty::B128 && order != Order::Weak {
        let a = vec![(ty, a[0])];
        b.push(Op::Memory { f: MemoryFn::Store128, detail: 0, size: 16, d: vec![], addr, a });
        return Ok(());
    }
    b.push(Op::St { ty, order, a, addr });
    Ok(())
}

/// What atomic operations do, by name.
pub const OPERATIONS: [(&str, AtomOp); 10] = [
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

pub fn atomic(b: &mut Body, mut m: Mods) -> Result<()> {
    let red = m.name == "red";
    if red && m.eat("async") {
        return asynchronous::reduce(b, m);
    }
    m.one_of(&[("relaxed", ()), ("acquire", ()), ("release", ()), ("acq_rel", ())]);
    scope(&mut m);
    let space = space(&mut m);
    m.eat("noftz");
    let Some(op) = m.one_of(&OPERATIONS) else { return m.unsupported(b) };
    let policy = cache(&mut m, &mut Order::Weak);
    let n = lanes(&mut m);
    let ty = m.ty(b)?;
    m.end(b)?;
    if n > 1 {
        return vector_atomic(b, &m, Vector { op, ty, n, space, returns: !red, policy });
    }
    if ty == Ty::B128 && matches!(op, AtomOp::Exch | AtomOp::Cas) && !red {
        return wide_atomic(b, op == AtomOp::Cas, space, policy);
    }
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

/// `atom.exch.b128` and `atom.cas.b128`.
fn wide_atomic(b: &mut Body, compares: bool, space: Space, policy: bool) -> Result<()> {
    let ty = Ty::B128;
    let d = b.sink(ty.class())?;
    b.comma()?;
    let addr = b.address(space, ty.bytes())?;
    b.comma()?;
    let mut a = vec![(ty, b.source(ty)?)];
    if compares {
        b.comma()?;
        a.push((ty, b.source(ty)?));
    }
    policy_operand(b, policy)?;
    let f = if compares { MemoryFn::Compare128 } else { MemoryFn::Exchange128 };
    b.push(Op::Memory { f, detail: 0, size: ty.bytes(), d: vec![(ty, d)], addr, a });
    Ok(())
}

/// An atomic operation on each lane of a vector.
struct Vector {
    op: AtomOp,
    ty: Ty,
    n: usize,
    space: Space,
    returns: bool,
    policy: bool,
}

/// `red.global.add.v4.f32` and its like (sm_90): in global memory, of f32 (`.add`) and 16-bit floats.
fn vector_atomic(b: &mut Body, m: &Mods, v: Vector) -> Result<()> {
    let Vector { op, ty, n, .. } = v;
    let kind = match ty {
        Ty::F16 => 0,
        Ty::F16x2 => 1,
        Ty::Bf16 => 2,
        Ty::Bf16x2 => 3,
        Ty::F32 if op == AtomOp::Add => LANES_F32,
        _ => return m.unsupported(b),
    };
    let (Some(code), true) = (vector_operation(op), ty.bytes() * n as u32 <= 16) else {
        return m.unsupported(b);
    };
    if !matches!(v.space, Space::Global | Space::Generic) {
        return m.unsupported(b);
    }
    let mut d = Vec::new();
    if v.returns {
        d = b.list(|b| Ok((ty, b.sink(ty.class())?)))?;
        b.comma()?;
    }
    let addr = b.address(v.space, ty.bytes() * n as u32)?;
    b.comma()?;
    let a = b.list(|b| Ok((ty, b.source(ty)?)))?;
    policy_operand(b, v.policy)?;
    if a.len() != n || (v.returns && d.len() != n) {
        return b.error(format!("`{}` wants vectors of {n} elements", m.full()));
    }
    let detail = n as u32 | kind << 8 | code << 16;
    b.push(Op::Memory { f: MemoryFn::VectorAtomic, detail, size: ty.bytes() * n as u32, d, addr, a });
    Ok(())
}

/// All fences are full ones here.
pub fn fence(b: &mut Body, mut m: Mods) -> Result<()> {
    // Between proxies, and of barriers' initialisation: there is one memory.
    if m.eat("proxy") && m.take(|w| w.starts_with("async") || w == "alias").is_none() {
        return m.unsupported(b);
    }
    m.eat("mbarrier_init");
    m.eat("global");
    m.take(|w| w.starts_with("shared"));
    m.take(|w| w.starts_with("sync_restrict::"));
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
    if m.has("async") && m.has("mbarrier") && !m.has("bulk") {
        m.eat("async");
        return sync::arrive_of_copies(b, m);
    }
    if !m.eat("async") || m.eat("bulk") {
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
        rest.push(if next_is_predicate(b) { ignored(b, size)? } else { b.source(Ty::U64)? });
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

/// The `ignore-src` predicate as a number of bytes to copy.
fn ignored(b: &mut Body, size: u32) -> Result<Opd> {
    let p = b.source(Ty::Pred)?;
    let d = b.temp(Class::I64);
    b.push(Op::Selp { ty: Ty::U64, d, a: Opd::Imm(0), b: Opd::Imm(u64::from(size)), p });
    Ok(Opd::Reg(d))
}

/// A copy of the first `valid` bytes, a multiple of 4; the rest becomes zero.
fn partial_copy(b: &mut Body, to: Addr, from: Addr, valid: Opd, size: u32) -> Result<()> {
    let outer = b.guard;
    // What the instruction's own guard says holds for each load too.
    let with = outer.map(|g| {
        let p = Opd::Reg(g.reg);
        (BoolOp::And, if g.negated { b.int1(IntUnary::Not, Ty::Pred, p) } else { p })
    });
    b.guard = None;
    for at in (0..size).step_by(4) {
        let (p, v) = (b.temp(Class::Pred), b.temp(Class::I32));
        b.push(Op::Mov { ty: Ty::B32, d: v, a: Opd::Imm(0) });
        let n = Opd::Imm(u64::from(at));
        b.push(Op::Setp { cmp: Cmp::Gt, ty: Ty::U32, ftz: false, d: p, d2: None, a: valid, b: n, with });
        b.guard = Some(Guard { reg: p, negated: false });
        let addr = Addr { offset: from.offset + i64::from(at), ..from };
        b.push(Op::Ld { ty: Ty::B32, order: Order::Weak, d: vec![Some(v)], addr });
        b.guard = outer;
        let addr = Addr { offset: to.offset + i64::from(at), ..to };
        b.push(Op::St { ty: Ty::B32, order: Order::Weak, a: vec![Opd::Reg(v)], addr });
        b.guard = None;
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
