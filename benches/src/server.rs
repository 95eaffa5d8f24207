//! A private pool server for the time of a measurement.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::programs::{Programs, Road};

/// How long a server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The server that is measured: a private one, or one that runs already.
pub enum Server {
    /// Started here, ended when dropped.
    Private(Private),
    /// Of this address.
    Other(String),
}

/// A server of our own.
pub struct Private {
    child: Child,
    unix: String,
    tcp: String,
    directory: PathBuf,
}

impl Server {
    /// The address for a road.
    pub fn address(&self, road: Road) -> String {
        match (self, road) {
            (Server::Other(address), _) => address.clone(),
            (Server::Private(server), Road::Tcp) => server.tcp.clone(),
            (Server::Private(server), _) => format!("unix:{}", server.unix),
        }
    }

    /// The process of a private server.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Server::Private(server) => Some(server.child.id()),
            Server::Other(_) => None,
        }
    }

    /// Starts a private server with this driver and these further arguments.
    pub fn start(programs: &Programs, driver: &Path, arguments: &[&str]) -> anyhow::Result<Server> {
        let directory = std::env::temp_dir().join(format!("pool-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let log = File::create(directory.join("server.log")).context("cannot make the server's log")?;
        let (ready, writer) = rustix::pipe::pipe().context("cannot make a pipe")?;
        rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC).context("cannot set a pipe's flags")?;
        let mut command = Command::new(programs.beside(&["pool-server"])?);
        command.args(["serve", "--config", "/dev/null", "--listen", "127.0.0.1:0", "--log", "warn"]);
        command.arg("--driver").arg(driver).arg("--socket").arg(directory.join("pool.sock"));
        command.arg("--ready-fd").arg(writer.as_raw_fd().to_string()).args(arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("cannot start pool-server")?;
        drop(writer);
        let mut server = Private { child, unix: String::new(), tcp: String::new(), directory };
        let mut line = String::new();
        BufReader::new(File::from(ready)).read_line(&mut line)?;
        let said = line.trim_end().strip_prefix("listening unix=").and_then(|rest| rest.rsplit_once(" tcp="));
        let Some((unix, tcp)) = said else {
            let log = std::fs::read_to_string(server.directory.join("server.log")).unwrap_or_default();
            bail!("the private pool server did not start:\n{log}");
        };
        (server.unix, server.tcp) = (unix.to_owned(), tcp.to_owned());
        Ok(Server::Private(server))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
