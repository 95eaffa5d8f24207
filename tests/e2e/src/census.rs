//! What a server holds, for tests that look for leaks.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::server::Server;

/// Processes and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Workers, those that wait for a session included.
    pub workers: usize,
    /// Open files of the daemon.
    pub descriptors: usize,
}

impl Census {
    /// What it is now.
    pub fn of(server: &Server) -> Census {
        let descriptors = format!("/proc/{}/fd", server.pid().as_raw_nonzero());
        let count = std::fs::read_dir(descriptors).map_or(0, Iterator::count);
        Census { workers: server.workers().len(), descriptors: count }
    }

    /// The server comes to hold this again, or less where something of an earlier session had not gone yet: gives what it holds then.
    /// The test fails, with the server's log, when it goes on to hold more.
    #[track_caller]
    pub fn returns(self, server: &Server, limit: Duration, when: &str) -> Census {
        let deadline = Instant::now() + limit;
        loop {
            let now = Census::of(server);
            if now.workers == self.workers && now.descriptors <= self.descriptors {
                return now;
            }
            let log = server.log();
            assert!(Instant::now() < deadline, "{when}: {now:?} instead of {self:?}; the log:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Bytes that a process has in memory.
pub fn resident(pid: Pid) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).expect("statm");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("resident pages");
    pages * rustix::param::page_size() as u64
}
