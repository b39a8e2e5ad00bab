//! A guest that means ill while its session is forked, and what a fork is given by one that was taken over: this test is the
//! launcher and the guest, and the bridge is the real one.

use super::vm_hostile::{FILES, READY, STARTED, bridge_of, frame, frame_of, most, next, request};
use ringfence_tests::{Place, Tier, everybody};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// The bridge's, and the guest's answer: be still.
const STILL: u8 = 19;
const ON: u8 = 20;
const FORK: u8 = 21;

/// A bridge whose guest has begun, and whose command lives.
fn begun(place: &Place) -> (Child, UnixStream, OwnedFd) {
    let (child, mut stream, line) = bridge_of(place, Stdio::null(), None, &[]);
    assert_eq!((next(&mut stream).0, next(&mut stream).0), (1, 2));
    stream.write_all(&[frame(READY, &[0]), frame_of(1, STARTED, &[])].concat()).unwrap();
    stream.write_all(&request(1, 1, b"usr\0")).unwrap();
    until(&mut stream, FILES);
    assert_eq!(told(&line).0, b"b", "it has begun");
    (child, stream, line)
}

/// The payload of the next frame of a kind.
fn until(stream: &mut UnixStream, kind: u8) -> Vec<u8> {
    std::iter::repeat_with(|| next(stream)).find(|(one, _)| *one == kind).unwrap().1
}

/// What a bridge tells its launcher, with files.
fn told(line: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(line, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let count = got.unwrap().bytes;
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    (bytes[..count].to_vec(), files.collect())
}

/// Asks a bridge to be still.
fn hold(line: &OwnedFd) {
    send(line, b"h", SendFlags::empty()).unwrap();
}

/// The guest says that it is still, whatever that is worth; what its bridge saved.
fn saved(stream: &mut UnixStream, line: &OwnedFd) -> Vec<OwnedFd> {
    hold(line);
    for _ in 0..2 {
        let number = until(stream, STILL);
        stream.write_all(&frame(STILL, &number)).unwrap();
    }
    let (word, files) = told(line);
    assert_eq!((&word[..], files.len()), (&b"q"[..], 2));
    files
}

/// Lets its bridge go on.
fn go_on(line: &OwnedFd) {
    send(line, &[b'o', 0], SendFlags::empty()).unwrap();
}

fn over(child: Child, mut stream: UnixStream) -> String {
    let _ = stream.write_all(&frame(99, b""));
    let _ = stream.read_to_end(&mut Vec::new());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(125));
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

/// The ten seconds that it has are waited for once.
#[test]
fn a_guest_that_is_never_still_is_not_forked_and_goes_on() {
    everybody(Tier::Namespace, |place| {
        let (child, mut stream, line) = begun(place);
        // Numbers that nobody has asked for are none.
        stream.write_all(&frame(STILL, &0_u32.to_le_bytes()).repeat(3)).unwrap();
        hold(&line);
        let number = until(&mut stream, STILL);
        let number = u32::from_le_bytes(number.try_into().unwrap());
        // The next one is not asked for before the first is answered, and is none of the guest's to choose.
        for wrong in [0, number.wrapping_add(1), u32::MAX] {
            stream.write_all(&frame(STILL, &wrong.to_le_bytes())).unwrap();
        }
        // It is served meanwhile, and asks on and on.
        let mut writer = stream.try_clone().unwrap();
        let asks = std::thread::spawn(move || {
            let request = request(1, 1, b"usr\0");
            while writer.write_all(&request).is_ok() {}
        });
        let mut goes_on = false;
        let (word, files) = loop {
            let mut watched = [PollFd::new(&line, PollFlags::IN)];
            if poll(&mut watched, Some(&Timespec::default())).unwrap() > 0 {
                break told(&line);
            }
            goes_on |= next(&mut stream).0 == ON;
        };
        assert!(word.starts_with(b"n") && files.is_empty(), "{word:?}");
        let why = String::from_utf8_lossy(&word[1..]).into_owned();
        assert!(why.contains("does not answer within 10 s"), "{why}");
        // The control: it is told to go on, and served.
        if !goes_on {
            until(&mut stream, ON);
        }
        until(&mut stream, FILES);
        assert!(most(&child) < 64 << 20);
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        asks.join().unwrap();
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(125));
    });
}

#[test]
fn a_guest_that_says_it_is_still_and_is_not_is_not_heard_until_it_goes_on() {
    everybody(Tier::Namespace, |place| {
        let (child, mut stream, line) = begun(place);
        let files = saved(&mut stream, &line);
        // What it was is written down, and is nobody's to change any more.
        for file in &files {
            let seals = rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(file, seals).unwrap();
        }
        let request = request(1, 1, b"usr\0");
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = stream.write(&request) {
            sent += count;
        }
        stream.set_nonblocking(false).unwrap();
        assert!(sent < 4 << 20, "{sent}");
        go_on(&line);
        until(&mut stream, ON);
        // What waited, and the rest of the last one.
        let count = sent.div_ceil(request.len());
        stream.write_all(&request[request.len() - (count * request.len() - sent)..]).unwrap();
        for _ in 0..count {
            until(&mut stream, FILES);
        }
        assert!(most(&child) < 64 << 20);
        over(child, stream);
    });
}

#[test]
fn what_was_saved_by_one_that_was_taken_over_is_no_fork() {
    everybody(Tier::Namespace, |place| {
        let (child, mut stream, line) = begun(place);
        let good = saved(&mut stream, &line);
        go_on(&line);
        over(child, stream);
        let memory = |bytes: &[u8]| {
            let file = rustix::fs::memfd_create("saved", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let mut file = File::from(file);
            file.write_all(bytes).unwrap();
            OwnedFd::from(file)
        };
        let (endless, _end) = std::io::pipe().unwrap();
        let long = memory(b"");
        File::from(long.try_clone().unwrap()).set_len(1 << 40).unwrap();
        let zero = OwnedFd::from(File::open("/dev/zero").unwrap());
        let bad = [memory(b""), memory(&[0xff; 4096]), endless.into(), long, zero];
        for file in &bad {
            for (table, trees) in [(file, &good[1]), (&good[0], file)] {
                // An empty list of no directories is as good as any other.
                let both = [table.as_fd(), trees.as_fd()];
                let (child, mut stream, _line) = bridge_of(place, Stdio::null(), None, &both);
                let mut first = [0; 9];
                if stream.read(&mut first).unwrap() > 0 {
                    assert!(std::ptr::eq(table, &good[0]) && first[4] == FORK, "{first:?}");
                    over(child, stream);
                    continue;
                }
                let said = over(child, stream);
                assert!(said.contains("the fork cannot begin: "), "{said}");
            }
        }
        // The control.
        let both = [good[0].as_fd(), good[1].as_fd()];
        let (child, mut stream, _line) = bridge_of(place, Stdio::null(), None, &both);
        assert_eq!(next(&mut stream).0, FORK);
        over(child, stream);
    });
}

#[test]
fn a_fork_that_may_open_less_than_its_session_says_so() {
    everybody(Tier::Namespace, |place| {
        let path = place.file("home/many", "");
        let (child, mut stream, line) = begun(place);
        let mut node = 1;
        for name in path.iter().skip(1) {
            let name = [name.as_encoded_bytes(), b"\0"].concat();
            stream.write_all(&request(1, node, &name)).unwrap();
            let found = until(&mut stream, FILES);
            node = u64::from_le_bytes(found[16..24].try_into().unwrap());
        }
        for _ in 0..40 {
            stream.write_all(&request(14, node, &[0; 8])).unwrap();
            assert_eq!(until(&mut stream, FILES)[4..8], [0; 4]);
        }
        let files = saved(&mut stream, &line);
        go_on(&line);
        over(child, stream);
        let both = [files[0].as_fd(), files[1].as_fd()];
        let (child, stream, _line) = bridge_of(place, Stdio::null(), Some(64), &both);
        let said = over(child, stream);
        assert!(said.contains("40 files open") && said.contains("ulimit -n 80"), "{said}");
        // The control.
        let (child, mut stream, _line) = bridge_of(place, Stdio::null(), Some(80), &both);
        assert_eq!(next(&mut stream).0, FORK);
        assert!(over(child, stream).contains("does not keep to the protocol"));
    });
}
