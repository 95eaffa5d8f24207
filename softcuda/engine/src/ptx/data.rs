//! Variables: type, alignment, shape, initial value.

use super::MAX_FRAME;
use super::cursor::{Cursor, Result};
use super::lexer::{Kind, Number};
use super::opaque;
use crate::error::PtxError;
use crate::ir::texture::{Opaque, OpaqueKind};
use crate::ir::{Fixup, Space, Ty, Var};

/// How a name is seen from other modules.
#[derive(Debug, Default, Clone)]
pub struct Linkage {
    pub external: bool,
    pub weak: bool,
    /// `.visible` or `.common`.
    pub visible: bool,
    /// `.common`: gives way to a definition, and to a larger one of its kind.
    pub common: bool,
}

impl Linkage {
    /// Whether other texts see the name.
    pub fn public(&self) -> bool {
        self.external || self.weak || self.visible
    }
}

/// What stands before the names: `.align 8 .v2 .b32`.
pub struct Head {
    pub ty: Ty,
    pub align: u32,
    /// Elements of a vector type, else 1.
    pub lanes: u32,
    /// `.texref` and its like; `ty` is then that of the pointers to it.
    pub opaque: Option<OpaqueKind>,
}

/// How a variable of an opaque type is declared; a parameter of such a type is a pointer to one.
pub fn opaque_head(kind: OpaqueKind) -> Head {
    Head { ty: Ty::U64, align: Ty::U64.bytes(), lanes: 1, opaque: Some(kind) }
}

pub fn head(c: &mut Cursor) -> Result<Head> {
    let (mut align, mut lanes) = (None, 1);
    loop {
        let line = c.line();
        let word = c.dot()?;
        match word {
            "align" => {
                let a = c.size(1 << 16)? as u32;
                if !a.is_power_of_two() {
                    return Err(PtxError::new(line, "an alignment must be a power of two"));
                }
                align = Some(a);
            }
            "v2" => lanes = 2,
            "v4" => lanes = 4,
            // `.param .u64 .ptr .global .align 16 name`: facts about a pointer that are not needed.
            "ptr" | "global" | "const" | "shared" | "local" => {}
            "managed" => {}
            "attribute" => {
                c.want(b'(')?;
                while !c.eat(b')') {
                    if c.next().kind == Kind::End {
                        return c.expected("`)`");
                    }
                }
            }
            _ => {
                if let Some(kind) = opaque::kind(word) {
                    return Ok(opaque_head(kind));
                }
                let Some(ty) = Ty::parse(word) else {
                    return Err(PtxError::new(line, format!("`.{word}` is not a type")));
                };
                // The facts about a pointer parameter follow its type.
                if c.eat_dot("ptr") {
                    while c.peek().kind == Kind::Dot {
                        if c.dot()? == "align" {
                            c.size(1 << 16)?;
                        }
                    }
                }
                let natural = ty.bytes() * lanes;
                return Ok(Head { ty, align: align.unwrap_or(natural), lanes, opaque: None });
            }
        }
    }
}

/// A name and its dimensions: the name and its size in bytes. `name[]` has size 0.
pub fn shape<'a>(c: &mut Cursor<'a>, head: &Head) -> Result<(&'a str, u64)> {
    let name = c.ident()?;
    let mut size = u64::from(head.ty.bytes() * head.lanes);
    while c.eat(b'[') {
        let n = if c.is(b']') { 0 } else { c.size(1 << 40)? };
        c.want(b']')?;
        size = match size.checked_mul(n) {
            Some(s) if s <= 1 << 40 => s,
            _ => return c.error(format!("`{name}` is too large")),
        };
    }
    Ok((name, size))
}

/// One variable with its initial value.
pub fn variable<'a>(
    c: &mut Cursor<'a>,
    head: &Head,
    space: Space,
    linkage: &Linkage,
) -> Result<(&'a str, Var)> {
    let line = c.line();
    let (name, size) = shape(c, head)?;
    let limit = if matches!(space, Space::Global | Space::Const) { 1 << 40 } else { MAX_FRAME };
    if size > limit {
        return Err(PtxError::new(line, format!("`{name}` is too large ({size} bytes)")));
    }
    if head.ty == Ty::Pred {
        return Err(PtxError::new(line, "a predicate cannot be a variable"));
    }
    if let Some(kind) = head.opaque {
        return named_object(c, name, kind, space, size, linkage);
    }
    let mut v = Var {
        name: name.to_string(),
        space,
        size,
        align: head.align,
        external: linkage.external,
        init: Vec::new(),
        fixups: Vec::new(),
        opaque: None,
        line,
    };
    if c.eat(b'=') {
        if !matches!(space, Space::Global | Space::Const) {
            return c.error("only .global and .const variables can have an initial value");
        }
        initial(c, head.ty, &mut v, 0)?;
        if size == 0 {
            v.size = v.init.len() as u64;
        } else if v.init.len() as u64 > size {
            return Err(PtxError::new(line, format!("`{name}` has more initial values than elements")));
        }
    }
    Ok((name, v))
}

/// A `.texref`, `.samplerref` or `.surfref` behind its name. It has no memory that `ld` and `st` could reach.
fn named_object<'a>(
    c: &mut Cursor<'a>,
    name: &'a str,
    kind: OpaqueKind,
    space: Space,
    size: u64,
    linkage: &Linkage,
) -> Result<(&'a str, Var)> {
    let line = c.line();
    if space != Space::Global || size != u64::from(Ty::U64.bytes()) {
        return Err(PtxError::new(
            line,
            format!("`{name}` is of an opaque type: only in .global, and no array"),
        ));
    }
    let opaque = if c.eat(b'=') { opaque::initial(c, kind)? } else { Opaque::of(kind) };
    let var = Var {
        name: name.to_string(),
        space,
        size: 0,
        align: Ty::U64.bytes(),
        external: linkage.external,
        init: Vec::new(),
        fixups: Vec::new(),
        opaque: Some(opaque),
        line,
    };
    Ok((name, var))
}

fn initial(c: &mut Cursor, ty: Ty, v: &mut Var, depth: u32) -> Result<()> {
    if depth > 16 {
        return c.error("initial value is nested too deeply");
    }
    if !c.eat(b'{') {
        return element(c, ty, v);
    }
    while !c.is(b'}') {
        initial(c, ty, v, depth + 1)?;
        if !c.eat(b',') {
            break;
        }
    }
    c.want(b'}')
}

/// A number, or an address: `name`, `name+8`, `generic(name)+8`, `0xFF(name)`.
fn element(c: &mut Cursor, ty: Ty, v: &mut Var) -> Result<()> {
    let line = c.line();
    let width = ty.bytes() as usize;
    if c.peek().kind == Kind::Ident {
        return address(c, width as u32, 0, v);
    }
    let masked = c.peek().kind == Kind::Number && c.peek_at(1).kind == Kind::Punct(b'(');
    if masked {
        let Number::Int(mask) = c.number()? else { return c.error("expected an integer mask") };
        if mask == 0 || mask.trailing_zeros() % 8 != 0 {
            return Err(PtxError::new(line, "a mask must select whole bytes"));
        }
        c.want(b'(')?;
        address(c, width as u32, mask.trailing_zeros(), v)?;
        return c.want(b')');
    }
    let fraction = matches!(ty, Ty::F32 | Ty::F64);
    let bits = if fraction {
        let n = c.number()?;
        match (ty, n) {
            (Ty::F32, Number::F32(b)) => u64::from(b),
            (Ty::F32, Number::F64(b)) => u64::from((f64::from_bits(b) as f32).to_bits()),
            (Ty::F64, Number::F32(b)) => f64::from(f32::from_bits(b)).to_bits(),
            (Ty::F64, Number::F64(b)) => b,
            (Ty::F32, Number::Int(i)) => u64::from((i as i64 as f32).to_bits()),
            (_, Number::Int(i)) => (i as i64 as f64).to_bits(),
            (_, Number::F32(b)) => u64::from(b),
            (_, Number::F64(b)) => b,
        }
    } else {
        c.integer()? as u64
    };
    let mut bytes = bits.to_le_bytes().to_vec();
    bytes.resize(width, 0);
    v.init.extend_from_slice(&bytes);
    if v.init.len() as u64 > 1 << 32 {
        return c.error("initial value is too large");
    }
    Ok(())
}

fn address(c: &mut Cursor, width: u32, shift: u32, v: &mut Var) -> Result<()> {
    let line = c.line();
    let mut name = c.ident()?;
    // Generic and space addresses of global and constant variables are the same number here.
    if name == "generic" && c.eat(b'(') {
        name = c.ident()?;
        c.want(b')')?;
    }
    let mut addend = 0i64;
    while c.is(b'+') || c.is(b'-') {
        let minus = c.next().kind == Kind::Punct(b'-');
        let n = c.size(u64::from(u32::MAX) << 8)? as i64;
        addend = addend.wrapping_add(if minus { -n } else { n });
    }
    let offset = v.init.len() as u32;
    v.init.resize(v.init.len() + width as usize, 0);
    v.fixups.push(Fixup { offset, width, symbol: name.to_string(), target: None, addend, shift, line });
    Ok(())
}
