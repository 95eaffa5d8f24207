//! Running a program with a limit on its time.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How a program ended, and what it wrote.
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
}

/// For the messages of failed tests: what was written stands there as it was written.
impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { status, stdout, stderr, took } = self;
        write!(f, "{status} after {took:?}\n--- stdout\n{stdout}--- stderr\n{stderr}---")
    }
}

impl Outcome {
    /// The program exited with 0 and its last line on stdout is `line`.
    #[track_caller]
    pub fn expect_last_line(&self, line: &str) {
        assert!(self.status.success() && self.stdout.lines().last() == Some(line), "{self:?}");
    }
}

/// A started program whose output is read as it comes. It and its process group are killed when this is dropped.
pub struct Running {
    child: Child,
    start: Instant,
    lines: Receiver<String>,
    stdout: String,
    stderr: Option<JoinHandle<String>>,
    ended: bool,
}

impl Running {
    /// Starts a program in a process group of its own, with empty input.
    #[track_caller]
    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = channel();
        let out = child.stdout.take().expect("stdout is a pipe");
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = Vec::new();
            while out.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let mut error = child.stderr.take().expect("stderr is a pipe");
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = error.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Running { child, start, lines, stdout: String::new(), stderr: Some(stderr), ended: false }
    }

    /// The program's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for a line of output that starts with `start` and gives the whole line.
    #[track_caller]
    pub fn wait_for_line(&mut self, start: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.stdout.push_str(&line);
                    if line.starts_with(start) {
                        return line.trim_end().to_owned();
                    }
                }
                Err(reason) => {
                    let why = match reason {
                        RecvTimeoutError::Timeout => "was not printed in time",
                        RecvTimeoutError::Disconnected => "was never printed",
                    };
                    let outcome = self.kill();
                    panic!("a line that starts with '{start}' {why}: {outcome:?}");
                }
            }
        }
    }

    /// Sends a signal to the program alone.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the program is there");
    }

    /// Waits for its end; a program that runs longer than `limit` is killed and fails the test.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                self.ended = true;
                return self.outcome(status);
            }
            if Instant::now() > deadline {
                let outcome = self.kill();
                panic!("still running after {limit:?}: {outcome:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self) -> Outcome {
        // Stopped processes must go on to be able to die of anything but KILL; this is KILL.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let status = self.child.wait().expect("our own child can be waited for");
        self.ended = true;
        self.outcome(status)
    }

    fn outcome(&mut self, status: ExitStatus) -> Outcome {
        let took = self.start.elapsed();
        // A grandchild may hold the pipes open for ever; its output is not waited for that long.
        let deadline = Instant::now() + Duration::from_secs(2);
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.stdout.push_str(&line);
        }
        let stderr = self.stderr.take().and_then(|reader| {
            while !reader.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            reader.is_finished().then(|| reader.join().unwrap_or_default())
        });
        Outcome { status, stdout: std::mem::take(&mut self.stdout), stderr: stderr.unwrap_or_default(), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs a program to its end.
#[track_caller]
pub fn run(command: Command, limit: Duration) -> Outcome {
    Running::start(command).wait(limit)
}

/// Is there such a process, and has it not ended (a zombie has)?
pub fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Waits until a condition holds; fails the test with `what` when it does not within `limit`.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
