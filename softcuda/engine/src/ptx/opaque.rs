//! Variables of opaque types (PTX manual 5.3): `.texref`, `.samplerref`, `.surfref`.

use super::cursor::{Cursor, Result};
use crate::error::PtxError;
use crate::ir::texture::{Opaque, OpaqueKind};
use crate::texture::Addressing;

/// The members of 5.3.1 and 5.3.2 that say what is bound, which the driver knows better: they are read and not used.
const OF_WHAT_IS_BOUND: [&str; 9] = [
    "width",
    "height",
    "depth",
    "channel_data_type",
    "channel_order",
    "array_size",
    "num_mipmap_levels",
    "num_samples",
    "memory_layout",
];

/// The opaque type of a word.
pub fn kind(word: &str) -> Option<OpaqueKind> {
    Some(match word {
        "texref" => OpaqueKind::Texture,
        "samplerref" => OpaqueKind::Sampler,
        "surfref" => OpaqueKind::Surface,
        _ => return None,
    })
}

/// `{ addr_mode_0 = wrap, filter_mode = nearest }` behind the `=`.
pub fn initial(c: &mut Cursor, kind: OpaqueKind) -> Result<Opaque> {
    let mut fields = Opaque::of(kind);
    c.want(b'{')?;
    while !c.is(b'}') {
        member(c, &mut fields)?;
        if !c.eat(b',') {
            break;
        }
    }
    c.want(b'}')?;
    Ok(fields)
}

fn member(c: &mut Cursor, fields: &mut Opaque) -> Result<()> {
    let line = c.line();
    let name = c.ident()?;
    c.want(b'=')?;
    let of_sampling = fields.kind != OpaqueKind::Surface;
    match name {
        "normalized_coords" if of_sampling => fields.normalized = truth(c)?,
        "force_unnormalized_coords" if fields.kind == OpaqueKind::Sampler => {
            fields.force_unnormalized = truth(c)?;
        }
        "filter_mode" if of_sampling => {
            fields.linear = match c.ident()? {
                "nearest" => false,
                "linear" => true,
                other => return Err(PtxError::new(line, format!("`{other}` is no filter mode"))),
            }
        }
        "addr_mode_0" | "addr_mode_1" | "addr_mode_2" if of_sampling => {
            let axis = usize::from(name.as_bytes()[name.len() - 1] - b'0');
            fields.addressing[axis] = Some(match c.ident()? {
                "wrap" => Addressing::Wrap,
                "mirror" => Addressing::Mirror,
                "clamp_ogl" => Addressing::ClampOgl,
                "clamp_to_edge" => Addressing::Clamp,
                "clamp_to_border" => Addressing::Border,
                other => return Err(PtxError::new(line, format!("`{other}` is no address mode"))),
            });
        }
        name if OF_WHAT_IS_BOUND.contains(&name) && fields.kind != OpaqueKind::Sampler => {
            c.integer()?;
        }
        name => return Err(PtxError::new(line, format!("`{name}` is no member of this type"))),
    }
    Ok(())
}

fn truth(c: &mut Cursor) -> Result<bool> {
    let line = c.line();
    match c.integer()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(PtxError::new(line, format!("0 or 1 is wanted, {other} is given"))),
    }
}
