//! Arrays and mipmapped arrays: images in device memory that only copies, textures and surfaces reach.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::current;
use crate::driver::TABLES;
use crate::error::*;
use softcuda_engine::{Channel, Format, Image};
use std::sync::Arc;

/// `CUDA_ARRAY3D_LAYERED`
pub const LAYERED: u32 = 1;
/// `CUDA_ARRAY3D_SURFACE_LDST`
pub const SURFACE: u32 = 2;
/// `CUDA_ARRAY3D_CUBEMAP`
pub const CUBE: u32 = 4;
/// `CUDA_ARRAY3D_TEXTURE_GATHER`
const GATHER: u32 = 8;
/// Flags of graphics interoperation that say how it will be used there.
const HINTS: u32 = 0x10 | 0x20;
/// `CUDA_ARRAY3D_SPARSE`, `_DEFERRED_MAPPING` and `_VIDEO_ENCODE_DECODE`.
const UNSUPPORTED: u32 = 0x40 | 0x80 | 0x100;
/// The largest extent of anything: what the attributes say.
const LARGEST: usize = 131_072;
const MOST_LAYERS: usize = 2048;
/// Where memory and rows of arrays begin.
const ALIGNMENT: u64 = 512;
const ROW_ALIGNMENT: u64 = 32;

/// `CUDA_ARRAY3D_DESCRIPTOR`, with a format that may be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Description {
    /// Texels a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// Planes, or layers; 0 for one and two dimensions.
    pub depth: usize,
    /// `CUarray_format`
    pub format: u32,
    /// Channels of a texel.
    pub channels: u32,
    /// Flags of `CUDA_ARRAY3D_…`.
    pub flags: u32,
}

/// One array.
pub struct Array {
    /// What it was made of.
    pub description: Description,
    /// Its texels.
    pub image: Image,
    /// Its memory, as copies want it; in no table, for no pointer leads to it.
    pub allocation: Allocation,
    /// Whether it is a level of a mipmapped array, which then owns the memory.
    level: bool,
}

/// A mipmapped array: the handles of its levels.
pub struct Mipmapped {
    /// The arrays, the largest first.
    pub levels: Vec<(usize, Arc<Array>)>,
}

/// The texels of a `CUarray_format` and a number of channels.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a format that is none, `CUDA_ERROR_NOT_SUPPORTED` for compressed and planar ones.
pub fn format(format: u32, channels: u32) -> Result<Format> {
    let channel = match format {
        1 => Channel::U8,
        2 => Channel::U16,
        3 => Channel::U32,
        8 => Channel::S8,
        9 => Channel::S16,
        10 => Channel::S32,
        16 => Channel::F16,
        32 => Channel::F32,
        // Compressed blocks, planes, fixed numbers of channels.
        0x50 | 0x55..=0x6a | 0x91..=0xd0 => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if matches!(channels, 1 | 2 | 4) {
        Ok(Format { channel, channels })
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

impl Description {
    /// Extent and layers.
    fn shape(&self) -> Result<([u32; 3], u32)> {
        let Description { width, height, depth, flags, .. } = *self;
        if flags & UNSUPPORTED != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let layered = flags & LAYERED != 0;
        let limit = if layered || flags & CUBE != 0 { MOST_LAYERS } else { LARGEST };
        let fine = (1..=LARGEST).contains(&width) && height <= LARGEST && depth <= limit;
        if !fine || flags & !(LAYERED | SURFACE | CUBE | GATHER | HINTS) != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CUBE != 0 {
            let faces = if layered { depth > 0 && depth.is_multiple_of(6) } else { depth == 6 };
            if width != height || !faces {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        } else if (layered && depth == 0) || (!layered && depth > 0 && height == 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Only planes of texels can be gathered.
        if flags & GATHER != 0 && (height == 0 || (depth > 0 && !layered)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (width, height) = (width as u32, height.max(1) as u32);
        if layered || flags & CUBE != 0 {
            Ok(([width, height, 1], depth as u32))
        } else {
            Ok(([width, height, depth.max(1) as u32], 1))
        }
    }

    /// Where everything lies, from address 0, and the bytes of it.
    fn image(&self) -> Result<(Image, u64)> {
        let format = format(self.format, self.channels)?;
        let (extent, layers) = self.shape()?;
        let row = (u64::from(extent[0]) * u64::from(format.bytes())).next_multiple_of(ROW_ALIGNMENT);
        let plane = row * u64::from(extent[1]);
        let bytes = plane
            .checked_mul(u64::from(extent[2]) * u64::from(layers))
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok((Image { base: 0, format, extent, layers, row, plane, linear: false }, bytes))
    }

    /// The same, at half the size as often as it says.
    fn level(&self, level: usize) -> Description {
        let half = |n: usize| if n == 0 { 0 } else { (n >> level).max(1) };
        let planes = self.flags & (LAYERED | CUBE) == 0;
        let depth = if planes { half(self.depth) } else { self.depth };
        Description { width: half(self.width), height: half(self.height), depth, ..*self }
    }
}

impl Array {
    fn at(address: u64, bytes: u64, image: Image, description: Description, level: bool) -> Result<Array> {
        let context = current::healthy()?;
        let image = Image { base: address, ..image };
        let allocation = Allocation::new(address, bytes, What::Device, context.handle, &context.device);
        Ok(Array { description, image, allocation, level })
    }
}

/// `cuArray3DCreate`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a description that describes nothing, `CUDA_ERROR_NOT_SUPPORTED` for sparse arrays and
/// compressed formats, `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn create(description: Description) -> Result<usize> {
    let context = current::healthy()?;
    let (image, bytes) = description.image()?;
    let address = context.device.memory.alloc(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let handle = TABLES.arrays.reserve();
    TABLES.arrays.add(handle, Arc::new(Array::at(address, bytes, image, description, false)?));
    Ok(handle)
}

/// The array of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find(handle: usize) -> Result<Arc<Array>> {
    TABLES.arrays.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuArrayDestroy`: waits for the work that may use it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for a handle that is none, or a level's.
pub fn destroy(handle: usize) -> Result {
    let context = current::healthy()?;
    if find(handle)?.level {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    context.synchronize()?;
    let array = TABLES.arrays.remove(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    array.allocation.device.memory.free(array.image.base);
    Ok(())
}

/// `cuMipmappedArrayCreate`: no more levels than there are until every extent is 1.
///
/// # Errors
/// As [`create`].
pub fn create_mipmapped(description: Description, levels: u32) -> Result<usize> {
    let context = current::healthy()?;
    let largest = description.width.max(description.height).max(description.level(0).depth);
    let most = largest.max(1).ilog2() + 1;
    let levels: Vec<Description> =
        (0..levels.clamp(1, most) as usize).map(|level| description.level(level)).collect();
    let images = levels.iter().map(Description::image).collect::<Result<Vec<_>>>()?;
    let bytes = images.iter().map(|(_, bytes)| bytes).sum();
    let mut address = context.device.memory.alloc(bytes, ALIGNMENT).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut made = Vec::new();
    for (description, (image, bytes)) in levels.into_iter().zip(images) {
        let array = Arc::new(Array::at(address, bytes, image, description, true)?);
        let handle = TABLES.arrays.reserve();
        TABLES.arrays.add(handle, array.clone());
        made.push((handle, array));
        address += bytes;
    }
    let handle = TABLES.mipmapped.reserve();
    TABLES.mipmapped.add(handle, Arc::new(Mipmapped { levels: made }));
    Ok(handle)
}

/// The mipmapped array of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find_mipmapped(handle: usize) -> Result<Arc<Mipmapped>> {
    TABLES.mipmapped.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuMipmappedArrayDestroy`: its levels go with it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn destroy_mipmapped(handle: usize) -> Result {
    let context = current::healthy()?;
    find_mipmapped(handle)?;
    context.synchronize()?;
    let mipmapped = TABLES.mipmapped.remove(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    mipmapped.free();
    Ok(())
}

impl Mipmapped {
    fn free(&self) {
        for (handle, _) in &self.levels {
            TABLES.arrays.remove(*handle);
        }
        if let Some((_, largest)) = self.levels.first() {
            largest.allocation.device.memory.free(largest.image.base);
        }
    }
}

/// What `cuArrayGetMemoryRequirements` says: bytes and alignment.
pub fn requirements(arrays: &[(usize, Arc<Array>)]) -> (usize, usize) {
    (arrays.iter().map(|(_, array)| array.allocation.size as usize).sum(), ALIGNMENT as usize)
}

/// Frees every array that a context made, which has ended.
pub fn free_all_of(context: usize) {
    let ours = |array: &Array| array.allocation.context == context;
    for (handle, mipmapped) in TABLES.mipmapped.entries() {
        if mipmapped.levels.first().is_some_and(|(_, array)| ours(array))
            && TABLES.mipmapped.remove(handle).is_some()
        {
            mipmapped.free();
        }
    }
    for (handle, array) in TABLES.arrays.entries() {
        if ours(&array) && TABLES.arrays.remove(handle).is_some() {
            array.allocation.device.memory.free(array.image.base);
        }
    }
}
