//! Runs a program with its CUDA calls forwarded to a pool server.
fn main() {}
