//! `pool-bench latency`: runs of every variant in turn, and the table of their medians.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::Command;

use anyhow::{Context, bail};

use crate::bars;
use crate::programs::{self, Programs, Road};
use crate::raw::Bare;
use crate::report::{Report, Run, Variant, table};
use crate::server::Server;

/// The arguments of `pool-bench latency`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    gate: bars::Gate,

    /// Print everything, with every run, as JSON
    #[arg(long)]
    json: bool,

    /// What to measure: the driver itself, and the pool's transports
    #[arg(long, value_enum, value_delimiter = ',', default_value = "native,shm,tcp")]
    transports: Vec<Road>,

    /// Runs of each variant; the variants take turns, so that all see the same machine
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// Measure each for a tenth of the usual time
    #[arg(long)]
    quick: bool,

    /// Leave the bare transports out
    #[arg(long)]
    no_raw: bool,

    /// Measure this server (HOST:PORT or unix:PATH) instead of a private one on this machine
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,

    /// The driver, of the private server and for `native`
    #[arg(long, value_name = "soft|null|LIBRARY", default_value = "soft")]
    driver: String,

    /// TCP connections of the bare stream: as many as the pool uses for bulk
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    connections: u16,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let driver = programs.driver(&arguments.driver)?;
    if let Some(address) = arguments.server.as_ref().filter(|address| address.starts_with("unix:"))
        && arguments.transports.contains(&Road::Tcp)
    {
        bail!("{address} is not reached over tcp: say which transports, --transports native,shm");
    }
    let server = match &arguments.server {
        Some(address) => Server::Other(address.clone()),
        None => Server::start(&programs, &driver, &[])?,
    };
    let bares: &[Bare] = if arguments.no_raw { &[] } else { &[Bare::Shm, Bare::Tcp] };
    let mut commands = Vec::new();
    for road in &arguments.transports {
        let mut command = programs.own_command(*road, &driver, &server.address(*road), "measure-cuda")?;
        if arguments.quick {
            command.arg("--quick");
        }
        commands.push((road.name().to_owned(), command));
    }
    for bare in bares {
        commands.push((format!("raw {}", bare.name()), raw_command(&programs, *bare, arguments)));
    }
    let terminal = std::io::stderr().is_terminal();
    let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for round in 1..=arguments.runs {
        for (name, command) in &mut commands {
            if terminal {
                eprint!("\rrun {round} of {}: {name}        ", arguments.runs);
            }
            let run = run_once(command).with_context(|| format!("measuring {name}"))?;
            runs.entry(name.clone()).or_default().push(run);
        }
    }
    if terminal {
        eprint!("\r{:40}\r", "");
    }
    let report = Report {
        machine: machine(),
        device: runs.values().flatten().find_map(|run| run.device.clone()).unwrap_or_default(),
        runs: arguments.runs.into(),
        variants: commands
            .iter()
            .map(|(name, _)| Variant::new(name, runs.remove(name).unwrap_or_default()))
            .collect(),
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    println!("Machine: {}\nDevice: {}", report.machine, report.device);
    println!("Median (99th percentile) of a run; of {} interleaved runs, the median.\n", report.runs);
    print!("{}", table(&report));
    let bars = bars::of_report(&report);
    if bars.is_empty() {
        return Ok(());
    }
    println!();
    arguments.gate.show(&bars)
}

/// One run in processes of its own.
fn run_once(command: &mut Command) -> anyhow::Result<Run> {
    let output = programs::output(command)?;
    if !output.status.success() {
        bail!("the measuring process ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the measuring process printed no result")
}

fn raw_command(programs: &Programs, bare: Bare, arguments: &Arguments) -> Command {
    let mut command = Command::new(&programs.own);
    command.args(["measure-raw", bare.name(), "--connections", &arguments.connections.to_string()]);
    if arguments.quick {
        command.arg("--quick");
    }
    command
}

/// The machine, for the head of the table.
pub fn machine() -> String {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = rustix::system::uname();
    format!("{model}, {cores} cores, Linux {}", kernel.release().to_string_lossy())
}
