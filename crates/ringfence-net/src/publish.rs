//! `--publish`: when a program inside binds a published port, it gets a listening socket of the
//! *host* in place of its own. Connections then cross no namespace: nothing is relayed.
//!
//! Its own socket is bound where it wanted, and relayed from by the launcher, so that programs
//! inside reach the published port as well. Datagrams are forwarded ([`crate::forward`]).

pub use crate::calls::{Handler, Reach};

use crate::calls::{Answer, Caller, own};
use crate::forward::Forwarders;
use crate::given::Given;
use crate::inward;
use ringfence_policy::{Publish, Transport};
use ringfence_sys::listener::{self, Lock, behalf};
use ringfence_sys::taken::Taken;
use ringfence_sys::{Errno, describe, notify, socket};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The published ports of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    ports: Vec<Publish>,
    /// Where programs inside are served already.
    inward: Arc<Mutex<HashSet<SocketAddr>>>,
    given: Arc<Given>,
    pub forwarders: Arc<Forwarders>,
}

impl Published {
    pub fn new(ports: Vec<Publish>) -> Published {
        Published {
            ports,
            inward: Arc::default(),
            given: Arc::default(),
            forwarders: Arc::default(),
        }
    }

    /// Answers a bind where published sockets are locked. What is not a bind to a published port
    /// goes on in the kernel as it was made: the sockets that the program can have are those
    /// of its own network namespace, which it may bind as it likes, and those given to it here.
    pub fn bind(&self, caller: &Caller<'_>) -> Answer {
        let Ok(raw) = caller.address() else { return Answer::GoOn };
        let wanted = |transport| self.wanted(&raw, transport).next().is_some();
        if !wanted(Transport::Tcp) && !wanted(Transport::Udp) {
            return Answer::GoOn;
        }
        let Ok(copy) = caller.socket() else { return Answer::GoOn };
        let answer = self.put(caller, &raw, &copy, Lock::Socket);
        answer.or_else(|| self.datagrams(caller, &raw, &copy)).unwrap_or(Answer::GoOn)
    }

    /// Whether such a port is published, in either family.
    pub fn names(&self, port: u16) -> bool {
        self.ports.iter().any(|of| of.port == port && of.transport == Transport::Tcp)
    }

    /// The rules for a port that is to be bound: one for each family at most.
    fn wanted(
        &self,
        raw: &[u8],
        transport: Transport,
    ) -> impl Iterator<Item = (&Publish, SocketAddr)> {
        let wanted = socket::address(raw);
        self.ports.iter().filter_map(move |publish| {
            let wanted = wanted.filter(|wanted| wanted.port() == publish.port)?;
            (publish.transport == transport).then_some((publish, wanted))
        })
    }

    /// Binds a datagram socket that wants to be bound to a published port, and forwards to it; nothing
    /// when it is not one, or not of the sandbox's network.
    pub fn datagrams(&self, caller: &Caller<'_>, raw: &[u8], theirs: &Taken) -> Option<Answer> {
        let (publish, wanted) = self.wanted(raw, Transport::Udp).next()?;
        if !listener::is_udp(theirs.as_fd()) || !own(theirs.as_fd()) {
            return None;
        }
        let who = (caller.call.thread as i32, ringfence_sys::caller::process(caller.call));
        let answer = self.forwarders.bind(publish, wanted, raw, theirs, who);
        Some(answer)
    }

    /// Puts a listener of the host in the place of a socket that wants to be bound to a published
    /// port; nothing when it is not one.
    pub fn put(
        &self,
        caller: &Caller<'_>,
        raw: &[u8],
        theirs: &Taken,
        lock: Lock,
    ) -> Option<Answer> {
        let kind = listener::kind(theirs.as_fd())?;
        let mut fitting =
            self.wanted(raw, Transport::Tcp).filter(|(publish, _)| fits(&kind, publish.address));
        let (publish, wanted) = fitting.next()?;
        let place = SocketAddr::new(publish.address, publish.host_port);
        let close_on_exec = caller.closes_on_exec();
        // Who shares the port gets some of what comes: another one's clients would be the program's.
        let own = || self.given.at(place).1;
        let kind = listener::Kind { reuse_port: kind.reuse_port && own(), ..kind };
        let given = listener::publish(place, kind, lock).and_then(|ours| {
            let (number, id) = (caller.descriptor(), caller.call.id);
            self.given.note(ours.as_fd())?;
            if kind.reuse_port && !own() {
                return Err(Errno::EADDRINUSE);
            }
            notify::place(caller.listener, id, ours.as_fd(), number, close_on_exec)
        });
        Some(match given {
            Ok(()) => {
                self.serve_inside(wanted, place, theirs, raw);
                Answer::Done(Ok(()))
            }
            Err(Errno::ENOENT) => Answer::Done(Ok(())),
            Err(errno) => {
                let why = match errno {
                    Errno::EPERM => {
                        "this kernel lets only CAP_NET_ADMIN lock a socket to its port, and has no \
                         Landlock that rules ports (Linux 6.7), without which it would open the \
                         host's network to the sandbox; run as root, or use --network host"
                            .to_owned()
                    }
                    _ => describe(errno),
                };
                let text = &publish.source.text;
                let sentence = format!("cannot publish {place} (--publish {text}): {why}");
                Answer::Told(errno, sentence)
            }
        })
    }

    /// The program's own socket serves the others inside. When it cannot be had (the port is in use
    /// inside), they do without.
    fn serve_inside(&self, wanted: SocketAddr, host: SocketAddr, theirs: &Taken, raw: &[u8]) {
        let mut served = self.inward.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains(&wanted) || behalf::bind(theirs.as_fd(), raw).is_err() {
            return;
        }
        if let Ok(socket) = theirs.as_fd().try_clone_to_owned()
            && inward::serve(socket, host, Arc::clone(&self.given)).is_ok()
        {
            served.insert(wanted);
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
