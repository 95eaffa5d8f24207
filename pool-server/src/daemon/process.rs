//! Worker processes: how they are started, and how they are ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use gpupool_protocol::control::Snapshot;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::stream::{Incoming, Outgoing, Stream};
use crate::tie::{FromWorker, ToWorker};

/// The program that is a worker.
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set for it, besides those of the daemon that it may see.
    pub env: Vec<(OsString, OsString)>,
}

impl WorkerProgram {
    /// This executable's `worker` command, logging as this filter says.
    pub fn own(log: &str) -> Self {
        Self {
            // The link leads to the running program even after an update has replaced its file.
            path: "/proc/self/exe".into(),
            args: vec!["worker".into()],
            env: vec![(crate::LOG_VARIABLE.into(), log.into())],
        }
    }
}

/// Starts workers from a thread that lives as long as the daemon: the kernel ends a worker (PR_SET_PDEATHSIG) when
/// the *thread* that made it ends, and the runtime's threads come and go.
#[derive(Debug)]
pub struct Spawner {
    requests: std::sync::mpsc::Sender<oneshot::Sender<io::Result<Spawned>>>,
}

#[derive(Debug)]
struct Spawned {
    child: Child,
    tie: OwnedFd,
}

impl Spawner {
    /// Starts the thread. Must be called inside the runtime.
    pub fn start(program: WorkerProgram) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let (requests, queue) = std::sync::mpsc::channel::<oneshot::Sender<io::Result<Spawned>>>();
        std::thread::Builder::new().name("spawner".into()).spawn(move || {
            let _inside = runtime.enter();
            for request in queue {
                // Nobody waits any more: the worker is ended as it is dropped.
                let _ = request.send(spawn(&program));
            }
        })?;
        Ok(Self { requests })
    }

    async fn spawn(&self) -> anyhow::Result<Spawned> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(reply).map_err(|_| anyhow!("the spawner has ended"))?;
        answer.await.context("the spawner has ended")?.context("cannot start a worker process")
    }
}

fn spawn(program: &WorkerProgram) -> io::Result<Spawned> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (tie, worker_end) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(&program.path);
    command.arg0("pool-server").args(&program.args);
    for (name, _) in std::env::vars_os() {
        if is_hidden_from_workers(&name) {
            command.env_remove(name);
        }
    }
    command.envs(program.env.iter().map(|(k, v)| (k, v)));
    command.stdin(Stdio::from(worker_end));
    // A driver's own words belong into the log, not to whatever the daemon's standard output is.
    command.stdout(Stdio::from(rustix::io::dup(std::io::stderr())?));
    command.process_group(0).kill_on_drop(true);
    prepare(&mut command);
    let child = command.spawn()?;
    Ok(Spawned { child, tie })
}

/// Variables that would change which libraries a worker loads, that are meant for clients, or that belong to the
/// daemon alone.
fn is_hidden_from_workers(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    matches!(name, b"LD_PRELOAD" | b"LD_LIBRARY_PATH" | b"LD_AUDIT" | b"NOTIFY_SOCKET")
        || name.starts_with(b"GPUPOOL_")
}

/// What the new process does to itself before it becomes the worker.
fn prepare(command: &mut Command) {
    let daemon = rustix::process::getpid();
    let in_child = move || {
        use rustix::process::{Resource, Rlimit, getppid, set_parent_process_death_signal, setrlimit};
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(daemon) {
            // The daemon died before the line above; an error would have nobody to go to.
            exit_at_once();
        }
        // Core files would hold clients' data.
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        Ok(())
    };
    #[allow(unsafe_code)]
    // SAFETY: between fork and exec the closure only makes system calls (prctl, getppid, setrlimit); it allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(in_child);
    }
}

fn exit_at_once() -> ! {
    #[allow(unsafe_code)]
    // SAFETY: _exit(2) is async-signal-safe, so it may follow a fork, and touches no memory of the process.
    unsafe {
        libc::_exit(1)
    }
}

/// Whether a process is stopped, or about to be gone: a killed process can be waited for only once the last of its threads
/// has ended, which on a busy machine is long after the first. By the state in proc_pid_stat(5), behind the name, which
/// may hold anything.
fn is_dying_or_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| matches!(state, 'Z' | 'X' | 'T' | 't'))
}

/// A worker whose driver is loaded. Dropping it kills its whole process group; its remains are collected by the
/// runtime.
#[derive(Debug)]
pub struct Worker {
    /// What its driver shows.
    pub snapshot: Snapshot,
    child: Child,
    group: Option<Pid>,
    /// Messages from it.
    pub incoming: Incoming,
    /// Messages to it.
    pub outgoing: Option<Outgoing>,
}

impl Worker {
    /// Starts a process and has it load the driver.
    pub async fn start(spawner: &Spawner, driver: &Path, limit: Duration) -> anyhow::Result<Self> {
        let Spawned { child, tie } = spawner.spawn().await?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let tie = std::os::unix::net::UnixStream::from(tie);
        tie.set_nonblocking(true).context("cannot use the tie to a worker")?;
        let tie = tokio::net::UnixStream::from_std(tie).context("cannot use the tie to a worker")?;
        let stream = Arc::new(Stream::Unix(tie));
        let incoming = Incoming::new(Arc::clone(&stream));
        let outgoing = Some(Outgoing::new(stream));
        let mut worker = Self { snapshot: Snapshot::default(), child, group, incoming, outgoing };
        worker.send(&ToWorker::Setup { driver: driver.into() });
        match tokio::time::timeout(limit, worker.incoming.next()).await {
            Err(_) => bail!("the driver did not load within {} s", limit.as_secs()),
            Ok(Ok(Some(FromWorker::Ready { snapshot }))) => worker.snapshot = snapshot,
            Ok(Ok(Some(FromWorker::Failed { reason }))) => bail!("{reason}"),
            Ok(Ok(Some(FromWorker::Pong { .. } | FromWorker::Short { .. }))) => {
                bail!("a new worker speaks of a session that it has not")
            }
            Ok(Ok(None) | Err(_)) => {
                bail!("a worker that was loading {} {}", driver.display(), worker.end_by_itself().await.how)
            }
        }
        Ok(worker)
    }

    /// Queues a message to it; `false`: it does not read.
    pub fn send(&self, message: &ToWorker) -> bool {
        self.outgoing.as_ref().is_some_and(|out| out.send(message))
    }

    /// Queues the message that hands a socket over.
    pub fn send_with_fd(&self, message: &ToWorker, fd: OwnedFd) -> bool {
        self.outgoing.as_ref().is_some_and(|out| out.send_with_fd(message, fd))
    }

    /// Process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether it can serve: it is still there, and nobody has stopped it.
    pub fn is_fit(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) && !self.child.id().is_some_and(is_dying_or_stopped)
    }

    /// Like [`Worker::end`], for one that is about to end by itself: it gets a moment to do so, or every cause of death
    /// would read "killed".
    pub async fn end_by_itself(&mut self) -> Ended {
        let _ = tokio::time::timeout(Duration::from_millis(200), self.child.wait()).await;
        self.end().await
    }

    /// Kills it with all its children and collects it.
    pub async fn end(&mut self) -> Ended {
        self.kill();
        let status = self.child.wait().await;
        self.group = None;
        match status {
            Ok(status) => Ended { well: status.success(), how: describe(status) },
            Err(error) => Ended { well: false, how: format!("ended, unseen ({error})") },
        }
    }

    /// One that has died already leaves its status as it was; what it started is killed in any case.
    fn kill(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// How a worker ended.
#[derive(Debug)]
pub struct Ended {
    /// By itself and without an error.
    pub well: bool,
    /// For a sentence that begins with "the worker".
    pub how: String,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended".into(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL; out of memory?)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}
