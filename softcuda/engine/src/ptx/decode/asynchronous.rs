//! `st.async`, `red.async`, `st.bulk`: done at once, so that whoever waits for them finds them done.

use super::Mods;
use super::memory::{OPERATIONS, lanes, scope, space};
use super::sync;
use crate::ir::{AtomOp, MemoryFn, Op, Opd, Order, Space, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// Words before the operation: its space, and whether an mbarrier object hears of it, without which it is a release.
fn head(b: &Body, m: &mut Mods) -> Result<(Space, bool)> {
    m.eat("mmio");
    m.one_of(&[("weak", ()), ("relaxed", ()), ("release", ())]);
    scope(m);
    let completes = m.eat("mbarrier::complete_tx::bytes");
    let to = space(m);
    let fits = if completes { Space::Cluster } else { Space::Global };
    if to != fits && to != Space::Generic {
        return m.unsupported(b);
    }
    Ok((if completes { Space::Cluster } else { to }, completes))
}

/// `, [object]`: so many bytes are there.
fn complete(b: &mut Body, bytes: u32) -> Result<()> {
    b.comma()?;
    let object = b.address(Space::Cluster, 8)?;
    let a = vec![(Ty::U32, Opd::Imm(u64::from(bytes)))];
    sync::push(b, MemoryFn::MbarrierComplete, 0, vec![], object, a);
    Ok(())
}

/// `st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type [a], b, [object]`, and with `.release` and no object.
pub fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    let (to, completes) = head(b, &mut m)?;
    let n = lanes(&mut m);
    let ty = m.ty(b)?;
    m.end(b)?;
    if ty.bytes() < 4 && completes || ty.bytes() > 8 || n > 4 {
        return m.unsupported(b);
    }
    let addr = b.address(to, ty.bytes() * n as u32)?;
    b.comma()?;
    let a = b.list(|b| b.source(ty))?;
    if a.len() != n {
        return b.error(format!("`{}` wants {n} values, {} are given", m.full(), a.len()));
    }
    let order = if completes { Order::Relaxed } else { Order::Release };
    b.push(Op::St { ty, order, a, addr });
    if completes { complete(b, ty.bytes() * n as u32) } else { Ok(()) }
}

/// `red.async.relaxed.cluster{.shared::cluster}.mbarrier::complete_tx::bytes.op.type [a], b, [object]`, and with `.release` and no object.
pub fn reduce(b: &mut Body, mut m: Mods) -> Result<()> {
    let (to, completes) = head(b, &mut m)?;
    let Some(op) = m.one_of(&OPERATIONS) else { return m.unsupported(b) };
    let ty = m.ty(b)?;
    m.end(b)?;
    let fits = match op {
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
        AtomOp::Min | AtomOp::Max => matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64),
        AtomOp::And | AtomOp::Or | AtomOp::Xor => matches!(ty, Ty::B32 | Ty::B64),
        AtomOp::Add => matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64),
        AtomOp::Exch | AtomOp::Cas => false,
    };
    if !fits {
        return m.unsupported(b);
    }
    let addr = b.address(to, ty.bytes())?;
    b.comma()?;
    let x = b.source(ty)?;
    b.push(Op::Atom { op, ty, d: None, addr, b: x, c: Opd::Imm(0) });
    if completes { complete(b, ty.bytes()) } else { Ok(()) }
}

/// `st.bulk{.weak}{.shared::cta} [a], size, 0`: zeros.
pub fn zeros(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("weak");
    let to = space(&mut m);
    m.end(b)?;
    if !matches!(to, Space::Shared | Space::Generic) {
        return m.unsupported(b);
    }
    // All of it is checked where it is done, when its size is known.
    let addr = b.address(to, 8)?;
    b.comma()?;
    let size = b.source(Ty::U64)?;
    b.comma()?;
    if b.module.cursor.integer()? != 0 {
        return b.error("`st.bulk` stores zeros only");
    }
    b.push(Op::Memory { f: MemoryFn::Zeros, detail: 0, size: 8, d: vec![], addr, a: vec![(Ty::U64, size)] });
    Ok(())
}
