//! Eight threads do everything at once (`tests/e2e/clients/stress.cpp`), each beside a model of what memory must hold and
//! which calls must fail with which code. A failure names its seed; `target/cases/clients/stress SECONDS SEED` under
//! `pool-run` does the same again.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, client, run};

/// What a run may take beyond its own time: the last waits, and the look at everything.
const BEYOND: Duration = Duration::from_secs(100);

fn stress(road: Road, seconds: u64, seed: u64) {
    let mut command = road.command(client("stress"));
    command.args([seconds.to_string(), seed.to_string()]);
    let outcome = run(command, Duration::from_secs(seconds) + BEYOND);
    outcome.expect_last_line("PASS stress");
    let steps = outcome.stdout.lines().find_map(|line| line.strip_prefix("STEPS ")?.parse().ok());
    // Far below what the slowest machine does: a run in which threads stand still shows nothing.
    assert!(steps.is_some_and(|steps: u64| steps > 20 * seconds), "{outcome:?}");
}

/// The model itself: a driver without a pool must agree with it.
#[test]
fn natively() {
    stress(Road::Native, 5, 1);
}

#[test]
fn over_shm() {
    stress(Road::Shm, 20, 2);
}

#[test]
fn over_tcp() {
    stress(Road::Tcp, 20, 3);
}

#[test]
#[ignore = "ten minutes: cargo test --release -p gpupool-e2e --test stress -- --ignored"]
fn ten_minutes_over_shm() {
    stress(Road::Shm, 600, 4);
}

#[test]
#[ignore = "ten minutes: cargo test --release -p gpupool-e2e --test stress -- --ignored"]
fn ten_minutes_over_tcp() {
    stress(Road::Tcp, 600, 5);
}
