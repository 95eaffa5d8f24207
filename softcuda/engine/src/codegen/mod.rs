//! From the intermediate representation to machine code.
//!
//! [`Generator`] is the seam: what is behind it may run one thread at a time, as [`clif`] does now, or a warp as
//! vectors, or hand the work to another process. A generator says by [`Mode`] which run time its code wants.

pub mod cache;
pub mod clif;
mod exec;
mod object;

pub use exec::Exec;
pub use object::{Fixup, Object};

use crate::ir::Program;
use crate::ir::passes::Reach;
use bincode::{Decode, Encode};

/// How the code of a kernel wants to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Mode {
    /// One call runs all threads of a block, one after the other, to their ends. Only right where no thread can wait.
    ThreadLoop,
    /// One call runs one thread; each thread needs a stack of its own.
    ThreadFibers,
}

/// What is to be compiled: a kernel and all that it may call.
///
/// The code must depend on nothing else, since it may come from a file (see [`cache`]): addresses of global and constant
/// variables are not known here, but left to [`Fixup`]s.
pub struct Unit<'a> {
    pub program: &'a Program,
    pub reach: &'a Reach,
    /// By variable of the program: the offset of a shared one in the block's shared memory; of others 0.
    pub shared: &'a [u64],
    pub mode: Mode,
}

impl Unit<'_> {
    /// All that tells this unit from others of any program, for the key of the code cache.
    fn identity(&self) -> Vec<u8> {
        // A new field belongs into the text below, unless it follows from the others.
        let Unit { program, reach, shared: _, mode } = self;
        let kernel = &program.functions[reach.functions[0] as usize].name;
        let mut all = program.digest.to_vec();
        all.extend_from_slice(format!("{mode:?} {kernel}").as_bytes());
        all
    }
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
    fn compile(&self, unit: &Unit) -> Result<Object, String>;

    /// Which generator this is, and for which processor it makes code: what code depends on beside the unit.
    fn identity(&self) -> String;
}
