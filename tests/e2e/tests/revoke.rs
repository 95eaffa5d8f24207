//! Memory that one client has freed is another's to allocate, whatever the first one is doing.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::switches::DISABLE;
use gpupool_e2e::{Road, Running, Server, client, run};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(60);
/// The device's memory.
const MEMORY: (&str, &str) = ("SOFTCUDA_MEMORY", "1024M");
/// What an allocation may take that finds no memory: the wait for clients that do not answer (300 ms), and what a busy machine
/// adds.
const SOON_MS: u32 = 1500;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;

fn start(server: &Server, road: Road, steps: &str) -> Running {
    let mut command = server.command(road, client("credit"));
    command.args(steps.split(' '));
    Running::start(command)
}

/// Starts a client that comes to its `wait` in the end.
fn waiting(server: &Server, road: Road, steps: &str) -> Running {
    let mut client = start(server, road, steps);
    client.wait_for_line("WAIT", LIMIT);
    client
}

/// Code and milliseconds of the next allocation.
fn allocation(client: &mut Running) -> (u32, u32) {
    let line = client.wait_for_line("ALLOC ", LIMIT);
    let numbers: Vec<u32> = line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[1])
}

fn passes(client: Running) {
    client.wait(LIMIT).expect_last_line("PASS credit");
}

fn gets_all_that_is_freed(road: Road) {
    // All of it in one piece, in small ones, and with work before it that nobody has waited for.
    for steps in [
        "alloc 900 free wait work",
        "alloc 100 alloc 5 alloc 3 free wait work",
        "alloc 100 alloc 20 dirty free wait work",
    ] {
        let server = Server::with(&[MEMORY]);
        let idle = waiting(&server, road, steps);
        // The program that does nothing at all holds its session; another one finds the device as empty as natively.
        let mut other = start(&server, road, "work alloc 960 free work");
        assert_eq!(allocation(&mut other).0, 0, "{steps}");
        passes(other);
        idle.signal(Signal::USR1);
        passes(idle);
    }
}

fn what_kernels_still_use_stays(road: Road) {
    let server = Server::with(&[MEMORY]);
    // The host function holds up the memset, which is posted before the memory is freed.
    let busy = waiting(&server, road, "alloc 100 block 1 dirty free wait work");
    let mut other = start(&server, road, "alloc 960 until 960");
    let (code, took) = allocation(&mut other);
    assert_eq!(code, OUT_OF_MEMORY);
    assert!(took < SOON_MS, "{took} ms");
    busy.signal(Signal::USR1);
    other.wait_for_line("GOT", LIMIT);
    passes(other);
    passes(busy);
}

fn a_stopped_client_costs_its_neighbours_no_more_than_a_moment(road: Road) {
    let server = Server::with(&[MEMORY]);
    let stopped = waiting(&server, road, "alloc 100 free wait work");
    stopped.signal(Signal::STOP);
    let mut other = start(&server, road, "alloc 960 alloc 960 alloc 960 alloc 960 until 960 free");
    let tries: Vec<_> = (0..4).map(|_| allocation(&mut other)).collect();
    assert!(tries.iter().all(|(code, took)| *code == OUT_OF_MEMORY && *took < SOON_MS), "{tries:?}");
    // Only the first one waits for the answer.
    assert!(tries[1..].iter().map(|(_, took)| took).sum::<u32>() < 300, "{tries:?}");
    stopped.signal(Signal::CONT);
    other.wait_for_line("GOT", LIMIT);
    passes(other);
    stopped.signal(Signal::USR1);
    passes(stopped);
}

fn many_take_it_from_many(road: Road) {
    let server = Server::with(&[MEMORY]);
    let idle: Vec<_> =
        (0..4).map(|_| waiting(&server, road, "alloc 60 alloc 1 dirty free wait work free")).collect();
    let others: Vec<_> = (0..3).map(|_| start(&server, road, "until 300 work free")).collect();
    others.into_iter().for_each(passes);
    idle.iter().for_each(|client| client.signal(Signal::USR1));
    idle.into_iter().for_each(passes);
}

/// What the others rely on, seen from the other side: one that does not take part keeps what it has freed, and costs them nothing
/// but that.
fn without_the_switch_it_is_kept(road: Road) {
    let server = Server::with(&[MEMORY]);
    let mut command = server.command(road, client("credit"));
    command.args("alloc 100 free wait work".split(' ')).env(DISABLE, "revoke");
    let mut keeper = Running::start(command);
    keeper.wait_for_line("WAIT", LIMIT);
    let mut other = start(&server, road, "alloc 960 alloc 860");
    let (code, took) = allocation(&mut other);
    assert!(code == OUT_OF_MEMORY && took < 300, "{code} after {took} ms");
    assert_eq!(allocation(&mut other).0, 0);
    passes(other);
    keeper.signal(Signal::USR1);
    passes(keeper);
}

/// What is free is at least what can be had at once, and all of the device's once the others have given theirs back.
fn free_memory_is_told_truly(road: Road) {
    let server = Server::with(&[MEMORY]);
    let idle = waiting(&server, road, "alloc 100 free wait work");
    let outcome = run(
        {
            let mut command = server.command(road, client("credit"));
            command.args("info alloc 960 info free info".split(' '));
            command
        },
        LIMIT,
    );
    let info: Vec<u32> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("INFO ")?.split_once(' ')?.0.parse().ok())
        .collect();
    let [before, full, after] = info[..] else { panic!("{outcome:?}") };
    // At most an eighth of what was left is held by the first client.
    assert!((800..=1024).contains(&before) && full <= 64 && after >= 1000, "{info:?}: {outcome:?}");
    idle.signal(Signal::USR1);
    passes(idle);
}

gpupool_e2e::on_both_transports! {
    gets_all_that_is_freed
    what_kernels_still_use_stays
    a_stopped_client_costs_its_neighbours_no_more_than_a_moment
    many_take_it_from_many
    without_the_switch_it_is_kept
    free_memory_is_told_truly
}
