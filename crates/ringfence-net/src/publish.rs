//! `--publish`: when a program inside binds a published port, it gets a listening socket of the
//! *host* in place of its own. Connections then cross no namespace: nothing is relayed.
//!
//! The call comes here by seccomp user notification, and only `bind` does: it is rare. What is not
//! a TCP bind to a published port goes on in the kernel as it was made. There the program may have
//! changed what it names in between (another thread, `dup2`): that is no danger, since the sockets
//! that it can have are those of its own network namespace, which it may bind as it likes, and
//! those given to it here, which serve their one port and nothing else whatever is done with them
//! (see [`ringfence_sys::listener`]). A published bind itself is decided and carried out on copies:
//! of the address, and of the socket.

use ringfence_policy::Publish;
use ringfence_sys::notify::{self, Notification};
use ringfence_sys::{Errno, describe, listener, process, socket};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The most bytes of an address that are looked at: an IPv6 one.
const MOST: usize = 28;
/// `O_CLOEXEC`, as `/proc/PID/fdinfo` shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// Answers the binds of one sandbox.
#[derive(Clone, Debug)]
pub struct Handler {
    published: Vec<Publish>,
}

/// What becomes of a bind.
enum Answer {
    /// It is none of ours.
    GoOn,
    /// It is done.
    Done,
    /// It failed, for the program and in a sentence for its user.
    Failed(Errno, String),
}

impl Handler {
    /// A handler for these ports.
    pub fn new(published: Vec<Publish>) -> Handler {
        Handler { published }
    }

    /// Answers a `bind` that waits. Returns a sentence when a published port could not be had.
    ///
    /// Takes no longer than a few system calls, none of which waits for anybody.
    pub fn answer(&self, listener: BorrowedFd<'_>, call: &Notification) -> Option<String> {
        let (result, sentence) = match self.judge(listener, call) {
            Answer::GoOn => {
                let _ = notify::go_on(listener, call.id);
                return None;
            }
            Answer::Done => (Ok(()), None),
            Answer::Failed(errno, sentence) => (Err(errno), Some(sentence)),
        };
        // A caller that was killed meanwhile needs no answer.
        let _ = notify::finish(listener, call.id, result);
        sentence
    }

    fn judge(&self, listener: BorrowedFd<'_>, call: &Notification) -> Answer {
        let [descriptor, at, length, ..] = call.arguments;
        let descriptor = descriptor as i32;
        let Some(wanted) = address(call.thread, at, length) else { return Answer::GoOn };
        let Some(publish) = self.published.iter().find(|publish| publish.port == wanted.port())
        else {
            return Answer::GoOn;
        };
        let Some((theirs, close_on_exec)) = theirs(call.thread, descriptor) else {
            return Answer::GoOn;
        };
        // Until here the number may have been another process's.
        if !notify::waits(listener, call.id) {
            return Answer::GoOn;
        }
        let Some(kind) = listener::kind(theirs.as_fd()).filter(|kind| fits(kind, publish.address))
        else {
            return Answer::GoOn;
        };
        let place = SocketAddr::new(publish.address, publish.host_port);
        let given = listener::publish(place, kind).and_then(|ours| {
            notify::place(listener, call.id, ours.as_fd(), descriptor, close_on_exec)
        });
        match given {
            Ok(()) | Err(Errno::ENOENT) => Answer::Done,
            Err(errno) => {
                let why = match errno {
                    Errno::EPERM => {
                        "this kernel lets only CAP_NET_ADMIN lock a socket to its port, \
                                     without which it would open the host's network to the \
                                     sandbox; run as root, or use --network host"
                            .to_owned()
                    }
                    _ => describe(errno),
                };
                let text = &publish.source.text;
                Answer::Failed(errno, format!("cannot publish {place} (--publish {text}): {why}"))
            }
        }
    }
}

/// Whether a socket of this kind can stand for the published address. A program that binds both
/// families separately has the other one for itself.
fn fits(kind: &listener::Kind, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !kind.only_ipv6,
        IpAddr::V6(_) => kind.ipv6,
    }
}

/// The address that a call names, if it is one of IP.
fn address(thread: u32, at: u64, length: u64) -> Option<SocketAddr> {
    let mut raw = [0; MOST];
    let length = usize::try_from(length).ok()?.min(MOST);
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    memory.read_exact_at(&mut raw[..length], at).ok()?;
    socket::address(&raw[..length])
}

/// A copy of the caller's socket, and whether its own closes on exec.
fn theirs(thread: u32, descriptor: i32) -> Option<(OwnedFd, bool)> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let pidfd = process::pidfd(process.trim().parse().ok()?).ok()?;
    let copy = notify::copy_of(pidfd.as_fd(), descriptor).ok()?;
    let info = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some((copy, flags & CLOSE_ON_EXEC != 0))
}
