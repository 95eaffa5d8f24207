//! Textures and surfaces: `tex`, `tld4`, `txq`, `suld`, `sust`, `sured`, `suq`, `istypep`.
//!
//! The object is a number of 64 bits: that of a texture object, or the address of a `.texref` or `.surfref`. It stands in a register
//! or a parameter, or is said by the variable's name.

use super::Mods;
use crate::ir::texture::{Bounds, OpaqueKind, Query, Reduction, Shape, TextureKind, TextureOp};
use crate::ir::{Addr, Base, Class, Cmp, Op, Opd, Order, Space, Symbol, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;
use crate::ptx::lexer::Kind;

const SHAPES: [(&str, Shape); 7] = [
    ("1d", Shape::D1),
    ("2d", Shape::D2),
    ("3d", Shape::D3),
    ("a1d", Shape::A1d),
    ("a2d", Shape::A2d),
    ("cube", Shape::Cube),
    ("acube", Shape::Acube),
];

fn shape(b: &Body, m: &mut Mods) -> Result<Shape> {
    match m.one_of(&SHAPES) {
        Some(shape) => Ok(shape),
        None => m.unsupported(b),
    }
}

fn lanes(m: &mut Mods) -> u8 {
    m.one_of(&[("v2", 2), ("v4", 4)]).unwrap_or(1)
}

/// A register, the name of a variable of one of these types, or a parameter that holds the number of one.
fn object(b: &mut Body, kinds: &[OpaqueKind]) -> Result<Opd> {
    let opd = b.source(Ty::U64)?;
    match opd {
        Opd::Sym(Symbol::Var(i), 0)
            if b.module.program.vars[i as usize].opaque.is_some_and(|o| kinds.contains(&o.kind)) =>
        {
            Ok(opd)
        }
        Opd::Sym(s @ Symbol::Arg(_), 0) if b.f.kernel => {
            let d = b.temp(Class::I64);
            let addr = Addr { space: Space::Param, base: Base::Sym(s), offset: 0 };
            b.push(Op::Ld { ty: Ty::U64, order: Order::Weak, d: vec![Some(d)], addr });
            Ok(Opd::Reg(d))
        }
        Opd::Sym(..) => b.error(format!("a variable of type {kinds:?} is wanted here")),
        _ => Ok(opd),
    }
}

/// Where something is read or written.
struct Place {
    object: Opd,
    /// The first operand is the sampler.
    sampler: bool,
    /// The operands so far: sampler, layer, coordinates.
    a: Vec<Opd>,
}

/// `[object, sampler, {coordinates}]`: the sampler, if there is one, and the coordinates that mean something, the layer first.
fn place(b: &mut Body, shape: Shape, ty: Ty, kind: OpaqueKind) -> Result<Place> {
    b.want(b'[')?;
    let object = object(b, &[kind])?;
    b.comma()?;
    let mut a = Vec::new();
    // A coordinate without braces is the last thing in the brackets.
    if kind == OpaqueKind::Texture
        && b.module.cursor.peek().kind == Kind::Ident
        && b.module.cursor.peek_at(1).kind == Kind::Punct(b',')
    {
        if !b.module.independent_samplers {
            return b.error("samplers apart from textures need `.target texmode_independent`");
        }
        a.push(self::object(b, &[OpaqueKind::Sampler])?);
        b.comma()?;
    }
    let sampler = !a.is_empty();
    let mut first = shape.layered();
    let mut coordinates = b.list(|b| b.source(if std::mem::take(&mut first) { Ty::U32 } else { ty }))?;
    b.want(b']')?;
    if coordinates.len() < shape.coordinates() {
        return b.error(format!("`.{}` wants {} coordinates", shape.word(), shape.coordinates()));
    }
    coordinates.truncate(shape.coordinates());
    a.extend(coordinates);
    Ok(Place { object, sampler, a })
}

/// Destinations, and the predicate behind `|` that says whether all of the texture is there: it always is.
fn destinations(b: &mut Body, ty: Ty, count: usize) -> Result<Vec<Option<u32>>> {
    let d = b.list(|b| b.sink(ty.class()))?;
    if d.len() != count {
        return b.error(format!("{count} destinations are wanted, {} are given", d.len()));
    }
    if b.eat(b'|')
        && let Some(p) = b.sink(Class::Pred)?
    {
        b.push(Op::Mov { ty: Ty::Pred, d: p, a: Opd::Imm(1) });
    }
    Ok(d)
}

pub fn fetch(b: &mut Body, mut m: Mods) -> Result<()> {
    let detail = m.one_of(&[("level", TextureKind::FetchLevel), ("grad", TextureKind::FetchGradient)]);
    m.eat("base");
    let shape = shape(b, &mut m)?;
    let vector = m.eat("v4");
    let (to, from) = (m.ty(b)?, m.ty(b)?);
    m.end(b)?;
    if !matches!(to, Ty::F32 | Ty::S32 | Ty::U32) || !matches!(from, Ty::F32 | Ty::S32) {
        return m.unsupported(b);
    }
    let kind = match (detail, from) {
        // A level of integer coordinates is not for filtering: only the base level is there.
        (Some(_), Ty::S32) => return m.unsupported(b),
        (Some(kind), _) => kind,
        (None, Ty::S32) => TextureKind::FetchInteger,
        (None, _) => TextureKind::Fetch,
    };
    let d = destinations(b, to, if vector { 4 } else { 1 })?;
    b.comma()?;
    let Place { object, sampler, mut a } = place(b, shape, from, OpaqueKind::Texture)?;
    match kind {
        TextureKind::FetchLevel => {
            b.comma()?;
            a.push(b.source(from)?);
        }
        TextureKind::FetchGradient => {
            for _ in 0..2 {
                b.comma()?;
                let mut part = b.list(|b| b.source(Ty::F32))?;
                if part.len() < shape.axes() {
                    return b.error("a gradient has a number for each axis");
                }
                part.truncate(shape.axes());
                a.extend(part);
            }
        }
        _ => {}
    }
    let offset = offset(b, &m, shape, &mut a)?;
    let op = TextureOp { offset, sampler, ..TextureOp::new(kind, shape) };
    b.push(Op::Texture { op, to, from, d, object, a });
    Ok(())
}

/// `, {i, j}` behind the other operands: whole texels that are added to the place. A number alone would be what depths are compared
/// with, but no sampler of CUDA says how.
fn offset(b: &mut Body, m: &Mods, shape: Shape, a: &mut Vec<Opd>) -> Result<bool> {
    if !b.eat(b',') {
        return Ok(false);
    }
    let list = b.module.cursor.is(b'{');
    if matches!(shape, Shape::Cube | Shape::Acube) || !list && shape.axes() > 1 {
        return m.unsupported(b);
    }
    let mut texels = b.list(|b| b.source(Ty::S32))?;
    if texels.len() < shape.axes() {
        return b.error("an offset has a number for each axis");
    }
    texels.truncate(shape.axes());
    a.extend(texels);
    if b.module.cursor.is(b',') { m.unsupported(b) } else { Ok(true) }
}

pub fn gather(b: &mut Body, mut m: Mods) -> Result<()> {
    let Some(detail) = m.one_of(&[("r", 0), ("g", 1), ("b", 2), ("a", 3)]) else { return m.unsupported(b) };
    let shape = shape(b, &mut m)?;
    m.eat("v4");
    let (to, from) = (m.ty(b)?, m.ty(b)?);
    m.end(b)?;
    if !matches!(shape, Shape::D2 | Shape::A2d) || to.bytes() != 4 || from != Ty::F32 {
        return m.unsupported(b);
    }
    let d = destinations(b, to, 4)?;
    b.comma()?;
    let Place { object, sampler, mut a } = place(b, shape, from, OpaqueKind::Texture)?;
    let offset = offset(b, &m, shape, &mut a)?;
    let op = TextureOp { detail, offset, sampler, ..TextureOp::new(TextureKind::Gather, shape) };
    b.push(Op::Texture { op, to, from, d, object, a });
    Ok(())
}

pub fn query(b: &mut Body, mut m: Mods) -> Result<()> {
    let kind = if m.name == "txq" { TextureKind::QueryTexture } else { TextureKind::QuerySurface };
    m.eat("level");
    let query = m.one_of(&[
        ("width", Query::Width),
        ("height", Query::Height),
        ("depth", Query::Depth),
        ("array_size", Query::ArraySize),
        ("num_mipmap_levels", Query::Levels),
        ("num_samples", Query::Samples),
        ("channel_data_type", Query::ChannelType),
        ("channel_order", Query::ChannelOrder),
        ("normalized_coords", Query::Normalized),
        ("filter_mode", Query::Filter),
        ("addr_mode_0", Query::AddressX),
        ("addr_mode_1", Query::AddressY),
        ("addr_mode_2", Query::AddressZ),
        ("memory_layout", Query::Layout),
        ("force_unnormalized_coords", Query::ForceUnnormalized),
    ]);
    let Some(query) = query else { return m.unsupported(b) };
    let of_sampler = matches!(
        query,
        Query::Normalized
            | Query::Filter
            | Query::AddressX
            | Query::AddressY
            | Query::AddressZ
            | Query::ForceUnnormalized
    );
    let apart = query == Query::ForceUnnormalized && !b.module.independent_samplers;
    if apart || of_sampler && m.name == "suq" || query == Query::Layout && m.name == "txq" {
        return m.unsupported(b);
    }
    let ty = m.ty(b)?;
    m.end(b)?;
    let d = vec![b.sink(ty.class())?];
    b.comma()?;
    b.want(b'[')?;
    let kinds = match kind {
        TextureKind::QuerySurface => &[OpaqueKind::Surface][..],
        _ => &[OpaqueKind::Texture, OpaqueKind::Sampler],
    };
    let object = object(b, kinds)?;
    b.want(b']')?;
    let level = if b.eat(b',') { b.source(Ty::U32)? } else { Opd::Imm(0) };
    let op = TextureOp { detail: query as u8, ..TextureOp::new(kind, Shape::D1) };
    b.push(Op::Texture { op, to: Ty::U32, from: Ty::U32, d, object, a: vec![level] });
    Ok(())
}

/// `istypep.texref p, a`
pub fn is_type(b: &mut Body, mut m: Mods) -> Result<()> {
    let kinds = [
        ("texref", TextureKind::IsTexture),
        ("surfref", TextureKind::IsSurface),
        ("samplerref", TextureKind::IsSampler),
    ];
    let Some(kind) = m.one_of(&kinds) else { return m.unsupported(b) };
    m.end(b)?;
    let d = b.dest(Class::Pred)?;
    b.comma()?;
    let object = object(b, &[OpaqueKind::Texture, OpaqueKind::Surface, OpaqueKind::Sampler])?;
    let answer = b.temp(Class::I32);
    let op = TextureOp::new(kind, Shape::D1);
    b.push(Op::Texture { op, to: Ty::U32, from: Ty::U32, d: vec![Some(answer)], object, a: vec![] });
    let p = b.setp(Cmp::Ne, Ty::U32, Opd::Reg(answer), Opd::Imm(0), None);
    b.mov(Ty::Pred, d, p);
    Ok(())
}

fn bounds(m: &mut Mods) -> Bounds {
    m.one_of(&[("trap", Bounds::Trap), ("clamp", Bounds::Clamp), ("zero", Bounds::Zero)])
        .unwrap_or(Bounds::Trap)
}

/// What the surface instructions have in common.
fn surface(b: &Body, m: &mut Mods, kind: TextureKind) -> Result<(TextureOp, Ty)> {
    let shape = shape(b, m)?;
    // Cache hints change nothing.
    m.one_of(&[("ca", ()), ("cg", ()), ("cs", ()), ("cv", ()), ("wb", ()), ("wt", ())]);
    let (bounds, lanes) = (bounds(m), lanes(m));
    let ty = m.ty(b)?;
    m.end(b)?;
    if matches!(shape, Shape::Cube | Shape::Acube) || ty.bytes() > 8 {
        return m.unsupported(b);
    }
    let size = ty.bytes().trailing_zeros() as u8;
    Ok((TextureOp { kind, shape, detail: 0, bounds, size, lanes, offset: false, sampler: false }, ty))
}

pub fn load(b: &mut Body, mut m: Mods) -> Result<()> {
    if !m.eat("b") {
        return m.unsupported(b);
    }
    let (op, to) = surface(b, &mut m, TextureKind::Load)?;
    let d = destinations(b, to, op.lanes.into())?;
    b.comma()?;
    let Place { object, a, .. } = place(b, op.shape, Ty::S32, OpaqueKind::Surface)?;
    b.push(Op::Texture { op, to, from: Ty::S32, d, object, a });
    Ok(())
}

pub fn store(b: &mut Body, mut m: Mods) -> Result<()> {
    let kind = match m.one_of(&[("b", TextureKind::Store), ("p", TextureKind::StoreFormatted)]) {
        Some(kind) => kind,
        None => return m.unsupported(b),
    };
    let (op, ty) = surface(b, &mut m, kind)?;
    if kind == TextureKind::StoreFormatted && ty.bytes() != 4 {
        return m.unsupported(b);
    }
    let Place { object, mut a, .. } = place(b, op.shape, Ty::S32, OpaqueKind::Surface)?;
    b.comma()?;
    let values = b.list(|b| b.source(ty))?;
    if values.len() != usize::from(op.lanes) {
        return b.error(format!("{} values are wanted, {} are given", op.lanes, values.len()));
    }
    a.extend(values);
    b.push(Op::Texture { op, to: ty, from: Ty::S32, d: Vec::new(), object, a });
    Ok(())
}

pub fn reduce(b: &mut Body, mut m: Mods) -> Result<()> {
    let kind = match m.one_of(&[("b", TextureKind::Reduce), ("p", TextureKind::ReduceFormatted)]) {
        Some(kind) => kind,
        None => return m.unsupported(b),
    };
    let Some(word) = m.take(|w| matches!(w, "add" | "min" | "max" | "and" | "or")) else {
        return m.unsupported(b);
    };
    let (op, ty) = surface(b, &mut m, kind)?;
    let detail = match (word, ty.signed()) {
        ("add", _) => Reduction::Add,
        ("min", true) => Reduction::MinS,
        ("min", false) => Reduction::MinU,
        ("max", true) => Reduction::MaxS,
        ("max", false) => Reduction::MaxU,
        ("and", _) => Reduction::And,
        _ => Reduction::Or,
    };
    if ty.bytes() < 4 {
        return m.unsupported(b);
    }
    let Place { object, mut a, .. } = place(b, op.shape, Ty::S32, OpaqueKind::Surface)?;
    b.comma()?;
    // The value may stand in braces.
    let values = b.list(|b| b.source(ty))?;
    if values.len() != 1 {
        return b.error("one value is wanted");
    }
    a.extend(values);
    let op = TextureOp { detail: detail as u8, lanes: 1, ..op };
    b.push(Op::Texture { op, to: ty, from: Ty::S32, d: Vec::new(), object, a });
    Ok(())
}

impl Body<'_, '_> {
    fn eat(&mut self, c: u8) -> bool {
        self.module.cursor.eat(c)
    }

    fn want(&mut self, c: u8) -> Result<()> {
        self.module.cursor.want(c)
    }
}
