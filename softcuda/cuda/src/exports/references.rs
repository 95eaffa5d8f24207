//! Texture and surface references.

use super::arrays::Flat;
use super::{handle, out, set_if_wanted};
use crate::error::*;
use crate::reference;
use crate::texture::Resource;
use cudarc::driver::sys::{CUarray, CUfunction, CUmipmappedArray, CUsurfref, CUtexref};

exports! { ($) references_names, initialised;
    cuTexRefCreate(texture: *mut CUtexref) { out(texture)?.set(handle(reference::create()?)) }
    cuTexRefDestroy(texture: CUtexref) { reference::destroy(texture.addr()) }
    cuTexRefSetArray(texture: CUtexref, array: CUarray, flags: u32) {
        reference::find(texture.addr())?.set_array(Resource::Array(array.addr()), flags)
    }
    cuTexRefSetMipmappedArray(texture: CUtexref, array: CUmipmappedArray, flags: u32) {
        reference::find(texture.addr())?.set_array(Resource::Mipmapped(array.addr()), flags)
    }
    cuTexRefSetAddress_v2(offset: *mut usize, texture: CUtexref, address: u64, bytes: usize) {
        let begins = reference::find(texture.addr())?.set_address(address, bytes, !offset.is_null())?;
        set_if_wanted(offset, begins as usize);
        Ok(())
    }
    cuTexRefSetAddress2D_v2(texture: CUtexref, description: *const Flat, address: u64, pitch: usize) {
        set_pitched(texture, description, address, pitch)
    }
    cuTexRefSetAddress2D_v3(texture: CUtexref, description: *const Flat, address: u64, pitch: usize) {
        set_pitched(texture, description, address, pitch)
    }
    cuTexRefSetFormat(texture: CUtexref, format: u32, channels: i32) {
        reference::find(texture.addr())?.set_format(format, channels)
    }
    cuTexRefSetAddressMode(texture: CUtexref, axis: i32, mode: u32) {
        let (texture, axis) = (reference::find(texture.addr())?, of_axis(axis)?);
        texture.describe(|d| d.addressing[axis] = mode)
    }
    cuTexRefSetFilterMode(texture: CUtexref, mode: u32) {
        reference::find(texture.addr())?.describe(|d| d.filter = mode)
    }
    cuTexRefSetMipmapFilterMode(texture: CUtexref, mode: u32) {
        reference::find(texture.addr())?.describe(|d| d.level_filter = mode)
    }
    cuTexRefSetMipmapLevelBias(texture: CUtexref, bias: f32) {
        reference::find(texture.addr())?.describe(|d| d.bias = bias)
    }
    cuTexRefSetMipmapLevelClamp(texture: CUtexref, least: f32, most: f32) {
        reference::find(texture.addr())?.describe(|d| d.levels = [least, most])
    }
    cuTexRefSetMaxAnisotropy(texture: CUtexref, most: u32) {
        reference::find(texture.addr())?.describe(|d| d.anisotropy = most)
    }
    cuTexRefSetBorderColor(texture: CUtexref, colour: *const [f32; 4]) {
        if colour.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let colour = colour.read_unaligned();
        reference::find(texture.addr())?.describe(|d| d.border = colour)
    }
    cuTexRefSetFlags(texture: CUtexref, flags: u32) { reference::find(texture.addr())?.describe(|d| d.flags = flags) }
    cuTexRefGetAddress_v2(address: *mut u64, texture: CUtexref) {
        let address = out(address)?;
        match reference::find(texture.addr())?.resource()? {
            Resource::Linear { address: found, .. } | Resource::Pitched { address: found, .. } => address.set(found),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    cuTexRefGetArray(array: *mut CUarray, texture: CUtexref) {
        let array = out(array)?;
        match reference::find(texture.addr())?.resource()? {
            Resource::Array(found) => array.set(handle(found)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    cuTexRefGetMipmappedArray(array: *mut CUmipmappedArray, texture: CUtexref) {
        let array = out(array)?;
        match reference::find(texture.addr())?.resource()? {
            Resource::Mipmapped(found) => array.set(handle(found)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    cuTexRefGetFormat(format: *mut u32, channels: *mut i32, texture: CUtexref) {
        let found = reference::find(texture.addr())?.format();
        set_if_wanted(format, found.0);
        set_if_wanted(channels, found.1 as i32);
        Ok(())
    }
    cuTexRefGetAddressMode(mode: *mut u32, texture: CUtexref, axis: i32) {
        let (mode, axis) = (out(mode)?, of_axis(axis)?);
        mode.set(reference::find(texture.addr())?.description().addressing[axis])
    }
    cuTexRefGetFilterMode(mode: *mut u32, texture: CUtexref) {
        out(mode)?.set(reference::find(texture.addr())?.description().filter)
    }
    cuTexRefGetMipmapFilterMode(mode: *mut u32, texture: CUtexref) {
        out(mode)?.set(reference::find(texture.addr())?.description().level_filter)
    }
    cuTexRefGetMipmapLevelBias(bias: *mut f32, texture: CUtexref) {
        out(bias)?.set(reference::find(texture.addr())?.description().bias)
    }
    cuTexRefGetMipmapLevelClamp(least: *mut f32, most: *mut f32, texture: CUtexref) {
        let (least, most) = (out(least)?, out(most)?);
        let levels = reference::find(texture.addr())?.description().levels;
        least.set(levels[0])?;
        most.set(levels[1])
    }
    cuTexRefGetMaxAnisotropy(most: *mut i32, texture: CUtexref) {
        out(most)?.set(reference::find(texture.addr())?.description().anisotropy as i32)
    }
    cuTexRefGetBorderColor(colour: *mut [f32; 4], texture: CUtexref) {
        out(colour)?.set(reference::find(texture.addr())?.description().border)
    }
    cuTexRefGetFlags(flags: *mut u32, texture: CUtexref) {
        out(flags)?.set(reference::find(texture.addr())?.description().flags)
    }
    cuParamSetTexRef(function: CUfunction, unit: i32, texture: CUtexref) {
        reference::set_parameter(function.addr(), unit, texture.addr())
    }
    cuSurfRefSetArray(surface: CUsurfref, array: CUarray, flags: u32) {
        reference::set_surface(surface.addr(), array.addr(), flags)
    }
    cuSurfRefGetArray(array: *mut CUarray, surface: CUsurfref) {
        out(array)?.set(handle(reference::surface_array(surface.addr())?))
    }
}

fn of_axis(axis: i32) -> Result<usize> {
    usize::try_from(axis).ok().filter(|axis| *axis < 3).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// # Safety
/// `description` is null or may be read.
unsafe fn set_pitched(texture: CUtexref, description: *const Flat, address: u64, pitch: usize) -> Result {
    // SAFETY: the caller vouches for it.
    let d = unsafe { description.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    reference::find(texture.addr())?.set_pitched(address, (d.format, d.channels), [d.width, d.height], pitch)
}
