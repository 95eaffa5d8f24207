//! A pool server for a test, with softcuda as its driver.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::build::Build;
use crate::process::is_running;
use crate::road::{Road, clean};

/// The token of all test servers.
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A private pool server. Its processes are ended when this is dropped.
pub struct Server {
    child: Child,
    /// Its Unix socket.
    pub socket: String,
    /// Its TCP address.
    pub tcp: String,
    token_file: PathBuf,
    directory: TempDir,
}

impl Server {
    /// Starts a server and waits until it listens.
    #[track_caller]
    pub fn start() -> Server {
        Self::with(&[])
    }

    /// The same with more in its environment.
    #[track_caller]
    pub fn with(environment: &[(&str, &str)]) -> Server {
        let directory =
            tempfile::Builder::new().prefix("gpupool-e2e-").tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        write_private(&at("token"), TOKEN);
        write_private(&at("tenants"), &format!("e2e {TOKEN}"));
        let log = File::create(at("log")).expect("a log file");
        // Without CLOEXEC: the server inherits it. Ours is closed below.
        let (ready, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC).expect("a flag");
        let mut command = clean(Build::find().file("pool-server"));
        command.envs(environment.iter().copied());
        command
            .args([
                "serve",
                "--config",
                "/dev/null",
                "--driver",
                "soft",
                "--listen",
                "127.0.0.1:0",
                "--socket",
            ])
            .arg(at("socket"));
        command.arg("--token-file").arg(at("tenants")).arg("--ready-fd").arg(writer.as_raw_fd().to_string());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("the log file again")).stderr(log);
        let child = command.spawn().expect("pool-server starts");
        drop(writer);
        let mut line = String::new();
        BufReader::new(File::from(ready)).read_line(&mut line).expect("the ready pipe");
        let said = line.trim_end().strip_prefix("listening unix=").and_then(|rest| rest.rsplit_once(" tcp="));
        let Some((socket, tcp)) = said else {
            let log = std::fs::read_to_string(at("log")).unwrap_or_default();
            panic!("pool-server did not become ready: said '{line}', log:\n{log}");
        };
        Server { child, socket: socket.to_owned(), tcp: tcp.to_owned(), token_file: at("token"), directory }
    }

    /// The address for a road, as in `GPUPOOL_SERVER`.
    pub fn address(&self, road: Road) -> String {
        match road {
            Road::Tcp => self.tcp.clone(),
            Road::Native | Road::Shm => format!("unix:{}", self.socket),
        }
    }

    /// A command that runs `program` against this server. pool-run becomes the program, so the command's process is the
    /// program's.
    pub fn command(&self, road: Road, program: impl AsRef<Path>) -> Command {
        let mut command = clean(Build::find().file("pool-run"));
        command.args(["--server", &self.address(road), "--transport", road.transport(), "--token-file"]);
        command.arg(&self.token_file).arg("--").arg(program.as_ref());
        command
    }

    /// The file that holds its token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The daemon's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its worker processes, those that wait for a session included.
    pub fn workers(&self) -> Vec<Pid> {
        descendants(self.pid())
    }

    /// Sends a signal to the daemon and all its workers.
    pub fn signal_all(&self, signal: Signal) {
        // The daemon first: stopped, it starts no more workers.
        let _ = kill_process(self.pid(), signal);
        for worker in self.workers() {
            let _ = kill_process(worker, signal);
        }
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Ends the server as an operator does, and gives whether it and its workers were gone within `limit`.
    pub fn stop(&mut self, limit: Duration) -> bool {
        let workers = self.workers();
        let deadline = Instant::now() + limit;
        let _ = kill_process(self.pid(), Signal::TERM);
        while Instant::now() < deadline {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if ended && !workers.iter().any(|worker| is_running(*worker)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        let workers = self.workers();
        self.signal_all(Signal::CONT);
        if !self.stop(Duration::from_secs(3)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            for worker in workers {
                let _ = kill_process(worker, Signal::KILL);
            }
        }
    }
}

fn write_private(file: &Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file).expect("a new file");
    writeln!(file, "{text}").expect("a file that can be written");
}

/// Every process below `root`, by /proc.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        // pid (name) state parent …
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut words = rest.split_whitespace();
        let state = words.next().unwrap_or("Z");
        let parent = words.next().and_then(|word| word.parse::<i32>().ok());
        if let (false, Some(parent)) = (state == "Z", parent) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root.as_raw_nonzero().get()];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}
