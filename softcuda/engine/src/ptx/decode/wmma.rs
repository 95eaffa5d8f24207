//! `wmma`: the layout of its fragments is ours to choose (see `runtime::mma`), so that loads and stores are ordinary ones
//! of each lane, and only the product is an operation of the warp.

use super::Mods;
use super::build::{PLAIN, imm};
use super::matrix::{elements, fragment, register, results, shape};
use crate::ir::matrix::{Element, Product};
use crate::ir::{Addr, Base, CollectiveFn, IntOp, Op, Opd, Order, Reg, Space, Sreg, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::runtime::collective::wmma_words;

/// Whether PTX has this `wmma`.
fn exists(p: &Product) -> bool {
    use Element::*;
    let shape = (p.m, p.n, p.k);
    let wide = matches!(shape, (16, 16, 16) | (8, 32, 16) | (32, 8, 16));
    let same = p.c == p.d;
    match (p.a, p.b) {
        (F16, F16) => wide && matches!(p.c, F16 | F32) && matches!(p.d, F16 | F32),
        (Bf16, Bf16) => wide && p.c == F32 && same,
        (Tf32, Tf32) => shape == (16, 16, 8) && p.c == F32 && same,
        (F64, F64) => shape == (8, 8, 4) && p.c == F64 && same,
        (S8, S8) | (U8, U8) => wide && p.c == S32 && same,
        (S4, S4) | (U4, U4) => shape == (8, 8, 32) && p.c == S32 && same,
        (B1, B1) => shape == (8, 8, 128) && p.c == S32 && same,
        _ => false,
    }
}

pub fn wmma(b: &mut Body, mut m: Mods) -> Result<()> {
    match () {
        () if m.eat("load") => load(b, m),
        () if m.eat("store") => store(b, m),
        () if m.eat("mma") => mma(b, m),
        () => m.unsupported(b),
    }
}

fn mma(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("sync");
    m.eat("aligned");
    let Some([rows, columns, depth]) = shape(&mut m) else { return m.unsupported(b) };
    // How `a` and `b` lay in memory: their fragments do not show it.
    while m.eat("row") || m.eat("col") {}
    let saturate = m.eat("satfinite");
    let and = m.eat("and");
    m.eat("xor");
    m.eat("popc");
    m.one_of(&[("rn", ()), ("rz", ()), ("rm", ()), ("rp", ())]);
    let [d, a, bt, c] = match elements(&mut m)[..] {
        [d, c] => [d, Element::F16, Element::F16, c],
        [d, a, bt, c] => [d, a, bt, c],
        _ => return m.unsupported(b),
    };
    m.end(b)?;
    let p = Product {
        m: rows,
        n: columns,
        k: depth,
        a,
        b: bt,
        c,
        d,
        saturate,
        and,
        across: [false; 2],
        sparse: None,
    };
    if !exists(&p) {
        return m.unsupported(b);
    }
    let words = wmma_words(p);
    let d = results(b, p.d, p.words_d())?;
    b.comma()?;
    let mut all = fragment(b, p.a, words[0])?;
    b.comma()?;
    all.extend(fragment(b, p.b, words[1])?);
    b.comma()?;
    all.extend(fragment(b, p.c, p.words_c())?);
    b.push(Op::Collective { f: CollectiveFn::Wmma, detail: p.code(), d, a: all });
    Ok(())
}

/// A matrix in memory, of `lines` × `length` elements where elements of a line follow each other in a fragment.
struct Matrix {
    element: Element,
    length: u32,
    lines: u32,
    /// Elements of a fragment's line are neighbours in memory too.
    along: bool,
    base: Addr,
    /// Elements from one line of memory to the next, as a 64-bit register.
    stride: Opd,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    A,
    B,
    C,
}

/// Reads modifiers and operands of a load (after the fragment) or store.
fn space(m: &mut Mods) -> Space {
    m.one_of(&[("global", Space::Global), ("shared", Space::Shared), ("shared::cta", Space::Shared)])
        .unwrap_or(Space::Generic)
}

struct Form {
    element: Element,
    role: Role,
    lines: u32,
    length: u32,
    along: bool,
    space: Space,
    words: u32,
}

/// `.a.sync.aligned.layout.shape{.ss}.type`.
fn form(b: &Body, m: &mut Mods) -> Result<Form> {
    let Some(role) = m.one_of(&[("a", Role::A), ("b", Role::B), ("c", Role::C), ("d", Role::C)]) else {
        return m.unsupported(b);
    };
    m.eat("sync");
    m.eat("aligned");
    let row = m.eat("row");
    if !row && !m.eat("col") {
        return m.unsupported(b);
    }
    let space = space(m);
    let (Some([rows, columns, depth]), [element]) = (shape(m), &elements(m)[..]) else {
        return m.unsupported(b);
    };
    m.end(b)?;
    let element = *element;
    // Any product of this shape and type will do: it must exist.
    let accumulator = role == Role::C;
    let candidates = [
        Element::F16,
        Element::Bf16,
        Element::Tf32,
        Element::F64,
        Element::S8,
        Element::U8,
        Element::S4,
        Element::U4,
        Element::B1,
    ];
    let product = candidates
        .into_iter()
        .filter(|a| accumulator || *a == element)
        .flat_map(|a| [Element::F16, Element::F32, Element::F64, Element::S32].map(|c| (a, c)))
        .filter(|(_, c)| !accumulator || *c == element)
        .map(|(a, c)| Product {
            m: rows,
            n: columns,
            k: depth,
            a,
            b: a,
            c,
            d: c,
            saturate: false,
            and: false,
            across: [false; 2],
            sparse: None,
        })
        .find(exists);
    let Some(p) = product else { return m.unsupported(b) };
    let (lines, length, along, words) = match role {
        Role::A => (rows, depth, row, wmma_words(p)[0]),
        Role::B => (columns, depth, !row, wmma_words(p)[1]),
        Role::C => (rows, columns, row, p.words_c()),
    };
    // Elements of less than a byte have neighbours along the sum only.
    if element.bits() < 8 && !along {
        return m.unsupported(b);
    }
    Ok(Form { element, role, lines, length, along, space, words })
}

impl Form {
    /// `[address]`, then after `between` the optional stride.
    fn matrix(&self, b: &mut Body, base: Addr, stride: Option<Opd>) -> Matrix {
        let natural = if self.along { self.length } else { self.lines };
        let stride = match stride {
            Some(s) => b.convert(Ty::U64, Ty::U32, PLAIN, s),
            None => imm(u64::from(natural)),
        };
        Matrix {
            element: self.element,
            length: self.length,
            lines: self.lines,
            along: self.along,
            base,
            stride,
        }
    }
}

/// An address that lanes can add to: a 64-bit register with the address, in `space`.
fn pointer(b: &mut Body, at: Addr) -> Opd {
    match at.base {
        Base::Reg(r) if b.f.regs[r as usize].bits() > 32 => Opd::Reg(r),
        Base::Reg(r) => b.convert(Ty::U64, Ty::U32, PLAIN, Opd::Reg(r)),
        Base::Sym(s) => {
            let d = b.temp(Ty::U64.class());
            b.mov(Ty::U64, d, Opd::Sym(s, 0));
            Opd::Reg(d)
        }
        Base::None => imm(0),
    }
}

impl Matrix {
    /// Where element `index` (a 64-bit operand: line · length + place in the line) lies, with `extra` elements along a line.
    fn address(&self, b: &mut Body, pointer: Opd, index: Opd, extra: u32) -> Addr {
        let bits = u64::from(self.length.trailing_zeros());
        let line = b.int(IntOp::Shr, Ty::U64, index, imm(bits));
        let mut at = b.int(IntOp::And, Ty::U64, index, imm(u64::from(self.length) - 1));
        if extra > 0 {
            at = b.int(IntOp::Add, Ty::U64, at, imm(u64::from(extra)));
        }
        let (outer, inner) = if self.along { (line, at) } else { (at, line) };
        let far = b.int(IntOp::Mul, Ty::U64, outer, self.stride);
        let element = b.int(IntOp::Add, Ty::U64, far, inner);
        let width = u64::from(self.element.bits());
        let bytes = if width >= 8 {
            b.int(IntOp::Mul, Ty::U64, element, imm(width / 8))
        } else {
            b.int(IntOp::Shr, Ty::U64, element, imm(u64::from((8 / width as u32).trailing_zeros())))
        };
        let sum = b.int(IntOp::Add, Ty::U64, pointer, bytes);
        let Opd::Reg(r) = sum else { return self.base };
        Addr { space: self.base.space, base: Base::Reg(r), offset: self.base.offset }
    }

    /// The index of the first element of word `word` of this lane.
    fn index(&self, b: &mut Body, lane: Opd, word: u32, per_word: u32) -> Opd {
        let first = b.int(IntOp::Add, Ty::U64, lane, imm(u64::from(word * 32)));
        b.int(IntOp::Mul, Ty::U64, first, imm(u64::from(per_word)))
    }
}

fn lane(b: &mut Body) -> Opd {
    b.convert(Ty::U64, Ty::U32, PLAIN, Opd::Special(Sreg::LaneId))
}

/// Memory type of one element, or of a word where elements are neighbours.
fn element_type(e: Element) -> Ty {
    match e.bits() {
        8 => Ty::B8,
        16 => Ty::B16,
        64 => Ty::F64,
        _ => register(e).0,
    }
}

/// `wmma.load.x.sync.aligned.layout.shape.type r, [p], stride`.
fn load(b: &mut Body, mut m: Mods) -> Result<()> {
    let form = form(b, &mut m)?;
    let (ty, each) = register(form.element);
    let d = results(b, form.element, form.words)?;
    b.comma()?;
    let base = b.address(form.space, 0)?;
    let stride = stride(b)?;
    let x = form.matrix(b, base, stride);
    let p = pointer(b, base);
    let lane = lane(b);
    let per_word = (32 / x.element.bits()).max(1);
    // f16 has more registers than it needs; the rest repeats.
    let used = (x.lines * x.length * x.element.bits() / 1024 / each).max(1);
    let mut values: Vec<Opd> = Vec::new();
    for j in 0..used {
        let index = x.index(b, lane, j, per_word);
        values.push(load_word(b, &x, p, index, per_word, ty));
    }
    for (j, (ty, r)) in d.into_iter().enumerate() {
        if let Some(r) = r {
            b.mov(ty, r, values[j % used as usize]);
        }
    }
    Ok(())
}

fn stride(b: &mut Body) -> Result<Option<Opd>> {
    if b.module.cursor.eat(b',') { Ok(Some(b.source(Ty::U32)?)) } else { Ok(None) }
}

fn load_word(b: &mut Body, x: &Matrix, p: Opd, index: Opd, per_word: u32, ty: Ty) -> Opd {
    let get = |b: &mut Body, ty: Ty, extra: u32| -> Reg {
        let addr = x.address(b, p, index, extra);
        let d = b.temp(ty.class());
        b.push(Op::Ld { ty, order: Order::Weak, d: vec![Some(d)], addr });
        d
    };
    if x.along || per_word == 1 {
        return Opd::Reg(get(b, ty, 0));
    }
    let part = element_type(x.element);
    let mut v = imm(0);
    for i in 0..per_word {
        let e = get(b, part, i);
        v = b.insert(Ty::B32, Opd::Reg(e), v, i * x.element.bits(), x.element.bits());
    }
    v
}

/// `wmma.store.d.sync.aligned.layout.shape.type [p], r, stride`.
fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    let form = form(b, &mut m)?;
    if form.role != Role::C {
        return m.unsupported(b);
    }
    let base = b.address(form.space, 0)?;
    b.comma()?;
    let values = fragment(b, form.element, form.words)?;
    let stride = stride(b)?;
    let x = form.matrix(b, base, stride);
    let p = pointer(b, base);
    let lane = lane(b);
    let per_word = (32 / x.element.bits()).max(1);
    for (j, (ty, v)) in values.into_iter().enumerate() {
        let index = x.index(b, lane, j as u32, per_word);
        if x.along || per_word == 1 {
            let addr = x.address(b, p, index, 0);
            b.push(Op::St { ty, order: Order::Weak, a: vec![v], addr });
            continue;
        }
        for i in 0..per_word {
            let addr = x.address(b, p, index, i);
            let part = b.field(Ty::U32, v, i * x.element.bits(), x.element.bits());
            b.push(Op::St { ty: element_type(x.element), order: Order::Weak, a: vec![part], addr });
        }
    }
    Ok(())
}
