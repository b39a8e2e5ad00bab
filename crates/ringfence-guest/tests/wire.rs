//! Both ends read whatever comes: what was written comes back, and anything else ends the stream
//! without a panic and without memory for what was only promised.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_guest::wire::{
    Broken, Change, Exec, Framer, HEADER, Limit, MOST, Message, Output, Start, ToGuest, ToHost,
};
use std::fmt::Debug;

fn comes_back<M: Message + PartialEq + Debug>(message: &M, channel: u32) {
    let bytes = message.encode(channel);
    let mut framer = Framer::default();
    // In two pieces, wherever a stream may be cut.
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    framer.add(head);
    assert!(framer.take::<M>().unwrap().is_none());
    framer.add(tail);
    assert_eq!(
        framer.take::<M>().unwrap().as_ref(),
        Some(&(channel, M::decode(bytes[4], &bytes[HEADER..]).unwrap()))
    );
    assert_eq!(&M::decode(bytes[4], &bytes[HEADER..]).unwrap(), message);
}

#[test]
fn every_message_comes_back_as_it_was() {
    let exec = Exec {
        terminal: (true, false),
        size: (24, 80),
        user: (1000, 1000),
        umask: 0o022,
        files: (1024, 4096),
        signals: (1, 1 << 63),
        workdir: b"/a b".to_vec(),
        program: b"/bin/sh".to_vec(),
        argv: vec![b"sh".to_vec(), b"".to_vec()],
        environment: vec![b"A=\xff".to_vec()],
    };
    let start = Start {
        clock: u64::MAX,
        entropy: vec![7; 64],
        name: b"vm".to_vec(),
        network: true,
        loopback: vec![(1, 2)],
        processes: Some(9),
        disk: Some(1 << 20),
    };
    let to_guest = [
        ToGuest::Start(start),
        ToGuest::Exec(exec),
        ToGuest::Input(b"x".to_vec()),
        ToGuest::InputEnd,
        ToGuest::Signal(15, true),
        ToGuest::Resize(1, 2),
        ToGuest::Taken(Output::Error, 3),
        ToGuest::Files(vec![1, 2, 3]),
        ToGuest::Connected(111),
        ToGuest::Data(b"y".to_vec()),
        ToGuest::DataEnd,
        ToGuest::DataTaken(5),
        ToGuest::Close,
        ToGuest::Inward(80),
        ToGuest::Answer(b"z".to_vec()),
        ToGuest::Stop,
        ToGuest::OutputEnd(Output::Out),
        ToGuest::Again(true),
    ];
    to_guest.iter().for_each(|message| comes_back(message, 7));
    let to_host = [
        ToHost::Hello(1),
        ToHost::Ready(Ok(())),
        ToHost::Ready(Err("why".to_owned())),
        ToHost::Started,
        ToHost::Failed(127, "not found".to_owned()),
        ToHost::Output(Output::Error, b"o".to_vec()),
        ToHost::Change(Change::Exited(255)),
        ToHost::Change(Change::Killed(9)),
        ToHost::Change(Change::Stopped(20)),
        ToHost::Taken(1),
        ToHost::Files(Vec::new()),
        ToHost::Connect(vec![10, 0, 0, 1], 443),
        ToHost::Connect(vec![0; 16], 0),
        ToHost::Connected(0),
        ToHost::Data(b"d".to_vec()),
        ToHost::DataEnd,
        ToHost::DataTaken(u32::MAX),
        ToHost::Close,
        ToHost::Query(b"q".to_vec()),
        ToHost::Stopped,
        ToHost::Reached(Limit::Memory(3)),
        ToHost::Reached(Limit::Processes),
        ToHost::Delivered,
    ];
    to_host.iter().for_each(|message| comes_back(message, u32::MAX));
}

#[test]
fn what_breaks_the_rules_is_told() {
    let frame = |kind: u8, payload: &[u8]| {
        let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes
    };
    let broken = |bytes: &[u8]| {
        let mut framer = Framer::default();
        framer.add(bytes);
        framer.take::<ToHost>().unwrap_err()
    };
    let mut long = frame(1, &[]);
    long[..4].copy_from_slice(&(MOST as u32 + 1).to_le_bytes());
    assert_eq!(broken(&long), Broken::TooLong);
    assert_eq!(broken(&frame(0, &[])), Broken::Kind(0));
    assert_eq!(broken(&frame(200, &[])), Broken::Kind(200));
    // An address that is none, a signal that does not exist, an empty piece, bytes left over.
    for (kind, payload) in [
        (14, &[0, 80, 1, 2, 3][..]),
        (6, &[1, 0]),
        (6, &[2, 65]),
        (5, &[0]),
        (3, &[1]),
        (17, &[1, 1, 0, 0, 0]),
    ] {
        assert_eq!(broken(&frame(kind, payload)), Broken::Payload(kind), "{kind}");
    }
    // More words than there are bytes for: nothing is reserved.
    let mut words = vec![0; 42];
    words.extend(u32::MAX.to_le_bytes());
    assert!(ToGuest::decode(2, &words).is_err());
}

/// Any bytes; and of what is as it should be some are others, or a number that is as large as it can be.
#[test]
fn what_is_fuzzed_takes_any_bytes() {
    use ringfence_guest::fuzzing;
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..200))| {
        fuzzing::from_guest(&bytes);
        fuzzing::from_host(&bytes);
        fuzzing::files(&bytes);
        fuzzing::saved(&bytes);
        fuzzing::trees(&bytes);
    });
    proptest!(|(at in any::<u16>(), value in any::<u8>(), length in 1_u16..9)| {
        for value in [value, 0xff] {
            let change = |n: u16| [at.wrapping_add(n).to_le_bytes().to_vec(), vec![value]].concat();
            let bytes: Vec<u8> = (0..length).flat_map(change).collect();
            fuzzing::saved(&bytes);
            fuzzing::trees(&bytes);
        }
    });
    fuzzing::clear();
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut framer = Framer::default();
        framer.add(&bytes);
        while let Ok(Some((channel, message))) = framer.take::<ToHost>() {
            // What was read can be written, and is read again as the same.
            let again = message.encode(channel);
            prop_assert_eq!(ToHost::decode(again[4], &again[HEADER..]).unwrap(), message);
        }
        let mut framer = Framer::default();
        framer.add(&bytes);
        while let Ok(Some(_)) = framer.take::<ToGuest>() {}
    }

    #[test]
    fn any_payload_of_any_kind_is_read_or_refused(
        kind in 0_u8..24,
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let _ = ToHost::decode(kind, &bytes);
        let _ = ToGuest::decode(kind, &bytes);
    }
}
