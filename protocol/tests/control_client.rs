//! The client against servers that are not there, lie, stay silent or dribble. Every step ends within its deadline.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use gpupool_protocol::WIRE_VERSION;
use gpupool_protocol::config::{ClientConfig, TransportChoice};
use gpupool_protocol::control::*;

const TIMEOUT: Duration = Duration::from_millis(400);
/// What a loaded machine may add to it.
const SLACK: Duration = Duration::from_millis(1500);

fn config(address: &str) -> ClientConfig {
    ClientConfig {
        server: Some(address.parse().unwrap()),
        connect_timeout: TIMEOUT,
        ..ClientConfig::default()
    }
}

fn soon() -> Instant {
    Instant::now() + TIMEOUT
}

/// A TCP server that runs `serve` on each of its connections, in a thread that ends with the test's process.
fn server(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    server_at("127.0.0.1:0", serve)
}

fn server_at(address: &str, serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap());
        }
    });
    address
}

fn hello() -> Hello {
    Hello {
        server_version: "test".into(),
        server_id: [1; 16],
        insecure: false,
        host_key: host_key(),
        unix_socket: None,
    }
}

fn greet(stream: &mut (impl Read + Write), hello: Hello) {
    stream.write_all(&preamble()).unwrap();
    stream.write_all(&encode(&ServerMessage::Hello(hello)).unwrap()).unwrap();
    let mut theirs = [0; PREAMBLE_LEN];
    stream.read_exact(&mut theirs).unwrap();
    assert_eq!(theirs, preamble());
}

fn read(stream: &mut impl Read) -> ClientMessage {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; frame_length(head, MESSAGE_MAX).unwrap()];
    stream.read_exact(&mut body).unwrap();
    decode(&body).unwrap()
}

fn write(stream: &mut impl Write, message: &ServerMessage) {
    stream.write_all(&encode(message).unwrap()).unwrap();
}

fn opened(transports: Vec<Transport>) -> Opened {
    Opened {
        session: 5,
        secret: Secret::new([8; 32]),
        transports,
        heartbeat: Heartbeat::default(),
        snapshot: Snapshot::default(),
    }
}

/// The error of connecting, which must come in time and be one line that names the address.
fn failure(address: &str) -> ConnectError {
    let start = Instant::now();
    let error = connect(&config(address), start + TIMEOUT).map(drop).unwrap_err();
    assert!(start.elapsed() < TIMEOUT + SLACK, "{address} took {:?}", start.elapsed());
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains(address), "{text}");
    error
}

#[test]
fn no_server_is_said() {
    let error = connect(&ClientConfig::default(), soon()).map(drop).unwrap_err();
    assert!(error.to_string().contains("GPUPOOL_SERVER"), "{error}");
    assert_eq!(error.cuda_code(), 100);
}

#[test]
fn nobody_listens() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = failure(&free.to_string());
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    let error = failure("unix:/nonexistent/pool.sock");
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[test]
fn a_silent_server_costs_the_time_out_and_no_more() {
    let address = server(std::mem::forget);
    let start = Instant::now();
    let error = failure(&address.to_string());
    assert!(matches!(error, ConnectError::Silent { .. }), "{error}");
    assert!(start.elapsed() >= TIMEOUT);
    assert_eq!(error.cuda_code(), 802);
}

#[test]
fn a_server_that_never_accepts_on_its_unix_socket_costs_the_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    let error = failure(&format!("unix:{}", path.display()));
    assert!(matches!(error, ConnectError::Silent { .. }), "{error}");
}

#[test]
fn a_dribbling_server_does_not_stretch_the_time_out() {
    let address = server(|mut stream| {
        // A valid greeting, a byte every 50 ms: it would take four seconds.
        let mut bytes = preamble().to_vec();
        bytes.extend(encode(&ServerMessage::Hello(hello())).unwrap());
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let error = failure(&address.to_string());
    assert!(matches!(error, ConnectError::Silent { .. }), "{error}");
}

#[test]
fn garbage_is_not_a_pool_server() {
    let address = server(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").unwrap());
    let error = failure(&address.to_string());
    assert!(matches!(error, ConnectError::NotAPoolServer { .. }), "{error}");
    assert_eq!(error.cuda_code(), 100);
}

#[test]
fn garbage_after_the_preamble_is_malformed() {
    let address = server(|mut stream| {
        stream.write_all(&preamble()).unwrap();
        stream.write_all(&[0xFF; 64]).unwrap();
    });
    let error = failure(&address.to_string());
    assert!(matches!(error, ConnectError::Malformed { .. }), "{error}");
}

#[test]
fn an_early_end_is_said() {
    let error = failure(&server(drop).to_string());
    assert!(matches!(error, ConnectError::Broken { .. }), "{error}");
}

#[test]
fn both_versions_are_named() {
    let address = server(|mut stream| {
        let mut other = preamble();
        other[4..].copy_from_slice(&77_u32.to_le_bytes());
        stream.write_all(&other).unwrap();
    });
    let error = failure(&address.to_string());
    assert!(matches!(error, ConnectError::Version { theirs: 77, ours: WIRE_VERSION, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("version 77") && text.contains(&format!("speaks {WIRE_VERSION}")), "{text}");
}

#[test]
fn a_refusal_comes_through_as_one_line() {
    let address = server(|mut stream| {
        greet(&mut stream, hello());
        read(&mut stream);
        write(&mut stream, &ServerMessage::Refused { reason: "no\nroom\x1b[31m".into(), cuda_code: 802 });
    });
    let config = config(&address.to_string());
    let error = connect(&config, soon()).unwrap().open(&config, &Open::default(), soon()).unwrap_err();
    assert!(error.to_string().ends_with("refused: no room [31m"), "{error}");
    assert_eq!(error.cuda_code(), 802);
}

/// A server that answers probes and counts them.
fn probed() -> (ClientConfig, std::sync::mpsc::Receiver<()>) {
    let (count, counted) = std::sync::mpsc::channel();
    let address = server(move |mut stream| {
        greet(&mut stream, hello());
        assert_eq!(read(&mut stream), ClientMessage::Probe);
        count.send(()).unwrap();
        let reply = ProbeReply { driver_version: 12090, server_version: "test".into() };
        write(&mut stream, &ServerMessage::ProbeReply(reply));
    });
    (config(&address.to_string()), counted)
}

#[test]
fn the_probe_gets_its_version_and_asks_once_a_process() {
    let (config, counted) = probed();
    for _ in 0..3 {
        assert_eq!(driver_version_via(&config, || None).unwrap(), 12090);
    }
    assert_eq!(counted.try_iter().count(), 1);
}

#[test]
fn a_probe_leaves_its_answer_for_other_processes_and_takes_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ProbeCache::in_directory(dir.path().join("gpupool"));
    let (config, counted) = probed();
    assert_eq!(driver_version_via(&config, || Some(cache.clone())).unwrap(), 12090);
    assert_eq!(cache.read(config.server.as_ref().unwrap()), Some(12090));
    assert_eq!(counted.try_iter().count(), 1);

    let (config, counted) = probed();
    cache.write(config.server.as_ref().unwrap(), 11080).unwrap();
    assert_eq!(driver_version_via(&config, || Some(cache)).unwrap(), 11080);
    assert_eq!(counted.try_iter().count(), 0);
}

#[test]
fn a_failed_probe_is_not_repeated() {
    let address = server(std::mem::forget);
    let config = config(&address.to_string());
    assert!(driver_version_via(&config, || None).is_err());
    let start = Instant::now();
    assert!(driver_version_via(&config, || None).is_err());
    assert!(start.elapsed() < TIMEOUT / 2);
    // What it took is told once.
    assert!(probed_in_vain(&config) >= TIMEOUT);
    assert_eq!(probed_in_vain(&config), Duration::ZERO);
}

/// A server that closes its first connections without an answer, as one does that takes them for silent.
fn closes_first(many: usize) -> ClientConfig {
    let seen = std::cell::Cell::new(0);
    let address = server(move |mut stream| {
        greet(&mut stream, hello());
        let message = read(&mut stream);
        if seen.replace(seen.get() + 1) < many {
            return;
        }
        let reply = match message {
            ClientMessage::Probe => {
                ServerMessage::ProbeReply(ProbeReply { driver_version: 12090, server_version: "test".into() })
            }
            _ => ServerMessage::Opened(Box::new(opened(Vec::new()))),
        };
        write(&mut stream, &reply);
    });
    config(&address.to_string())
}

#[test]
fn a_conversation_that_was_cut_short_is_begun_anew_but_not_for_ever() {
    let opened =
        |many| open_session(&closes_first(many), &Open::default(), soon()).map(|(_, opened)| opened.session);
    assert_eq!(opened(2).unwrap(), 5);
    let error = opened(3).unwrap_err();
    assert!(matches!(error, ConnectError::Broken { .. }), "{error}");
    assert_eq!(driver_version_via(&closes_first(2), || None).unwrap(), 12090);
    assert!(driver_version_via(&closes_first(3), || None).is_err());
}

/// An address of this machine that is not a loopback one, as the kernel would choose it; no packet is sent.
fn own_address() -> Option<SocketAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|a| SocketAddr::new(a.ip(), 0)).filter(|a| !a.ip().is_loopback())
}

#[test]
fn a_token_crosses_a_plain_network_only_if_both_sides_say_so() {
    let Some(own) = own_address() else {
        eprintln!("skipped: this machine has only loopback addresses");
        return;
    };
    for (client, at_server, goes) in
        [(false, false, false), (true, false, false), (false, true, false), (true, true, true)]
    {
        let (seen, saw) = std::sync::mpsc::channel();
        let address = server_at(&own.to_string(), move |mut stream| {
            greet(&mut stream, Hello { insecure: at_server, ..hello() });
            let mut rest = Vec::new();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let _ = stream.read_to_end(&mut rest);
            seen.send(rest).unwrap();
        });
        let config = ClientConfig { insecure: client, ..config(&address.to_string()) };
        let mut control = connect(&config, soon()).unwrap();
        let open = Open { token: Some(Token::new("the-secret-token")), ..Open::default() };
        let error = control.open(&config, &open, soon()).unwrap_err();
        drop(control);
        let sent = saw.recv_timeout(Duration::from_secs(5)).unwrap();
        let crossed = sent.windows(16).any(|w| w == b"the-secret-token");
        assert_eq!(crossed, goes, "client {client}, server {at_server}: {error}");
        assert_eq!(matches!(error, ConnectError::PlainToken { .. }), !goes, "{error}");
    }
}

#[test]
fn a_token_goes_to_a_loopback_address() {
    let address = server(|mut stream| {
        greet(&mut stream, hello());
        match read(&mut stream) {
            ClientMessage::Open(open) => assert_eq!(open.token, Some(Token::new("the-secret-token"))),
            other => panic!("{other:?}"),
        }
        write(&mut stream, &ServerMessage::Opened(Box::new(opened(vec![]))));
    });
    let config = config(&address.to_string());
    let open = Open { token: Some(Token::new("the-secret-token")), ..Open::default() };
    assert_eq!(connect(&config, soon()).unwrap().open(&config, &open, soon()).unwrap().session, 5);
}

#[test]
fn pings_pongs_and_the_end_arrive_without_waiting() {
    let address = server(|mut stream| {
        greet(&mut stream, hello());
        read(&mut stream);
        write(&mut stream, &ServerMessage::Opened(Box::new(opened(vec![]))));
        let ClientMessage::Ping { n } = read(&mut stream) else { panic!() };
        write(&mut stream, &ServerMessage::Pong { n });
        write(&mut stream, &ServerMessage::Closed { reason: "worker died".into() });
    });
    let config = config(&address.to_string());
    let mut control = connect(&config, soon()).unwrap();
    control.open(&config, &Open::default(), soon()).unwrap();
    assert_eq!(control.receive().unwrap(), None);
    assert!(control.send_ping(41).unwrap());
    assert_eq!(next(&mut control).unwrap(), Event::Pong { n: 41 });
    assert_eq!(next(&mut control).unwrap(), Event::Closed { reason: "worker died".into() });
    assert_eq!(next(&mut control).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_revocation_is_answered_without_waiting_also_by_one_who_is_not_read() {
    let address = server(|mut stream| {
        greet(&mut stream, hello());
        read(&mut stream);
        write(&mut stream, &ServerMessage::Opened(Box::new(opened(vec![]))));
        write(&mut stream, &ServerMessage::Revoke { device: 3 });
        assert_eq!(read(&mut stream), ClientMessage::Revoked { device: 3 });
        assert_eq!(read(&mut stream), ClientMessage::Unused { device: 3 });
        write(&mut stream, &ServerMessage::Revoke { device: 4 });
        // From here on nothing is read.
        std::thread::sleep(TIMEOUT);
    });
    let config = config(&address.to_string());
    let mut control = connect(&config, soon()).unwrap();
    control.open(&config, &Open::default(), soon()).unwrap();
    assert_eq!(next(&mut control).unwrap(), Event::Revoke { device: 3 });
    control.send_revoked(3).unwrap();
    control.send_unused(3).unwrap();
    assert!(!control.wants_to_send(), "all of it fits the socket");
    assert_eq!(next(&mut control).unwrap(), Event::Revoke { device: 4 });
    let refused = (0..10_000_000).find_map(|_| control.send_revoked(4).err());
    assert!(refused.is_some() && control.wants_to_send(), "what waits is bounded");
}

/// Waits as the interposer's watcher does.
fn next(control: &mut Control) -> std::io::Result<Event> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        if let Some(event) = control.receive()? {
            return Ok(event);
        }
        let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&control.as_fd(), PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ready, 1, "nothing came");
    }
}

#[test]
fn pings_to_a_server_that_does_not_read_are_given_up_without_waiting() {
    let address = server(|mut stream| {
        greet(&mut stream, hello());
        read(&mut stream);
        write(&mut stream, &ServerMessage::Opened(Box::new(opened(vec![]))));
        Box::leak(Box::new(stream));
    });
    let config = config(&address.to_string());
    let mut control = connect(&config, soon()).unwrap();
    control.open(&config, &Open::default(), soon()).unwrap();
    let start = Instant::now();
    let mut n = 0;
    while control.send_ping(n).unwrap() {
        n += 1;
        assert!(start.elapsed() < Duration::from_secs(20), "{n} pings left for a server that reads none");
    }
}

/// A pool server on TCP and a Unix socket that takes every data connection; `ids`: of the TCP and the Unix side.
fn dual(dir: &std::path::Path, host_key: Option<[u8; 16]>, ids: [u8; 2], unix_listens: bool) -> SocketAddr {
    let path = dir.join("pool.sock");
    let hello = move |id: u8, path: &std::path::Path| Hello {
        server_id: [id; 16],
        host_key,
        unix_socket: Some(path.to_str().unwrap().into()),
        ..hello()
    };
    if unix_listens {
        let listener = UnixListener::bind(&path).unwrap();
        let path = path.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                data_side(stream.unwrap(), hello(ids[1], &path));
            }
        });
    }
    server(move |stream| data_side(stream, hello(ids[0], &path)))
}

fn data_side(mut stream: impl Read + Write + Send + 'static, hello: Hello) {
    std::thread::spawn(move || {
        greet(&mut stream, hello);
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let mut body = vec![0; frame_length(head, MESSAGE_MAX).unwrap()];
        stream.read_exact(&mut body).unwrap();
        match decode(&body).unwrap() {
            ClientMessage::Open(_) => {
                let both = vec![Transport::Shm, Transport::Tcp];
                write(&mut stream, &ServerMessage::Opened(Box::new(opened(both))));
                Box::leak(Box::new(stream));
            }
            ClientMessage::Attach(attach) => {
                assert_eq!(attach.secret, Secret::new([8; 32]));
                write(&mut stream, &ServerMessage::Attached);
                stream.write_all(&[attach.transport as u8 + 1]).unwrap();
            }
            other => panic!("{other:?}"),
        }
    });
}

fn attach(address: &str, transport: TransportChoice) -> Result<DataPath, ConnectError> {
    let config = ClientConfig { transport, ..config(address) };
    let mut control = connect(&config, soon())?;
    let opened = control.open(&config, &Open::default(), soon())?;
    control.attach(&config, &opened, soon())
}

#[test]
fn auto_takes_shared_memory_where_it_works_and_says_why_not() {
    use TransportChoice::{Auto, Shm, Tcp};
    let other_host = Some([0x55; 16]);
    for (host, ids, listens, choice, expected) in [
        (host_key(), [1, 1], true, Auto, Ok((Transport::Shm, "runs on this host"))),
        (host_key(), [1, 1], true, Shm, Ok((Transport::Shm, "runs on this host"))),
        (host_key(), [1, 1], true, Tcp, Ok((Transport::Tcp, "as configured"))),
        (other_host, [1, 1], true, Auto, Ok((Transport::Tcp, "another host"))),
        (host_key(), [1, 2], true, Auto, Ok((Transport::Tcp, "another pool server"))),
        (host_key(), [1, 1], false, Auto, Ok((Transport::Tcp, "cannot connect"))),
        (other_host, [1, 1], true, Shm, Err("another host")),
        (host_key(), [1, 1], false, Shm, Err("cannot connect")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let address = dual(dir.path(), host, ids, listens);
        match (attach(&address.to_string(), choice), expected) {
            (Ok(path), Ok((transport, why))) => {
                assert_eq!(path.transport, transport, "{}", path.why);
                assert!(path.why.contains(why), "{}", path.why);
                // The socket is blocking, and nothing of what follows `Attached` was swallowed.
                let mut byte = [0];
                match path.socket {
                    DataSocket::Unix(mut s) => s.read_exact(&mut byte).unwrap(),
                    DataSocket::Tcp(mut s) => s.read_exact(&mut byte).unwrap(),
                }
                assert_eq!(byte[0], transport as u8 + 1);
            }
            (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{error}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn a_unix_socket_means_shared_memory() {
    let dir = tempfile::tempdir().unwrap();
    dual(dir.path(), host_key(), [1, 1], true);
    let address = format!("unix:{}", dir.path().join("pool.sock").display());
    assert_eq!(attach(&address, TransportChoice::Auto).unwrap().transport, Transport::Shm);
    let error = attach(&address, TransportChoice::Tcp).unwrap_err();
    assert!(error.to_string().contains("Unix socket"), "{error}");
}
