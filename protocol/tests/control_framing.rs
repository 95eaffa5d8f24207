//! Whatever bytes come, decoding ends with a message or an error, never with a panic, and takes no more than a frame.

use std::collections::BTreeMap;

use gpupool_protocol::WIRE_VERSION;
use gpupool_protocol::control::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn open() -> impl Strategy<Value = Open> {
    let text = || "[a-z0-9 ]{0,20}";
    let client = (text(), any::<u32>(), text(), any::<Option<[u8; 16]>>(), text()).prop_map(
        |(program, pid, host, host_key, version)| ClientInfo { program, pid, host, host_key, version },
    );
    let labels = proptest::collection::btree_map(text(), text(), 0..4);
    let needs = (any::<(u32, u64, u32, bool)>(), text(), labels).prop_map(|(numbers, site, labels)| Needs {
        gpus: numbers.0,
        memory_bytes: numbers.1,
        share_permille: numbers.2,
        class: if numbers.3 { Class::Latency } else { Class::Elastic },
        site,
        labels,
    });
    let token = proptest::option::of(text().prop_map(Token::new));
    let transports =
        vec(prop_oneof![Just(Transport::Shm), Just(Transport::Tcp), Just(Transport::Verbs)], 0..4);
    (client, token, needs, vec(text(), 0..4), transports).prop_map(
        |(client, token, needs, architectures, transports)| Open {
            client,
            token,
            needs,
            architectures,
            transports,
        },
    )
}

fn client_message() -> impl Strategy<Value = ClientMessage> {
    prop_oneof![
        Just(ClientMessage::Probe),
        open().prop_map(|open| ClientMessage::Open(Box::new(open))),
        any::<[u8; 32]>().prop_map(|s| ClientMessage::Attach(Attach {
            secret: Secret::new(s),
            transport: Transport::Tcp,
            connection: s[0],
            connections: s[1],
        })),
        any::<u64>().prop_map(|n| ClientMessage::Ping { n }),
        any::<u32>().prop_map(|device| ClientMessage::Revoked { device }),
        any::<u32>().prop_map(|device| ClientMessage::Unused { device }),
    ]
}

fn opened() -> ServerMessage {
    let device = DeviceInfo {
        name: "a card".into(),
        uuid: [7; 16],
        total_memory: 1 << 34,
        attributes: (1..100).map(|a| (a, a * a)).collect(),
        pci: (0, 4, 0),
    };
    let snapshot = Snapshot { driver_version: 13000, devices: vec![device], calls: vec![u64::MAX, 5] };
    ServerMessage::Opened(Box::new(Opened {
        session: 9,
        secret: Secret::new([3; 32]),
        transports: vec![Transport::Shm, Transport::Tcp],
        heartbeat: Heartbeat::default(),
        snapshot,
    }))
}

proptest! {
    #[test]
    fn messages_come_back(message in client_message()) {
        let frame = encode(&message).unwrap();
        prop_assert_eq!(decode::<ClientMessage>(&frame[4..]).unwrap(), message);
    }

    #[test]
    fn every_truncation_is_an_error(message in client_message()) {
        let frame = encode(&message).unwrap();
        for end in 4..frame.len() {
            prop_assert!(decode::<ClientMessage>(&frame[4..end]).is_err());
        }
    }

    #[test]
    fn bytes_after_a_message_are_an_error(message in client_message(), extra in 1_usize..9) {
        let mut body = encode(&message).unwrap().split_off(4);
        body.extend(std::iter::repeat_n(0, extra));
        let said = decode::<ClientMessage>(&body).unwrap_err();
        let right = matches!(said, FrameError::Trailing { extra: found } if found == extra);
        prop_assert!(right, "{}", said);
    }

    #[test]
    fn mutations_never_panic(message in client_message(), at in any::<prop::sample::Index>(), bits in 1_u8..) {
        let mut body = encode(&message).unwrap().split_off(4);
        let at = at.index(body.len());
        body[at] ^= bits;
        // What decodes all the same must be a message that encodes again.
        if let Ok(other) = decode::<ClientMessage>(&body) {
            prop_assert!(encode(&other).is_ok());
        }
    }

    #[test]
    fn mutations_of_a_snapshot_never_panic(at in any::<prop::sample::Index>(), bits in 1_u8..) {
        let mut body = encode(&opened()).unwrap().split_off(4);
        let at = at.index(body.len());
        body[at] ^= bits;
        let _ = decode::<ServerMessage>(&body);
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode::<ClientMessage>(&bytes);
        let _ = decode::<ServerMessage>(&bytes);
        let mut frames = FrameBuffer::new(64);
        frames.extend(&bytes);
        while let Ok(Some(_)) = frames.next_message::<ClientMessage>() {}
    }

    #[test]
    fn frames_come_whole_however_they_are_cut(
        messages in vec(client_message(), 1..5),
        cuts in vec(1_usize..40, 1..200),
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
        let mut frames = FrameBuffer::new(MESSAGE_MAX);
        let mut got = Vec::new();
        let mut rest = bytes.as_slice();
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            frames.extend(now);
            rest = later;
            while let Some(message) = frames.next_message::<ClientMessage>().unwrap() {
                got.push(message);
            }
        }
        prop_assert_eq!(got, messages);
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_anything_is_read() {
    let mut frames = FrameBuffer::new(FIRST_MESSAGE_MAX);
    frames.extend(&u32::MAX.to_le_bytes());
    assert!(matches!(frames.next_message::<ClientMessage>(), Err(FrameError::TooLong { .. })));
}

#[test]
fn a_count_that_lies_allocates_nothing_large() {
    // An `Open` whose first string claims 2^60 bytes: the limit of the decoder refuses it before allocating.
    let mut body = encode(&ClientMessage::Open(Box::default())).unwrap().split_off(4);
    body[4..12].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    assert!(decode::<ClientMessage>(&body).is_err());
}

#[test]
fn a_message_over_the_limit_is_not_sent() {
    let labels: BTreeMap<String, String> = [("x".to_string(), "y".repeat(MESSAGE_MAX))].into();
    let open = Open { needs: Needs { labels, ..Needs::default() }, ..Open::default() };
    assert!(encode(&ClientMessage::Open(Box::new(open))).is_err());
}

#[test]
fn the_preamble_is_checked() {
    assert_eq!(read_preamble(preamble()), Ok(()));
    assert_eq!(read_preamble(*b"HTTP/1.1"), Err(PreambleError::NotOurs));
    let mut other = preamble();
    other[4..].copy_from_slice(&(WIRE_VERSION + 1).to_le_bytes());
    assert_eq!(read_preamble(other), Err(PreambleError::Version { theirs: WIRE_VERSION + 1 }));
}
