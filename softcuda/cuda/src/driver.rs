//! The driver as a whole: its devices and the tables of everything that has a handle.
#![forbid(unsafe_code)]

use crate::allocations::Allocations;
use crate::array::{Array, Mipmapped};
use crate::config;
use crate::context::Context;
use crate::device::Device;
use crate::entry;
use crate::error::*;
use crate::event::Event;
use crate::function::Function;
use crate::graph::exec::Exec;
use crate::graph::user_object::UserObject;
use crate::graph::{Graph, NodePlace};
use crate::green::{Description, Green};
use crate::handles::{Handles, Kind};
use crate::library::{Kernel, Library};
use crate::link::Link;
use crate::module::Module;
use crate::pool::Pool;
use crate::reference::{SurfaceReference, TextureReference};
use crate::stream::Stream;
use crate::virtual_memory::Backing;
use softcuda_device::fleet::Visible;
use std::sync::{Arc, OnceLock};

/// Every object by its handle.
pub struct Tables {
    /// `CUcontext`
    pub contexts: Handles<Context>,
    /// `CUstream`
    pub streams: Handles<Stream>,
    /// `CUevent`
    pub events: Handles<Event>,
    /// `CUmodule`
    pub modules: Handles<Module>,
    /// `CUfunction`
    pub functions: Handles<Function>,
    /// `CUlibrary`
    pub libraries: Handles<Library>,
    /// `CUkernel`
    pub kernels: Handles<Kernel>,
    /// `CUlinkState`
    pub links: Handles<Link>,
    /// `CUmemoryPool`
    pub pools: Handles<Pool>,
    /// `CUmemGenericAllocationHandle`
    pub backings: Handles<Backing>,
    /// `CUgraph`
    pub graphs: Handles<Graph>,
    /// `CUgraphNode`: where each node is.
    pub nodes: Handles<NodePlace>,
    /// `CUgraphExec`
    pub execs: Handles<Exec>,
    /// `CUuserObject`
    pub user_objects: Handles<UserObject>,
    /// `CUarray`
    pub arrays: Handles<Array>,
    /// `CUmipmappedArray`
    pub mipmapped: Handles<Mipmapped>,
    /// `CUgreenCtx`
    pub greens: Handles<Green>,
    /// `CUdevResourceDesc`
    pub descriptions: Handles<Description>,
    /// `CUasyncCallbackHandle`: the device that it is for.
    pub notifications: Handles<i32>,
    /// `CUtexref`
    pub texture_references: Handles<TextureReference>,
    /// `CUsurfref`
    pub surface_references: Handles<SurfaceReference>,
    /// What lies where, on all devices and in host memory.
    pub allocations: Allocations,
}

/// The tables of this process.
pub static TABLES: Tables = Tables {
    contexts: Handles::new(Kind::Context),
    streams: Handles::new(Kind::Stream),
    events: Handles::new(Kind::Event),
    modules: Handles::new(Kind::Module),
    functions: Handles::new(Kind::Function),
    libraries: Handles::new(Kind::Library),
    kernels: Handles::new(Kind::Kernel),
    links: Handles::new(Kind::Link),
    pools: Handles::new(Kind::Pool),
    backings: Handles::new(Kind::Backing),
    graphs: Handles::new(Kind::Graph),
    nodes: Handles::new(Kind::Node),
    execs: Handles::new(Kind::Exec),
    user_objects: Handles::new(Kind::UserObject),
    arrays: Handles::new(Kind::Array),
    mipmapped: Handles::new(Kind::Mipmapped),
    greens: Handles::new(Kind::Green),
    descriptions: Handles::new(Kind::Description),
    notifications: Handles::new(Kind::Notification),
    texture_references: Handles::new(Kind::TextureReference),
    surface_references: Handles::new(Kind::SurfaceReference),
    allocations: Allocations::new(),
};

static DEVICES: OnceLock<Vec<Arc<Device>>> = OnceLock::new();

/// `cuInit`: makes the devices. Their memory is only reserved; no thread starts.
pub fn init(flags: u32) -> Result {
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if entry::is_forked_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if DEVICES.get().is_none() {
        let config = config::get();
        let fleet = config.fleet.as_ref().map_err(|error| {
            eprintln!("softcuda: {error}");
            CUDA_ERROR_NO_DEVICE
        })?;
        let make = |(ordinal, seen): (usize, &Visible)| {
            let gpu = &fleet.0[seen.gpu];
            Device::new(ordinal, gpu, seen.instance.map(|i| &gpu.instances[i]), config).map(Arc::new)
        };
        let devices: std::io::Result<Vec<_>> = config.visible(fleet).iter().enumerate().map(make).collect();
        // Two threads may come here at once; the devices of the slower one are dropped again.
        let _ = DEVICES.set(devices.map_err(|error| {
            eprintln!("softcuda: no addresses for the devices' memory: {error}; raise `ulimit -v`, or lower SOFTCUDA_MEMORY");
            CUDA_ERROR_OUT_OF_MEMORY
        })?);
    }
    if devices().is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    entry::open();
    Ok(())
}

/// All devices; none before [`init`].
pub fn devices() -> &'static [Arc<Device>] {
    DEVICES.get().map_or(&[], Vec::as_slice)
}

/// The device of an ordinal.
pub fn device(ordinal: i32) -> Result<&'static Arc<Device>> {
    usize::try_from(ordinal).ok().and_then(|i| devices().get(i)).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// `cuDriverGetVersion`.
pub fn version() -> i32 {
    config::get().driver_version
}

/// Waits for all work of all contexts: before memory goes that any of it may use. What it died of is its context's to say.
pub fn wait_for_all() {
    for context in TABLES.contexts.all() {
        let _ = context.synchronize();
    }
}
