//! Texture and surface objects: what a kernel names by a number.
#![forbid(unsafe_code)]

use crate::allocations::Allocation;
use crate::array::{self, Array};
use crate::attributes::{LINEAR_TEXELS, PITCHED_EXTENT, TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use crate::current;
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use softcuda_engine::{Addressing, Channel, Format, Image, Sampler, Texture};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a texture or surface is made of (`CUDA_RESOURCE_DESC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// An array's handle.
    Array(usize),
    /// A mipmapped array's handle.
    Mipmapped(usize),
    /// Texels one after another.
    Linear {
        /// First address.
        address: u64,
        /// `CUarray_format` and number of channels.
        format: (u32, u32),
        /// Bytes.
        bytes: usize,
    },
    /// Rows of texels.
    Pitched {
        /// First address.
        address: u64,
        /// `CUarray_format` and number of channels.
        format: (u32, u32),
        /// Texels a row.
        width: usize,
        /// Rows.
        height: usize,
        /// Bytes from row to row.
        pitch: usize,
    },
}

/// `CUDA_TEXTURE_DESC`, with numbers that may be none of the enumerations.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Description {
    /// `CUaddress_mode` by axis.
    pub addressing: [u32; 3],
    /// `CUfilter_mode`
    pub filter: u32,
    /// `CU_TRSF_…`
    pub flags: u32,
    /// Not used.
    pub anisotropy: u32,
    /// `CUfilter_mode` between levels.
    pub level_filter: u32,
    /// Added to the level.
    pub bias: f32,
    /// Least and greatest level.
    pub levels: [f32; 2],
    /// The colour outside.
    pub border: [f32; 4],
    /// 0.
    pub reserved: [i32; 12],
}

/// `CUDA_RESOURCE_VIEW_DESC`, with a format that may be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct View {
    /// `CUresourceViewFormat`
    pub format: u32,
    /// Texels a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Planes.
    pub depth: usize,
    /// The levels that are seen, of a mipmapped array.
    pub first_level: u32,
    /// See `first_level`.
    pub last_level: u32,
    /// The layers that are seen, of a layered array.
    pub first_layer: u32,
    /// See `first_layer`.
    pub last_layer: u32,
    /// 0.
    pub reserved: [u32; 16],
}

/// `CU_TRSF_READ_AS_INTEGER`
const AS_INTEGER: u32 = 1;
/// `CU_TRSF_NORMALIZED_COORDINATES`
pub const NORMALIZED: u32 = 2;
/// `CU_TRSF_SRGB`
pub const SRGB: u32 = 0x10;
/// Those, and two that change nothing here: trilinear optimisation and seamless cubes.
pub const FLAGS: u32 = AS_INTEGER | NORMALIZED | SRGB | 0x20 | 0x40;

/// What an object was made of, to be told again.
#[derive(Clone)]
pub struct Made {
    /// The resource.
    pub resource: Resource,
    /// How it is read; none for a surface.
    pub description: Option<Description>,
    /// The view, if one was given.
    pub view: Option<View>,
    device: Arc<Device>,
    context: usize,
}

/// By the number that kernels use.
static OBJECTS: Mutex<Option<HashMap<u64, Made>>> = Mutex::new(None);

fn with<T>(body: impl FnOnce(&mut HashMap<u64, Made>) -> T) -> T {
    body(OBJECTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Memory of a resource that the kernels of a device can reach.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn memory(address: u64, bytes: u64, device: &Device) -> Result<Allocation> {
    let found = TABLES.allocations.holding(address, bytes);
    found.filter(|_| device.memory.allows(address, bytes, false)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

impl Resource {
    /// Its images, the largest first.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for numbers that do not fit together or memory that is none, `CUDA_ERROR_INVALID_HANDLE` for
    /// arrays that are none, `CUDA_ERROR_NOT_SUPPORTED` for compressed formats.
    pub fn images(&self, device: &Device) -> Result<Vec<Image>> {
        match *self {
            Resource::Array(handle) => Ok(vec![array::find(handle)?.image]),
            Resource::Mipmapped(handle) => {
                Ok(array::find_mipmapped(handle)?.levels.iter().map(|(_, level)| level.image).collect())
            }
            Resource::Linear { address, format, bytes } => {
                let format = array::format(format.0, format.1)?;
                let texels = bytes as u64 / u64::from(format.bytes());
                let fine = address.is_multiple_of(u64::from(TEXTURE_ALIGNMENT));
                if texels == 0 || texels > u64::from(LINEAR_TEXELS) || !fine {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                memory(address, bytes as u64, device)?;
                let extent = [texels as u32, 1, 1];
                Ok(vec![Image { base: address, format, extent, layers: 1, row: 0, plane: 0, linear: true }])
            }
            Resource::Pitched { address, format, width, height, pitch } => {
                let format = array::format(format.0, format.1)?;
                let row = width.checked_mul(format.bytes() as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let most = PITCHED_EXTENT as usize;
                let sizes = (1..=most).contains(&width) && (1..=most).contains(&height) && pitch >= row;
                let aligned = address.is_multiple_of(u64::from(TEXTURE_ALIGNMENT))
                    && pitch.is_multiple_of(TEXTURE_PITCH_ALIGNMENT as usize);
                let span =
                    pitch.checked_mul(height - usize::from(height > 0)).and_then(|n| n.checked_add(row));
                let span = span.filter(|_| sizes && aligned).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                memory(address, span as u64, device)?;
                let extent = [width as u32, height as u32, 1];
                let row = pitch as u64;
                Ok(vec![Image { base: address, format, extent, layers: 1, row, plane: 0, linear: false }])
            }
        }
    }
}

impl View {
    /// The texels of its format.
    fn texels(&self) -> Result<Option<Format>> {
        use Channel::*;
        const CHANNELS: [Channel; 8] = [U8, S8, U16, S16, U32, S32, F16, F32];
        match self.format {
            0 => Ok(None),
            1..=24 => {
                let (channel, channels) = ((self.format - 1) / 3, [1, 2, 4][(self.format as usize - 1) % 3]);
                Ok(Some(Format { channel: CHANNELS[channel as usize], channels }))
            }
            25..=34 => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// What is seen of images.
    fn of(&self, images: Vec<Image>) -> Result<Vec<Image>> {
        let format = self.texels()?;
        let (first, last) = (self.first_level as usize, self.last_level as usize);
        let levels = images.get(first..=last.max(first)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let see = |image: &Image| {
            let (first, last) = (self.first_layer, self.last_layer.max(self.first_layer));
            let same = format.is_none_or(|f| f.bytes() == image.format.bytes());
            if last >= image.layers || !same {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // Without numbers of layers all of them are seen.
            let all = self.first_layer == 0 && self.last_layer == 0;
            let layers = if all { image.layers } else { last - first + 1 };
            let base = image.base + u64::from(first) * image.plane;
            Ok(Image { base, layers, format: format.unwrap_or(image.format), ..*image })
        };
        let seen = levels.iter().map(see).collect::<Result<Vec<_>>>()?;
        let wanted = [self.width, self.height, self.depth];
        // With the texels of the array's own size the extent is the array's (in layers for a layered one).
        let fits =
            seen.first().is_some_and(|image| (0..2).all(|i| wanted[i].max(1) == image.extent[i] as usize));
        if fits { Ok(seen) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}

impl Description {
    /// How texels of a format are read.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for numbers that mean nothing, or not for this format.
    pub fn sampler(&self, resource: &Resource, format: Format) -> Result<Sampler> {
        let mode = |number: u32| match number {
            0 => Ok(Addressing::Wrap),
            1 => Ok(Addressing::Clamp),
            2 => Ok(Addressing::Mirror),
            3 => Ok(Addressing::Border),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        };
        let [x, y, z] = self.addressing;
        if self.filter > 1 || self.level_filter > 1 || self.flags & !FLAGS != 0 || self.anisotropy > 16 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let small = !format.channel.is_float() && format.channel.bytes() < 4;
        let fractions = small && self.flags & AS_INTEGER == 0;
        let plain = matches!(resource, Resource::Linear { .. });
        let linear = self.filter == 1 && !plain;
        // Integers cannot be interpolated.
        if linear && !fractions && !format.channel.is_float() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let srgb = self.flags & SRGB != 0;
        if srgb && (format.channel != Channel::U8 || !fractions) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Sampler {
            addressing: [mode(x)?, mode(y)?, mode(z)?],
            linear,
            normalized: self.flags & NORMALIZED != 0,
            fractions,
            srgb,
            linear_levels: self.level_filter == 1,
            bias: self.bias,
            levels: self.levels,
            border: self.border,
        })
    }
}

fn remember(handle: u64, made: Made) -> u64 {
    with(|objects| objects.insert(handle, made));
    handle
}

/// `cuTexObjectCreate`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for numbers that mean nothing or do not fit together, `CUDA_ERROR_INVALID_HANDLE` for arrays
/// that are none, `CUDA_ERROR_NOT_SUPPORTED` for compressed formats.
pub fn create(resource: Resource, description: Description, view: Option<View>) -> Result<u64> {
    let context = current::healthy()?;
    let mut levels = resource.images(&context.device)?;
    if let Some(view) = &view {
        if matches!(resource, Resource::Linear { .. } | Resource::Pitched { .. }) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        levels = view.of(levels)?;
    }
    let format = levels.first().ok_or(CUDA_ERROR_INVALID_VALUE)?.format;
    let sampler = description.sampler(&resource, format)?;
    let handle = context.device.memory.bind_texture(Texture { levels, sampler });
    let (device, context) = (context.device.clone(), context.handle);
    Ok(remember(handle, Made { resource, description: Some(description), view, device, context }))
}

/// `cuSurfObjectCreate`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for anything but an array that was made for it, `CUDA_ERROR_INVALID_HANDLE` for an array that
/// is none.
pub fn create_surface(resource: Resource) -> Result<u64> {
    let context = current::healthy()?;
    let Resource::Array(handle) = resource else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let array: Arc<Array> = array::find(handle)?;
    if array.description.flags & array::SURFACE == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = context.device.memory.bind_surface(array.image);
    let (device, context) = (context.device.clone(), context.handle);
    Ok(remember(handle, Made { resource, description: None, view: None, device, context }))
}

/// What a texture, or surface, was made of.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is none.
pub fn find(handle: u64, surface: bool) -> Result<Made> {
    let found = with(|objects| objects.get(&handle).cloned());
    found.filter(|made| made.description.is_none() == surface).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuTexObjectDestroy` and `cuSurfObjectDestroy`: waits for the work that may use it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is none.
pub fn destroy(handle: u64, surface: bool) -> Result {
    current::healthy()?.synchronize()?;
    let made = find(handle, surface)?;
    with(|objects| objects.remove(&handle));
    made.device.memory.unbind(handle);
    Ok(())
}

/// Forgets the objects of a context that has ended.
pub fn forget_all_of(context: usize) {
    with(|objects| {
        objects.retain(|handle, made| {
            let stays = made.context != context;
            if !stays {
                made.device.memory.unbind(*handle);
            }
            stays
        });
    });
}
