//! `malloc` and `free` of device code: memory of the device, no more than `CU_LIMIT_MALLOC_HEAP_SIZE` of it at once for a context.

use crate::memory::Memory;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What an allocation takes of the heap at least, and is a multiple of: as much as it takes of the device's memory.
const GRAIN: u64 = 256;
/// The limit until a program sets one.
const LIMIT: u64 = 8 << 20;

/// What device code has allocated.
pub struct DeviceHeap(Mutex<State>);

struct State {
    limit: u64,
    used: u64,
    /// Bytes by address.
    live: HashMap<u64, u64>,
}

impl Default for DeviceHeap {
    fn default() -> Self {
        DeviceHeap(Mutex::new(State { limit: LIMIT, used: 0, live: HashMap::new() }))
    }
}

impl DeviceHeap {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many bytes there may be at once; what is allocated stays.
    pub fn limit(&self, bytes: u64) {
        self.lock().limit = bytes;
    }

    /// An address that is a multiple of 16, or 0.
    pub fn take(&self, memory: &Memory, bytes: u64) -> u64 {
        let mut state = self.lock();
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(GRAIN) else { return 0 };
        let Some(used) = state.used.checked_add(bytes).filter(|used| *used <= state.limit) else { return 0 };
        let Ok(addr) = memory.alloc(bytes, 16) else { return 0 };
        state.used = used;
        state.live.insert(addr, bytes);
        addr
    }

    /// Frees everything.
    pub fn give_all(&self, memory: &Memory) {
        let mut state = self.lock();
        state.used = 0;
        for (addr, _) in state.live.drain() {
            memory.free(addr);
        }
    }

    /// `false`: it is not an address of [`DeviceHeap::take`].
    pub fn give(&self, memory: &Memory, addr: u64) -> bool {
        let mut state = self.lock();
        let Some(bytes) = state.live.remove(&addr) else { return false };
        state.used -= bytes;
        memory.free(addr)
    }
}
