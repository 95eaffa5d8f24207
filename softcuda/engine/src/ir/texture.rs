//! Operations on textures and surfaces: one shape for all of them, since a helper does the work.

use crate::texture::Addressing;

/// The opaque types of PTX (5.3 of its manual).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpaqueKind {
    /// `.texref`
    Texture,
    /// `.samplerref`
    Sampler,
    /// `.surfref`
    Surface,
}

/// A variable of an opaque type, with what its initial value says of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opaque {
    pub kind: OpaqueKind,
    /// `normalized_coords`
    pub normalized: bool,
    /// `force_unnormalized_coords`, of samplers: whatever the texture says.
    pub force_unnormalized: bool,
    /// `filter_mode = linear`
    pub linear: bool,
    /// `addr_mode_0` and so on, as far as they are said.
    pub addressing: [Option<Addressing>; 3],
}

impl Opaque {
    /// One without an initial value.
    pub fn of(kind: OpaqueKind) -> Opaque {
        Opaque { kind, normalized: false, force_unnormalized: false, linear: false, addressing: [None; 3] }
    }
}

/// The geometry of an image as an instruction names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Shape { D1, D2, D3, A1d, A2d, Cube, Acube }

impl Shape {
    pub const ALL: [Shape; 7] =
        [Shape::D1, Shape::D2, Shape::D3, Shape::A1d, Shape::A2d, Shape::Cube, Shape::Acube];

    /// Its word in PTX.
    pub fn word(self) -> &'static str {
        match self {
            Shape::D1 => "1d",
            Shape::D2 => "2d",
            Shape::D3 => "3d",
            Shape::A1d => "a1d",
            Shape::A2d => "a2d",
            Shape::Cube => "cube",
            Shape::Acube => "acube",
        }
    }

    /// Whether the first coordinate is the number of a layer.
    pub fn layered(self) -> bool {
        matches!(self, Shape::A1d | Shape::A2d | Shape::Acube)
    }

    /// Coordinates without the layer.
    pub fn axes(self) -> usize {
        match self {
            Shape::D1 | Shape::A1d => 1,
            Shape::D2 | Shape::A2d => 2,
            Shape::D3 | Shape::Cube | Shape::Acube => 3,
        }
    }

    /// All coordinates that mean something; PTX may pad them.
    pub fn coordinates(self) -> usize {
        self.axes() + usize::from(self.layered())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum TextureKind {
    /// `tex`: with float coordinates, with integer ones, with a level of detail, with gradients.
    Fetch, FetchInteger, FetchLevel, FetchGradient,
    /// `tld4`: `detail` is the component.
    Gather,
    /// `txq` and `suq`: `detail` is a [`Query`].
    QueryTexture, QuerySurface,
    /// `suld.b`, `sust.b`, `sust.p`.
    Load, Store, StoreFormatted,
    /// `sured.b` and `.p`: `detail` is a [`Reduction`].
    Reduce, ReduceFormatted,
    /// `istypep`: whether a number is a texture's, a surface's, or a sampler's.
    IsTexture, IsSurface, IsSampler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Query { Width, Height, Depth, ArraySize, Levels, Samples, ChannelType, ChannelOrder, Normalized, Filter, AddressX, AddressY, AddressZ, Layout, ForceUnnormalized }

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Reduction { Add, MinS, MinU, MaxS, MaxU, And, Or }

/// What a surface operation does outside of the surface: trap, go to the nearest place, or nothing (a load gives zeros).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Bounds { Trap, Clamp, Zero }

/// Everything about an operation but its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextureOp {
    pub kind: TextureKind,
    pub shape: Shape,
    pub detail: u8,
    pub bounds: Bounds,
    /// log2 of the bytes of an element.
    pub size: u8,
    /// Elements that are loaded or stored.
    pub lanes: u8,
    /// Behind all other operands of a read come texels that are added to the place, one for each axis.
    pub offset: bool,
    /// Before all other operands comes the sampler (independent texture mode).
    pub sampler: bool,
}

impl TextureOp {
    pub fn new(kind: TextureKind, shape: Shape) -> TextureOp {
        TextureOp {
            kind,
            shape,
            detail: 0,
            bounds: Bounds::Trap,
            size: 2,
            lanes: 4,
            offset: false,
            sampler: false,
        }
    }

    /// As one number, for the helper.
    pub fn code(self) -> u32 {
        let TextureOp { kind, shape, detail, bounds, size, lanes, offset, sampler } = self;
        kind as u32
            | (shape as u32) << 4
            | u32::from(detail) << 8
            | (bounds as u32) << 16
            | u32::from(size) << 20
            | u32::from(lanes) << 24
            | u32::from(offset) << 28
            | u32::from(sampler) << 29
    }

    /// The operation of a number from [`TextureOp::code`].
    pub fn of(code: u32) -> TextureOp {
        use TextureKind::*;
        const KINDS: [TextureKind; 15] = [
            Fetch,
            FetchInteger,
            FetchLevel,
            FetchGradient,
            Gather,
            QueryTexture,
            QuerySurface,
            Load,
            Store,
            StoreFormatted,
            Reduce,
            ReduceFormatted,
            IsTexture,
            IsSurface,
            IsSampler,
        ];
        const BOUNDS: [Bounds; 3] = [Bounds::Trap, Bounds::Clamp, Bounds::Zero];
        let at = |shift: u32| (code >> shift & 15) as usize;
        TextureOp {
            kind: KINDS[at(0) % KINDS.len()],
            shape: Shape::ALL[at(4) % Shape::ALL.len()],
            detail: (code >> 8) as u8,
            bounds: BOUNDS[at(16) % BOUNDS.len()],
            size: at(20) as u8,
            lanes: at(24) as u8,
            offset: code >> 28 & 1 == 1,
            sampler: code >> 29 & 1 == 1,
        }
    }

    /// `detail` as a query.
    pub fn query(self) -> Query {
        use Query::*;
        const ALL: [Query; 15] = [
            Width,
            Height,
            Depth,
            ArraySize,
            Levels,
            Samples,
            ChannelType,
            ChannelOrder,
            Normalized,
            Filter,
            AddressX,
            AddressY,
            AddressZ,
            Layout,
            ForceUnnormalized,
        ];
        ALL[usize::from(self.detail) % ALL.len()]
    }

    /// `detail` as a reduction.
    pub fn reduction(self) -> Reduction {
        use Reduction::*;
        const ALL: [Reduction; 7] = [Add, MinS, MinU, MaxS, MaxU, And, Or];
        ALL[usize::from(self.detail) % ALL.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_was_written() {
        for kind in [TextureKind::Fetch, TextureKind::Gather, TextureKind::Store, TextureKind::IsSurface] {
            for shape in Shape::ALL {
                let op = TextureOp {
                    kind,
                    shape,
                    detail: 5,
                    bounds: Bounds::Zero,
                    size: 3,
                    lanes: 2,
                    offset: true,
                    sampler: true,
                };
                assert_eq!(TextureOp::of(op.code()), op);
            }
        }
    }
}
