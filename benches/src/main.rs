//! Measures latency and bandwidth of gpupool beside the raw transports.
fn main() {}
