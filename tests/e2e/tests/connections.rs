//! Several data connections over TCP: the same results, and small calls beside large copies.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, Server, build, client, run};

const LIMIT: Duration = Duration::from_secs(100);
/// The variable that asks for them.
const CONNECTIONS: &str = "GPUPOOL_TCP_CONNECTIONS";

#[test]
fn copies_of_all_kinds_come_out_the_same() {
    let server = Server::start();
    for connections in ["2", "8"] {
        for case in ["big_copy", "pinned_async", "streams_events", "two_threads", "waiting_copies"] {
            let mut command = server.command(Road::Tcp, build::case("static13", case));
            command.env(CONNECTIONS, connections);
            run(command, LIMIT).expect_last_line(&format!("PASS {case}"));
        }
        assert!(
            server.log().contains(&format!("connections={connections}")),
            "the sessions had not so many:\n{}",
            server.log()
        );
    }
    let mut command = server.command(Road::Tcp, client("stress"));
    command.args(["4", "8"]).env(CONNECTIONS, "3");
    run(command, LIMIT).expect_last_line("PASS stress");
}

#[test]
fn where_memory_is_shared_there_is_one() {
    let server = Server::start();
    let mut command = server.command(Road::Shm, build::case("static13", "big_copy"));
    command.env(CONNECTIONS, "4");
    run(command, LIMIT).expect_last_line("PASS big_copy");
    assert!(server.log().contains("connections=1"), "{}", server.log());
}

#[test]
fn a_number_that_cannot_be_is_said() {
    let server = Server::start();
    for wrong in ["0", "9", "many"] {
        let mut command = server.command(Road::Tcp, client("init"));
        command.env(CONNECTIONS, wrong);
        let outcome = run(command, LIMIT);
        assert!(outcome.stderr.contains(CONNECTIONS), "{outcome:?}");
    }
}
