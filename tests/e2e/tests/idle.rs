//! A session in which nothing happens costs no processor time, on either side.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, Running, Server, client};
use rustix::process::Pid;

const LIMIT: Duration = Duration::from_secs(60);
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(10);
/// What a daemon may use in that time to look after its warm workers.
const DAEMON: Duration = Duration::from_millis(20);

/// Time that the threads of a process have run, by the first number of each one's schedstat.
fn run_time(pid: Pid) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("threads");
    let nanoseconds = tasks.flatten().map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn idle_costs_nothing(road: Road) {
    let server = Server::start();
    // It works, and then holds its session for a while.
    let mut command = server.command(road, client("sleep"));
    command.arg((IDLE + LIMIT).as_secs().to_string());
    let mut client = Running::start(command);
    client.wait_for_line("READY", LIMIT);
    // What has been started settles: a warm worker takes the place of this session's, threads look for work and go to sleep.
    std::thread::sleep(Duration::from_secs(2));
    let workers = server.workers();
    let processes: Vec<Pid> = workers.iter().copied().chain([client.pid()]).collect();
    let before: Vec<Duration> = processes.iter().map(|pid| run_time(*pid)).collect();
    let daemon = run_time(server.pid());
    assert!(before.iter().all(|time| !time.is_zero()), "no run time is counted here");
    std::thread::sleep(IDLE);
    for (pid, before) in processes.iter().zip(before) {
        let used = run_time(*pid).saturating_sub(before);
        assert!(
            used.is_zero(),
            "{pid:?} (the client is {:?}) ran for {used:?} while nothing happened",
            client.pid()
        );
    }
    let used = run_time(server.pid()).saturating_sub(daemon);
    assert!(used < DAEMON, "the daemon ran for {used:?} while nothing happened");
}

#[test]
fn over_shm() {
    idle_costs_nothing(Road::Shm);
}

#[test]
fn over_tcp() {
    idle_costs_nothing(Road::Tcp);
}
