//! Sessions end when their client does, a lost server is an error and no hang, and nobody notices a neighbour's misfortune.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use gpupool_e2e::{Outcome, Road, Running, Server, build, client, is_running, run, within};
use rustix::process::{Pid, Signal};

const LIMIT: Duration = Duration::from_secs(60);

gpupool_e2e::on_both_transports! {
    a_killed_clients_worker_goes
    a_client_that_exits_leaves_no_worker
    a_killed_worker_is_an_error
    a_stopped_server_is_an_error
    a_killed_server_is_an_error
    a_stopped_client_goes_on
    two_clients_are_isolated
    a_neighbours_fault_is_not_noticed
    a_server_that_is_told_to_stop_stops
}

/// A client that holds memory and reads from it until something fails.
fn hold(server: &Server, road: Road) -> (Running, String) {
    let mut command = server.command(road, client("hold"));
    command.arg("40");
    let mut client = Running::start(command);
    let line = client.wait_for_line("READY ", LIMIT);
    (client, line.trim_start_matches("READY ").to_owned())
}

/// One of these workers is the client's; the others wait for a session.
fn one_goes(workers: &[Pid], limit: Duration) {
    assert!(!workers.is_empty(), "a client without a worker");
    within(limit, "the client's worker ended", || workers.iter().any(|worker| !is_running(*worker)));
}

fn a_killed_clients_worker_goes(road: Road) {
    let server = Server::start();
    let (client, _) = hold(&server, road);
    let workers = server.workers();
    client.signal(Signal::KILL);
    one_goes(&workers, Duration::from_secs(1));
    run(server.command(road, build::case("static13", "vector_add")), LIMIT)
        .expect_last_line("PASS vector_add");
}

fn a_client_that_exits_leaves_no_worker(road: Road) {
    let server = Server::start();
    let mut command = server.command(road, client("hold"));
    command.arg("1");
    let mut client = Running::start(command);
    client.wait_for_line("READY ", LIMIT);
    let workers = server.workers();
    client.wait(LIMIT).expect_last_line("PASS hold");
    one_goes(&workers, Duration::from_secs(1));
}

/// The client ended with a CUDA error, the same for the next call too, within `limit` of `since`.
fn expect_error(server: &Server, client: Running, since: Instant, limit: Duration) -> Outcome {
    let outcome = client.wait(LIMIT);
    let took = since.elapsed();
    assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
    let code = |start: &str| {
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("no line {start}: {outcome:?}")).to_owned()
    };
    assert_eq!(code("ERROR "), code("THEN "), "not the same error for ever: {outcome:?}");
    assert!(took <= limit, "the error came after {took:?}: {outcome:?}");
    // Unasked, once, and with the place.
    let lines: Vec<_> = outcome.stderr.lines().filter(|line| line.starts_with("gpupool: ")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("is broken") && (line.contains(&server.tcp) || line.contains(&server.socket))),
        "{outcome:?}"
    );
    outcome
}

fn a_killed_worker_is_an_error(road: Road) {
    let server = Server::start();
    let (client, _) = hold(&server, road);
    for worker in server.workers() {
        let _ = rustix::process::kill_process(worker, Signal::KILL);
    }
    expect_error(&server, client, Instant::now(), Duration::from_secs(2));
    // The daemon goes on.
    run(server.command(road, build::case("static13", "vector_add")), LIMIT)
        .expect_last_line("PASS vector_add");
}

/// Two seconds, and what a busy machine may add.
fn a_stopped_server_is_an_error(road: Road) {
    let server = Server::start();
    let (client, _) = hold(&server, road);
    server.signal_all(Signal::STOP);
    expect_error(&server, client, Instant::now(), Duration::from_millis(2300));
}

fn a_killed_server_is_an_error(road: Road) {
    let server = Server::start();
    let (client, _) = hold(&server, road);
    server.signal_all(Signal::KILL);
    expect_error(&server, client, Instant::now(), Duration::from_secs(2));
}

fn a_stopped_client_goes_on(road: Road) {
    let server = Server::start();
    let mut command = server.command(road, build::case("static13", "spin"));
    command.arg("2");
    let mut client = Running::start(command);
    client.wait_for_line("READY", LIMIT);
    client.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(10));
    client.signal(Signal::CONT);
    client.wait(LIMIT).expect_last_line("PASS spin");
}

fn two_clients_are_isolated(road: Road) {
    let server = Server::start();
    let (one, address) = hold(&server, road);
    let mut peek = server.command(road, client("peek"));
    peek.arg(&address);
    let outcome = run(peek, LIMIT);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.starts_with("peek ") && outcome.stdout.ends_with(" seen 0\n"), "{outcome:?}");
    // Both at work at once.
    let mut spin = server.command(road, build::case("static13", "spin"));
    spin.arg("1");
    let spin = Running::start(spin);
    run(server.command(road, build::case("static13", "matmul_shared")), LIMIT)
        .expect_last_line("PASS matmul_shared");
    spin.wait(LIMIT).expect_last_line("PASS spin");
    assert!(is_running(one.pid()), "the first client ended");
}

fn a_neighbours_fault_is_not_noticed(road: Road) {
    let server = Server::start();
    let mut spin = server.command(road, build::case("static13", "spin"));
    spin.arg("3");
    let mut spin = Running::start(spin);
    spin.wait_for_line("READY", LIMIT);
    run(server.command(road, build::case("static13", "sticky_fault")), LIMIT)
        .expect_last_line("PASS sticky_fault");
    spin.wait(LIMIT).expect_last_line("PASS spin");
}

fn a_server_that_is_told_to_stop_stops(road: Road) {
    let mut server = Server::start();
    let (client, _) = hold(&server, road);
    assert!(server.stop(Duration::from_secs(3)), "still there; its log:\n{}", server.log());
    expect_error(&server, client, Instant::now(), Duration::from_secs(2));
    assert!(!std::path::Path::new(&server.socket).exists(), "the socket was left behind");
}
