//! `pool-bench`: what CUDA calls cost through the pool, beside what the bare driver and the bare transports cost.
//!
//! It drives the built programs from outside, as users do: a measuring process is this program itself, started under
//! `pool-run`, and calls `libcuda` through `dlopen`. Nothing of gpupool is linked in.
#![deny(unsafe_code)]
#![allow(clippy::print_stdout)] // its results are its output

mod calls;
mod cuda;
mod latency;
mod measure;
mod raw;
mod report;
mod shared;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures gpupool beside the bare driver and the bare transports.
#[derive(Parser)]
#[command(name = "pool-bench", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// What single CUDA calls, a step of many, and large copies take
    Latency(latency::Arguments),
    /// One run of the CUDA measurements; prints its result as JSON (`latency` starts this)
    #[command(hide = true)]
    MeasureCuda {
        /// The library to load as the driver.
        library: PathBuf,
        /// Measure for a tenth of the usual time.
        #[arg(long)]
        quick: bool,
    },
    /// Calls one function again and again (`scripts/count-instructions` starts this)
    #[command(hide = true)]
    Repeat {
        /// The library to load as the driver.
        library: PathBuf,
        /// The function to call.
        function: calls::Repeated,
        /// How often.
        calls: u32,
    },
    /// One run of the raw measurements; prints its result as JSON (`latency` starts this)
    #[command(hide = true)]
    MeasureRaw {
        /// Which bare transport.
        transport: raw::Bare,
        /// Measure for a tenth of the usual time.
        #[arg(long)]
        quick: bool,
    },
    /// The other side of the shared-memory ping-pong
    #[command(hide = true)]
    PeerShm {
        /// The inherited file descriptor of the shared memory.
        fd: i32,
    },
    /// The other side of the TCP measurements
    #[command(hide = true)]
    PeerTcp {
        /// Where the measuring process listens.
        address: std::net::SocketAddr,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::Latency(arguments) => latency::run(&arguments),
        Action::MeasureCuda { library, quick } => calls::measure(&library, quick).and_then(print_json),
        Action::Repeat { library, function, calls } => calls::repeat(&library, function, calls),
        Action::MeasureRaw { transport, quick } => raw::measure(transport, quick).and_then(print_json),
        Action::PeerShm { fd } => raw::peer_shm(fd),
        Action::PeerTcp { address } => raw::peer_tcp(address),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pool-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_json(run: report::Run) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(&run)?);
    Ok(())
}
