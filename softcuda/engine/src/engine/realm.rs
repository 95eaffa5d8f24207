//! What the kernels of one context share, and those of another do not see.

use crate::memory::Memory;
use crate::runtime::device_heap::DeviceHeap;
use crate::runtime::print::Output;
use std::sync::Arc;

/// The heap of device code, and what kernels have printed. When it goes, what they allocated goes with it.
pub struct Realm {
    memory: Arc<Memory>,
    pub(crate) output: Output,
    pub(crate) complaints: Output,
    pub(crate) heap: DeviceHeap,
}

impl Realm {
    /// One whose heap is in this memory.
    pub fn new(memory: Arc<Memory>) -> Arc<Realm> {
        Arc::new(Realm {
            memory,
            output: Output::default(),
            complaints: Output::default(),
            heap: DeviceHeap::default(),
        })
    }

    /// Sets how many bytes of what kernels print are kept until [`Realm::take_output`] (at first 1 MiB).
    pub fn set_output_limit(&self, bytes: usize) {
        self.output.limit(bytes);
    }

    /// Sets how many bytes device code can have allocated at once (at first 8 MiB); beyond, its `malloc` gives null.
    pub fn set_heap_limit(&self, bytes: u64) {
        self.heap.limit(bytes);
    }

    /// Takes what kernels printed by `printf` since the last call, oldest first. Of more than the limit the newest is there: what
    /// one call printed is there whole or not at all.
    pub fn take_output(&self) -> Vec<u8> {
        self.output.take()
    }

    /// Takes what failed assertions said since the last call, a line a thread, in the same way. CUDA has it on `stderr`, where
    /// [`Realm::take_output`]'s text goes to `stdout`.
    pub fn take_complaints(&self) -> Vec<u8> {
        self.complaints.take()
    }

    /// Frees all that device code has allocated. None of its kernels may run.
    pub fn empty_heap(&self) {
        self.heap.give_all(&self.memory);
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        self.empty_heap();
    }
}
