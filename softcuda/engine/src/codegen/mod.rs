//! From the intermediate representation to machine code.
//!
//! [`Generator`] is the seam: what is behind it may run one thread at a time, as [`clif`] does now, or a warp as
//! vectors, or hand the work to another process. A generator says by [`Mode`] which run time its code wants.

pub mod clif;
mod exec;

pub use exec::Exec;

use crate::ir::Program;
use crate::ir::passes::Reach;

/// How the code of a kernel wants to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One call runs all threads of a block, one after the other, to their ends. Only right where no thread can wait.
    ThreadLoop,
    /// One call runs one thread; each thread needs a stack of its own.
    ThreadFibers,
}

/// What is to be compiled: a kernel and all that it may call.
pub struct Unit<'a> {
    pub program: &'a Program,
    pub reach: &'a Reach,
    /// Address of each variable of the program; for a shared one its offset in the block's shared memory.
    pub addresses: &'a [u64],
    pub mode: Mode,
}

/// Code that can be run.
pub struct Code {
    pub mode: Mode,
    /// Keeps the code mapped.
    pub _exec: Exec,
    /// Entry points, in the order of [`Reach::functions`]: the kernel is the first.
    pub entries: Vec<usize>,
    /// By function number in the program: index into `entries` + 1, or 0. For calls through pointers.
    pub by_number: Vec<u32>,
    /// The largest native stack frame.
    pub frame: u32,
}

/// Makes code.
pub trait Generator: Send + Sync {
    /// Compiles a kernel. An error is a fault of the generator or a refusal of memory by the system: what it cannot translate was refused at parsing.
    fn compile(&self, unit: &Unit) -> Result<Code, String>;
}
