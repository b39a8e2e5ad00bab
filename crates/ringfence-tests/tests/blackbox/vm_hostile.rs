//! A guest that means ill of its bridge: this test is the launcher and the guest, and the bridge is the real one.

use ringfence_tests::{PATIENCE, Place, Tier, binary, everybody};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, sendmsg, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

/// What the guest has, for whom the bridge keeps no more than some of it.
const MEMORY: &str = "16777216";
pub const READY: u8 = 2;
pub const STARTED: u8 = 3;
const OUTPUT: u8 = 5;
const CHANGE: u8 = 6;
pub const FILES: u8 = 8;
const DELIVERED: u8 = 18;
/// The bridge's: a signal for the command.
const SIGNAL: u8 = 5;

/// A bridge, and the guest's end of its stream.
fn bridge(place: &Place) -> (Child, UnixStream) {
    bridge_with(place, Stdio::null(), None)
}

/// The same; its standard output, and how many files it may have open.
fn bridge_with(place: &Place, out: Stdio, files: Option<u64>) -> (Child, UnixStream) {
    let (child, stream, _) = bridge_of(place, out, files, &[]);
    (child, stream)
}

/// The same, with what was saved for it; also its launcher's end of their line.
pub fn bridge_of(
    place: &Place,
    out: Stdio,
    files: Option<u64>,
    saved: &[BorrowedFd<'_>],
) -> (Child, UnixStream, OwnedFd) {
    let path = place.at("tmp/line");
    let kind = SocketType::SEQPACKET;
    let line = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&line, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&line, 1).unwrap();
    place.person.owns(&path);
    let few = files.map_or(String::new(), |count| format!("ulimit -n {count}; "));
    let mut command = place.command("/bin/sh");
    command.args(["-c", &format!("{few}exec \"$@\""), "sh"]).arg(binary()).arg("guest-bridge");
    command.env("RINGFENCE_VM_WORD", "0".repeat(32));
    command.arg("--socket").arg(&path).args(["--memory", MEMORY, "--", "true"]);
    let child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let line = accept(&line).unwrap();
    fs::remove_file(&path).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = [&[theirs.as_fd()], saved].concat();
    assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
    sendmsg(&line, &[IoSlice::new(&[0; 16]), IoSlice::new(b"s")], &mut control, SendFlags::empty())
        .unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    (child, ours, line)
}

pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(0, kind, payload)
}

/// The same about a channel: 1 is the command's.
pub fn frame_of(channel: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_le_bytes()[..], &[kind], &channel.to_le_bytes(), payload].concat()
}

/// A request for a file, as the kernel makes it.
pub fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = (40 + body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    frame(FILES, &bytes)
}

/// The next frame of the bridge's: its kind and payload.
pub fn next(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_le_bytes(head[..4].try_into().unwrap()) as usize];
    stream.read_exact(&mut payload).unwrap();
    (head[4], payload)
}

/// The number that an answer begins with: a node, a handle.
fn number(stream: &mut UnixStream, request: &[u8]) -> u64 {
    stream.write_all(request).unwrap();
    let (kind, payload) = next(stream);
    assert_eq!((kind, &payload[4..8]), (FILES, &[0; 4][..]), "{payload:?}");
    u64::from_le_bytes(payload[16..24].try_into().unwrap())
}

/// The most memory that a process has had, in bytes.
pub fn most(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn what_a_guest_asks_for_and_does_not_take_is_not_held_for_it() {
    const SIZE: usize = 1 << 20;
    const COUNT: usize = 400;
    everybody(Tier::Namespace, |place| {
        let path = place.file("home/large", vec![7; SIZE]);
        let (mut child, mut stream) = bridge(place);
        // What it is given first is no answer.
        let (begin, exec) = (next(&mut stream).0, next(&mut stream).0);
        assert_eq!((begin, exec), (1, 2));
        stream.write_all(&frame(READY, &[0])).unwrap();
        let mut node = 1;
        for name in path.iter().skip(1) {
            let name = [name.as_encoded_bytes(), b"\0"].concat();
            node = number(&mut stream, &request(1, node, &name));
        }
        let handle = number(&mut stream, &request(14, node, &[0; 8]));
        let mut body = [handle.to_le_bytes(), [0; 8]].concat();
        body.extend((SIZE as u64).to_le_bytes());
        body.extend([0; 16]);
        // All together: a few kilobytes ask for as many megabytes.
        stream.write_all(&request(15, node, &body).repeat(COUNT)).unwrap();
        for _ in 0..COUNT {
            let (kind, payload) = next(&mut stream);
            assert_eq!((kind, payload.len()), (FILES, 16 + SIZE));
        }
        let most = most(&child);
        assert!(most < 64 << 20, "{} MiB", most >> 20);
        // The control: it lives, and ends as a guest that breaks the protocol lets it end.
        stream.write_all(&frame(99, b"")).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125));
    });
}

/// Makes a file and takes its name away, again and again: each is one that the bridge has to know until the guest
/// says that it has forgotten it.
#[test]
fn what_a_guest_does_not_forget_is_bounded_by_its_memory() {
    everybody(Tier::Namespace, |place| {
        let (mut child, mut stream) = bridge(place);
        let (begin, exec) = (next(&mut stream).0, next(&mut stream).0);
        assert_eq!((begin, exec), (1, 2));
        stream.write_all(&frame(READY, &[0])).unwrap();
        let mut node = 1;
        let home = place.directory("home/made");
        for name in home.iter().skip(1) {
            let name = [name.as_encoded_bytes(), b"\0"].concat();
            node = number(&mut stream, &request(1, node, &name));
        }
        let name = [&[b'n'; 255][..], b"\0"].concat();
        let create =
            request(35, node, &[&[1, 0, 0, 0, 0o200, 1, 0, 0][..], &[0; 8], &name].concat());
        let mut refused = None;
        for count in 0..20_000 {
            stream.write_all(&create).unwrap();
            let (_, payload) = next(&mut stream);
            let error = i32::from_le_bytes(payload[4..8].try_into().unwrap());
            if error != 0 {
                refused = Some((count, -error));
                break;
            }
            // `struct fuse_entry_out`, then the handle.
            let handle: [u8; 8] = payload[16 + 128..][..8].try_into().unwrap();
            let release = request(18, node, &[&handle[..], &[0; 16]].concat());
            stream.write_all(&[release, request(10, node, &name)].concat()).unwrap();
            for _ in 0..2 {
                next(&mut stream);
            }
        }
        // One for each KiB of its memory, less those that it knows from the start. ENFILE.
        let (count, errno) = refused.expect("bounded");
        assert!((16_000..16_384).contains(&count), "{count}");
        assert_eq!(errno, 23);
        let most = most(&child);
        assert!(most < 24 << 20, "{} MiB", most >> 20);
        // The control: what it forgets makes room.
        let forget = request(2, 5000, &u64::MAX.to_le_bytes());
        stream.write_all(&[forget, create].concat()).unwrap();
        assert_eq!(next(&mut stream).1[4..8], [0; 4]);
        stream.write_all(&frame(99, b"")).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125));
    });
}

/// The grace is ten seconds: this is the one test that waits for it.
#[test]
fn a_guest_that_does_not_take_a_signal_is_ended() {
    everybody(Tier::Namespace, |place| {
        let begun = || {
            let (child, mut stream) = bridge(place);
            let (begin, exec) = (next(&mut stream).0, next(&mut stream).0);
            assert_eq!((begin, exec), (1, 2));
            stream.write_all(&frame(READY, &[0])).unwrap();
            stream.write_all(&frame_of(1, STARTED, &[])).unwrap();
            // It has heard that once it answers.
            stream.write_all(&request(1, 1, b"usr\0")).unwrap();
            while next(&mut stream).0 != FILES {}
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            // The end of its input may come before it.
            let told =
                std::iter::repeat_with(|| next(&mut stream)).find(|(kind, _)| *kind == SIGNAL);
            assert_eq!(told.unwrap().1[0], 15);
            (child, stream)
        };
        // Deaf: the stream ends when the bridge does.
        let (child, mut stream) = begun();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), Some(15));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("did not take signal 15 within 10 s"), "{said}");
        // The control: a command that takes it may end as it likes.
        let (mut child, mut stream) = begun();
        stream.write_all(&frame_of(1, DELIVERED, &[])).unwrap();
        stream.write_all(&frame_of(1, CHANGE, &[0, 3])).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
    });
}

#[test]
fn what_a_command_writes_byte_by_byte_takes_no_more_than_its_bytes() {
    const COUNT: usize = 1 << 20;
    everybody(Tier::Namespace, |place| {
        // Nobody reads it.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (mut child, mut stream) = bridge_with(place, writer.into(), None);
        let (begin, exec) = (next(&mut stream).0, next(&mut stream).0);
        assert_eq!((begin, exec), (1, 2));
        stream.write_all(&[frame(READY, &[0]), frame_of(1, STARTED, &[])].concat()).unwrap();
        let pieces = frame_of(1, OUTPUT, &[0, b'x']).repeat(COUNT);
        // What was taken is told meanwhile, and does not matter.
        let mut heard = stream.try_clone().unwrap();
        let asked = std::thread::spawn(move || while next(&mut heard).0 != FILES {});
        stream.write_all(&pieces).unwrap();
        stream.write_all(&request(1, 1, b"usr\0")).unwrap();
        asked.join().unwrap();
        let most = most(&child);
        assert!(most < 24 << 20, "{} MiB", most >> 20);
        // The control: all of it comes.
        stream.write_all(&frame_of(1, CHANGE, &[0, 0])).unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.len(), child.wait().unwrap().code()), (COUNT, Some(0)));
    });
}

#[test]
fn a_guest_that_opens_files_leaves_the_bridge_some() {
    const MOST: u64 = 64;
    everybody(Tier::Namespace, |place| {
        let path = place.file("home/many", "");
        let (mut child, mut stream) = bridge_with(place, Stdio::null(), Some(MOST));
        let (begin, exec) = (next(&mut stream).0, next(&mut stream).0);
        assert_eq!((begin, exec), (1, 2));
        stream.write_all(&frame(READY, &[0])).unwrap();
        let mut node = 1;
        for name in path.iter().skip(1) {
            let name = [name.as_encoded_bytes(), b"\0"].concat();
            node = number(&mut stream, &request(1, node, &name));
        }
        let mut open = Vec::new();
        let refused = loop {
            stream.write_all(&request(14, node, &[0; 8])).unwrap();
            let (_, payload) = next(&mut stream);
            let error = i32::from_le_bytes(payload[4..8].try_into().unwrap());
            if error != 0 {
                break -error;
            }
            open.push(payload[16..24].to_vec());
        };
        // ENFILE, and not the bridge's own EMFILE.
        assert_eq!((refused, open.len() as u64), (23, MOST / 2));
        // The control: what is closed makes room.
        let release = request(18, node, &[&open[0][..], &[0; 16]].concat());
        stream.write_all(&release).unwrap();
        next(&mut stream);
        number(&mut stream, &request(14, node, &[0; 8]));
        stream.write_all(&frame(99, b"")).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125));
    });
}

#[test]
fn a_guest_that_speaks_before_it_has_begun_is_hung_up_on() {
    everybody(Tier::Namespace, |place| {
        let (child, mut stream) = bridge(place);
        stream.write_all(&request(1, 1, b"etc\0")).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(125));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("speaks before it has begun"), "{said}");
    });
}
