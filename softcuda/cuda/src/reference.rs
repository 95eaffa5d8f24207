//! Texture and surface references: names in a module, by which its kernels read and write what the host binds to them
//! (deprecated in CUDA, but part of the driver). A launch takes what is bound when it is made.
#![forbid(unsafe_code)]

use crate::array::{self, SURFACE};
use crate::attributes::{LINEAR_TEXELS, TEXTURE_ALIGNMENT};
use crate::context::Context;
use crate::current;
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use crate::texture::{self, Description, FLAGS, NORMALIZED, Resource, SRGB};
use softcuda_engine::{self as engine, Addressing, Bindings, Bound, ReferenceKind, Texture};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// `CU_TRSA_OVERRIDE_FORMAT`, which [`TextureReference::set_array`] needs.
const OVERRIDE_FORMAT: u32 = 1;
/// `CU_PARAM_TR_DEFAULT`
const DEFAULT_UNIT: i32 = -1;
/// `CU_AD_FORMAT_FLOAT` with one channel: what is read until [`TextureReference::set_format`].
const FLOATS: (u32, u32) = (0x20, 1);
/// `CU_TR_ADDRESS_MODE_CLAMP`
const CLAMP: u32 = 1;

/// A `CUtexref`.
pub struct TextureReference {
    /// Its handle.
    pub handle: usize,
    context: usize,
    device: Arc<Device>,
    /// The module and the number by which its kernels name it; none for one of `cuTexRefCreate`.
    place: Option<(Weak<References>, u64)>,
    name: String,
    state: Mutex<State>,
}

/// A `CUsurfref`.
pub struct SurfaceReference {
    /// Its handle.
    pub handle: usize,
    place: (Weak<References>, u64),
    name: String,
    /// The array's handle.
    array: Mutex<Option<usize>>,
}

/// What is bound, and how it is read.
#[derive(Clone)]
struct State {
    resource: Option<Resource>,
    /// `CUarray_format` and channels of what is not an array.
    format: (u32, u32),
    description: Description,
}

/// The references of a module.
#[derive(Default)]
pub struct References {
    textures: Vec<Arc<TextureReference>>,
    surfaces: Vec<Arc<SurfaceReference>>,
    /// What a launch takes; none when something has changed since.
    bindings: Mutex<Option<Bindings>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// What the initial value in the text says, else CUDA's defaults.
    fn new(initial: Option<&engine::Reference>) -> State {
        let mode = |mode: Option<Addressing>| match mode {
            Some(Addressing::Wrap) => 0,
            Some(Addressing::Mirror) => 2,
            Some(Addressing::Border) => 3,
            Some(Addressing::Clamp | Addressing::ClampOgl) | None => CLAMP,
        };
        let description = Description {
            addressing: initial.map_or([CLAMP; 3], |i| i.addressing.map(mode)),
            filter: initial.is_some_and(|i| i.linear).into(),
            flags: if initial.is_some_and(|i| i.normalized) { NORMALIZED } else { 0 },
            anisotropy: 0,
            level_filter: 0,
            bias: 0.0,
            levels: [0.0; 2],
            border: [0.0; 4],
            reserved: [0; 12],
        };
        State { resource: None, format: FLOATS, description }
    }

    /// What kernels read; none if nothing is bound, or what was bound is gone. A filter that the format does not have is none.
    fn texture(&self, device: &Device) -> Option<Texture> {
        let resource = match self.resource? {
            Resource::Linear { address, bytes, .. } => {
                let offset = offset(address);
                let (address, bytes) = (address - offset, bytes + offset as usize);
                Resource::Linear { address, format: self.format, bytes }
            }
            other => other,
        };
        let levels = resource.images(device).ok()?;
        let format = levels.first()?.format;
        let plain = Description { filter: 0, flags: self.description.flags & !SRGB, ..self.description };
        let sampler =
            self.description.sampler(&resource, format).or_else(|_| plain.sampler(&resource, format));
        Some(Texture { levels, sampler: sampler.ok()? })
    }
}

/// How far an address lies behind one at which textures may begin.
fn offset(address: u64) -> u64 {
    address % u64::from(TEXTURE_ALIGNMENT)
}

/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for more texels than plain memory may have, and for formats that are none.
fn check_texels(bytes: usize, format: (u32, u32)) -> Result {
    let texel = array::format(format.0, format.1)?.bytes() as usize;
    if bytes / texel > LINEAR_TEXELS as usize { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

impl References {
    /// Those of a module that is placed in a context.
    pub fn new(context: &Context, loaded: &engine::Loaded) -> Arc<References> {
        let of_kind = |kind| loaded.references().iter().filter(move |r| r.kind == kind);
        let all = Arc::new_cyclic(|all: &Weak<References>| {
            let texture = |r: &engine::Reference| {
                Arc::new(TextureReference {
                    handle: TABLES.texture_references.reserve(),
                    context: context.handle,
                    device: context.device.clone(),
                    place: Some((all.clone(), r.number)),
                    name: r.name.clone(),
                    state: Mutex::new(State::new(Some(r))),
                })
            };
            let surface = |r: &engine::Reference| {
                Arc::new(SurfaceReference {
                    handle: TABLES.surface_references.reserve(),
                    place: (all.clone(), r.number),
                    name: r.name.clone(),
                    array: Mutex::new(None),
                })
            };
            References {
                textures: of_kind(ReferenceKind::Texture).map(texture).collect(),
                surfaces: of_kind(ReferenceKind::Surface).map(surface).collect(),
                bindings: Mutex::new(None),
            }
        });
        all.textures.iter().for_each(|r| TABLES.texture_references.add(r.handle, r.clone()));
        all.surfaces.iter().for_each(|r| TABLES.surface_references.add(r.handle, r.clone()));
        all
    }

    /// Takes the handles away.
    pub fn unload(&self) {
        for texture in &self.textures {
            TABLES.texture_references.remove(texture.handle);
        }
        for surface in &self.surfaces {
            TABLES.surface_references.remove(surface.handle);
        }
    }

    /// `cuModuleGetTexRef`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn texture(&self, name: &str) -> Result<usize> {
        self.textures.iter().find(|r| r.name == name).map(|r| r.handle).ok_or(CUDA_ERROR_NOT_FOUND)
    }

    /// `cuModuleGetSurfRef`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn surface(&self, name: &str) -> Result<usize> {
        self.surfaces.iter().find(|r| r.name == name).map(|r| r.handle).ok_or(CUDA_ERROR_NOT_FOUND)
    }

    /// What a launch takes of what is bound now.
    pub fn bindings(&self) -> Bindings {
        if self.textures.is_empty() && self.surfaces.is_empty() {
            return Bindings::default();
        }
        locked(&self.bindings).get_or_insert_with(|| self.bound().collect()).clone()
    }

    fn bound(&self) -> impl Iterator<Item = (u64, Bound)> {
        let textures = self.textures.iter().filter_map(|r| {
            let number = r.place.as_ref()?.1;
            Some((number, Bound::Texture(locked(&r.state).texture(&r.device)?)))
        });
        let surfaces = self.surfaces.iter().filter_map(|r| {
            let array = array::find((*locked(&r.array))?).ok()?;
            Some((r.place.1, Bound::Surface(array.image)))
        });
        textures.chain(surfaces)
    }
}

/// The texture reference of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`: the manual names no other error; no current context.
pub fn find(handle: usize) -> Result<Arc<TextureReference>> {
    current::healthy()?;
    TABLES.texture_references.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuTexRefCreate`.
///
/// # Errors
/// No current context.
pub fn create() -> Result<usize> {
    let context = current::healthy()?;
    let handle = TABLES.texture_references.reserve();
    let reference = TextureReference {
        handle,
        context: context.handle,
        device: context.device.clone(),
        place: None,
        name: String::new(),
        state: Mutex::new(State::new(None)),
    };
    TABLES.texture_references.add(handle, Arc::new(reference));
    Ok(handle)
}

/// `cuTexRefDestroy`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none, or belongs to a module, which destroys it.
pub fn destroy(handle: usize) -> Result {
    if find(handle)?.place.is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    TABLES.texture_references.remove(handle).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Forgets what `cuTexRefCreate` made in a context that has ended.
pub fn forget_all_of(context: usize) {
    for (handle, reference) in TABLES.texture_references.entries() {
        if reference.context == context {
            TABLES.texture_references.remove(handle);
        }
    }
}

impl TextureReference {
    fn change(&self, edit: impl FnOnce(&mut State) -> Result) -> Result {
        edit(&mut locked(&self.state))?;
        if let Some(module) = self.place.as_ref().and_then(|(module, _)| module.upgrade()) {
            *locked(&module.bindings) = None;
        }
        Ok(())
    }

    /// `cuTexRefSetArray` and `cuTexRefSetMipmappedArray`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for other flags than `CU_TRSA_OVERRIDE_FORMAT`, and for arrays that are none.
    pub fn set_array(&self, array: Resource, flags: u32) -> Result {
        if flags != OVERRIDE_FORMAT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let images = array.images(&self.device).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if images.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.change(|state| {
            state.resource = Some(array);
            Ok(())
        })
    }

    /// `cuTexRefSetAddress`: how many bytes the texture begins before the address. No address and no bytes unbind.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for memory that is none, for too many texels, and for an offset that is not `wanted`.
    pub fn set_address(&self, address: u64, bytes: usize, wanted: bool) -> Result<u64> {
        let offset = offset(address);
        if address == 0 && bytes == 0 {
            self.change(|state| {
                state.resource = None;
                Ok(())
            })?;
            return Ok(0);
        }
        if bytes == 0 || (offset != 0 && !wanted) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        texture::memory(address, bytes as u64, &self.device)?;
        self.change(|state| {
            check_texels(bytes, state.format)?;
            state.resource = Some(Resource::Linear { address, format: state.format, bytes });
            Ok(())
        })?;
        Ok(offset)
    }

    /// `cuTexRefSetAddress2D`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an address or pitch that is not aligned, for sizes beyond the device's, for memory
    /// that is none; what [`array::format`] says.
    pub fn set_pitched(&self, address: u64, format: (u32, u32), size: [usize; 2], pitch: usize) -> Result {
        let resource = Resource::Pitched { address, format, width: size[0], height: size[1], pitch };
        resource.images(&self.device)?;
        self.change(|state| {
            (state.resource, state.format) = (Some(resource), format);
            Ok(())
        })
    }

    /// `cuTexRefSetFormat`; what arrays hold they say themselves.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` behind `cuTexRefSetAddress2D`, which has said the format, and for more texels than plain
    /// memory may have; what [`array::format`] says.
    pub fn set_format(&self, format: u32, channels: i32) -> Result {
        let format = (format, u32::try_from(channels).map_err(|_| CUDA_ERROR_INVALID_VALUE)?);
        array::format(format.0, format.1)?;
        self.change(|state| {
            match state.resource {
                Some(Resource::Pitched { .. }) => return Err(CUDA_ERROR_INVALID_VALUE),
                Some(Resource::Linear { bytes, .. }) => check_texels(bytes, format)?,
                _ => {}
            }
            state.format = format;
            Ok(())
        })
    }

    /// Changes how it is read.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for numbers that are none of CUDA's.
    pub fn describe(&self, edit: impl FnOnce(&mut Description)) -> Result {
        self.change(|state| {
            let mut new = state.description;
            edit(&mut new);
            let known = new.addressing.iter().all(|mode| *mode <= 3)
                && new.filter <= 1
                && new.level_filter <= 1
                && new.flags & !FLAGS == 0
                && new.anisotropy <= 16;
            if !known {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            state.description = new;
            Ok(())
        })
    }

    /// How it is read.
    pub fn description(&self) -> Description {
        locked(&self.state).description
    }

    /// What is bound to it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if nothing is.
    pub fn resource(&self) -> Result<Resource> {
        locked(&self.state).resource.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuTexRefGetFormat`: the format of the array that is bound, else what was set.
    pub fn format(&self) -> (u32, u32) {
        let state = locked(&self.state);
        let of_array = match state.resource {
            Some(Resource::Array(handle)) => array::find(handle).ok().map(|array| array.description),
            Some(Resource::Mipmapped(handle)) => array::find_mipmapped(handle)
                .ok()
                .and_then(|all| all.levels.first().map(|(_, level)| level.description)),
            _ => None,
        };
        of_array.map_or(state.format, |d| (d.format, d.channels))
    }
}

/// `cuParamSetTexRef`: the references of a function's module are known to its launches in any case.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for another unit than `CU_PARAM_TR_DEFAULT`, and a reference that is not the module's;
/// `CUDA_ERROR_INVALID_HANDLE` for no function.
pub fn set_parameter(function: usize, unit: i32, reference: usize) -> Result {
    let references = crate::function::find(function)?.references.clone();
    let ours = references.textures.iter().any(|texture| texture.handle == reference);
    if unit == DEFAULT_UNIT && ours { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// `cuSurfRefSetArray`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for flags, for handles that are none, and for an array that is not for surfaces.
pub fn set_surface(handle: usize, array: usize, flags: u32) -> Result {
    let surface = find_surface(handle)?;
    let found = array::find(array).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 || found.description.flags & SURFACE == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    *locked(&surface.array) = Some(array);
    if let Some(module) = surface.place.0.upgrade() {
        *locked(&module.bindings) = None;
    }
    Ok(())
}

/// `cuSurfRefGetArray`: the array's handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is none, and if nothing is bound.
pub fn surface_array(handle: usize) -> Result<usize> {
    let array = *locked(&find_surface(handle)?.array);
    array.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn find_surface(handle: usize) -> Result<Arc<SurfaceReference>> {
    current::healthy()?;
    TABLES.surface_references.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}
