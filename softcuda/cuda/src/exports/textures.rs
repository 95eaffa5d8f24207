//! Texture and surface objects.

use super::out;
use crate::error::*;
use crate::texture::{self, Description, Resource, View};

/// `CUDA_RESOURCE_DESC`: a kind, a union and flags.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ResourceDescription {
    kind: u32,
    words: [u64; 16],
    flags: u32,
}

impl ResourceDescription {
    fn resource(&self) -> Result<Resource> {
        let w = &self.words;
        // `CUarray_format` and the number of channels are two numbers of 4 bytes.
        let format = (w[1] as u32, (w[1] >> 32) as u32);
        if self.flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(match self.kind {
            0 => Resource::Array(w[0] as usize),
            1 => Resource::Mipmapped(w[0] as usize),
            2 => Resource::Linear { address: w[0], format, bytes: w[2] as usize },
            3 => {
                let (width, height, pitch) = (w[2] as usize, w[3] as usize, w[4] as usize);
                Resource::Pitched { address: w[0], format, width, height, pitch }
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn of(resource: &Resource) -> Self {
        let mut words = [0; 16];
        let pair = |(format, channels): (u32, u32)| u64::from(format) | u64::from(channels) << 32;
        let kind = match *resource {
            Resource::Array(handle) => {
                words[0] = handle as u64;
                0
            }
            Resource::Mipmapped(handle) => {
                words[0] = handle as u64;
                1
            }
            Resource::Linear { address, format, bytes } => {
                words[..3].copy_from_slice(&[address, pair(format), bytes as u64]);
                2
            }
            Resource::Pitched { address, format, width, height, pitch } => {
                let rest = [width as u64, height as u64, pitch as u64];
                words[..5].copy_from_slice(&[address, pair(format), rest[0], rest[1], rest[2]]);
                3
            }
        };
        Self { kind, words, flags: 0 }
    }
}

exports! { ($) textures_names, initialised;
    cuTexObjectCreate(
        object: *mut u64, resource: *const ResourceDescription, description: *const Description, view: *const View
    ) {
        let object = out(object)?;
        let resource = resource.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?.resource()?;
        let description = description.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        object.set(texture::create(resource, *description, view.as_ref().copied())?)
    }
    cuTexObjectDestroy(object: u64) { texture::destroy(object, false) }
    cuTexObjectGetResourceDesc(resource: *mut ResourceDescription, object: u64) {
        out(resource)?.set(ResourceDescription::of(&texture::find(object, false)?.resource))
    }
    cuTexObjectGetTextureDesc(description: *mut Description, object: u64) {
        let description = out(description)?;
        description.set(texture::find(object, false)?.description.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    cuTexObjectGetResourceViewDesc(view: *mut View, object: u64) {
        let view = out(view)?;
        // There is nothing to tell of a texture without a view.
        view.set(texture::find(object, false)?.view.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    cuSurfObjectCreate(object: *mut u64, resource: *const ResourceDescription) {
        let object = out(object)?;
        let resource = resource.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?.resource()?;
        object.set(texture::create_surface(resource)?)
    }
    cuSurfObjectDestroy(object: u64) { texture::destroy(object, true) }
    cuSurfObjectGetResourceDesc(resource: *mut ResourceDescription, object: u64) {
        out(resource)?.set(ResourceDescription::of(&texture::find(object, true)?.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::*;
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<ResourceDescription>(), size_of::<CUDA_RESOURCE_DESC>());
        assert_eq!(offset_of!(ResourceDescription, words), offset_of!(CUDA_RESOURCE_DESC, res));
        assert_eq!(offset_of!(ResourceDescription, flags), offset_of!(CUDA_RESOURCE_DESC, flags));
        assert_eq!(size_of::<Description>(), size_of::<CUDA_TEXTURE_DESC>());
        assert_eq!(offset_of!(Description, border), offset_of!(CUDA_TEXTURE_DESC, borderColor));
        assert_eq!(size_of::<View>(), size_of::<CUDA_RESOURCE_VIEW_DESC>());
        assert_eq!(offset_of!(View, last_layer), offset_of!(CUDA_RESOURCE_VIEW_DESC, lastLayer));
    }
}
