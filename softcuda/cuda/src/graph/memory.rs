//! Memory of graphs: its address is known when the node is made, and it is the program's between the node that takes it
//! and the one that gives it back, or until the program frees it.
//!
//! The bytes are taken from the device when the node is made and kept until no graph knows of them, so that a launch never
//! runs out of memory.
#![forbid(unsafe_code)]

use crate::allocations::What;
use crate::context::Context;
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use crate::memory;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One allocation of a graph.
pub struct GraphMemory {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its device.
    pub device: Arc<Device>,
    /// Whether the program may use it: taken by a launch and not given back, in the order of the calls.
    live: AtomicBool,
}

/// What the graphs of a device use (`CUgraphMem_attribute`).
#[derive(Default)]
pub struct Usage {
    used: AtomicU64,
    used_high: AtomicU64,
    reserved: AtomicU64,
    reserved_high: AtomicU64,
}

/// What is live outlives its graph: the program may free it later.
static LIVE: Mutex<Option<HashMap<u64, Arc<GraphMemory>>>> = Mutex::new(None);

fn with_live<T>(body: impl FnOnce(&mut HashMap<u64, Arc<GraphMemory>>) -> T) -> T {
    body(LIVE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

impl GraphMemory {
    /// Takes memory for a node.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn new(context: &Context, device: &Arc<Device>, size: u64) -> Result<Arc<GraphMemory>> {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = device.memory.alloc(size, memory::ALIGNMENT).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        TABLES.allocations.add(address, size, What::Graph, context.handle, device);
        let usage = &device.graph_memory;
        let reserved = usage.reserved.fetch_add(size, Ordering::Relaxed) + size;
        usage.reserved_high.fetch_max(reserved, Ordering::Relaxed);
        Ok(Arc::new(GraphMemory { address, size, device: device.clone(), live: AtomicBool::new(false) }))
    }

    /// Whether the program may use it.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// A launch takes it.
    pub fn take(self: &Arc<Self>) {
        if !self.live.swap(true, Ordering::AcqRel) {
            let usage = &self.device.graph_memory;
            let used = usage.used.fetch_add(self.size, Ordering::Relaxed) + self.size;
            usage.used_high.fetch_max(used, Ordering::Relaxed);
            with_live(|live| live.insert(self.address, self.clone()));
        }
    }

    /// It is given back. `false`: nobody had taken it.
    pub fn give(&self) -> bool {
        let was = self.live.swap(false, Ordering::AcqRel);
        if was {
            self.device.graph_memory.used.fetch_sub(self.size, Ordering::Relaxed);
            // Dropped outside of the lock: it may be the last reference.
            let _gone = with_live(|live| live.remove(&self.address));
        }
        was
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        TABLES.allocations.take(self.address, |a| a.what == What::Graph);
        self.device.memory.free(self.address);
        self.device.graph_memory.reserved.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// `cuMemFree` and `cuMemFreeAsync` of memory that a launch took.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if it is not live.
pub fn free(address: u64) -> Result {
    let memory = with_live(|live| live.get(&address).cloned()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if memory.give() { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

impl Usage {
    fn counter(&self, attribute: u32) -> Result<&AtomicU64> {
        Ok(match attribute {
            0 => &self.used,
            1 => &self.used_high,
            2 => &self.reserved,
            3 => &self.reserved_high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// `cuDeviceGetGraphMemAttribute`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
    pub fn get(&self, attribute: u32) -> Result<u64> {
        Ok(self.counter(attribute)?.load(Ordering::Relaxed))
    }

    /// `cuDeviceSetGraphMemAttribute`: the high-water marks can be set to 0, which is where they are now.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for other attributes and values.
    pub fn reset(&self, attribute: u32, value: u64) -> Result {
        if !matches!(attribute, 1 | 3) || value != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let now = self.get(attribute - 1)?;
        self.counter(attribute)?.store(now, Ordering::Relaxed);
        Ok(())
    }
}
