//! Handles: numbers that look like pointers, are never used twice and are looked up at each use.
//!
//! A stale or made-up handle so gives CUDA's error for a wrong handle and not a crash. Numbers carry their kind, which
//! is how `cuLaunchKernel` tells a `CUkernel` from a `CUfunction`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// `CUcontext`
    Context = 1,
    /// `CUstream`
    Stream,
    /// `CUevent`
    Event,
    /// `CUmodule`
    Module,
    /// `CUfunction`
    Function,
    /// `CUlibrary`
    Library,
    /// `CUkernel`
    Kernel,
    /// `CUlinkState`
    Link,
    /// `CUmemoryPool`
    Pool,
    /// `CUmemGenericAllocationHandle`
    Backing,
    /// `CUgraph`
    Graph,
    /// `CUgraphNode`
    Node,
    /// `CUgraphExec`
    Exec,
    /// `CUuserObject`
    UserObject,
    /// `CUarray`
    Array,
    /// `CUmipmappedArray`
    Mipmapped,
    /// `CUgreenCtx`
    Green,
    /// `CUdevResourceDesc`
    Description,
    /// `CUasyncCallbackHandle`
    Notification,
    /// `CUtexref`
    TextureReference,
    /// `CUsurfref`
    SurfaceReference,
}

/// Where the numbers start: far from 0, 1 and 2, which are streams, and unlike any mapped address.
const SPACE: usize = 0x5cda_0000_0000_0000;
const KIND_SHIFT: u32 = 40;

/// All objects of one kind.
pub struct Handles<T> {
    kind: Kind,
    next: AtomicUsize,
    map: RwLock<HashMap<usize, Arc<T>, BuildHasherDefault<Mix>>>,
}

/// One multiplication: the keys are small counters.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }
    fn write_usize(&mut self, value: usize) {
        self.0 = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

impl<T> Handles<T> {
    /// An empty table.
    pub const fn new(kind: Kind) -> Self {
        let map = HashMap::with_hasher(BuildHasherDefault::new());
        Self { kind, next: AtomicUsize::new(1), map: RwLock::new(map) }
    }

    /// A number that nothing has yet.
    pub fn reserve(&self) -> usize {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        SPACE | (self.kind as usize) << KIND_SHIFT | index << 4
    }

    /// Adds an object under a number from [`Handles::reserve`].
    pub fn add(&self, handle: usize, object: Arc<T>) {
        self.map.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    /// The object of a handle.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    /// Takes the object of a handle away.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Every object with its handle.
    pub fn entries(&self) -> Vec<(usize, Arc<T>)> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.iter().map(|(handle, object)| (*handle, object.clone())).collect()
    }

    /// Every object.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The kind that a handle claims to be of.
pub fn kind_of(handle: usize) -> usize {
    if handle & !0xffff_ffff_ffff == SPACE { (handle & 0xffff_ffff_ffff) >> KIND_SHIFT } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_used_twice() {
        let table = Handles::new(Kind::Event);
        let first = table.reserve();
        table.add(first, Arc::new(1));
        assert_eq!(kind_of(first), Kind::Event as usize);
        assert_eq!(table.remove(first).as_deref(), Some(&1));
        let second = table.reserve();
        assert_ne!(first, second);
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!((kind_of(0), kind_of(2), kind_of(0x7fff_1234_5678)), (0, 0, 0));
    }
}
