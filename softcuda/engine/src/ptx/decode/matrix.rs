//! `mma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::Mods;
use crate::ir::matrix::{Element, Product};
use crate::ir::{Base, CollectiveFn, Op, Opd, Space, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::runtime::collective::TRANSPOSED;
use crate::runtime::sparse::selectors;

/// `m16n8k16`: three numbers.
pub fn shape(m: &mut Mods) -> Option<[u32; 3]> {
    let word = m.take(|w| {
        w.starts_with('m') && w[1..].starts_with(|c: char| c.is_ascii_digit()) && w.contains('k')
    })?;
    let (rows, rest) = word[1..].split_once('n')?;
    let (columns, depth) = rest.split_once('k')?;
    Some([rows.parse().ok()?, columns.parse().ok()?, depth.parse().ok()?])
}

/// The types in the order of the text.
pub fn elements(m: &mut Mods) -> Vec<Element> {
    let mut out = Vec::new();
    while let Some(e) = m.take(|w| Element::parse(w).is_some()).and_then(Element::parse) {
        out.push(e);
    }
    out
}

/// The type of one register of a fragment, and how many 32-bit words it has.
pub fn register(e: Element) -> (Ty, u32) {
    match e {
        Element::F32 => (Ty::F32, 1),
        Element::F64 => (Ty::F64, 2),
        Element::S32 => (Ty::S32, 1),
        _ => (Ty::B32, 1),
    }
}

/// `{r, r, …}` with `words` 32-bit words in all, as sources.
pub fn fragment(b: &mut Body, e: Element, words: u32) -> Result<Vec<(Ty, Opd)>> {
    let (ty, each) = register(e);
    let list = b.list(|b| b.source(ty))?;
    if list.len() as u32 * each != words {
        return b.error(format!(
            "a fragment of {} registers is wanted, {} are given",
            words / each,
            list.len()
        ));
    }
    Ok(list.into_iter().map(|o| (ty, o)).collect())
}

/// The same as destinations.
pub fn results(b: &mut Body, e: Element, words: u32) -> Result<Vec<(Ty, Option<u32>)>> {
    let (ty, each) = register(e);
    let list = b.list(|b| b.sink(ty.class()))?;
    if list.len() as u32 * each != words {
        return b.error(format!(
            "a fragment of {} registers is wanted, {} are given",
            words / each,
            list.len()
        ));
    }
    Ok(list.into_iter().map(|r| (ty, r)).collect())
}

/// Whether PTX has this `mma`.
fn exists(p: &Product) -> bool {
    use Element::*;
    let shape = (p.m, p.n, p.k);
    let same = p.c == p.d;
    match (p.a, p.b) {
        (F16, F16) => {
            matches!(shape, (16, 8, 8 | 16) | (8, 8, 4))
                && matches!(p.c, F16 | F32)
                && matches!(p.d, F16 | F32)
        }
        (Bf16, Bf16) => matches!(shape, (16, 8, 8 | 16)) && p.c == F32 && same,
        (Tf32, Tf32) => matches!(shape, (16, 8, 4 | 8)) && p.c == F32 && same,
        (F64, F64) => matches!(shape, (8, 8, 4) | (16, 8, 4 | 8 | 16)) && p.c == F64 && same,
        (S8 | U8, S8 | U8) => matches!(shape, (8, 8, 16) | (16, 8, 16 | 32)) && p.c == S32 && same,
        (S4 | U4, S4 | U4) => matches!(shape, (8, 8, 32) | (16, 8, 32 | 64)) && p.c == S32 && same,
        (B1, B1) => matches!(shape, (8, 8, 128) | (16, 8, 128 | 256)) && p.c == S32 && same,
        (E4m3 | E5m2, E4m3 | E5m2) => matches!(shape, (16, 8, 16 | 32)) && matches!(p.c, F16 | F32) && same,
        (a, b) if byte_float(a) && byte_float(b) => shape == (16, 8, 32) && matches!(p.c, F16 | F32) && same,
        _ => false,
    }
}

/// Floats that lie in bytes.
fn byte_float(e: Element) -> bool {
    matches!(e, Element::E4m3 | Element::E5m2 | Element::E3m2 | Element::E2m3 | Element::E2m1)
}

/// Whether PTX has this `mma.sp`.
fn exists_sparse(p: &Product) -> bool {
    use Element::*;
    let same = p.c == p.d;
    let depth = (p.m, p.n) == (16, 8) && {
        match p.a {
            F16 | Bf16 => matches!(p.k, 16 | 32),
            Tf32 => matches!(p.k, 8 | 16),
            S8 | U8 => matches!(p.k, 32 | 64),
            S4 | U4 => matches!(p.k, 64 | 128),
            _ => p.k == 64,
        }
    };
    depth
        && match (p.a, p.b) {
            (F16, F16) => matches!(p.c, F16 | F32) && matches!(p.d, F16 | F32),
            (Bf16, Bf16) | (Tf32, Tf32) => p.c == F32 && same,
            (S8 | U8, S8 | U8) | (S4 | U4, S4 | U4) => p.c == S32 && same,
            (a, b) => byte_float(a) && byte_float(b) && matches!(p.c, F16 | F32) && same,
        }
}

/// `mma.sync.aligned.shape.row.col{.satfinite}{.op.popc}.dtype.atype.btype.ctype d, a, b, c`, and `mma.sp` with `, e, f` behind it:
/// the metadata, and which lanes it comes from.
pub fn mma(b: &mut Body, mut m: Mods) -> Result<()> {
    // Metadata in order is what any metadata may be.
    let sparse = m.eat("sp") || m.eat("sp::ordered_metadata");
    m.eat("sync");
    m.eat("aligned");
    let Some([rows, columns, depth]) = shape(&mut m) else { return m.unsupported(b) };
    let mut layout = || m.take(|w| matches!(w, "row" | "col"));
    let (Some(layout_a), Some(layout_b)) = (layout(), layout()) else { return m.unsupported(b) };
    let across = [layout_a == "col", layout_b == "row"];
    let saturate = m.eat("satfinite");
    let and = m.eat("and");
    m.eat("xor");
    m.eat("popc");
    m.eat("kind::f8f6f4");
    let [d, a, bt, c] = elements(&mut m)[..] else { return m.unsupported(b) };
    m.end(b)?;
    let mut p = Product {
        m: rows,
        n: columns,
        k: depth,
        a,
        b: bt,
        c,
        d,
        saturate,
        and,
        across,
        sparse: sparse.then_some(0),
    };
    let known = if sparse { exists_sparse(&p) } else { exists(&p) };
    if !known || across != [false; 2] && !p.quads() {
        return m.unsupported(b);
    }
    let d = results(b, p.d, p.words_d())?;
    b.comma()?;
    let mut all = fragment(b, p.a, p.words_a())?;
    b.comma()?;
    all.extend(fragment(b, p.b, p.words_b())?);
    b.comma()?;
    all.extend(fragment(b, p.c, p.words_c())?);
    if sparse {
        b.comma()?;
        all.push((Ty::B32, b.source(Ty::B32)?));
        b.comma()?;
        p.sparse = Some(b.module.cursor.size(selectors(&p) - 1)? as u32);
    }
    b.push(Op::Collective { f: CollectiveFn::Mma, detail: p.code(), d, a: all });
    Ok(())
}

/// `[p]` of shared memory as a generic address.
fn shared_row(b: &mut Body, shared: bool) -> Result<Opd> {
    let space = if shared { Space::Shared } else { Space::Generic };
    let at = b.address(space, 0)?;
    let v = match at.base {
        Base::Reg(r) => {
            let narrow = b.f.regs[r as usize].bits() <= 32;
            let ty = if narrow { Ty::U32 } else { Ty::U64 };
            b.int(crate::ir::IntOp::Add, ty, Opd::Reg(r), Opd::Imm(at.offset as u64))
        }
        Base::Sym(s) => Opd::Sym(s, at.offset),
        Base::None => Opd::Imm(at.offset as u64),
    };
    if !shared {
        return Ok(v);
    }
    let d = b.temp(Ty::U64.class());
    b.push(Op::Cvta { to_space: false, space: Space::Shared, d, a: v });
    Ok(Opd::Reg(d))
}

fn matrices(m: &mut Mods) -> Option<u64> {
    m.eat("sync");
    m.eat("aligned");
    if !m.eat("m8n8") {
        return None;
    }
    m.one_of(&[("x1", 1), ("x2", 2), ("x4", 4)])
}

fn in_shared(m: &mut Mods) -> bool {
    m.eat("shared") || m.eat("shared::cta")
}

/// `ldmatrix.sync.aligned.m8n8.num{.trans}{.shared}.b16 r, [p]`.
pub fn load(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(count) = matrices(&mut m) else { return m.unsupported(b) };
    let transposed = m.eat("trans");
    let shared = in_shared(&mut m);
    if !m.eat("b16") {
        return m.unsupported(b);
    }
    m.end(b)?;
    let d = results(b, Element::F16, count as u32)?;
    b.comma()?;
    let a = vec![(Ty::U64, shared_row(b, shared)?)];
    let detail = count | if transposed { TRANSPOSED } else { 0 };
    b.push(Op::Collective { f: CollectiveFn::LoadMatrix, detail, d, a });
    Ok(())
}

/// `stmatrix.sync.aligned.m8n8.num{.trans}{.shared}.b16 [p], r`.
pub fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(count) = matrices(&mut m) else { return m.unsupported(b) };
    let transposed = m.eat("trans");
    let shared = in_shared(&mut m);
    if !m.eat("b16") {
        return m.unsupported(b);
    }
    m.end(b)?;
    let mut a = vec![(Ty::U64, shared_row(b, shared)?)];
    b.comma()?;
    a.extend(fragment(b, Element::F16, count as u32)?);
    let detail = count | if transposed { TRANSPOSED } else { 0 };
    b.push(Op::Collective { f: CollectiveFn::StoreMatrix, detail, d: vec![], a });
    Ok(())
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`.
pub fn transpose(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("sync");
    m.eat("aligned");
    if !(m.eat("m8n8") && m.eat("trans") && m.eat("b16")) {
        return m.unsupported(b);
    }
    m.end(b)?;
    let d = results(b, Element::F16, 1)?;
    b.comma()?;
    let a = fragment(b, Element::F16, 1)?;
    b.push(Op::Collective { f: CollectiveFn::MoveMatrix, detail: 1, d, a });
    Ok(())
}
