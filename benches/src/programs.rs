//! The programs that are measured, found beside this one, and the ways to run them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;

/// How long one measuring process may take. One that hangs is ended, and the measurement with it.
pub const RUN_LIMIT: Duration = Duration::from_secs(180);

/// The ways from a program to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Road {
    /// The driver loaded in the program itself.
    Native,
    /// The pool over shared memory.
    Shm,
    /// The pool over TCP.
    Tcp,
}

impl Road {
    /// Its name, which is the transport's.
    pub fn name(self) -> &'static str {
        match self {
            Road::Native => "native",
            Road::Shm => "shm",
            Road::Tcp => "tcp",
        }
    }
}

/// Where the programs to measure lie.
pub struct Programs {
    /// This program.
    pub own: PathBuf,
    directory: PathBuf,
}

impl Programs {
    /// Beside this program. Cargo puts its benchmarks into a folder of their own below the programs.
    pub fn find() -> anyhow::Result<Programs> {
        let own = std::env::current_exe().context("cannot tell where pool-bench itself lies")?;
        let folder = own.parent().context("pool-bench has no directory")?;
        let directory = if folder.ends_with("deps") { folder.join("..") } else { folder.to_path_buf() };
        Ok(Programs { own, directory })
    }

    /// A file beside this program.
    pub fn beside(&self, names: &[&str]) -> anyhow::Result<PathBuf> {
        let candidates: Vec<PathBuf> = names.iter().map(|name| self.directory.join(name)).collect();
        match candidates.iter().find(|candidate| candidate.is_file()) {
            Some(found) => Ok(found.canonicalize()?),
            None => bail!(
                "{} is missing: build everything (cargo build --release) or reinstall",
                candidates[0].display()
            ),
        }
    }

    /// The library behind a driver's name: `soft`, `null`, or a path.
    pub fn driver(&self, name: &str) -> anyhow::Result<PathBuf> {
        match name {
            "soft" => self.beside(&["libsoftcuda.so", "../lib/gpupool/libsoftcuda.so"]),
            "null" => self.beside(&["libnulldriver.so", "../lib/gpupool/libnulldriver.so"]),
            path => Path::new(path).canonicalize().with_context(|| format!("no driver {path}")),
        }
    }

    /// A command that runs a program on a road. `server` is the pool's address there.
    pub fn command(&self, road: Road, driver: &Path, server: &str) -> anyhow::Result<Command> {
        let mut command;
        match road {
            Road::Native => {
                command = Command::new("/usr/bin/env");
                command.arg(format!("LD_PRELOAD={}", driver.display()));
            }
            Road::Shm | Road::Tcp => {
                command = Command::new(self.beside(&["pool-run"])?);
                command.args(["--server", server, "--transport", road.name(), "--"]);
            }
        }
        Ok(command)
    }

    /// A command that runs this program on a road, with `arguments` behind the name of the library to load.
    pub fn own_command(
        &self,
        road: Road,
        driver: &Path,
        server: &str,
        action: &str,
    ) -> anyhow::Result<Command> {
        let mut command = match road {
            Road::Native => Command::new(&self.own),
            Road::Shm | Road::Tcp => {
                let mut command = self.command(road, driver, server)?;
                command.arg(&self.own);
                command
            }
        };
        // The preloaded interposer answers to this name.
        let library = if road == Road::Native { driver } else { Path::new("libcuda.so.1") };
        command.arg(action).arg(library);
        Ok(command)
    }
}

/// Runs a command to its end, or ends it. Its standard error is this program's.
pub fn output(command: &mut Command) -> anyhow::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    finish(child.context("cannot start it")?, RUN_LIMIT)
}

/// Waits for a process whose standard output is a pipe.
pub fn finish(mut child: Child, limit: Duration) -> anyhow::Result<Output> {
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.map(|mut pipe| pipe.read_to_end(&mut text)).transpose().map(|_| text)
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("it hangs: not finished within {} s, and ended", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let Ok(stdout) = reader.join() else { bail!("reading its output failed") };
    Ok(Output { status, stdout: stdout?, stderr: Vec::new() })
}
