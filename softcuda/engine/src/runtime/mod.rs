//! The run time under generated code: stacks, the threads of a block, barriers and warp operations, helpers, printing.

pub mod block;
pub mod context;
pub mod helpers;
pub mod math;
pub mod parting;
pub mod print;
pub mod stack;
pub mod texture;
pub mod warp;
