//! What the end-to-end tests share: where the built programs lie, ways to run a CUDA program, private pool servers.
//!
//! The tests link nothing of gpupool: they start the programs of `target/<profile>` and look at what comes out. They need
//! `scripts/setup --test`, `cargo build --workspace` in the same profile, and `scripts/build-cases`.
#![forbid(unsafe_code)]

pub mod build;
pub mod census;
mod each_road;
pub mod process;
pub mod random;
pub mod road;
pub mod server;
pub mod switches;

pub use build::{Build, client, repository};
pub use census::{Census, resident};
pub use process::{Outcome, Running, is_running, run, within};
pub use random::Random;
pub use road::{Road, clean, preload_interposer};
pub use server::Server;

/// What both sides of a connection send first: the mark and the wire version (`docs/ARCHITECTURE.md`). The server says it.
pub fn preamble(server: &Server) -> [u8; 8] {
    use std::io::Read;
    let mut first = [0; 8];
    let mut connection = std::net::TcpStream::connect(&server.tcp).expect("the server listens");
    connection.read_exact(&mut first).expect("the server speaks first");
    assert_eq!(&first[..4], b"GPUP");
    first
}
