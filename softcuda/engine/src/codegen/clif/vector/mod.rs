//! A group of threads as vectors: every register that differs over the lanes is a row of 128-bit vectors, all lanes always take
//! part, and where they would go different ways each of them runs the scalar version (`super::doors`) until they meet again.
//!
//! * [`shape`]: which registers are the same in all lanes, or lane 0's value plus a multiple of the lane, or anything;
//! * [`plan`]: where scalar code begins and stops, and where registers lie meanwhile;
//! * [`check`]: what is tested once for many operations;
//! * [`emit`]: the loop over groups, branches, parting and meeting;
//! * [`segments`]: kernels whose groups run from one stop to the next, each in its turn: from barrier to barrier, or
//! * [`rounds`]: from one round of a loop to the next one, so that they go through memory side by side;
//! * [`room`]: what a group keeps meanwhile, in both;
//! * [`value`], [`ops`], [`float`], [`memory`]: registers as vectors, and the operations that have a vector form;
//! * [`rows`]: operations that the run time computes for all lanes in one call;
//! * [`lanes`]: all other operations, lane by lane through the scalar emitter;
//! * [`warp`]: barriers, and operations among the lanes.

mod check;
mod emit;
mod float;
mod lanes;
mod memory;
mod ops;
mod plan;
mod room;
mod rounds;
mod rows;
mod segments;
mod shape;
mod value;
mod warp;

pub use check::{Needs, Test};
pub use emit::function;
pub use plan::{Doors, Frame, Plan};
pub use shape::{Setting, Shape};

use crate::ir::passes::Reach;
use crate::ir::{Class, Program, Term};

/// Whether vector code can be made of a kernel; else it runs one thread at a time.
pub fn takes(program: &Program, reach: &Reach) -> bool {
    let functions = || reach.functions.iter().map(|f| &program.functions[*f as usize]);
    // Registers of 128 bits have no place in a frame, and an `exit` inside of a function leaves no lane to meet.
    functions().all(|f| !f.regs.contains(&Class::I128))
        && functions().skip(1).all(|f| !f.blocks.iter().any(|b| b.term == Term::Exit))
}
