//! `pool-bench compare`: the wall time of a program natively and through the pool.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::bars::{self, Bar, time};
use crate::latency::machine;
use crate::programs::{self, Programs, Road};
use crate::server::Server;

/// The arguments of `pool-bench compare`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    gate: bars::Gate,

    /// The driver, of the private server and for `native`
    #[arg(long, value_name = "soft|null|LIBRARY", default_value = "soft")]
    driver: String,

    /// Runs of each; natively, shared memory and TCP take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<String>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let driver = programs.driver(&arguments.driver)?;
    let server = Server::start(&programs, &driver, &[])?;
    let mut walls: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    // The first round fills caches and is not counted.
    for round in 0..=arguments.runs {
        for road in [Road::Native, Road::Shm, Road::Tcp] {
            let mut command = programs.command(road, &driver, &server.address(road))?;
            let wall =
                once(command.args(&arguments.program)).with_context(|| format!("over {}", road.name()))?;
            if round > 0 {
                walls.entry(road.name()).or_default().push(wall);
            }
        }
    }
    let median = |road: &str| -> f64 {
        let mut all = walls.get(road).cloned().unwrap_or_default();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0) as f64
    };
    println!("Machine: {}\nProgram: {}", machine(), arguments.program.join(" "));
    println!(
        "Wall time, the median of {} interleaved runs; natively {}.\n",
        arguments.runs,
        time(median("native"))
    );
    let bars = [("shm", 1.05), ("tcp", 1.15)].map(|(road, most)| {
        Bar::at_most(
            &format!("{road} to native, {}", time(median(road))),
            median(road) / median("native"),
            most,
            bars::ratio,
        )
    });
    arguments.gate.show(&bars)
}

fn once(command: &mut Command) -> anyhow::Result<u64> {
    let start = Instant::now();
    let output = programs::output(command)?;
    let wall = start.elapsed();
    ensure!(output.status.success(), "it ended with {}", output.status);
    Ok(wall.as_nanos() as u64)
}
