//! What lies at which address: device memory, module variables, pinned and managed memory, of all devices.
//!
//! Addresses are the process's own, so one table serves for everything, as unified addressing demands.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::{host, memory};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocManaged`: device memory that the host reaches as well.
    Managed,
    /// From the pool with this handle.
    Pooled(usize),
    /// Memory of a graph.
    Graph,
    /// A module's variable; managed ones the host reaches as well.
    Variable {
        /// `__managed__`.
        managed: bool,
    },
    /// A mapping of `cuMemMap`.
    Mapped,
    /// Memory of another process, opened by a handle.
    Imported,
    /// `cuMemHostAlloc`, with its flags.
    Host(u32),
    /// `cuMemHostRegister`, with its flags.
    Registered(u32),
}

impl What {
    /// Whether the host may read and write it.
    pub fn is_host(self) -> bool {
        matches!(self, What::Host(_) | What::Registered(_))
    }

    /// Whether host and device share it by the name of managed memory.
    pub fn is_managed(self) -> bool {
        matches!(self, What::Managed | What::Variable { managed: true })
    }

    /// Whether the device's memory holds it.
    pub fn is_device(self) -> bool {
        !self.is_host()
    }
}

/// One allocation.
#[derive(Clone)]
pub struct Allocation {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// What it is.
    pub what: What,
    /// The handle of the context that made it.
    pub context: usize,
    /// Its device.
    pub device: Arc<Device>,
    /// A number that no other allocation has or had.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: copies and sets are over when the call returns.
    pub synchronous: Arc<AtomicBool>,
}

impl Allocation {
    /// One that is in no table yet.
    pub fn new(base: u64, size: u64, what: What, context: usize, device: &Arc<Device>) -> Allocation {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Allocation { base, size, what, context, device: device.clone(), id, synchronous: Arc::default() }
    }

    /// Whether it holds `length` bytes from `address`, which lies in it.
    pub fn holds(&self, address: u64, length: u64) -> bool {
        length <= self.size - (address - self.base)
    }
}

/// The table.
pub struct Allocations(RwLock<BTreeMap<u64, Allocation>>);

impl Default for Allocations {
    fn default() -> Self {
        Self::new()
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Allocations {
    /// An empty table.
    pub const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Adds what lies at `base`.
    pub fn add(&self, base: u64, size: u64, what: What, context: usize, device: &Arc<Device>) {
        let allocation = Allocation::new(base, size, what, context, device);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(base, allocation);
    }

    /// The allocation that holds an address.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (base, allocation) = map.range(..=address).next_back()?;
        // One byte more than nothing: an allocation of 0 bytes (a registered empty variable) holds its own address.
        (address - base < allocation.size.max(1)).then(|| allocation.clone())
    }

    /// The allocation that a range begins in, if all of it lies there, or in mappings that adjoin.
    pub fn holding(&self, address: u64, length: u64) -> Option<Allocation> {
        let first = self.find(address)?;
        if first.holds(address, length) {
            return Some(first);
        }
        let end = address.checked_add(length)?;
        let mut last = first.clone();
        while last.what == What::Mapped && end > last.base + last.size {
            last = self.find(last.base + last.size)?;
        }
        (last.what == What::Mapped).then_some(first)
    }

    /// Takes away what begins at an address, if `which` agrees.
    pub fn take(&self, base: u64, which: impl FnOnce(&Allocation) -> bool) -> Option<Allocation> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if which(map.get(&base)?) { map.remove(&base) } else { None }
    }

    /// Frees everything that a context made.
    pub fn free_all_of(&self, context: usize) {
        let gone: Vec<Allocation> = {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let bases: Vec<u64> = map.values().filter(|a| a.context == context).map(|a| a.base).collect();
            bases.iter().filter_map(|base| map.remove(base)).collect()
        };
        for allocation in gone {
            match allocation.what {
                What::Device | What::Managed | What::Pooled(_) => {
                    memory::give_back(&allocation);
                }
                What::Host(_) | What::Registered(_) => host::give_back(&allocation),
                // A module's memory goes with the module, a graph's with the graph; mappings belong to no context.
                What::Variable { .. } | What::Mapped | What::Imported | What::Graph => {}
            }
        }
    }
}
