//! `--embedded`: a private pool server with a CPU as its GPU, for the life of one program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use gpupool_protocol::config::TransportChoice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::environment::{Environment, Place};
use crate::os::{self, Signals};
use crate::supervise::{self, Ending};

/// How long the server may take until it listens: it loads its driver in a worker first.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long the server may take to end its workers and itself.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// The start of the names of the directories that hold a private server's socket and log.
const DIRECTORY_PREFIX: &str = "gpupool-run-";
/// In each such directory: held locked by the pool-run that made it.
const LOCK_FILE: &str = "lock";

/// Runs the program beside a private server and returns its exit status; a program ended by a signal ends this process
/// by the same signal.
pub fn run(place: &Place, mut environment: Environment, program: &[OsString]) -> anyhow::Result<u8> {
    // The token of another server means nothing to a private one, which lets this user in without.
    environment.remove("GPUPOOL_TOKEN");
    environment.remove("GPUPOOL_TOKEN_FILE");
    let transport = environment.client_config()?.transport;
    let signals = Signals::block().context("cannot block signals")?;
    let ending = {
        let mut server = Server::start(place, &signals)?;
        let ending = run_beside(&mut server, environment, transport, program, &signals);
        server.stop();
        ending?
    };
    match ending {
        Ending::Exited(status) => Ok(status),
        Ending::Killed(signal) => {
            os::die_of(signal);
            Ok(128u8.wrapping_add(signal as u8))
        }
    }
}

fn run_beside(
    server: &mut Server,
    mut environment: Environment,
    transport: TransportChoice,
    program: &[OsString],
    signals: &Signals,
) -> anyhow::Result<Ending> {
    environment.set("GPUPOOL_SERVER", server.address(transport));
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    environment.apply(&mut command);
    // Killed with pool-run, as it would have been had pool-run become the program.
    match signals.spawn(command, Signal::KILL) {
        Ok(child) => supervise::wait_for(&child, signals, || server.report_early_end()),
        Err(error) => Ok(Ending::Exited(crate::report_start_failure(&program[0], &error))),
    }
}

/// A private pool server and the directory with its socket and log.
struct Server {
    child: Child,
    unix: String,
    tcp: String,
    log_file: PathBuf,
    early_end_reported: bool,
    // Last, so that the directory goes after the server.
    directory: Directory,
}

impl Server {
    /// Starts the server and waits until it listens.
    fn start(place: &Place, signals: &Signals) -> anyhow::Result<Server> {
        let directory = Directory::make()?;
        let path = directory.path();
        let log_file = path.join("server.log");
        let (ready, ready_writer) = rustix::pipe::pipe().context("cannot make a pipe")?;
        rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC).context("cannot set a pipe's flags")?;
        let command = server_command(place, path, &log_file, &ready_writer)?;
        let program = command.get_program().to_owned();
        let child = signals
            .spawn(command, Signal::TERM)
            .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
        // Ours must be closed, or the end of a server that fails would never be seen.
        drop(ready_writer);
        let mut server = Server {
            child,
            unix: String::new(),
            tcp: String::new(),
            log_file,
            early_end_reported: false,
            directory,
        };
        match server.wait_until_ready(ready, signals) {
            Ok(()) => Ok(server),
            Err(error) => {
                server.stop();
                let log = server.log_tail();
                Err(error.context(format!("the private pool server did not start{log}")))
            }
        }
    }

    fn wait_until_ready(&mut self, ready: OwnedFd, signals: &Signals) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut fds = [PollFd::new(&ready, PollFlags::IN)];
            // An error here is an interruption by a signal: look at both again.
            if poll(&mut fds, Some(&slice)).is_ok_and(|count| count > 0) {
                break;
            }
            if let Some(received) = signals.wait(Duration::ZERO) {
                let ends = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
                if ends.contains(&received.number) {
                    self.stop();
                    self.directory.remove();
                    os::die_of(received.number);
                }
            }
            if Instant::now() > deadline {
                bail!("it does not listen after {} s", START_LIMIT.as_secs());
            }
        }
        let mut line = String::new();
        BufReader::new(File::from(ready)).read_line(&mut line).context("cannot read from it")?;
        if line.is_empty() {
            self.let_it_say_why();
            bail!("it ended before it listened");
        }
        let (unix, tcp) = parse_ready(&line).with_context(|| format!("it said '{}'", line.trim_end()))?;
        (self.unix, self.tcp) = (unix, tcp);
        Ok(())
    }

    /// A server that cannot start closes the pipe first and says the reason afterwards: a signal must not come between.
    fn let_it_say_why(&mut self) {
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The value of `GPUPOOL_SERVER` for a transport.
    fn address(&self, transport: TransportChoice) -> String {
        match transport {
            TransportChoice::Tcp => self.tcp.clone(),
            TransportChoice::Auto | TransportChoice::Shm => format!("unix:{}", self.unix),
        }
    }

    /// Says once, while the program still runs, that the server is gone.
    fn report_early_end(&mut self) {
        if !self.early_end_reported
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.early_end_reported = true;
            eprintln!("pool-run: the private pool server ended early ({status}){}", self.log_tail());
        }
    }

    /// Ends the server: asks, and after a while kills. Harmless when it has ended already.
    fn stop(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) else {
            return;
        };
        let deadline = Instant::now() + STOP_LIMIT;
        // try_wait remembers that the child was reaped, so the process id below is never another's.
        let mut asked = false;
        while let Ok(None) = self.child.try_wait() {
            if !asked {
                asked = true;
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The last lines of the server's log, for an error message.
    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log_file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(10)..];
        if tail.is_empty() { String::new() } else { format!("; its last words:\n  {}", tail.join("\n  ")) }
    }
}

/// Levels of `GPUPOOL_LOG` that ask for lines on stderr.
const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

fn server_command(
    place: &Place,
    directory: &Path,
    log_file: &Path,
    ready: &OwnedFd,
) -> anyhow::Result<Command> {
    let program = place.programs.join("pool-server");
    if !program.is_file() {
        bail!(
            "--embedded needs {}, which is missing: build it (cargo build --release) or reinstall gpupool",
            program.display()
        );
    }
    let mut command = Command::new(program);
    // The machine's own server.toml is about another server.
    command.args([
        "serve",
        "--config",
        "/dev/null",
        "--driver",
        "soft",
        "--listen",
        "127.0.0.1:0",
        "--socket",
    ]);
    command.arg(directory.join("socket"));
    command.arg("--ready-fd").arg(ready.as_raw_fd().to_string());
    command.env_remove("LD_PRELOAD").env_remove("GPUPOOL_SERVER").env_remove("GPUPOOL_TOKEN");
    command.stdin(Stdio::null());
    // Away from the terminal's process group: Ctrl-C is for the program, which may want to catch it and go on.
    command.process_group(0);
    // `LEVEL` is for the server as well; `LEVEL:/path` is a file of the client's.
    let level = std::env::var("GPUPOOL_LOG").unwrap_or_default();
    if LOG_LEVELS.contains(&level.as_str()) {
        command.args(["--log", &level]);
        command.stdout(Stdio::from(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 3)?));
        command.stderr(Stdio::inherit());
    } else {
        let log = File::create(log_file).with_context(|| format!("cannot create {}", log_file.display()))?;
        command.stdout(log.try_clone()?);
        command.stderr(log);
    }
    Ok(command)
}

/// Reads `listening unix=PATH tcp=ADDRESS:PORT`.
fn parse_ready(line: &str) -> anyhow::Result<(String, String)> {
    let words = line
        .trim_end()
        .strip_prefix("listening unix=")
        .context("expected 'listening unix=PATH tcp=ADDRESS'")?;
    // The path comes first and may hold spaces; the address after it cannot.
    let (unix, tcp) = words.rsplit_once(" tcp=").context("expected ' tcp=ADDRESS' at its end")?;
    if unix.is_empty() || tcp.is_empty() {
        bail!("an address is empty");
    }
    Ok((unix.to_owned(), tcp.to_owned()))
}

/// The private directory. It is removed at the end; one left by a pool-run that was killed is removed by the next.
struct Directory {
    directory: Option<TempDir>,
    _lock: File,
}

impl Directory {
    fn make() -> anyhow::Result<Directory> {
        let parent = parent_directory();
        remove_abandoned(&parent);
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        // Locked before it has its name, so that no other pool-run ever finds it unlocked.
        let unnamed = directory.path().join("lock.new");
        let lock = File::create(&unnamed).context("cannot create the lock file")?;
        lock.try_lock().context("cannot lock the private directory")?;
        std::fs::rename(unnamed, directory.path().join(LOCK_FILE)).context("cannot name the lock file")?;
        Ok(Directory { directory: Some(directory), _lock: lock })
    }

    fn path(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new(""), |directory| directory.path())
    }

    /// Removes the directory before the value is dropped (which a death by signal would skip).
    fn remove(&mut self) {
        if let Some(directory) = self.directory.take() {
            let _ = directory.close();
        }
    }
}

/// `TMPDIR` or /tmp; the latter also where a socket's path, of at most 107 bytes, would not fit.
fn parent_directory() -> PathBuf {
    let parent = std::env::temp_dir();
    let fits = parent.as_os_str().len() + DIRECTORY_PREFIX.len() + "/XXXXXX/socket".len() <= 107;
    if fits && parent.is_absolute() { parent } else { PathBuf::from("/tmp") }
}

/// Removes the directories of pool-runs that were killed: ours by owner, and locked by nobody.
fn remove_abandoned(parent: &Path) {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::getuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX) {
            continue;
        }
        // Not following links: a directory of this very name, made by this very user.
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if !metadata.is_dir() || metadata.uid() != own {
            continue;
        }
        // One without a lock file is being made at this moment.
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_line() {
        assert_eq!(
            parse_ready("listening unix=/tmp/a b/socket tcp=127.0.0.1:4321\n").unwrap(),
            ("/tmp/a b/socket".into(), "127.0.0.1:4321".into())
        );
        for bad in ["", "listening", "listening unix= tcp=x", "listening unix=/a tcp=", "hello unix=/a tcp=b"]
        {
            assert!(parse_ready(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn abandoned_directories_go_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = parent.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            (File::create(directory.join(LOCK_FILE)).unwrap(), directory)
        };
        let (_, dead) = make("gpupool-run-dead");
        let (lock, alive) = make("gpupool-run-alive");
        lock.try_lock().unwrap();
        let (_, other) = make("something-else");
        remove_abandoned(parent.path());
        assert!(!dead.exists() && alive.exists() && other.exists());
    }
}
