//! Instructions by class: expected values come from the PTX manual, from integers, or from a second implementation of arithmetic.

#[path = "../common/mod.rs"]
mod common;

mod approximations;
mod approximations_flushed;
mod asynchronous;
mod barriers;
mod carry;
mod comparisons;
mod conversions;
mod exact;
mod exact_modes;
mod manual;
mod matrix;
mod references;
mod spaces;
mod sparse;
mod stack;
mod sync;
mod texture;
mod warps;
mod wide_memory;

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}
