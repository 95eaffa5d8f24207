//! Runs grids.

use crate::error::{Fault, FaultKind};
use crate::kernel::Kernel;
use crate::memory::Memory;
use std::sync::Arc;

/// One launch of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameters, packed as [`Kernel::params`] says.
    pub params: Vec<u8>,
    /// All blocks must be resident at once (grid synchronisation).
    pub cooperative: bool,
}

/// Runs grids on a pool of threads.
pub struct Engine {
    memory: Arc<Memory>,
    workers: usize,
}

impl Engine {
    /// An engine with up to `workers` threads (at least 1). They are started by the first [`Engine::run`], not here.
    pub fn new(memory: Arc<Memory>, workers: usize) -> Arc<Engine> {
        Arc::new(Engine { memory, workers: workers.max(1) })
    }

    /// Runs one grid and returns when it is done. Several threads may call this at once: their grids run side by
    /// side, and one that waits for another (or for the host) does not hold it up.
    ///
    /// # Errors
    /// The first [`Fault`] of the grid; its other blocks are stopped.
    pub fn run(&self, kernel: &Arc<Kernel>, launch: &Launch) -> Result<(), Fault> {
        let _ = (&self.memory, self.workers, launch);
        Err(Fault::new(FaultKind::Internal, format!("{}: not built yet", kernel.name)))
    }

    /// Takes what kernels printed (`printf`, failed assertions) since the last call, oldest first. At most 1 MiB is
    /// kept; what is printed beyond it is lost, as in CUDA.
    pub fn take_output(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The number of blocks of `kernel` that can be resident at once: the limit of a cooperative launch.
    pub fn max_resident_blocks(&self, kernel: &Kernel, threads_per_block: u32, dynamic_shared: u32) -> u32 {
        let _ = (kernel, dynamic_shared);
        self.workers as u32 * (2048 / threads_per_block.clamp(32, 2048))
    }

    /// Stops every grid that runs now, each with [`FaultKind::Cancelled`], as soon as its threads reach a point where
    /// they can be stopped.
    pub fn cancel(&self) {}
}
