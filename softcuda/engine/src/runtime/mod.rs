//! The run time under generated code: stacks, the threads of a block, barriers and warp operations, helpers, printing.

pub mod access;
pub mod barrier;
pub mod bell;
pub mod block;
pub mod checks;
pub mod cluster;
pub mod collective;
pub mod context;
pub mod device_heap;
pub mod helpers;
pub mod lanes;
pub mod math;
pub mod mbarrier;
pub mod mma;
pub mod parting;
pub mod print;
pub mod pure;
mod quiet;
pub mod rows;
pub mod segments;
pub mod small_float;
pub mod sparse;
pub mod special;
pub mod stack;
pub mod texture;
pub mod warp;
