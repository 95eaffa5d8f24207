//! Peers that speak garbage to the server: they lose their own connection, and nobody else notices.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gpupool_e2e::{Road, Running, Server, build, clean, client, preamble, preload_interposer, run};

const LIMIT: Duration = Duration::from_secs(60);

/// First bytes that no client sends.
fn garbage(good: [u8; 8]) -> Vec<(&'static str, Vec<u8>)> {
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    vec![
        ("noise", noise.clone()),
        ("a web client", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("another version", b"GPUP\xe7\x03\x00\x00".to_vec()),
        ("a message of 4 GiB", [&good[..], &[0xff; 4], &noise].concat()),
        ("a message of zeros", [&good[..], &[0x40, 0, 0, 0], &[0; 64]].concat()),
        ("a message of noise", [&good[..], &[0x00, 0x10, 0, 0], &noise[..4096]].concat()),
        ("half a message", [&good[..], &[0x40, 0, 0, 0], &[1; 10]].concat()),
    ]
}

/// Sends bytes, ends sending, and waits until the server closes; says whether it did in time.
fn is_closed(connection: &mut (impl Read + Write), bytes: &[u8], end: impl FnOnce()) -> bool {
    let _ = connection.write_all(bytes); // the server may close while we write
    end();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut answer = [0; 4096];
    loop {
        match connection.read(&mut answer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true, // reset
        }
        if Instant::now() > deadline {
            return false;
        }
    }
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let server = Server::start();
    let mut spin = server.command(Road::Tcp, build::case("static13", "spin"));
    spin.arg("3");
    let mut spin = Running::start(spin);
    spin.wait_for_line("READY", LIMIT);
    for (what, bytes) in garbage(preamble(&server)) {
        let mut tcp = TcpStream::connect(&server.tcp).unwrap();
        tcp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let other = tcp.try_clone().unwrap();
        assert!(
            is_closed(&mut tcp, &bytes, || drop(other.shutdown(std::net::Shutdown::Write))),
            "{what} over TCP"
        );
        let mut unix = UnixStream::connect(&server.socket).unwrap();
        unix.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let other = unix.try_clone().unwrap();
        assert!(
            is_closed(&mut unix, &bytes, || drop(other.shutdown(std::net::Shutdown::Write))),
            "{what} over the socket"
        );
    }
    spin.wait(LIMIT).expect_last_line("PASS spin");
    run(server.command(Road::Shm, build::case("static13", "vector_add")), LIMIT)
        .expect_last_line("PASS vector_add");
}

/// Connections that say nothing keep nobody out, not even clients of their own address, which has fewer places than there
/// are such connections; and they do not stay for ever.
#[test]
fn silent_connections_keep_nobody_out() {
    let server = Server::start();
    // More than the places of one address, and almost as many as may wait for one.
    let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(&server.tcp).unwrap()).collect();
    for road in Road::POOL {
        run(server.command(road, build::case("static13", "vector_add")), LIMIT)
            .expect_last_line("PASS vector_add");
    }
    let mut one = &silent[0];
    one.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let end = std::iter::repeat_with(|| one.read(&mut [0; 1024]))
        .find(|read| !matches!(read, Ok(count) if *count > 0));
    let closed = match end {
        Some(Ok(_)) => true,
        Some(Err(error)) => error.kind() == std::io::ErrorKind::ConnectionReset,
        None => false,
    };
    assert!(closed, "a silent connection was still open after 30 s");
}

/// Another token than the server's: refused with one line, even for a user who would be let in without.
#[test]
fn a_wrong_token_is_refused() {
    const WRONG: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    let server = Server::start();
    for road in Road::POOL {
        let mut command = clean(client("init"));
        preload_interposer(&mut command, &server.address(road));
        command.env("GPUPOOL_TOKEN", WRONG);
        let outcome = run(command, LIMIT);
        let code = outcome.stdout.split_whitespace().nth(1).unwrap_or_default();
        assert!(["100", "802"].contains(&code), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(outcome.stderr.contains("token"), "{outcome:?}");
    }
    assert!(!server.log().contains(WRONG), "the log holds a token:\n{}", server.log());
}
