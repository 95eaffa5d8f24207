//! Each optimisation switched off by itself gives the same results. With all of them off every case is run in `cases.rs`.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::path::PathBuf;
use std::time::Duration;

use gpupool_e2e::switches::{DISABLE, names};
use gpupool_e2e::{Road, build, client, run};

const LIMIT: Duration = Duration::from_secs(100);
/// Cases in which the optimisations are at work: copies of all kinds, waiting, allocation, pinned memory, host functions.
const CASES: [&str; 6] =
    ["big_copy", "many_allocs", "pinned_async", "streams_events", "two_threads", "waiting_copies"];

fn each_off(road: Road) {
    for switch in names() {
        let passes = |program: PathBuf, arguments: &[&str], line: &str| {
            let mut command = road.command(program);
            command.args(arguments).env(DISABLE, &switch);
            let outcome = run(command, LIMIT);
            assert!(outcome.stdout.lines().last() == Some(line), "without {switch}: {outcome:?}");
        };
        for case in CASES {
            passes(build::case("static13", case), &[], &format!("PASS {case}"));
        }
        passes(client("stress"), &["2", "6"], "PASS stress");
    }
}

#[test]
fn over_shm() {
    each_off(Road::Shm);
}

#[test]
fn over_tcp() {
    each_off(Road::Tcp);
}
