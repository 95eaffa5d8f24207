//! The daemon with real processes and sockets, and a stand-in for what a worker does with a driver: the test program
//! starts itself again as worker, or as daemon, by the variable `POOL_TEST_ROLE`.
//!
//! What the stand-in does is chosen by the name of its "driver" and by the first byte on the data connection.

#[path = "daemon/connections.rs"]
mod connections;
#[path = "daemon/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gpupool_protocol::config::{ClientConfig, TransportChoice};
use gpupool_protocol::control::*;
use harness::*;

/// How long a worker may outlive its client: a second, and another one for a machine that is busy with other tests.
const DEATH: Duration = Duration::from_secs(2);

/// Not a test: what the processes that the tests start run. Returns at once in the test run itself.
#[test]
fn role() {
    harness::play_role();
}

#[test]
fn a_session_over_each_transport_reaches_its_own_worker() {
    let server = Server::start(|_| {});
    for (client, transport) in [
        (server.unix(), Transport::Shm),
        (server.tcp(), Transport::Shm),
        (ClientConfig { transport: TransportChoice::Tcp, ..server.tcp() }, Transport::Tcp),
    ] {
        let mut session = Session::open(&client).unwrap();
        assert_eq!(session.path.transport, transport);
        assert_eq!(session.opened.snapshot.devices[0].name, "stand-in");
        assert!(session.opened.snapshot.answers(3) && !session.opened.snapshot.answers(4));
        assert_eq!(session.ask(b'?'), transport as u8);
        assert!(alive(session.worker_pid()));
    }
}

#[test]
fn two_sessions_have_two_workers_and_one_death_is_one_sessions() {
    let server = Server::start(|_| {});
    let mut first = Session::open(&server.unix()).unwrap();
    let mut second = Session::open(&server.tcp()).unwrap();
    assert_ne!(first.worker_pid(), second.worker_pid());
    assert_ne!(first.opened.session, second.opened.session);

    first.say(b'A');
    let Event::Closed { reason } = first.event().unwrap() else { panic!() };
    assert!(reason.contains("SIGABRT"), "{reason}");
    assert_eq!(first.event().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);

    second.control.send_ping(1).unwrap();
    assert_eq!(second.event().unwrap(), Event::Pong { n: 1 });
    assert_eq!(second.ask(b'?'), second.path.transport as u8);
}

#[test]
fn a_session_that_fails_says_why() {
    let server = Server::start(|_| {});
    let mut session = Session::open(&server.unix()).unwrap();
    session.say(b'E');
    assert_eq!(session.event().unwrap(), Event::Closed { reason: "told to fail: by the test".into() });
    let mut session = Session::open(&server.unix()).unwrap();
    session.say(b'X');
    let Event::Closed { reason } = session.event().unwrap() else { panic!() };
    assert_eq!(reason, "the worker ended with status 7");
}

#[test]
fn a_closed_data_connection_ends_the_session_in_peace() {
    let server = Server::start(|_| {});
    let Session { mut control, path, .. } = Session::open(&server.unix()).unwrap();
    drop(path);
    let event = wait_event(&mut control, Duration::from_secs(5)).unwrap();
    assert_eq!(event, Event::Closed { reason: "the data connection was closed".into() });
}

#[test]
fn a_client_that_goes_takes_its_worker_and_what_that_started_along() {
    let server = Server::start(|_| {});
    for client in [server.unix(), server.tcp()] {
        let mut session = Session::open(&client).unwrap();
        let worker = session.worker_pid();
        let child = session.ask_pid(b'C');
        assert!(alive(worker) && alive(child));
        drop(session);
        wait_until("the worker is gone and collected", DEATH, || !exists(worker));
        wait_until("its child is gone", DEATH, || !alive(child));
    }
}

#[test]
fn a_busy_or_frozen_worker_ends_with_its_client_too() {
    let server = Server::start(|_| {});
    for frozen in [false, true] {
        let mut session = Session::open(&server.unix()).unwrap();
        let worker = session.worker_pid();
        session.say(b'L'); // Loops for ever on the main thread.
        if frozen {
            freeze(worker);
        }
        drop(session);
        wait_until("the worker is gone", DEATH, || !alive(worker));
    }
}

#[test]
fn a_long_call_is_not_death_but_a_frozen_worker_is() {
    let server = Server::start(|_| {});
    let mut session = Session::open(&server.unix()).unwrap();
    let worker = session.worker_pid();
    session.say(b'L');
    session.control.send_ping(7).unwrap();
    assert_eq!(session.event().unwrap(), Event::Pong { n: 7 });

    freeze(worker);
    // Far more pings than any queue holds: the daemon must neither answer for the worker nor wait for it.
    for n in 0..200 {
        session.control.send_ping(n).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(session.control.receive().unwrap(), None, "a frozen worker answers nothing");
    let mut other = Session::open(&server.unix()).unwrap();
    other.control.send_ping(8).unwrap();
    assert_eq!(other.event().unwrap(), Event::Pong { n: 8 });

    kill(worker, libc::SIGCONT);
    assert!(matches!(session.event().unwrap(), Event::Pong { .. }), "back again");
}

#[test]
fn a_stopped_client_keeps_its_session() {
    let server = Server::start(|_| {});
    for address in [server.unix(), server.tcp()] {
        let mut client = Client::start(&address);
        let worker = client.line().parse().unwrap();
        freeze(client.pid());
        // Longer than every time-out that a live peer's silence could trip.
        std::thread::sleep(Duration::from_millis(4500));
        assert!(alive(worker));
        kill(client.pid(), libc::SIGCONT);
        client.say("ask");
        assert_eq!(client.line(), "answered");
        kill(client.pid(), libc::SIGKILL);
        wait_until("the worker is gone", DEATH, || !alive(worker));
    }
}

#[test]
fn a_client_that_is_stopped_in_the_middle_of_its_data_loses_nothing() {
    let server = Server::start(|_| {});
    for transport in [TransportChoice::Tcp, TransportChoice::Shm] {
        let mut session = Session::open(&ClientConfig { transport, ..server.tcp() }).unwrap();
        session.say(b'B');
        // Not reading is what a stopped process looks like from outside: its window closes.
        std::thread::sleep(Duration::from_millis(4500));
        assert!(session.read_bulk().iter().all(|b| *b == 0xB5));
        assert_eq!(session.ask(b'?'), session.path.transport as u8);
    }
}

#[test]
fn sessions_leave_no_descriptor_behind() {
    let daemon = DaemonProcess::start(&[]);
    let count = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let round = || {
        Session::open(&daemon.unix()).unwrap().worker_pid();
        Session::open(&daemon.tcp()).unwrap().worker_pid();
        TcpStream::connect(daemon.address()).unwrap().write_all(b"garbage!").unwrap();
    };
    round();
    wait_until("the first sessions are gone", Duration::from_secs(8), || daemon.left_behind() == 1);
    let before = count();
    for _ in 0..10 {
        round();
    }
    wait_until("as many as before are open", Duration::from_secs(8), || {
        count() <= before && daemon.left_behind() == 1
    });
}

#[test]
fn workers_see_neither_the_clients_variables_nor_what_would_change_their_libraries() {
    let daemon = DaemonProcess::start(&[
        // The loader says that it does not find it, and goes on.
        ("LD_PRELOAD", "/nonexistent/libcuda.so.1"),
        ("LD_LIBRARY_PATH", "/nonexistent"),
        ("LD_AUDIT", ""),
        ("GPUPOOL_SERVER", "unix:/nonexistent"),
        ("NOTIFY_SOCKET", ""),
        ("STAYS", "here"),
    ]);
    let mut session = Session::open(&daemon.unix()).unwrap();
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", session.worker_pid())).unwrap();
    assert!(environment.contains("STAYS=here"));
    for gone in ["LD_LIBRARY_PATH", "LD_AUDIT", "LD_PRELOAD", "GPUPOOL_", "NOTIFY_SOCKET"] {
        assert!(!environment.split('\0').any(|v| v.starts_with(gone)), "{gone}");
    }
    let tie = std::fs::read_link(format!("/proc/{}/fd/0", session.worker_pid())).unwrap();
    assert_eq!(tie.to_str(), Some("/dev/null"));
}

#[test]
fn a_daemon_that_is_told_to_stop_ends_its_sessions_and_cleans_up() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut daemon = DaemonProcess::start(&[]);
        let mut session = Session::open(&daemon.unix()).unwrap();
        let worker = session.worker_pid();
        let address = daemon.address();
        kill(daemon.pid(), signal);
        assert_eq!(session.event().unwrap(), Event::Closed { reason: "the server is shutting down".into() });
        assert_eq!(daemon.wait(), Some(0));
        assert!(!daemon.socket.exists());
        assert!(!alive(worker));
        assert!(TcpStream::connect(address).is_err());
        assert_eq!(daemon.left_behind(), 0, "warm workers are gone as well");
    }
}

#[test]
fn systemd_is_told() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify").to_str().unwrap().to_string();
    let name = format!("gpupool-test-{}", std::process::id());
    let by_path = UnixDatagram::bind(&path).unwrap();
    let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    for (socket, address) in [(by_path, path), (by_name, format!("@{name}"))] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut daemon = DaemonProcess::start(&[("NOTIFY_SOCKET", &address)]);
        let mut received = [0; 64];
        let length = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..length], b"READY=1");
        kill(daemon.pid(), libc::SIGTERM);
        let length = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..length], b"STOPPING=1");
        assert_eq!(daemon.wait(), Some(0));
    }
}

#[test]
fn a_daemon_that_is_killed_leaves_no_worker_and_its_socket_is_taken_over() {
    let mut daemon = DaemonProcess::start(&[]);
    let mut session = Session::open(&daemon.unix()).unwrap();
    let worker = session.worker_pid();
    session.say(b'L');
    kill(daemon.pid(), libc::SIGKILL);
    daemon.wait();
    wait_until("the worker is gone", DEATH, || !alive(worker));
    wait_until("warm workers are gone", DEATH, || daemon.left_behind() == 0);
    assert_eq!(session.event().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(daemon.socket.exists());

    let next = Server::start(|config| config.socket = Some(daemon.socket.clone()));
    Session::open(&next.unix()).unwrap();
}

#[test]
fn a_stopped_daemon_makes_new_clients_fail_in_time() {
    let daemon = DaemonProcess::start(&[]);
    freeze(daemon.pid());
    let start = Instant::now();
    let config = ClientConfig { connect_timeout: Duration::from_millis(500), ..daemon.tcp() };
    let error = connect(&config, start + config.connect_timeout).unwrap_err();
    assert!(matches!(error, ConnectError::Silent { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_millis(1500));
    kill(daemon.pid(), libc::SIGCONT);
}

/// The test is the client that is asked for its memory, and behaves as no client should.
#[test]
fn others_are_asked_for_memory_and_nobody_waits_for_a_liar() {
    let server = Server::start(|_| {});
    let mut holder = Session::open(&server.tcp()).unwrap();
    let mut short = Session::open(&server.unix()).unwrap();
    let revoke = Event::Revoke { device: 0 };

    // Answers that nobody has asked for, and of devices that are not there.
    for device in [0, 7, u32::MAX] {
        holder.control.send_revoked(device).unwrap();
    }
    short.say(b'M');
    assert_eq!(holder.event().unwrap(), revoke);
    holder.control.send_revoked(0).unwrap();
    holder.control.send_revoked(0).unwrap();
    assert_eq!(short.hear(), b'm');

    // From one that has answered nobody wants anything until it says that it has something.
    for _ in 0..50 {
        assert_eq!(short.ask(b'M'), b'm');
    }
    holder.control.send_ping(1).unwrap();
    assert_eq!(holder.event().unwrap(), Event::Pong { n: 1 }, "asked again");

    // And one that does not answer is waited for once.
    holder.control.send_unused(0).unwrap();
    holder.control.send_ping(2).unwrap();
    assert_eq!(holder.event().unwrap(), Event::Pong { n: 2 });
    let start = Instant::now();
    assert_eq!(short.ask(b'M'), b'm');
    assert!(start.elapsed() >= Duration::from_millis(250), "not waited for: {:?}", start.elapsed());
    for _ in 0..50 {
        assert_eq!(short.ask(b'M'), b'm');
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(holder.event().unwrap(), revoke);
    holder.control.send_ping(3).unwrap();
    assert_eq!(holder.event().unwrap(), Event::Pong { n: 3 }, "asked more than once");

    // It can be gone as well.
    holder.control.send_revoked(0).unwrap();
    holder.control.send_unused(0).unwrap();
    holder.control.send_ping(4).unwrap();
    assert_eq!(holder.event().unwrap(), Event::Pong { n: 4 });
    short.say(b'M');
    assert_eq!(holder.event().unwrap(), revoke);
    drop(holder);
    assert_eq!(short.hear(), b'm');
}

#[test]
fn tokens_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    write_private(&tokens, "alice a-token-of-alice-1\n");
    let server = Server::start(|config| config.token_file = Some(tokens));
    let with = |token: &str| ClientConfig { token: Some(Token::new(token)), ..server.tcp() };
    Session::open(&with("a-token-of-alice-1")).unwrap();
    let error = Session::open(&with("a-token-of-alice-2")).unwrap_err();
    assert!(error.to_string().contains("not one of this server's"), "{error}");
    assert_eq!(error.cuda_code(), 100);
    // The daemon's own user needs none: the kernel says whose the connection is.
    Session::open(&server.tcp()).unwrap();
    Session::open(&server.unix()).unwrap();
}

#[test]
fn there_are_no_more_sessions_than_allowed_and_a_place_comes_back() {
    let server = Server::start(|config| config.max_sessions = 1);
    let first = Session::open(&server.unix()).unwrap();
    let error = Session::open(&server.unix()).unwrap_err();
    assert!(error.to_string().contains("all 1 sessions"), "{error}");
    assert_eq!(error.cuda_code(), 802);
    drop(first);
    wait_until("the place is free again", DEATH, || Session::open(&server.unix()).is_ok());
}

#[test]
fn too_much_is_refused_with_the_reason() {
    let server = Server::start(|_| {});
    let mut config = server.unix();
    config.needs.gpus = 2;
    let error = Session::open(&config).unwrap_err();
    assert!(error.to_string().contains("2 GPUs are asked for, the server has 1"), "{error}");
}

#[test]
fn the_probe_answers_without_a_session() {
    let server = Server::start(|config| config.max_sessions = 1);
    let _only = Session::open(&server.unix()).unwrap();
    for config in [server.unix(), server.tcp()] {
        let deadline = Instant::now() + Duration::from_secs(3);
        let reply = connect(&config, deadline).unwrap().probe(deadline).unwrap();
        assert_eq!(reply.driver_version, 12345);
    }
}

#[test]
fn warm_workers_are_replaced_and_never_used_twice() {
    for warm in [0, 2] {
        let server = Server::start(|config| config.warm_workers = warm);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5 {
            let mut session = Session::open(&server.unix()).unwrap();
            assert!(seen.insert(session.worker_pid()));
        }
    }
}

#[test]
fn a_warm_worker_that_died_is_not_given_out() {
    let server = Server::start(|config| config.warm_workers = 2);
    let warm = server.wait_for_warm(2);
    for pid in &warm {
        kill(*pid, libc::SIGKILL);
    }
    wait_until("they are dead", Duration::from_secs(5), || !warm.iter().any(|pid| alive(*pid)));
    let worker = Session::open(&server.unix()).unwrap().worker_pid();
    assert!(!warm.contains(&worker));
}

#[test]
fn a_warm_worker_that_is_stopped_is_not_given_out() {
    let server = Server::start(|config| config.warm_workers = 2);
    let warm = server.wait_for_warm(2);
    warm.iter().for_each(|pid| freeze(*pid));
    let worker = Session::open(&server.unix()).unwrap().worker_pid();
    assert!(!warm.contains(&worker));
    wait_until("the stopped ones are gone", Duration::from_secs(20), || !warm.iter().any(|pid| alive(*pid)));
}

#[test]
fn a_driver_that_cannot_serve_is_an_error_at_start() {
    for (driver, part) in [
        ("/stand-in/broken", "cannot load the driver /stand-in/broken: told to be broken"),
        ("/stand-in/crash", "killed by signal 6 (SIGABRT)"),
        ("/stand-in/empty", "shows no device"),
    ] {
        let error = Server::try_start(|config| config.driver = driver.into()).map(drop).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }
}

#[test]
fn a_socket_in_use_and_a_file_are_left_alone() {
    let server = Server::start(|_| {});
    let taken = Server::try_start(|config| config.socket = Some(server.socket())).map(drop).unwrap_err();
    assert!(format!("{taken:#}").contains("another server listens"), "{taken:#}");
    Session::open(&server.unix()).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("precious");
    std::fs::write(&file, "data").unwrap();
    let refused = Server::try_start(|config| config.socket = Some(file.clone())).map(drop).unwrap_err();
    assert!(format!("{refused:#}").contains("not a socket"), "{refused:#}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "data");
}
