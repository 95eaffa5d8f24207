//! Owns GPUs and runs the CUDA calls of remote programs on them: a daemon, and a worker process for each session.
#![deny(unsafe_code)]

pub mod cli;
pub mod config;
pub mod daemon;
pub mod tie;
pub mod worker;

/// The variable that says what daemon and workers log, in the form of `tracing`'s filters.
pub const LOG_VARIABLE: &str = "POOL_SERVER_LOG";
