//! Owns GPUs and runs the CUDA calls of remote programs on them.
fn main() {}
