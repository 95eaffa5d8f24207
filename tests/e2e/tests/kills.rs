//! Any process may be killed at any moment: the others notice, nothing hangs, and nothing is left behind.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use gpupool_e2e::{Road, Running, Server, client, is_running, within};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take to notice that its peer is gone, on a busy machine.
const NOTICED: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);
/// What a daemon may keep for itself after many sessions: its allocator's own business.
const GROWTH: u64 = 16 << 20;

/// A sequence of numbers that look random (Knuth's MMIX constants) and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What a server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    workers: usize,
    descriptors: usize,
}

fn census(server: &Server) -> Census {
    let descriptors = format!("/proc/{}/fd", server.pid().as_raw_nonzero());
    let count = std::fs::read_dir(descriptors).map_or(0, Iterator::count);
    Census { workers: server.workers().len(), descriptors: count }
}

fn resident(pid: Pid) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).expect("statm");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("resident pages");
    pages * rustix::param::page_size() as u64
}

/// A client at work; `ready`: its session is there.
fn start(server: &Server, road: Road, ready: bool) -> Running {
    let mut command = server.command(road, client("hold"));
    command.arg("60");
    let mut client = Running::start(command);
    if ready {
        client.wait_for_line("READY ", LIMIT);
    }
    client
}

/// It says that its session is gone, and ends.
fn ends(client: Running, since: Instant) {
    let outcome = client.wait(LIMIT);
    assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
    assert!(since.elapsed() < NOTICED, "noticed after {:?}: {outcome:?}", since.elapsed());
}

/// The server comes to hold what it held before.
fn settles(server: &Server, before: Census, round: u64) {
    let deadline = Instant::now() + NOTICED;
    let mut now = census(server);
    while now != before {
        let log = server.log();
        assert!(Instant::now() < deadline, "round {round}: {now:?} instead of {before:?}; the log:\n{log}");
        std::thread::sleep(Duration::from_millis(5));
        now = census(server);
    }
}

fn kill_again_and_again(times: u64) {
    let mut server = Server::start();
    // What a first session leaves for good is no leak.
    drop(start(&server, Road::Shm, true));
    let mut random = Random(7);
    let settled = |server: &Server| {
        let (mut last, mut since) = (census(server), Instant::now());
        within(LIMIT, "one warm worker waits, and nothing changes", || {
            let now = census(server);
            if now != last || now.workers != 1 {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(500)
        });
        last
    };
    let mut before = (settled(&server), resident(server.pid()));
    for round in 0..times {
        let road = Road::POOL[random.below(2) as usize];
        let pause = Duration::from_micros(random.below(30_000));
        match random.below(10) {
            0 => {
                let client = start(&server, road, true);
                std::thread::sleep(pause);
                let workers = server.workers();
                kill_process(server.pid(), Signal::KILL).expect("the daemon is there");
                ends(client, Instant::now());
                within(NOTICED, "the daemon's workers ended", || !workers.iter().any(|w| is_running(*w)));
                server = Server::start();
                drop(start(&server, Road::Shm, true));
                before = (settled(&server), resident(server.pid()));
            }
            1..=4 => {
                let client = start(&server, road, true);
                std::thread::sleep(pause);
                for worker in server.workers() {
                    // One that waits may have ended by itself.
                    let _ = kill_process(worker, Signal::KILL);
                }
                ends(client, Instant::now());
            }
            _ => {
                // Anywhere between its start and its work.
                let client = start(&server, road, random.below(2) == 0);
                std::thread::sleep(pause);
                client.signal(Signal::KILL);
                drop(client);
            }
        }
        if round % 8 == 7 || round + 1 == times {
            settles(&server, before.0, round);
        }
    }
    let grown = resident(server.pid()).saturating_sub(before.1);
    assert!(grown < GROWTH, "the daemon has grown by {grown} bytes");
}

#[test]
fn kills_at_random_points_leave_nothing() {
    kill_again_and_again(16);
}

#[test]
#[ignore = "some minutes: scripts/test --run-ignored=only kills"]
fn five_hundred_kills_leave_nothing() {
    kill_again_and_again(500);
}
