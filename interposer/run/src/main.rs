//! `pool-run`: runs a program with its CUDA calls forwarded to a pool server.
//!
//! Without `--embedded` it only sets the environment and becomes the program (`exec`), so exit status, signals, terminal
//! and process id are the program's own. With `--embedded` it stays, as the parent of a private pool server and of the
//! program, and passes signals and the way the program ended through (see [`supervise`]).
//!
//! It writes nothing to stdout: that belongs to the program.
#![deny(unsafe_code)]

mod embedded;
mod environment;
mod os;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Parser, ValueEnum};

use environment::{Environment, Place};

/// Runs a program with its CUDA calls forwarded to a pool server.
#[derive(Parser)]
#[command(name = "pool-run", version, max_term_width = 100)]
struct Arguments {
    /// The pool server: HOST:PORT, or unix:PATH for a server on this machine. Otherwise GPUPOOL_SERVER or `server` in
    /// /etc/gpupool/client.toml says it
    #[arg(long, value_name = "ADDRESS", conflicts_with = "embedded")]
    server: Option<String>,

    /// How the calls travel. `auto` takes shared memory when the server is on this machine
    #[arg(long, value_enum)]
    transport: Option<Transport>,

    /// Start a private pool server whose GPU is this machine's CPU, for as long as PROGRAM runs
    #[arg(long)]
    embedded: bool,

    /// The file that holds the token for the server
    #[arg(long, value_name = "FILE", conflicts_with = "embedded")]
    token_file: Option<PathBuf>,

    /// The program to run, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// The transports that a user may ask for: the values of `GPUPOOL_TRANSPORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Auto,
    Shm,
    Tcp,
}

/// Exit status for pool-run's own failures before the program starts, away from what programs commonly use.
const EXIT_SETUP: u8 = 125;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version were asked for, so they are not an error; clap puts each on the right stream.
            let status = if error.use_stderr() { EXIT_SETUP } else { 0 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    match run(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("pool-run: {error:#}");
            ExitCode::from(EXIT_SETUP)
        }
    }
}

/// Runs the program. Returns an exit status only when the program could not be started or ran under `--embedded`.
fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let place = Place::find()?;
    let mut environment = Environment::for_interposer(&place)?;
    if let Some(transport) = arguments.transport {
        let value = transport.to_possible_value().context("a transport without a name")?;
        environment.set("GPUPOOL_TRANSPORT", value.get_name());
    }
    if arguments.embedded {
        return embedded::run(&place, environment, &arguments.program);
    }
    environment.choose_server(arguments.server.as_deref(), arguments.token_file.as_deref())?;
    let mut command = Command::new(&arguments.program[0]);
    command.args(&arguments.program[1..]);
    environment.apply(&mut command);
    let error = os::become_program(command);
    Ok(report_start_failure(&arguments.program[0], &error))
}

/// Says why a program did not start, and gives the exit status that a shell would.
pub fn report_start_failure(program: &OsString, error: &std::io::Error) -> u8 {
    eprintln!("pool-run: cannot start {}: {error}", program.to_string_lossy());
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
