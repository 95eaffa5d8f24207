//! Reading and writing surfaces.

use super::format::LARGEST;
use super::{Image, Refusal};
use crate::ir::texture::{Bounds, Query, TextureKind, TextureOp};
use crate::memory::Memory;

type Result<T> = std::result::Result<T, Refusal>;

/// Answers a `suq`.
pub(crate) fn query(image: &Image, query: Query) -> u64 {
    image.answer(query, 1)
}

/// The address of `bytes` bytes; none where the operation has nothing to do. `a` begins with the coordinates.
fn place(image: &Image, op: TextureOp, a: &[u64], bytes: u64) -> Result<Option<u64>> {
    let texel = u64::from(image.format.bytes());
    let in_texels = matches!(op.kind, TextureKind::StoreFormatted | TextureKind::ReduceFormatted);
    let (layer, rest) = if op.shape.layered() { (i64::from(a[0] as i32), &a[1..]) } else { (0, a) };
    let mut at = [0i64; 3];
    for (axis, out) in at.iter_mut().enumerate().take(op.shape.axes()) {
        *out = i64::from(rest[axis] as i32);
    }
    // The first coordinate counts bytes, so its last place is where a whole access still fits.
    let row = u64::from(image.extent[0]) * texel;
    let last = if in_texels { i64::from(image.extent[0]) - 1 } else { row as i64 - bytes as i64 };
    let ends = [last, i64::from(image.extent[1]) - 1, i64::from(image.extent[2]) - 1];
    let layers = i64::from(image.layers) - 1;
    let inside = (0..3).all(|axis| (0..=ends[axis]).contains(&at[axis])) && (0..=layers).contains(&layer);
    let (mut layer, mut at) = (layer, at);
    if !inside {
        match op.bounds {
            Bounds::Trap => return Err(Refusal::Bounds),
            Bounds::Zero => return Ok(None),
            Bounds::Clamp => {
                (0..3).for_each(|axis| at[axis] = at[axis].clamp(0, ends[axis].max(0)));
                layer = layer.clamp(0, layers);
            }
        }
    }
    let x = if in_texels { at[0] as u64 * texel } else { at[0] as u64 };
    Ok(Some(image.base + x + at[1] as u64 * image.row + (at[2] + layer) as u64 * image.plane))
}

/// Does a `suld`.
pub(crate) fn load(memory: &Memory, image: &Image, op: TextureOp, a: &[u64]) -> Result<[u64; 4]> {
    let size = 1usize << op.size;
    let bytes = size * usize::from(op.lanes);
    let mut data = [0; 32];
    let mut words = [0; 4];
    if let Some(address) = place(image, op, a, bytes as u64)?
        && !memory.fetch(address, &mut data[..bytes])
    {
        return Err(Refusal::Memory(address));
    }
    for (i, word) in words.iter_mut().enumerate().take(op.lanes.into()) {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&data[i * size..][..size]);
        *word = u64::from_le_bytes(wide);
    }
    Ok(words)
}

/// Does a `sust`; the values follow the coordinates.
pub(crate) fn store(memory: &Memory, image: &Image, op: TextureOp, a: &[u64]) -> Result<()> {
    let values = &a[op.shape.coordinates()..];
    let mut data = [0; 32];
    let bytes = if op.kind == TextureKind::StoreFormatted {
        let values: Vec<u32> = values.iter().map(|v| *v as u32).collect();
        data[..LARGEST].copy_from_slice(&image.format.pack(&values));
        // A texel as wide as the format is written; channels without a value are zero.
        image.format.bytes() as usize
    } else {
        let size = 1usize << op.size;
        for (i, value) in values.iter().enumerate().take(op.lanes.into()) {
            data[i * size..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        size * usize::from(op.lanes)
    };
    match place(image, op, a, bytes as u64)? {
        Some(address) if !memory.put(address, &data[..bytes]) => Err(Refusal::Memory(address)),
        _ => Ok(()),
    }
}

/// The checked, aligned address of a `sured`, and the value.
pub(crate) fn target(memory: &Memory, image: &Image, op: TextureOp, a: &[u64]) -> Result<Option<u64>> {
    let bytes = 1u64 << op.size;
    let Some(address) = place(image, op, a, bytes)? else { return Ok(None) };
    if !address.is_multiple_of(bytes) || !memory.permits(address, bytes, true) {
        return Err(Refusal::Memory(address));
    }
    Ok(Some(address))
}
