//! Reading textures, by the rules of "Texture Fetching" in the CUDA programming guide.

use super::format::LARGEST;
use super::{Addressing, Image, Refusal, Sampler, Texture};
use crate::ir::texture::{Opaque, Query, Shape, TextureKind, TextureOp};
use crate::memory::Memory;

/// Weights of interpolation have 8 bits behind the point.
const WEIGHT_STEPS: f32 = 256.0;

type Result<T> = std::result::Result<T, Refusal>;

/// One read: where and with what rules.
struct Reader<'a> {
    memory: &'a Memory,
    sampler: &'a Sampler,
    image: &'a Image,
    shape: Shape,
    layer: u64,
    /// Whole texels that are added to the place.
    offset: [i64; 3],
}

/// The channels of a texel, before they are bits again.
#[derive(Clone, Copy)]
enum Texel {
    Bits([u32; 4]),
    Floats([f32; 4]),
}

impl Texel {
    fn words(self) -> [u64; 4] {
        match self {
            Texel::Bits(bits) => bits.map(u64::from),
            Texel::Floats(floats) => floats.map(|f| u64::from(f.to_bits())),
        }
    }

    fn floats(self) -> [f32; 4] {
        match self {
            Texel::Bits(bits) => bits.map(|b| b as f32),
            Texel::Floats(floats) => floats,
        }
    }
}

/// Does a `tex` or `tld4`; `a` holds the operands as [`TextureOp`] orders them, without the sampler.
pub(crate) fn fetch(
    memory: &Memory,
    levels: &[Image],
    sampler: &Sampler,
    op: TextureOp,
    a: &[u64],
) -> Result<[u64; 4]> {
    let f = |word: &u64| f32::from_bits(*word as u32);
    let mut offset = [0; 3];
    let (a, texels) = a.split_at(a.len() - if op.offset { op.shape.axes() } else { 0 });
    texels.iter().zip(&mut offset).for_each(|(word, n)| *n = i64::from(*word as i32));
    let (layer, rest) = if op.shape.layered() { (a[0] as u32, &a[1..]) } else { (0, a) };
    let (coordinates, more) = rest.split_at(op.shape.axes().min(rest.len()));
    let level = match op.kind {
        TextureKind::FetchLevel => f(&more[0]),
        TextureKind::FetchGradient => gradient_level(levels, sampler, more, op.shape),
        _ => 0.0,
    };
    let read = |image: &Image| -> Result<Texel> {
        let mut reader = Reader { memory, sampler, image, shape: op.shape, layer: 0, offset };
        reader.layer = u64::from(layer.min(reader.layers() - 1));
        match op.kind {
            TextureKind::FetchInteger => {
                let at: Vec<i64> =
                    coordinates.iter().zip(offset).map(|(c, o)| i64::from(*c as i32) + o).collect();
                reader.plain(&at)
            }
            TextureKind::Gather => reader.gather([f(&coordinates[0]), f(&coordinates[1])], op.detail),
            _ => reader.sample(&coordinates.iter().map(f).collect::<Vec<_>>()),
        }
    };
    by_level(levels, sampler, level, read).map(Texel::words)
}

/// A texture's sampler with what a `.samplerref` says in its place (independent texture mode, 5.3.2 of the PTX manual).
pub(crate) fn apart(texture: &Sampler, sampler: &Opaque) -> Sampler {
    Sampler {
        addressing: sampler.addressing.map(|mode| mode.unwrap_or(Addressing::Wrap)),
        linear: sampler.linear,
        normalized: texture.normalized && !sampler.force_unnormalized,
        border: [0.0; 4],
        ..texture.clone()
    }
}

/// Answers a `txq` of a sampler.
pub(crate) fn query_sampler(sampler: &Opaque, query: Query) -> Result<u64> {
    let mode = |axis: usize| address_mode(sampler.addressing[axis].unwrap_or(Addressing::Wrap));
    Ok(match query {
        Query::ForceUnnormalized => sampler.force_unnormalized.into(),
        Query::Filter => sampler.linear.into(),
        Query::AddressX => mode(0),
        Query::AddressY => mode(1),
        Query::AddressZ => mode(2),
        _ => return Err(Refusal::Handle),
    })
}

/// Answers a `txq` of a texture.
pub(crate) fn query(texture: &Texture, query: Query, level: u64) -> Result<u64> {
    let image = texture.levels.get(level as usize).or(texture.levels.last()).ok_or(Refusal::Handle)?;
    let sampler = &texture.sampler;
    Ok(match query {
        Query::ChannelType => image.format.channel.number(sampler.fractions),
        Query::Normalized => sampler.normalized.into(),
        Query::Filter => sampler.linear.into(),
        Query::AddressX => address_mode(sampler.addressing[0]),
        Query::AddressY => address_mode(sampler.addressing[1]),
        Query::AddressZ => address_mode(sampler.addressing[2]),
        Query::ForceUnnormalized => return Err(Refusal::Handle),
        query => image.answer(query, texture.levels.len()),
    })
}

/// The numbers of the PTX manual ("Opaque type fields"): wrap, mirror, clamp as OpenGL, to the edge, to the border.
fn address_mode(mode: Addressing) -> u64 {
    match mode {
        Addressing::Wrap => 0,
        Addressing::Mirror => 1,
        Addressing::ClampOgl => 2,
        Addressing::Clamp => 3,
        Addressing::Border => 4,
    }
}

impl Image {
    pub(super) fn answer(&self, query: Query, levels: usize) -> u64 {
        match query {
            Query::Width => self.extent[0].into(),
            Query::Height => self.extent[1].into(),
            Query::Depth => self.extent[2].into(),
            Query::ArraySize => self.layers.into(),
            Query::Levels => levels as u64,
            Query::Samples => 1,
            Query::ChannelType => self.format.channel.number(false),
            // One, two or four channels: R, RG, RGBA.
            Query::ChannelOrder => match self.format.channels {
                1 => 0x10b0,
                2 => 0x10b2,
                _ => 0x10b5,
            },
            // Rows at a pitch; the others are a texture's and asked of it.
            Query::Layout | Query::Normalized | Query::Filter | Query::ForceUnnormalized => 0,
            Query::AddressX | Query::AddressY | Query::AddressZ => 0,
        }
    }

    /// The bytes of a texel that is inside.
    fn texel(&self, memory: &Memory, at: [u64; 3], layer: u64) -> Result<[u8; LARGEST]> {
        let n = u64::from(self.format.bytes());
        let address = self.base + at[0] * n + at[1] * self.row + (at[2] + layer) * self.plane;
        let mut texel = [0; LARGEST];
        if memory.fetch(address, &mut texel[..n as usize]) {
            Ok(texel)
        } else {
            Err(Refusal::Memory(address))
        }
    }
}

/// Reads one level or two, as the sampler says.
fn by_level(
    levels: &[Image],
    s: &Sampler,
    level: f32,
    read: impl Fn(&Image) -> Result<Texel>,
) -> Result<Texel> {
    let last = levels.len() - 1;
    let top = s.levels[1].min(last as f32);
    let level = (level + s.bias).clamp(s.levels[0].min(top), top).max(0.0);
    let image = |n: f32| &levels[(n as usize).min(last)];
    if last == 0 || !s.linear_levels {
        return read(image((level + 0.5).floor()));
    }
    let weight = quantised(level - level.floor());
    let (low, high) = (read(image(level.floor()))?, read(image(level.floor() + 1.0))?);
    match (low, high) {
        (Texel::Floats(low), Texel::Floats(high)) => {
            Ok(Texel::Floats(std::array::from_fn(|i| low[i] * (1.0 - weight) + high[i] * weight)))
        }
        (low, _) => Ok(low),
    }
}

/// The level at which a step of the gradients is one texel.
fn gradient_level(levels: &[Image], sampler: &Sampler, words: &[u64], shape: Shape) -> f32 {
    let extent = levels[0].extent;
    let length = |part: &[u64]| {
        let squares = part.iter().zip(extent).map(|(word, n)| {
            let step = f32::from_bits(*word as u32) * if sampler.normalized { n as f32 } else { 1.0 };
            step * step
        });
        squares.sum::<f32>().sqrt()
    };
    let (x, y) = words.split_at(shape.axes().min(words.len()));
    length(x).max(length(y)).log2()
}

/// A weight as the hardware has it.
fn quantised(weight: f32) -> f32 {
    (weight * WEIGHT_STEPS + 0.5).floor() / WEIGHT_STEPS
}

/// Which texel an index means; none for the border.
fn wrapped(mode: Addressing, i: i64, n: i64) -> Option<u64> {
    Some(match mode {
        Addressing::Clamp | Addressing::ClampOgl => i.clamp(0, n - 1),
        Addressing::Wrap => i.rem_euclid(n),
        Addressing::Mirror => {
            let j = i.rem_euclid(2 * n);
            if j < n { j } else { 2 * n - 1 - j }
        }
        Addressing::Border => return u64::try_from(i).ok().filter(|_| i < n),
    } as u64)
}

impl Reader<'_> {
    fn layers(&self) -> u32 {
        if self.shape == Shape::Acube { (self.image.layers / 6).max(1) } else { self.image.layers }
    }

    fn mode(&self, axis: usize) -> Addressing {
        match self.sampler.addressing[axis] {
            // What the guide says of coordinates that are not normalised.
            Addressing::Wrap | Addressing::Mirror if !self.sampler.normalized => Addressing::Clamp,
            mode => mode,
        }
    }

    /// Whether texels are read as floats.
    fn as_floats(&self) -> bool {
        self.image.format.channel.is_float() || self.sampler.fractions
    }

    /// The texel at indices that may lie outside.
    fn at(&self, index: [i64; 3]) -> Result<Texel> {
        let mut inside = [0; 3];
        for axis in 0..3 {
            let n = i64::from(self.image.extent[axis]);
            let Some(i) = wrapped(self.mode(axis), index[axis], n) else { return Ok(self.border()) };
            inside[axis] = i;
        }
        self.inside(inside)
    }

    fn inside(&self, at: [u64; 3]) -> Result<Texel> {
        let texel = self.image.texel(self.memory, at, self.layer)?;
        let format = self.image.format;
        Ok(if self.as_floats() {
            Texel::Floats(format.floats(&texel, self.sampler.srgb))
        } else {
            Texel::Bits(format.bits(&texel))
        })
    }

    fn border(&self) -> Texel {
        let colour = self.sampler.border;
        if self.as_floats() { Texel::Floats(colour) } else { Texel::Bits(colour.map(|c| c as i32 as u32)) }
    }

    /// Integer coordinates: no filter; outside of plain memory there are zeros.
    fn plain(&self, coordinates: &[i64]) -> Result<Texel> {
        let mut index = [0; 3];
        index[..coordinates.len()].copy_from_slice(coordinates);
        let outside = (0..3).any(|axis| !(0..i64::from(self.image.extent[axis])).contains(&index[axis]));
        if self.image.linear && outside {
            return Ok(if self.as_floats() { Texel::Floats([0.0; 4]) } else { Texel::Bits([0; 4]) });
        }
        self.at(index)
    }

    /// A coordinate in texels.
    fn scaled(&self, axis: usize, c: f32) -> f32 {
        if self.sampler.normalized { c * self.image.extent[axis] as f32 } else { c }
    }

    fn sample(&mut self, coordinates: &[f32]) -> Result<Texel> {
        let mut c = [0.0; 3];
        c[..coordinates.len()].copy_from_slice(coordinates);
        let axes = if matches!(self.shape, Shape::Cube | Shape::Acube) {
            let (face, s, t) = face(c);
            self.layer = self.layer * 6 + face;
            c = [s * self.image.extent[0] as f32, t * self.image.extent[1] as f32, 0.0];
            2
        } else {
            for (axis, c) in c.iter_mut().enumerate().take(self.shape.axes()) {
                *c = self.scaled(axis, *c) + self.offset[axis] as f32;
            }
            self.shape.axes()
        };
        if !self.sampler.linear || !self.as_floats() {
            let mut index = [0; 3];
            (0..axes).for_each(|axis| index[axis] = c[axis].floor() as i64);
            return self.at(index);
        }
        self.interpolate(&c[..axes])
    }

    /// A weighted sum of the 2, 4 or 8 nearest texels.
    fn interpolate(&self, c: &[f32]) -> Result<Texel> {
        let mut sum = [0.0; 4];
        // As OpenGL clamps: the place stays in the image, and what is mixed in from outside is the border's colour.
        let ogl = |axis: usize| self.mode(axis) == Addressing::ClampOgl;
        for corner in 0..1usize << c.len() {
            let (mut index, mut weight) = ([0; 3], 1.0);
            let mut outside = false;
            for (axis, c) in c.iter().enumerate() {
                let n = self.image.extent[axis];
                let c = if ogl(axis) { c.clamp(0.0, n as f32) } else { *c };
                let low = (c - 0.5).floor();
                let part = quantised(c - 0.5 - low);
                let high = corner >> axis & 1 == 1;
                index[axis] = (low as i64).saturating_add(i64::from(high));
                outside |= ogl(axis) && !(0..i64::from(n)).contains(&index[axis]);
                weight *= if high { part } else { 1.0 - part };
            }
            // A texel without weight may be outside of all that is there, or no number.
            if weight > 0.0 {
                let texel = if outside { self.border() } else { self.at(index)? }.floats();
                (0..4).for_each(|i| sum[i] += weight * texel[i]);
            }
        }
        Ok(Texel::Floats(sum))
    }

    /// One channel of the four texels that interpolation would use: counter-clockwise from the lower left one.
    fn gather(&self, c: [f32; 2], channel: u8) -> Result<Texel> {
        let low = |axis: usize| {
            ((self.scaled(axis, c[axis]) - 0.5).floor() as i64).saturating_add(self.offset[axis])
        };
        let (x, y) = (low(0), low(1));
        let channel = usize::from(channel & 3);
        let mut words = [0; 4];
        for (out, (dx, dy)) in words.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)]) {
            let texel = self.at([x.saturating_add(dx), y.saturating_add(dy), 0])?;
            *out = texel.words()[channel] as u32;
        }
        Ok(Texel::Bits(words))
    }
}

/// The face of a cube that a direction meets, and where, from 0 to 1.
fn face([x, y, z]: [f32; 3]) -> (u64, f32, f32) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, s, t, major) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, -z, -y, ax) } else { (1, z, -y, ax) }
    } else if ay >= az {
        if y >= 0.0 { (2, x, z, ay) } else { (3, x, -z, ay) }
    } else if z >= 0.0 {
        (4, x, -y, az)
    } else {
        (5, -x, -y, az)
    };
    let place = |c: f32| (c / major + 1.0) / 2.0;
    (face, place(s), place(t))
}
