//! Any process may be killed at any moment: the others notice, nothing hangs, and nothing is left behind.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use gpupool_e2e::{Census, Random, Road, Running, Server, client, is_running, resident, within};
use rustix::process::{Signal, kill_process};

/// How long anything may take to notice that its peer is gone, on a busy machine.
const NOTICED: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);
/// What a daemon may keep for itself after many sessions: its allocator's own business.
const GROWTH: u64 = 16 << 20;

/// What clients are at when something is killed, as `hold` calls it.
const WORK: [&str; 4] = ["small", "bulk", "host", "wait"];

/// A client at work; `ready`: its session is there.
fn start(server: &Server, road: Road, work: &str, ready: bool) -> Running {
    let mut command = server.command(road, client("hold"));
    // How fast a session is set up is not the question here.
    command.args(["60", work]).env("GPUPOOL_CONNECT_TIMEOUT_MS", "30000");
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

/// Either side stands still for up to three seconds. A server that stands for so long is given up by its client, or is not.
fn stop_for_a_while(server: &Server, client: &Running, random: &mut Random) {
    let stopped = if random.below(2) == 0 { vec![client.pid()] } else { server.workers() };
    let signal = |signal| {
        for pid in &stopped {
            // A worker that waits for a session may have ended.
            let _ = kill_process(*pid, signal);
        }
    };
    signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(random.below(3000)));
    signal(Signal::CONT);
}

fn kill_again_and_again(times: u64) {
    let mut server = Server::start();
    // What a first session leaves for good is no leak.
    drop(start(&server, Road::Shm, WORK[0], true));
    let mut random = Random(7);
    let settled = |server: &Server| {
        let (mut last, mut since) = (Census::of(server), Instant::now());
        within(LIMIT, "one warm worker waits, and nothing changes", || {
            let now = Census::of(server);
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
        let work = WORK[random.below(WORK.len() as u64) as usize];
        let pause = Duration::from_micros(random.below(30_000));
        match random.below(10) {
            0 => {
                let client = start(&server, road, work, true);
                std::thread::sleep(pause);
                let workers = server.workers();
                kill_process(server.pid(), Signal::KILL).expect("the daemon is there");
                ends(client, Instant::now());
                within(NOTICED, "the daemon's workers ended", || !workers.iter().any(|w| is_running(*w)));
                server = Server::start();
                drop(start(&server, Road::Shm, WORK[0], true));
                before = (settled(&server), resident(server.pid()));
            }
            1..=4 => {
                let client = start(&server, road, work, true);
                std::thread::sleep(pause);
                if random.below(8) == 0 {
                    stop_for_a_while(&server, &client, &mut random);
                }
                let workers = server.workers();
                for worker in &workers {
                    // One that waits may have ended by itself.
                    let _ = kill_process(*worker, Signal::KILL);
                }
                ends(client, Instant::now());
                // On a busy machine dying takes a while, and until then one that waits may still be given to the next client.
                within(NOTICED, "the killed workers ended", || !workers.iter().any(|w| is_running(*w)));
            }
            _ => {
                // Anywhere between its start and its work.
                let client = start(&server, road, work, random.below(2) == 0);
                std::thread::sleep(pause);
                client.signal(Signal::KILL);
                drop(client);
            }
        }
        if round % 8 == 7 || round + 1 == times {
            before.0 = before.0.returns(&server, NOTICED, &format!("after round {round}"));
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
