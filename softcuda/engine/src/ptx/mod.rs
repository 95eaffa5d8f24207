//! Reads PTX text into the intermediate representation.

mod cursor;
mod data;
mod decode;
mod function;
mod lexer;
mod module;
mod opaque;
mod operand;
mod target;

#[cfg(test)]
pub use module::parse;
pub use module::parse_all;
pub use target::{Reach, Target};

/// The most registers that one function may declare, and the most bytes that one variable in shared, local or
/// parameter space may have: far above what any compiler writes, and low enough that a hostile text cannot exhaust memory.
const MAX_REGS: usize = 1 << 20;
const MAX_FRAME: u64 = 1 << 26;
/// Bytes of one kernel's parameters at most, as the CUDA C++ Programming Guide says.
const MAX_KERNEL_PARAMETERS: u32 = 32_764;
/// The most registers in a whole module.
const MAX_MODULE_REGS: usize = 1 << 25;
