//! Connections: what is let in, and what is not.

use super::*;

/// Opens a session over TCP and attaches one data connection by hand: both, and the answer to it.
fn attach_by_hand(
    server: &Server,
    transport: Transport,
    connections: u8,
) -> (Control, TcpStream, ServerMessage) {
    let config = server.tcp();
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut control = connect(&config, deadline).unwrap();
    let opened = control.open(&config, &request(&config), deadline).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(&preamble()).unwrap();
    let attach = Attach { secret: opened.secret, transport, connection: 0, connections };
    stream.write_all(&encode(&ClientMessage::Attach(attach)).unwrap()).unwrap();
    read_greeting(&mut stream);
    let answer = read_message(&mut stream);
    (control, stream, answer)
}

#[test]
fn garbage_costs_the_connection_that_sent_it() {
    let server = Server::start(|_| {});
    let mut session = Session::open(&server.unix()).unwrap();
    let frame = |body: &[u8]| [&preamble()[..], &(body.len() as u32).to_le_bytes(), body].concat();
    let mut other_version = preamble();
    other_version[4] ^= 0x40;
    let garbage: [Vec<u8>; 7] = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 4096],
        other_version.to_vec(),
        [&preamble()[..], &u32::MAX.to_le_bytes()].concat(),
        frame(&[0xFF; 100]),
        frame(&[]),
        // A probe with a byte after it.
        frame(&[0, 0, 0, 0, 9]),
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut rest = Vec::new();
        // Closed at once: by a FIN, or by a RST where it had not read everything.
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{bytes:?}"),
        }
        assert!(rest.starts_with(&preamble()) || rest.is_empty());
    }
    assert_eq!(session.ask(b'?'), session.path.transport as u8);

    // And inside an open session.
    let mut stream = raw_session(&server.socket());
    stream.write_all(&[0xFF; 64]).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(session.ask(b'?'), session.path.transport as u8);
}

#[test]
fn peers_that_say_nothing_or_dribble_are_dropped() {
    let server = Server::start(|_| {});
    let start = Instant::now();
    let mut silent = TcpStream::connect(server.address()).unwrap();
    let mut dribbling = UnixStream::connect(server.socket()).unwrap();
    let mut dribble = dribbling.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut bytes = preamble().to_vec();
        bytes.extend(1000_u32.to_le_bytes());
        bytes.extend([0; 1000]);
        for byte in bytes {
            if dribble.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert!(start.elapsed() > Duration::from_secs(4));
    // The daemon closes with bytes unread, so this may be a reset.
    let _ = dribbling.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn many_silent_peers_do_not_keep_others_out_for_long() {
    let server = Server::start(|_| {});
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    wait_until("a client gets in once the silent ones are dropped", Duration::from_secs(10), || {
        Session::open(&server.unix()).is_ok()
    });
    drop(silent);
}

#[test]
fn the_secret_of_a_data_connection_works_once_and_only_the_right_one() {
    let server = Server::start(|_| {});
    let config = ClientConfig { transport: TransportChoice::Tcp, ..server.tcp() };
    let deadline = || Instant::now() + Duration::from_secs(3);
    let mut control = connect(&config, deadline()).unwrap();
    let opened = control.open(&config, &request(&config), deadline()).unwrap();

    let wrong = Opened { secret: Secret::new([0; 32]), ..opened.clone() };
    let error = control.attach(&config, &wrong, deadline()).unwrap_err();
    assert!(error.to_string().contains("unknown or was used"), "{error}");

    control.attach(&config, &opened, deadline()).unwrap();
    let error = control.attach(&config, &opened, deadline()).unwrap_err();
    assert!(error.to_string().contains("unknown or was used"), "{error}");
}

#[test]
fn a_session_over_tcp_has_as_many_connections_as_it_asks_for() {
    let server = Server::start(|_| {});
    for (transport, connections, more) in
        [(TransportChoice::Tcp, 1, 0), (TransportChoice::Tcp, 8, 7), (TransportChoice::Shm, 4, 0)]
    {
        let config = ClientConfig { transport, tcp_connections: connections, ..server.tcp() };
        let mut session = Session::open(&config).unwrap();
        assert_eq!((session.path.more.len(), session.ask(b'N')), (more, more as u8));
        let worker = session.worker_pid();
        drop(session);
        wait_until("the worker is gone", DEATH, || !alive(worker));
    }
}

#[test]
fn a_session_that_announces_more_connections_than_come_ends() {
    let server = Server::start(|_| {});
    let (mut control, _stream, answer) = attach_by_hand(&server, Transport::Tcp, 2);
    assert_eq!(answer, ServerMessage::Attached);
    let event = wait_event(&mut control, Duration::from_secs(13)).unwrap();
    assert!(matches!(&event, Event::Closed { reason } if reason.contains("no data connection")), "{event:?}");
}

#[test]
fn shared_memory_over_tcp_is_refused() {
    let server = Server::start(|_| {});
    let (_control, _stream, answer) = attach_by_hand(&server, Transport::Shm, 1);
    let ServerMessage::Refused { reason, .. } = answer else { panic!("{answer:?}") };
    assert!(reason.contains("Unix socket"), "{reason}");
}

#[test]
fn a_secret_that_was_used_in_vain_ends_the_session_with_the_reason() {
    let server = Server::start(|_| {});
    let (mut control, _stream, answer) = attach_by_hand(&server, Transport::Shm, 1);
    assert!(matches!(answer, ServerMessage::Refused { .. }), "{answer:?}");
    control.send_ping(1).unwrap();
    let mut event = wait_event(&mut control, Duration::from_secs(3)).unwrap();
    if event == (Event::Pong { n: 1 }) {
        event = wait_event(&mut control, Duration::from_secs(3)).unwrap();
    }
    assert!(matches!(&event, Event::Closed { reason } if reason.contains("secret")), "{event:?}");
}

#[test]
fn a_session_without_data_connection_ends() {
    let server = Server::start(|_| {});
    let config = server.unix();
    let start = Instant::now();
    let mut control = connect(&config, start + Duration::from_secs(3)).unwrap();
    let opened = control.open(&config, &request(&config), start + Duration::from_secs(3)).unwrap();
    let event = wait_event(&mut control, Duration::from_secs(13)).unwrap();
    assert!(matches!(&event, Event::Closed { reason } if reason.contains("no data connection")), "{event:?}");
    let error = control.attach(&config, &opened, Instant::now() + Duration::from_secs(3)).unwrap_err();
    assert!(error.to_string().contains("unknown"), "{error}");
}
