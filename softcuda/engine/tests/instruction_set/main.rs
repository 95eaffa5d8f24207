//! Instructions by class: expected values come from the PTX manual, from integers, or from a second implementation of arithmetic.

#[path = "../common/mod.rs"]
mod common;

mod approximations;
mod exact;
mod matrix;
mod sync;
mod wide_memory;

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}
