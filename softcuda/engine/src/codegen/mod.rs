//! From the intermediate representation to machine code.
//!
//! [`Generator`] is the seam: [`clif`] is behind it, which makes code of one thread at a time or of groups of lanes as
//! vectors; another may hand the work to another process. [`Variant`] says which code a launch wants, and [`Mode`] which
//! run time that needs.

pub mod cache;
pub mod clif;
mod exec;
mod object;

pub use exec::Exec;
pub use object::{Covered, Fixup, NOWHERE, Object, Segments};

use crate::ir::Program;
use crate::ir::passes::Reach;
use bincode::{Decode, Encode};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the code of a kernel wants to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Mode {
    /// One call runs all threads of a block, one after the other, to their ends. Only right where no thread can wait.
    ThreadLoop,
    /// One call runs one thread; each thread needs a stack of its own.
    ThreadFibers,
    /// One call runs all threads of a block, a group of lanes at a time, to their ends. Only right where no thread can wait.
    WarpLoop,
    /// One call runs one group of lanes; each group needs a stack of its own, and so does each thread, for where lanes part.
    WarpFibers,
}

impl Mode {
    /// Whether threads can wait for each other.
    pub fn fibers(self) -> bool {
        matches!(self, Mode::ThreadFibers | Mode::WarpFibers)
    }

    /// Whether threads run as groups of lanes.
    pub fn groups(self) -> bool {
        matches!(self, Mode::WarpLoop | Mode::WarpFibers)
    }
}

/// What code depends on besides the kernel: launches with the same variant share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Variant {
    pub mode: Mode,
    /// Lanes of a group: 8, 16 or 32. 1 where threads run one at a time.
    pub width: u32,
    /// No group holds threads of two rows of the block.
    pub rows: bool,
}

/// Whether there are vectors at all: not if `SOFTCUDA_CODEGEN` is `scalar`. Meant for tests and for finding faults; for
/// other values see [`crate::engine`].
fn vectors_wanted() -> bool {
    static WANTED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("SOFTCUDA_CODEGEN").is_none_or(|v| v != "scalar"));
    *WANTED
}

impl Variant {
    /// The variant for blocks of these dimensions.
    pub fn of(program: &Program, reach: &Reach, block: [u32; 3]) -> Variant {
        let threads = block.iter().product::<u32>();
        // Who are 32 to their program must be 32 here; else narrow groups compile quicker and suit narrow blocks.
        let lanes = reach.functions.iter().any(|f| program.functions[*f as usize].lanes());
        let width = match [16, 8].into_iter().find(|w| block[0].is_multiple_of(*w)) {
            _ if lanes => 32,
            Some(w) => w,
            None => 16,
        };
        if !vectors_wanted() || threads < width || !clif::takes(program, reach) {
            return Variant::single(reach);
        }
        let mode = if reach.waits { Mode::WarpFibers } else { Mode::WarpLoop };
        let rows = block[0].is_multiple_of(width) || block[1] * block[2] == 1;
        Variant { mode, width, rows }
    }

    /// The variant that runs one thread at a time: it is right for all blocks, and soonest made.
    pub fn single(reach: &Reach) -> Variant {
        let mode = if reach.waits { Mode::ThreadFibers } else { Mode::ThreadLoop };
        Variant { mode, width: 1, rows: false }
    }
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
    pub variant: Variant,
    /// Bytes from one thread's local memory to the next one's.
    pub local: u32,
    pub part: Part<'a>,
}

/// What of a unit is compiled. Where threads run as groups, the kernel's version for single lanes is made when it is first
/// needed: most kernels never need it.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// The kernel, as groups where the variant says so, and the functions.
    Kernel,
    /// The kernel for single lanes, with the places that the vector code gave its registers ([`Object::places`]).
    Lanes(&'a [u32]),
}

impl Unit<'_> {
    /// All that tells this unit from others of any program, for the key of the code cache.
    fn identity(&self) -> Vec<u8> {
        // A new field belongs into the text below, unless it follows from the others.
        let Unit { program, reach, shared: _, variant, local, part } = self;
        let kernel = &program.functions[reach.functions[0] as usize].name;
        let mut all = program.digest.to_vec();
        let lanes = matches!(part, Part::Lanes(_));
        all.extend_from_slice(format!("{variant:?} {local} {lanes} {kernel}").as_bytes());
        all
    }
}

/// Code that can be run.
pub struct Code {
    pub variant: Variant,
    /// Keeps the code mapped.
    pub _exec: Exec,
    /// Entry points, in the order of [`Reach::functions`]: the kernel is the first. Where that is vector code, its version for
    /// single lanes follows them all: at first a function of the run time, which has it made.
    pub entries: Box<[AtomicUsize]>,
    /// The version for single lanes, when it was made.
    pub lanes: OnceLock<Result<Exec, String>>,
    /// See [`Object::places`].
    pub places: Vec<u32>,
    /// By function number in the program: index into `entries` + 1, or 0. For calls through pointers.
    pub by_number: Vec<u32>,
    /// The largest native stack frame of scalar code, or what it may at most be where that is not made yet.
    pub frame: u32,
    /// The native stack frame of vector code.
    pub group_frame: u32,
    /// Code of groups returns at stops.
    pub segments: Option<Segments>,
    /// Accesses that are tested together, by the number that the code gives [`crate::runtime::helpers::Helper::SlowCover`].
    pub covers: Vec<Vec<Covered>>,
}

impl Code {
    /// The version for single lanes has been made.
    pub fn has_lanes(&self, exec: Exec) {
        let made = self.lanes.get_or_init(|| Ok(exec));
        if let (Ok(exec), Some(entry)) = (made, self.entries.last()) {
            entry.store(exec.address(), Ordering::Release);
        }
    }

    /// The entry point numbered `i`.
    pub fn entry(&self, i: usize) -> usize {
        self.entries[i].load(Ordering::Acquire)
    }
}

/// Makes code.
pub trait Generator: Send + Sync {
    /// Compiles a kernel. An error is a fault of the generator or a refusal of memory by the system: what it cannot translate was refused at parsing.
    fn compile(&self, unit: &Unit) -> Result<Object, String>;

    /// Which generator this is, and for which processor it makes code: what code depends on beside the unit.
    fn identity(&self) -> String;
}
