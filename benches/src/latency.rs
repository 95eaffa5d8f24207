//! `pool-bench latency`: runs of every variant in turn, and the table of their medians.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::raw::Bare;
use crate::report::{Report, Run, Variant, table};

/// The arguments of `pool-bench latency`.
#[derive(clap::Args)]
pub struct Arguments {
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

    /// The driver for `native`; otherwise the one that a private server uses (libsoftcuda.so)
    #[arg(long, value_name = "LIBRARY")]
    driver: Option<PathBuf>,
}

/// The ways from a program to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Road {
    /// The driver loaded in the program itself.
    Native,
    /// The pool over shared memory.
    Shm,
    /// The pool over TCP.
    Tcp,
}

impl Road {
    fn name(self) -> &'static str {
        match self {
            Road::Native => "native",
            Road::Shm => "shm",
            Road::Tcp => "tcp",
        }
    }
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let bares: &[Bare] = if arguments.no_raw { &[] } else { &[Bare::Shm, Bare::Tcp] };
    let mut commands = Vec::new();
    for road in &arguments.transports {
        commands.push((road.name().to_owned(), programs.cuda_command(*road, arguments)?));
    }
    for bare in bares {
        commands.push((format!("raw {}", bare.name()), programs.raw_command(*bare, arguments)));
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
    Ok(())
}

/// One run in processes of its own.
fn run_once(command: &mut Command) -> anyhow::Result<Run> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start it")?;
    if !output.status.success() {
        bail!("the measuring process ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the measuring process printed no result")
}

/// Where the programs to measure lie: beside this one.
struct Programs {
    own: PathBuf,
    directory: PathBuf,
}

impl Programs {
    fn find() -> anyhow::Result<Programs> {
        let own = std::env::current_exe().context("cannot tell where pool-bench itself lies")?;
        let directory = own.parent().context("pool-bench has no directory")?.to_path_buf();
        Ok(Programs { own, directory })
    }

    /// A file beside this program.
    fn beside(&self, names: &[&str]) -> anyhow::Result<PathBuf> {
        let candidates: Vec<PathBuf> = names.iter().map(|name| self.directory.join(name)).collect();
        match candidates.iter().find(|candidate| candidate.is_file()) {
            Some(found) => Ok(found.clone()),
            None => bail!(
                "{} is missing: build everything (cargo build --release) or reinstall",
                candidates[0].display()
            ),
        }
    }

    fn cuda_command(&self, road: Road, arguments: &Arguments) -> anyhow::Result<Command> {
        let library = match (road, &arguments.driver) {
            (Road::Native, Some(driver)) => driver.clone(),
            (Road::Native, None) => self.beside(&["libsoftcuda.so", "../lib/gpupool/libsoftcuda.so"])?,
            // The preloaded interposer answers to this name.
            (Road::Shm | Road::Tcp, _) => Path::new("libcuda.so.1").to_path_buf(),
        };
        let mut command = match road {
            Road::Native => Command::new(&self.own),
            Road::Shm | Road::Tcp => {
                let mut command = Command::new(self.beside(&["pool-run"])?);
                match &arguments.server {
                    Some(server) => command.args(["--server", server]),
                    None => command.arg("--embedded"),
                };
                command.args(["--transport", road.name(), "--"]).arg(&self.own);
                command
            }
        };
        command.arg("measure-cuda").arg(library);
        if arguments.quick {
            command.arg("--quick");
        }
        Ok(command)
    }

    fn raw_command(&self, bare: Bare, arguments: &Arguments) -> Command {
        let mut command = Command::new(&self.own);
        command.args(["measure-raw", bare.name()]);
        if arguments.quick {
            command.arg("--quick");
        }
        command
    }
}

/// The machine, for the head of the table.
fn machine() -> String {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = rustix::system::uname();
    format!("{model}, {cores} cores, Linux {}", kernel.release().to_string_lossy())
}
