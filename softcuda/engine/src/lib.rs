//! Compiles PTX for the CPU, just in time, and runs its grids.
//!
//! This is the half of softcuda that knows PTX and nothing of the driver API: a [`Memory`], a [`Module`] parsed from
//! PTX text, a [`Loaded`] one whose variables are placed in that memory, its [`Kernel`]s, and an [`Engine`] that runs a
//! [`Launch`] of one of them.
//!
//! # How a kernel becomes code
//!
//! 1. `ptx`: text → tokens → typed intermediate representation (`ir`): virtual registers, basic blocks, and the PTX line
//!    of each operation. What is not supported is refused here, with its line.
//! 2. `ir::optimise`, when a module is loaded: constants, copies, repeated computations, dead code. Then, in `ir::passes`, each
//!    loop that may wait for another thread gets a *yield* at its back edge. Such a loop holds an atomic
//!    whose result is used, a volatile, relaxed or acquire load (in unoptimised code any load), a fence, or a call of
//!    something that does.
//! 3. `codegen`, at the first launch (or [`Engine::prepare`]): a `Generator` makes machine code. The one that exists,
//!    `codegen::clif`, is Cranelift with `opt_level=none`: groups of 8, 16 or 32 lanes as vectors where it can
//!    (`codegen::clif::vector`, see below), else one thread at a time. What the code needs it finds through the block that it
//!    is handed; only the addresses of variables are put in when it is mapped. So it can be kept in a file ([`CodeCache`]), whose key names all that the code depends on.
//!
//! # How it runs
//!
//! Code has one of four run times (`codegen::Mode`), two for threads and two for groups of lanes:
//! * **Thread loop**, where no thread of the kernel can ever wait (no barrier, no warp operation, no yield, no `exit` inside
//!   of a function): one call runs all threads of a block, in a loop that is part of the code.
//! * **Thread fibers** in all other cases: each thread has a stack of its own (`runtime::stack`), and barriers, warp
//!   operations and yields switch to the next thread that can run. Lanes of a warp meet by their member mask: the
//!   last one to come computes for all. Barriers count threads; threads that have ended are taken off.
//!   This is always right, also where lanes of one warp wait for each other, and it is slow.
//! * **Group loop**, vectors where no thread can wait: one call runs all groups of a block, one after the other; in a loop that
//!   streams through memory they take turns, with those of other blocks (`codegen::clif::vector::rounds`).
//! * **Group fibers**, vectors in all other cases: each group has a stack of its own, and each lane, for where lanes part and may wait.
//!   Where threads wait only at one barrier, and lanes have not parted, that is not needed: a call runs a group to its next
//!   barrier, and the groups of a block run round by round (`runtime::segments`).
//!
//! Blocks start in rising order on the workers *and on the thread that called [`Engine::run`]*, which works for its own grid.
//! A block whose threads all yield is parked, and its worker takes another one, of any grid, up to the residency that
//! [`Engine::max_resident_blocks`] tells. When every thread of a block waits inside of it, that is a dead-lock and ends the grid with
//! [`FaultKind::LaunchTimeout`]; a card would hang.
//!
//! Every loop looks at a word on its way back, the *bell* (`runtime::bell`): so a block that runs for long waits while the device is another
//! process's ([`Gate`]), and ends when its grid is stopped.
//!
//! # Memory
//!
//! Device addresses are addresses of this process in one reserved range. Each access of generated code is checked, without
//! signal handlers, for alignment and against a table with one byte per 64 KiB of all 47 bits of addresses; what does not
//! pass goes to a helper that knows the ends of registered host memory and what may only be read, and otherwise ends the grid with a [`Fault`]. Native stacks lie
//! outside of that range, so that no kernel can reach them; local memory, and parameters of device functions, lie inside. Shared
//! addresses are offsets, checked against the block's size.
//!
//! # What is different from a card
//!
//! * NaNs have the CPU's bits, not `0x7fffffff`. `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp` and `rsqrt` "approximate" better.
//! * Wild accesses that stay inside of a 64 KiB granule in use are not seen.
//! * A thread whose frames cannot be counted (recursion, calls through pointers, `alloca`) has 64 KiB of local memory, whatever
//!   the context's limit says; more is a fault.
//! * No block is ever cancelled by `clusterlaunchcontrol`. The shared memory that is reserved for NVIDIA's headers counts as the
//!   kernel's own, and only those kernels have it that ask where it is.
//! * `cp.async`, `st.async` and `red.async` are done at once. All fences and atomics are sequentially consistent and of system scope.
//! * What is refused when a module is loaded, with the instruction and its line, is listed in `docs/ptx.md`.
//!
//! # Groups of lanes
//!
//! Where it can, a kernel runs as vectors, 8, 16 or 32 lanes at a time (`codegen::clif::vector`): values that agree or are affine
//! over the lanes stay scalar, the others are rows of 128-bit vectors. Where lanes go different ways each runs a scalar version of
//! the kernel until they meet at the immediate post-dominator: one after the other, or on stacks of their own where they may
//! wait (`runtime::parting`). That version is compiled when the first lane needs it. `SOFTCUDA_CODEGEN=scalar` turns all this
//! off.
//!
//! Vectors of long kernels take seconds to make, where code for one thread at a time takes milliseconds. So a kernel of more than 200
//! operations on 32 lanes begins with the latter, and gets its vectors from a thread beside when it has run for about as long as they take to make
//! (`engine::tiers`); the longest ones never. `SOFTCUDA_CODEGEN=vector` has them made at once.
//!
//! One thread at a time run: blocks smaller than a group; kernels that use registers of 128 bits; kernels that call functions
//! with an `exit`.

mod codegen;
mod engine;
mod error;
mod ir;
mod kernel;
mod loaded;
mod memory;
mod module;
mod ptx;
mod runtime;
mod texture;

pub use codegen::cache::CodeCache;
pub use engine::{Engine, Gate, Launch, Realm};
pub use error::{Fault, FaultKind, LoadError, OutOfMemory, PtxError};
pub use kernel::{Kernel, Param};
pub use loaded::{Global, Loaded};
pub use memory::{
    Access, Addresses, Ledger, Memory, Physical, Reservation, SharedMemory, View, token, token_label,
};
pub use module::Module;
pub use ptx::{Reach, Target};
pub use texture::{
    Addressing, Bindings, Bound, Channel, Format, Image, Reference, ReferenceKind, Sampler, Texture,
};
