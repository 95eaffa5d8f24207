//! `pool-bench`: what CUDA calls cost through the pool, beside what the bare driver and the bare transports cost.
//!
//! It drives the built programs from outside, as users do: a measuring process is this program itself, started under
//! `pool-run`, and calls `libcuda` through `dlopen`. Nothing of gpupool is linked in.
#![deny(unsafe_code)]
#![allow(clippy::print_stdout)] // its results are its output

mod bars;
mod calls;
mod compare;
mod crowd;
mod latency;
mod measure;
mod memory;
mod network;
mod programs;
mod raw;
mod raw_pairs;
mod report;
mod server;
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
    /// Many clients: set-up of sessions, fairness, memory
    Crowd(crowd::Arguments),
    /// What a session takes in memory, in the client and in its worker; fails when it is too much
    Memory(crowd::MemoryArguments),
    /// The wall time of a program natively and through the pool
    Compare(compare::Arguments),
    /// Short calls beside long copies over TCP, and copies after a pause, by the number of connections
    Network(network::Arguments),
    /// Measures one session (`network` starts this)
    #[command(hide = true)]
    ClientNetwork {
        /// The library to load as the driver.
        library: PathBuf,
        /// Seconds of each measure.
        seconds: u16,
    },
    /// Sets up a session when told, and says how long that took (`crowd` starts this)
    #[command(hide = true)]
    ClientInit {
        /// The library to load as the driver.
        library: PathBuf,
    },
    /// Works when told, and says how much (`crowd` starts this)
    #[command(hide = true)]
    ClientWork {
        /// The library to load as the driver.
        library: PathBuf,
        /// How long.
        seconds: u16,
    },
    /// Works with a peer of its own over bare shared memory when told, and says how much (`crowd` starts this)
    #[command(hide = true)]
    RawWork {
        /// How long.
        seconds: u16,
    },
    /// The peer of `raw-work`
    #[command(hide = true)]
    RawWorkPeer {
        /// The inherited file descriptor of the shared memory.
        fd: i32,
    },
    /// Sets up a session when told, and says what memory it takes (`memory` and `crowd` start this)
    #[command(hide = true)]
    ClientMemory {
        /// The library to load as the driver.
        library: PathBuf,
    },
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
        /// Connections of a TCP stream.
        #[arg(long, default_value_t = 1)]
        connections: u16,
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
        /// How many connections to make.
        connections: u16,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::Latency(arguments) => latency::run(&arguments),
        Action::MeasureCuda { library, quick } => calls::measure(&library, quick).and_then(print_json),
        Action::Repeat { library, function, calls } => calls::repeat(&library, function, calls),
        Action::MeasureRaw { transport, quick, connections } => {
            raw::measure(transport, quick, connections).and_then(print_json)
        }
        Action::Crowd(arguments) => crowd::run(&arguments),
        Action::Memory(arguments) => crowd::memory(&arguments),
        Action::Compare(arguments) => compare::run(&arguments),
        Action::Network(arguments) => network::run(&arguments),
        Action::ClientNetwork { library, seconds } => network::client(&library, seconds),
        Action::ClientInit { library } => crowd::client_init(&library),
        Action::ClientWork { library, seconds } => crowd::client_work(&library, seconds),
        Action::ClientMemory { library } => crowd::client_memory(&library),
        Action::RawWork { seconds } => raw_pairs::work(seconds),
        Action::RawWorkPeer { fd } => raw_pairs::peer(fd),
        Action::PeerShm { fd } => raw::peer_shm(fd),
        Action::PeerTcp { address, connections } => raw::peer_tcp(address, connections),
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
