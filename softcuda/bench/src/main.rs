//! Times softcuda's kernels beside the same algorithms in C.
//!
//! Kernels come from `kernels/*.ptx` (nvcc's, with their sources beside them) and run through softcuda's driver API, with
//! all address checks on; `baseline.c` is compiled with `gcc -O3` when the program starts. Each pair runs interleaved in
//! one process, the results are compared, and the median of the ratios is told. One process a number of workers:
//! the one for one worker runs on one processor only.
//!
//! ```sh
//! cargo build --release -p softcuda -p softcuda-bench
//! target/release/softcuda-bench            # every row; --only matmul for some, --workers 1 for one processor
//! ```

mod baseline;
mod compile;
mod kernels;
mod latency;
mod measure;
mod report;

use anyhow::{Context, bail};
use clap::Parser;
use measure::{Bench, Figures, Row};
use std::path::PathBuf;
use std::process::Command;

/// Times softcuda's kernels beside the same algorithms in C, and prints a table.
#[derive(Parser)]
struct Arguments {
    /// The CUDA driver library; by default the libsoftcuda.so beside this program.
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Interleaved runs of each pair.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Only rows whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
    /// Numbers of workers, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,
    /// Count the processor time of the process instead of time on the wall: for a machine that does other things too.
    /// Only meaningful for one worker.
    #[arg(long)]
    processor_time: bool,
    /// Measure in this process and print figures, not a table.
    #[arg(long, hide = true)]
    measure: bool,
}

fn rows() -> Vec<Row> {
    [kernels::rows(), latency::rows(), compile::rows()].concat()
}

#[allow(clippy::print_stdout)]
fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.measure {
        return measure(&arguments);
    }
    if selected(&arguments).next().is_none() {
        bail!("no row's name contains `{}`", arguments.only);
    }
    let mut columns = Vec::new();
    for &workers in &arguments.workers {
        columns.push((workers, child(&arguments, workers)?));
    }
    print!("{}", report::table(&rows(), &columns));
    Ok(())
}

fn selected(arguments: &Arguments) -> impl Iterator<Item = Row> {
    rows().into_iter().filter(|row| row.name.contains(&arguments.only))
}

/// Measures all rows in a process of its own: the number of workers is read once, when the driver starts.
fn child(arguments: &Arguments, workers: u32) -> anyhow::Result<Vec<(String, Figures)>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--measure", "--workers", &workers.to_string(), "--runs", &arguments.runs.to_string()]);
    command.args(["--only", &arguments.only]).env("SOFTCUDA_WORKERS", workers.to_string());
    if let Some(driver) = &arguments.driver {
        command.arg("--driver").arg(driver);
    }
    if arguments.processor_time {
        command.arg("--processor-time");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("measuring with {workers} workers ended with {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .map(|line| Figures::parse(line).with_context(|| format!("unexpected line `{line}`")))
        .collect()
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.workers == [1] {
        measure::stay_on_one_processor()?;
    }
    let driver = match &arguments.driver {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("libsoftcuda.so"),
    };
    let [workers] = arguments.workers[..] else { bail!("one number of workers a process") };
    let bench = Bench::new(&driver, arguments.runs.into(), workers as usize, arguments.processor_time)?;
    for row in selected(arguments) {
        // One row that cannot run must not hide the others.
        match (row.measure)(&bench) {
            Ok(figures) => println!("{}", figures.line(row.name)),
            Err(error) => eprintln!("{}: {error:#}", row.name),
        }
    }
    Ok(())
}
