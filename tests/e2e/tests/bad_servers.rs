//! Servers that are not there, or are none: `cuInit` fails within the connect time-out, with one line that says what to do.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use gpupool_e2e::{Outcome, build, clean, client, preload_interposer, run};

/// CUDA_ERROR_NO_DEVICE and CUDA_ERROR_SYSTEM_NOT_READY.
const REFUSALS: [&str; 2] = ["100", "802"];
/// The default connect time-out, and what a busy machine may add.
const TIME_OUT: Duration = Duration::from_millis(3000);
const SLACK: Duration = Duration::from_millis(700);

/// Runs `init` against a server; returns the outcome and what `cuInit` took.
fn init(server: &str, time_out_ms: Option<&str>) -> (Outcome, Duration) {
    let mut command = clean(client("init"));
    preload_interposer(&mut command, server);
    if let Some(time_out) = time_out_ms {
        command.env("GPUPOOL_CONNECT_TIMEOUT_MS", time_out);
    }
    let outcome = run(command, Duration::from_secs(30));
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    assert!(words.len() == 5 && words[0] == "cuInit", "{outcome:?}");
    assert!(REFUSALS.contains(&words[1]), "cuInit gave {}: {outcome:?}", words[1]);
    assert_ne!(words[4], "0", "cuDeviceGetCount succeeded without a device: {outcome:?}");
    let took = Duration::from_millis(words[2].parse().unwrap());
    (outcome, took)
}

/// `cuInit` fails in time and says so in one line that names gpupool and the server.
#[track_caller]
fn refuses(server: &str) {
    let (outcome, took) = init(server, None);
    assert!(took <= TIME_OUT + SLACK, "cuInit took {took:?}");
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "not one line: {outcome:?}");
    assert!(lines[0].contains("gpupool") && lines[0].contains(server), "{outcome:?}");
}

/// A server on the loopback: `speak` is given each connection.
fn serve(speak: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || speak(connection.unwrap()));
        }
    });
    address
}

/// Reads until the peer goes.
fn listen_only(mut connection: TcpStream) {
    let _ = connection.read_to_end(&mut Vec::new());
}

/// CUDA's runtime asks for the driver's version before it calls `cuInit`, and both wait for the server.
#[test]
fn a_program_of_the_runtime_waits_once_for_a_server_that_says_nothing() {
    let mut command = clean(build::case("static13", "vector_add"));
    preload_interposer(&mut command, &serve(listen_only));
    command.env("GPUPOOL_CONNECT_TIMEOUT_MS", "1000");
    let outcome = run(command, Duration::from_secs(30));
    assert!(!outcome.status.success(), "{outcome:?}");
    assert!(outcome.took <= Duration::from_millis(1000) + SLACK, "it took {:?}", outcome.took);
}

/// The first bytes of a connection, which are the same in both directions.
fn preamble(client: &mut TcpStream) -> [u8; 8] {
    let mut first = [0; 8];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first[..4], b"GPUP");
    first
}

#[test]
fn no_server_configured() {
    let mut command = clean(client("init"));
    preload_interposer(&mut command, "");
    command.env_remove("GPUPOOL_SERVER");
    let outcome = run(command, Duration::from_secs(30));
    let code = outcome.stdout.split_whitespace().nth(1).unwrap_or_default().to_owned();
    assert!(REFUSALS.contains(&code.as_str()), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("GPUPOOL_SERVER"), "does not say what to do: {outcome:?}");
}

#[test]
fn a_port_where_nobody_listens() {
    // Bound once to get a free number, and closed again.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    refuses(&address);
}

#[test]
fn a_socket_that_does_not_exist() {
    refuses("unix:/nonexistent/gpupool.sock");
}

#[test]
fn a_socket_that_is_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    refuses(&format!("unix:{}", file.path().display()));
}

#[test]
fn an_address_that_is_none() {
    refuses("not-an-address");
}

#[test]
fn a_server_of_another_version() {
    refuses(&serve(|mut connection| {
        let _ = connection.write_all(b"GPUP\xe7\x03\x00\x00");
        listen_only(connection);
    }));
}

#[test]
fn a_server_that_speaks_garbage() {
    refuses(&serve(|mut connection| {
        let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let _ = connection.write_all(&garbage);
        listen_only(connection);
    }));
}

#[test]
fn a_server_that_begins_well_and_goes_on_with_garbage() {
    refuses(&serve(|mut connection| {
        let good = preamble(&mut connection);
        let _ = connection.write_all(&[&good[..], b"\xff\xff\xff\xff garbage"].concat());
        listen_only(connection);
    }));
}

#[test]
fn a_web_server() {
    refuses(&serve(|mut connection| {
        let _ = connection.read(&mut [0; 64]);
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    }));
}

#[test]
fn a_server_that_closes_at_once() {
    refuses(&serve(drop));
}

#[test]
fn a_server_that_accepts_and_stays_silent() {
    refuses(&serve(listen_only));
}

#[test]
fn a_server_that_never_accepts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    refuses(&listener.local_addr().unwrap().to_string());
    drop(listener);
}

#[test]
fn the_time_out_can_be_set() {
    let (_, took) = init(&serve(listen_only), Some("200"));
    assert!(took <= Duration::from_millis(200) + SLACK, "cuInit took {took:?}");
}

/// The runtime asks for the version before it initialises: both attempts together, and the program learns of it.
#[test]
fn a_program_with_cudart_fails_too_and_does_not_hang() {
    let mut command = clean(build::case("static13", "vector_add"));
    preload_interposer(&mut command, &serve(listen_only));
    let outcome = run(command, Duration::from_secs(30));
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stdout.starts_with("FAIL"), "{outcome:?}");
    assert!(outcome.took <= 2 * TIME_OUT + 2 * SLACK, "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
}

/// A server that stays silent after one byte must not get a new time-out a byte.
#[test]
fn a_server_that_drips() {
    refuses(&serve(|mut connection| {
        for byte in
            preamble(&mut connection).iter().chain(&[0x40, 0, 0, 0]).chain(std::iter::repeat_n(&0, 60))
        {
            if connection.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }));
}
