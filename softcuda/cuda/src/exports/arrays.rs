//! Arrays.

use super::{handle, out};
use crate::array::{self, Description};
use crate::driver;
use crate::error::*;
use cudarc::driver::sys::{CUarray, CUmipmappedArray};
use std::ffi::c_void;

/// `CUDA_ARRAY_DESCRIPTOR`, with a format that may be none.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Flat {
    /// Texels a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// `CUarray_format`
    pub format: u32,
    /// Channels of a texel.
    pub channels: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Requirements {
    bytes: usize,
    alignment: usize,
    reserved: [u32; 4],
}

impl Requirements {
    fn of((bytes, alignment): (usize, usize)) -> Self {
        Self { bytes, alignment, reserved: [0; 4] }
    }
}

exports! { ($) arrays_names, initialised;
    cuArrayCreate_v2(array: *mut CUarray, description: *const Flat) {
        let (array, d) = (out(array)?, description.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        let Flat { width, height, format, channels } = *d;
        array.set(handle(array::create(Description { width, height, depth: 0, format, channels, flags: 0 })?))
    }
    cuArray3DCreate_v2(array: *mut CUarray, description: *const Description) {
        let (array, d) = (out(array)?, description.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        array.set(handle(array::create(*d)?))
    }
    cuArrayDestroy(array: CUarray) { array::destroy(array.addr()) }
    cuArrayGetDescriptor_v2(description: *mut Flat, array: CUarray) {
        let description = out(description)?;
        let Description { width, height, format, channels, .. } = array::find(array.addr())?.description;
        description.set(Flat { width, height, format, channels })
    }
    cuArray3DGetDescriptor_v2(description: *mut Description, array: CUarray) {
        out(description)?.set(array::find(array.addr())?.description)
    }
    cuArrayGetMemoryRequirements(requirements: *mut Requirements, array: CUarray, device: i32) {
        let requirements = out(requirements)?;
        driver::device(device)?;
        let found = array::find(array.addr())?;
        requirements.set(Requirements::of(array::requirements(&[(0, found)])))
    }
    cuArrayGetSparseProperties(_properties: *mut c_void, array: CUarray) {
        array::find(array.addr())?;
        // None is sparse.
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    cuArrayGetPlane(plane: *mut CUarray, array: CUarray, _index: u32) {
        out(plane)?;
        array::find(array.addr())?;
        // Formats of several planes are refused when an array is made.
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    cuMipmappedArrayCreate(array: *mut CUmipmappedArray, description: *const Description, levels: u32) {
        let (array, d) = (out(array)?, description.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?);
        array.set(handle(array::create_mipmapped(*d, levels)?))
    }
    cuMipmappedArrayGetLevel(level: *mut CUarray, array: CUmipmappedArray, number: u32) {
        let (level, array) = (out(level)?, array::find_mipmapped(array.addr())?);
        let found = array.levels.get(number as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        level.set(handle(found.0))
    }
    cuMipmappedArrayDestroy(array: CUmipmappedArray) { array::destroy_mipmapped(array.addr()) }
    cuMipmappedArrayGetMemoryRequirements(requirements: *mut Requirements, array: CUmipmappedArray, device: i32) {
        let requirements = out(requirements)?;
        driver::device(device)?;
        requirements.set(Requirements::of(array::requirements(&array::find_mipmapped(array.addr())?.levels)))
    }
    cuMipmappedArrayGetSparseProperties(_properties: *mut c_void, array: CUmipmappedArray) {
        array::find_mipmapped(array.addr())?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::*;
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Flat>(), size_of::<CUDA_ARRAY_DESCRIPTOR>());
        assert_eq!(size_of::<Description>(), size_of::<CUDA_ARRAY3D_DESCRIPTOR>());
        assert_eq!(offset_of!(Description, flags), offset_of!(CUDA_ARRAY3D_DESCRIPTOR, Flags));
        assert_eq!(size_of::<Requirements>(), size_of::<CUDA_ARRAY_MEMORY_REQUIREMENTS>());
    }
}
