//! Textures and surfaces: images in device memory, and how they are read.
//!
//! Images are linear: rows of texels at a pitch, planes (or layers, or faces) of rows. Every texel is checked like any
//! access of a kernel, so that an image whose memory is gone is a fault.

mod format;
pub(crate) mod sample;
pub(crate) mod surface;

pub use crate::ir::texture::OpaqueKind as ReferenceKind;
pub use format::{Channel, Format};

use crate::ir::texture::{Opaque, OpaqueKind};
use crate::memory::Memory;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What lies where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Address of the first texel.
    pub base: u64,
    /// What a texel is.
    pub format: Format,
    /// Width, height and depth in texels, at least 1 each.
    pub extent: [u32; 3],
    /// Layers, times 6 for cubes; at least 1.
    pub layers: u32,
    /// Bytes from row to row.
    pub row: u64,
    /// Bytes from plane to plane, or layer to layer.
    pub plane: u64,
    /// Plain memory rather than an array: reading outside of it gives zeros.
    pub linear: bool,
}

/// What is read outside of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// The image again (only with normalised coordinates).
    Wrap,
    /// The nearest texel.
    Clamp,
    /// The nearest texel; where texels are mixed, at most half of the border colour (`clamp_ogl`, OpenGL's `GL_CLAMP`).
    ClampOgl,
    /// The image again, in a mirror (only with normalised coordinates).
    Mirror,
    /// The border colour.
    Border,
}

/// How a texture is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// By axis.
    pub addressing: [Addressing; 3],
    /// Interpolate between texels.
    pub linear: bool,
    /// Coordinates go from 0 to 1.
    pub normalized: bool,
    /// 8- and 16-bit integers are read as fractions, [0, 1] or [-1, 1].
    pub fractions: bool,
    /// Colours are stored with the curve of sRGB.
    pub srgb: bool,
    /// Interpolate between levels.
    pub linear_levels: bool,
    /// Added to the level that is asked for.
    pub bias: f32,
    /// The least and greatest level that is read.
    pub levels: [f32; 2],
    /// What [`Addressing::Border`] gives.
    pub border: [f32; 4],
}

/// Images, the largest first, and how they are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Texture {
    /// Levels; at least one.
    pub levels: Vec<Image>,
    /// How they are read.
    pub sampler: Sampler,
}

/// A variable of type `.texref`, `.surfref` or `.samplerref` of a loaded module. Kernels read and write what their launch binds to
/// its number ([`Bindings`]); samplers are as their text says.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The name in the PTX.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// What it can be bound to.
    pub kind: ReferenceKind,
    /// `normalized_coords` of its initial value.
    pub normalized: bool,
    /// `filter_mode` of its initial value is `linear`.
    pub linear: bool,
    /// `addr_mode_0` and so on of its initial value, as far as they are said.
    pub addressing: [Option<Addressing>; 3],
}

impl Reference {
    pub(crate) fn of(name: String, number: u64, opaque: Opaque) -> Reference {
        let Opaque { kind, normalized, linear, addressing, .. } = opaque;
        Reference { name, number, kind, normalized, linear, addressing }
    }
}

/// What a handle stands for.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Texture(Arc<Texture>),
    Surface(Arc<Image>),
    Sampler(Opaque),
    /// A reference to which nothing is bound.
    Unbound(OpaqueKind),
}

impl Object {
    /// What a variable stands for by itself.
    pub fn of(opaque: Opaque) -> Object {
        match opaque.kind {
            OpaqueKind::Sampler => Object::Sampler(opaque),
            kind => Object::Unbound(kind),
        }
    }

    pub fn kind(&self) -> OpaqueKind {
        match self {
            Object::Texture(_) => OpaqueKind::Texture,
            Object::Surface(_) => OpaqueKind::Surface,
            Object::Sampler(_) => OpaqueKind::Sampler,
            Object::Unbound(kind) => *kind,
        }
    }
}

/// What a launch binds to the references of its module.
#[derive(Debug, Clone, Default)]
pub struct Bindings(Option<Arc<HashMap<u64, Object>>>);

/// What can be bound to a [`Reference`].
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// To a `.texref`.
    Texture(Texture),
    /// To a `.surfref`.
    Surface(Image),
}

impl FromIterator<(u64, Bound)> for Bindings {
    /// What is bound by the numbers of the references.
    fn from_iter<I: IntoIterator<Item = (u64, Bound)>>(all: I) -> Bindings {
        let object = |bound| match bound {
            Bound::Texture(texture) => Object::Texture(Arc::new(texture)),
            Bound::Surface(image) => Object::Surface(Arc::new(image)),
        };
        let map: HashMap<u64, Object> =
            all.into_iter().map(|(number, bound)| (number, object(bound))).collect();
        Bindings((!map.is_empty()).then(|| Arc::new(map)))
    }
}

impl Bindings {
    /// What a number means to a launch: what it has bound to it, or what it is by itself.
    pub(crate) fn object(&self, memory: &Memory, number: u64) -> Option<Object> {
        let bound = self.0.as_ref().and_then(|map| map.get(&number));
        bound.cloned().or_else(|| memory.object(number))
    }
}

/// The same ones, not others that say the same.
impl PartialEq for Bindings {
    fn eq(&self, other: &Bindings) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Bindings {}

/// Why an access cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The handle is none, or of the wrong kind.
    Handle,
    /// A reference that nothing is bound to.
    Unbound,
    /// The memory is not there.
    Memory(u64),
    /// Outside of a surface, with `.trap`.
    Bounds,
}

/// The textures and surfaces of a device, by handle.
#[derive(Default)]
pub(crate) struct Objects(RwLock<HashMap<u64, Object>>);

/// Handles are small numbers that are never used twice, in no order that a pointer could have.
static NEXT: AtomicU64 = AtomicU64::new(0x10_0001);

impl Memory {
    pub(crate) fn bind(&self, object: Object) -> u64 {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.objects.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
        handle
    }

    /// Makes a texture known to kernels: the number by which they name it.
    pub fn bind_texture(&self, texture: Texture) -> u64 {
        self.bind(Object::Texture(Arc::new(texture)))
    }

    /// Makes a surface known to kernels.
    pub fn bind_surface(&self, image: Image) -> u64 {
        self.bind(Object::Surface(Arc::new(image)))
    }

    /// Forgets a texture or surface. `false`: there is none of this number.
    pub fn unbind(&self, handle: u64) -> bool {
        self.objects.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle).is_some()
    }

    pub(crate) fn object(&self, handle: u64) -> Option<Object> {
        self.objects.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }
}

#[cfg(test)]
mod tests;
