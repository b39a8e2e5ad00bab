//! The capture of a network as system calls, for the child in its own network namespace: what
//! `ringfence_net::capture::inside` does, on a kernel that has been seen to have all it takes.

use super::script::{Arg, Script};
use ringfence_net::capture::Calls;
use ringfence_start::Sysno;
use ringfence_start::image::{register, special};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const AF_NETLINK: u32 = 16;
const AF_INET6: u32 = 10;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_NONBLOCK: u32 = 0o4_000;
const SOCK_CLOEXEC: u32 = 0o2_000_000;
const NETLINK_ROUTE: u32 = 0;
const NETLINK_SOCK_DIAG: u32 = 4;
const NETLINK_NETFILTER: u32 = 12;
const SOL_SOCKET: u32 = 1;

/// Writes the steps; the listeners go to the launcher at the end.
pub(super) fn write(script: &mut Script, calls: &Calls) {
    let route = netlink(script, NETLINK_ROUTE, 0);
    for message in &calls.routes {
        ask(script, route, message);
    }
    script.close(route);
    let filter = netlink(script, NETLINK_NETFILTER, 0);
    ask(script, filter, &calls.rules);
    script.close(filter);
    let mut sockets: Vec<u8> =
        calls.sockets.iter().map(|&(listens, port)| bound(script, listens, port)).collect();
    sockets.push(netlink(script, NETLINK_SOCK_DIAG, SOCK_NONBLOCK));
    hand_out(script, &calls.message, &sockets);
    for socket in sockets {
        script.close(socket);
    }
}

fn netlink(script: &mut Script, protocol: u32, flags: u32) -> u8 {
    let kind = SOCK_RAW | SOCK_CLOEXEC | flags;
    script.open(Sysno::socket, &[AF_NETLINK.into(), kind.into(), protocol.into()])
}

/// Sends messages of which the last one is confirmed, and takes the confirmation.
fn ask(script: &mut Script, socket: u8, message: &[u8]) {
    let at = Arg::Data(script.bytes(message));
    let socket = Arg::Register(socket);
    let none = Arg::from(0_u32);
    script.call(Sysno::sendto, &[socket, at, message.len().into(), none, none, none]);
    script.step(special::ACKNOWLEDGED, &[socket]);
}

/// A socket of both families at every address.
fn bound(script: &mut Script, listens: bool, port: u16) -> u8 {
    const SO_REUSEADDR: u32 = 2;
    const BACKLOG: u32 = 4096;
    let kind = SOCK_CLOEXEC | if listens { SOCK_STREAM } else { SOCK_DGRAM };
    let socket = script.open(Sysno::socket, &[AF_INET6.into(), kind.into(), 0_u32.into()]);
    let handle = Arg::Register(socket);
    if listens {
        let one = Arg::Data(script.constant(&1_u32.to_ne_bytes()));
        let option = [handle, SOL_SOCKET.into(), SO_REUSEADDR.into(), one, 4_u32.into()];
        script.call(Sysno::setsockopt, &option);
    }
    // struct sockaddr_in6: family, port in network order, flow, address `::`, scope.
    let mut address = [0; 28];
    address[..2].copy_from_slice(&(AF_INET6 as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    let address = Arg::Data(script.constant(&address));
    script.call(Sysno::bind, &[handle, address, 28_u32.into()]);
    if listens {
        script.call(Sysno::listen, &[handle, BACKLOG.into()]);
    }
    socket
}

/// A Unix socket in the file system, at a path relative to the current directory, whose listener
/// goes to the launcher with a one-letter message, and other descriptors after it.
pub(super) fn local_listener(script: &mut Script, path: &Path, letter: u8, others: &[u8]) {
    const AF_UNIX: u32 = 1;
    const BACKLOG: u32 = 16;
    let kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    let socket = script.open(Sysno::socket, &[AF_UNIX.into(), kind.into(), 0_u32.into()]);
    // struct sockaddr_un: family, path, NUL.
    let mut address = (AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend_from_slice(path.as_os_str().as_bytes());
    address.push(0);
    let length = address.len();
    let address = Arg::Data(script.constant(&address));
    script.call(Sysno::bind, &[Arg::Register(socket), address, length.into()]);
    script.call(Sysno::listen, &[Arg::Register(socket), BACKLOG.into()]);
    hand_out(script, &[letter], &[&[socket], others].concat());
    script.close(socket);
}

/// Sends a message with descriptors (`SCM_RIGHTS`, unix(7)) over the control socket.
fn hand_out(script: &mut Script, message: &[u8], descriptors: &[u8]) {
    const SCM_RIGHTS: u32 = 1;
    const MSG_NOSIGNAL: u32 = 0x4000;
    // struct cmsghdr: length, level, kind; then the descriptors.
    let length = 16 + 4 * descriptors.len();
    let mut rights = length.to_ne_bytes().to_vec();
    rights.extend(SOL_SOCKET.to_ne_bytes());
    rights.extend(SCM_RIGHTS.to_ne_bytes());
    rights.resize(length.next_multiple_of(8), 0);
    let rights_at = script.bytes(&rights);
    for (index, descriptor) in descriptors.iter().enumerate() {
        script.store(rights_at + 16 + 4 * index as u32, Arg::Register(*descriptor), 4);
    }
    let text = script.bytes(message);
    // struct iovec: place, length.
    let part = script.bytes(&words([0, message.len()]));
    script.store(part, Arg::Data(text), 8);
    // struct msghdr: name and its length, parts and their number, rights and their length, flags.
    let head = script.bytes(&words([0, 0, 0, 1, 0, rights.len(), 0]));
    script.store(head + 16, Arg::Data(part), 8);
    script.store(head + 32, Arg::Data(rights_at), 8);
    let control = Arg::Register(register::CONTROL);
    script.call(Sysno::sendmsg, &[control, Arg::Data(head), MSG_NOSIGNAL.into()]);
}

fn words<const N: usize>(words: [usize; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
