//! A second process, running a part of the same test, that is talked to by lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const MARK: &str = "SOFTCUDA_TEST_PEER";

/// What the other process is, where `in_peer` is true.
pub struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Whether this is the second process.
pub fn in_peer() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In the second process: says something to the first.
#[allow(clippy::print_stdout, reason = "so it tells the process that started it")]
pub fn tell(line: &str) {
    println!("\n@{line}");
}

/// In the second process: what the first said.
pub fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

impl Peer {
    /// Starts the test `name` of this file as the second process.
    pub fn start(name: &str, variables: &[(&str, &str)]) -> Peer {
        let me = std::env::current_exe().expect("a path");
        let mut command = Command::new(me);
        command.args([name, "--exact", "--nocapture"]).env(MARK, "1").envs(variables.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the process starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Peer { child, lines }
    }

    /// Waits for the next line that the other process tells, which must be this.
    pub fn expect(&mut self, wanted: &str) {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.lines.read_line(&mut line).expect("text"),
                0,
                "it ended before it said {wanted:?}"
            );
            if let Some(told) = line.trim().strip_prefix('@') {
                return assert_eq!(told, wanted);
            }
        }
    }

    /// Says something to the other process.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
    }

    /// Kills it, and waits until it is dead.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits for its end, which must be a good one.
    pub fn end(mut self) {
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; it may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
