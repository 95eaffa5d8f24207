//! The ways from a program to a device.

use std::ffi::OsStr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::build::{Build, repository};

/// The way that a program's CUDA calls take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    /// softcuda preloaded into the program itself.
    Native,
    /// Through a private pool server over shared memory.
    Shm,
    /// Through a private pool server over TCP.
    Tcp,
}

impl Road {
    /// The roads through the pool.
    pub const POOL: [Road; 2] = [Road::Shm, Road::Tcp];

    /// The transport's name.
    pub fn transport(self) -> &'static str {
        match self {
            Road::Native => "native",
            Road::Shm => "shm",
            Road::Tcp => "tcp",
        }
    }

    /// A command that runs `program` on this road, as a user would type it.
    pub fn command(self, program: impl AsRef<Path>) -> Command {
        let build = Build::find();
        let mut command;
        match self {
            Road::Native => {
                command = clean(program.as_ref());
                command.env("LD_PRELOAD", build.softcuda());
            }
            Road::Shm | Road::Tcp => {
                command = clean(build.file("pool-run"));
                command.args(["--embedded", "--transport", self.transport(), "--"]).arg(program.as_ref());
            }
        }
        command
    }
}

/// A command without anything in its environment that steers CUDA, gpupool or the loader, and without this machine's
/// own client configuration.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["GPUPOOL_", "CUDA_", "NUMBA_", "LD_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env("GPUPOOL_CONFIG", "/dev/null").env("XDG_RUNTIME_DIR", runtime_directory());
    // Devices of its own: tests run side by side, and neither memory nor time may be another test's.
    static COMMANDS: AtomicU32 = AtomicU32::new(0);
    let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
    command
        .env("SOFTCUDA_STATE", runtime_directory().join(format!("devices-{}-{number}", std::process::id())));
    command
}

/// Where clients keep what they learn of servers: not in this user's own directory.
fn runtime_directory() -> PathBuf {
    let directory = repository().join("target/e2e-runtime");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&directory).expect("a directory under target");
    directory
}

/// Preloads the interposer into a command, without pool-run.
pub fn preload_interposer(command: &mut Command, server: &str) {
    command.env("LD_PRELOAD", Build::find().interposer()).env("GPUPOOL_SERVER", server);
}
