//! Compiles PTX for the CPU, just in time, and runs its grids.
//!
//! This is the half of softcuda that knows PTX and nothing of the driver API: a [`Memory`], a [`Module`] parsed from
//! PTX text, a [`Loaded`] one whose variables are placed in that memory, its [`Kernel`]s, and an [`Engine`] that runs a
//! [`Launch`] of one of them.

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

pub use engine::{Engine, Launch};
pub use error::{Fault, FaultKind, LoadError, OutOfMemory, PtxError};
pub use kernel::{Kernel, Param};
pub use loaded::{Global, Loaded};
pub use memory::Memory;
pub use module::Module;
