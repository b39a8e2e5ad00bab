//! Published UDP ports: datagrams that come to a socket of the host are carried to the program's own,
//! and its answers back.
//!
//! A datagram socket of the host could send to anybody, so that the program keeps the one it made. Each
//! peer gets a socket in the sandbox's network namespace ([`Within`]), bound to the peer's own address
//! where that can be had: the program sees who asks, and what it answers comes to that socket alone.
//!
//! ```text
//! peer ──► ADDR:HOST-PORT ── a flow: from the peer's address ──► the program's socket
//!      ◄──                ◄─ what comes from its port        ◄──
//! ```

mod ends;
mod flow;
mod newcomers;
mod targets;
mod told;

use crate::calls::Answer;
use crate::crowd;
use crate::decision::{Event, NetDecision, Process, Way};
use ends::{Ends, Watched};
use flow::Flow;
use newcomers::Newcomers;
use ringfence_policy::{Host, Publish};
use ringfence_sys::datagram::{self, Within};
use ringfence_sys::limit::{self, Resource};
use ringfence_sys::listener::behalf;
use ringfence_sys::taken::Taken;
use ringfence_sys::{Errno, describe};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use targets::Targets;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::SemaphorePermit;
use told::{More, Told};

/// Flows at the same time, of one port.
const MOST: usize = 1024;
/// A flow ends when nothing has come for so long (as netfilter has it, nf_conntrack_udp_timeout_stream).
const IDLE: Duration = Duration::from_secs(120);
/// The same for one that the program has not answered.
const UNANSWERED: Duration = Duration::from_secs(30);
/// One that was silent for so long gives its place to another when all are taken.
const SPARE: Duration = Duration::from_secs(10);
/// Datagrams that are carried in one turn: then it is the others' turn, however many come.
const TURN: usize = 64;
/// Flows that are begun in one turn: each costs as much as dozens of datagrams.
const BEGUN: usize = 2;
/// What the queue of the host's socket is asked for, where the program has not asked for more: so many peers may come
/// at once. The kernel gives what `net.core.rmem_max` allows.
const QUEUE: i32 = 1 << 20;
/// What the queue of one peer's answers is asked for; that of the first few flows of a port only, since the program
/// decides how much is in it, and it is the launcher's memory.
const ANSWERS: i32 = 4 << 20;
const FEW: usize = 16;
/// The largest datagram.
const LARGEST: usize = 65_535;
/// Numbers of flows begin here, so that no connection has the same.
const FIRST: u64 = 1 << 48;

/// Hears what becomes of flows; must not block.
pub type Teller = Arc<dyn Fn(&NetDecision) + Send + Sync>;

thread_local! {
    /// One buffer for all flows: between two steps nothing is in it.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST]);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The published UDP ports that were bound inside.
#[derive(Default)]
pub(crate) struct Forwarders {
    ports: Arc<Mutex<Ports>>,
    teller: OnceLock<Teller>,
}

/// By their places at the host.
#[derive(Default)]
struct Ports {
    /// Those that a program has bound.
    open: HashMap<SocketAddr, Arc<Port>>,
    /// What may still be told of the peers of others, which were bound.
    told: HashMap<SocketAddr, Told>,
    /// How many were bound, one after the other.
    opened: u64,
}

/// One of them.
struct Port {
    publish: Publish,
    /// The host's socket.
    host: std::net::UdpSocket,
    within: Within,
    targets: Mutex<Targets>,
    /// Each with room for its descriptor.
    flows: Mutex<HashMap<Peer, (Arc<Flow>, SemaphorePermit<'static>)>>,
    process: Option<Process>,
    teller: Option<Teller>,
    told: Mutex<Told>,
    next: AtomicU64,
    /// That all flows are taken has been told.
    full: AtomicBool,
}

/// Who sent something, and to which address of the host.
type Peer = (SocketAddr, Option<IpAddr>);

impl Forwarders {
    /// Who hears of flows.
    pub fn tell(&self, teller: Teller) {
        let _ = self.teller.set(teller);
    }

    /// Binds a program's datagram socket where it wants to be bound, and forwards to it.
    pub fn bind(
        &self,
        publish: &Publish,
        wanted: SocketAddr,
        raw: &[u8],
        theirs: &Taken,
        (thread, process): (i32, Option<i32>),
    ) -> Answer {
        let only_ipv6 = behalf::only_ipv6(theirs.as_fd());
        let place = SocketAddr::new(publish.address, publish.host_port);
        let mut ports = locked(&self.ports);
        if let Some(port) = ports.open.get(&place) {
            let bound = behalf::bind(theirs.as_fd(), raw);
            if bound.is_ok() {
                locked(&port.targets).add(wanted, only_ipv6);
            }
            return Answer::Done(bound);
        }
        let refused = |error: io::Error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::new);
            let text = &publish.source.text;
            let why = describe(errno);
            let sentence = format!("cannot publish {place}/udp (--publish {text}): {why}");
            Answer::Told(errno, sentence)
        };
        let made = std::net::UdpSocket::bind(place).and_then(|host| {
            host.set_nonblocking(true)?;
            datagram::tell_destination(host.as_fd(), place.is_ipv6()).map_err(failed)?;
            let theirs = datagram::queue(theirs.as_fd()).unwrap_or_default();
            let _ = datagram::ask_for_queue(host.as_fd(), theirs.max(QUEUE));
            let within = Within::of(thread)?;
            let ends = Ends::of(&within, wanted.port());
            Ok((host.try_clone()?, host, within, ends))
        });
        let (to_watch, host, within, ends) = match made {
            Ok(made) => made,
            Err(error) => return refused(error),
        };
        if let Err(errno) = behalf::bind(theirs.as_fd(), raw) {
            return Answer::Done(Err(errno));
        }
        let mut targets = Targets::default();
        targets.add(wanted, only_ipv6);
        let port = Arc::new(Port {
            publish: publish.clone(),
            host,
            within,
            targets: Mutex::new(targets),
            flows: Mutex::default(),
            process: process.map(Process::of),
            teller: self.teller.get().cloned(),
            told: Mutex::new(ports.told.remove(&place).unwrap_or_default()),
            next: AtomicU64::new(FIRST + (ports.opened << 40)),
            full: AtomicBool::default(),
        });
        ports.opened += 1;
        let (of_thread, all) = (port.clone(), self.ports.clone());
        // A descriptor for each flow.
        let _ = limit::set(Resource::OpenFiles, u64::MAX);
        let name = "ringfence-udp".to_owned();
        let begun = std::thread::Builder::new()
            .name(name)
            .spawn(move || serve(to_watch, ends, of_thread, &all));
        match begun {
            Ok(_) => {
                ports.open.insert(place, port);
                Answer::Done(Ok(()))
            }
            Err(error) => refused(error),
        }
    }

    /// Ends all flows.
    pub fn end(&self) {
        // Nobody is left to add to what is on its way.
        locked(&self.ports).open.values().for_each(|port| port.end(usize::MAX));
    }
}

impl std::fmt::Debug for Forwarders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarders").finish_non_exhaustive()
    }
}

fn failed(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.into_raw())
}

/// Serves until no program has the port any more, or the process ends.
fn serve(host: std::net::UdpSocket, ends: Option<Ends>, port: Arc<Port>, ports: &Mutex<Ports>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Without it the host's socket closes here: peers see that nobody is there.
    let Ok(runtime) = runtime else { return };
    let held = runtime.block_on(carry(host, ends, &port, ports));
    // All that has the host's socket goes before anybody can bind the port again.
    drop((runtime, port));
    drop(held);
}

/// Carries what comes, until no program has the port any more: then nobody can bind it while what is returned is there.
async fn carry<'p>(
    host: std::net::UdpSocket,
    ends: Option<Ends>,
    port: &Arc<Port>,
    ports: &'p Mutex<Ports>,
) -> Option<MutexGuard<'p, Ports>> {
    let host = UdpSocket::from_std(host).ok()?;
    let ends = ends.and_then(Ends::watch);
    let mut buffer = vec![0; LARGEST];
    let mut newcomers = Newcomers::default();
    loop {
        if newcomers.is_empty() {
            poll_fn(|context| match &ends {
                Some(ends) if ends.poll(context).is_ready() => Poll::Ready(Ok(())),
                _ => host.poll_recv_ready(context),
            })
            .await
            .ok()?;
        }
        if let Some(ends) = ends.as_ref().filter(|ends| ends.any())
            && let Some(held) = port.give_back(ends, ports)
        {
            return Some(held);
        }
        let more = port.receive(&host, &mut buffer, &mut newcomers);
        for _ in 0..BEGUN {
            let Some((peer, datagrams)) = newcomers.next() else { break };
            if let Some(flow) = port.begin(peer) {
                datagrams.iter().for_each(|bytes| flow.inward(bytes));
            }
        }
        if more || !newcomers.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

impl Port {
    /// Closes the port when none of those who are bound to it inside is a program's.
    fn give_back<'p>(
        &self,
        ends: &Watched,
        ports: &'p Mutex<Ports>,
    ) -> Option<MutexGuard<'p, Ports>> {
        // Who binds it does so under this lock.
        let mut ports = locked(ports);
        let left = ends.left()?;
        // A peer's socket inside may have the same number of a port.
        let ours: HashSet<u64> =
            locked(&self.flows).values().map(|(flow, _)| flow.number).collect();
        if left.iter().any(|number| !ours.contains(number)) {
            return None;
        }
        // Others inside may send without an end, and are not to hold the lock.
        self.end(1);
        let place = SocketAddr::new(self.publish.address, self.publish.host_port);
        ports.open.remove(&place);
        ports.told.insert(place, std::mem::take(&mut locked(&self.told)));
        Some(ports)
    }

    /// Ends all flows, after what is on its way out of each, of at most so many turns.
    fn end(&self, turns: usize) {
        let flows: Vec<_> = locked(&self.flows).drain().map(|(_, place)| place).collect();
        for (flow, _) in flows {
            let _ = (0..turns).all(|_| self.carry(&flow));
            self.ended(&flow);
        }
        if let Some(More { flows, sent, received }) = locked(&self.told).more() {
            let nobody = SocketAddr::new(self.publish.address, 0);
            let event = Event::Counted { flows, sent, received };
            self.tell(self.next.fetch_add(1, Relaxed), nobody, event);
        }
    }

    /// Takes what has come: what is of a peer that is known goes in at once, so that a flood of others costs
    /// it as little as may be. Whether more may be there.
    fn receive(&self, host: &UdpSocket, buffer: &mut [u8], newcomers: &mut Newcomers) -> bool {
        for _ in 0..TURN {
            let came = host.try_io(Interest::READABLE, || {
                datagram::receive(host.as_fd(), buffer).map_err(failed)
            });
            let came = match came {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Of one peer's that went away.
                Err(_) => continue,
            };
            let (peer, bytes) = ((came.from, came.to), &buffer[..came.length]);
            let known = locked(&self.flows).get(&peer).map(|(flow, _)| flow.clone());
            match known {
                Some(flow) => flow.inward(bytes),
                None => newcomers.add(peer, bytes),
            }
        }
        true
    }

    /// Begins the flow of a new peer; nothing when none can be.
    fn begin(self: &Arc<Self>, peer: Peer) -> Option<Arc<Flow>> {
        let taken = locked(&self.flows).len();
        let room = (taken < MOST).then(crowd::flow).flatten();
        let Some(room) = room.or_else(|| self.make_room()) else {
            if !self.full.swap(true, Relaxed) && self.tells() {
                let why = format!("{taken} peers are served at this port at once");
                self.tell(self.next.fetch_add(1, Relaxed), peer.0, Event::Denied(why));
            }
            return None;
        };
        self.full.store(false, Relaxed);
        let target = locked(&self.targets).of(peer.0.ip().to_canonical())?;
        let socket = std::net::UdpSocket::from(self.socket(peer.0, target)?);
        if taken < FEW {
            let _ = datagram::ask_for_queue(socket.as_fd(), ANSWERS);
        }
        let flow = Arc::new(Flow {
            id: self.next.fetch_add(1, Relaxed),
            number: behalf::cookie(socket.as_fd()).ok()?,
            told: self.tells(),
            peer,
            socket: UdpSocket::from_std(socket).ok()?,
            target,
            begun: Instant::now(),
            last: AtomicU64::default(),
            sent: AtomicU64::default(),
            received: AtomicU64::default(),
            task: OnceLock::new(),
        });
        locked(&self.flows).insert(peer, (flow.clone(), room));
        if flow.told {
            self.tell(flow.id, peer.0, Event::Allowed);
        }
        let task = tokio::spawn(answers(self.clone(), flow.clone()));
        let _ = flow.task.set(task.abort_handle());
        Some(flow)
    }

    /// A socket inside that looks like the peer, as far as that can be.
    fn socket(&self, peer: SocketAddr, target: SocketAddr) -> Option<OwnedFd> {
        let ip = peer.ip().to_canonical();
        let here = match target {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let mut sources = vec![(here, peer.port()), (here, 0)];
        if ip.is_ipv4() == target.is_ipv4() && ip != here {
            sources.splice(0..0, [(ip, peer.port()), (ip, 0)]);
        }
        sources.into_iter().find_map(|source| self.within.datagrams(source.into()).ok())
    }

    /// Ends the flow that is needed least, if there is one that is not needed, and gives its place away.
    fn make_room(&self) -> Option<SemaphorePermit<'static>> {
        let needed = |flow: &&Arc<Flow>| (flow.answered(), flow.heard());
        for _ in 0..TURN {
            let flows = locked(&self.flows);
            let least = flows.values().map(|(flow, _)| flow).min_by_key(needed).cloned()?;
            drop(flows);
            if !least.answered() {
                // What is on its way makes it one that is answered, and another one is needed less.
                self.carry(&least);
                if least.answered() {
                    continue;
                }
            } else if least.silent() < SPARE {
                return None;
            }
            let (_, room) = locked(&self.flows).remove(&least.peer)?;
            self.ended(&least);
            return Some(room);
        }
        None
    }

    /// Carries what there is of the program's to a peer, as much as one turn allows; whether more may be there.
    fn carry(&self, flow: &Flow) -> bool {
        (0..TURN).all(|_| self.outward(flow))
    }

    /// Carries one of the program's datagrams to a peer; whether there was one.
    fn outward(&self, flow: &Flow) -> bool {
        BUFFER.with_borrow_mut(|buffer| {
            let came = match datagram::receive(flow.socket.as_fd(), buffer) {
                Ok(came) => came,
                Err(errno) => return errno != Errno::EAGAIN,
            };
            // What is published is the port: others of the sandbox's do not speak for it.
            if came.from.port() != flow.target.port() {
                return true;
            }
            flow.touch();
            let (to, by) = flow.peer;
            if datagram::send(self.host.as_fd(), &buffer[..came.length], to, by).is_ok() {
                flow.sent.fetch_add(came.length as u64, Relaxed);
            }
            true
        })
    }

    fn ended(&self, flow: &Flow) {
        if let Some(task) = flow.task.get() {
            task.abort();
        }
        let (sent, received) = (flow.sent.load(Relaxed), flow.received.load(Relaxed));
        if !flow.told {
            return locked(&self.told).count(sent, received);
        }
        let duration = Duration::from_micros(flow.last.load(Relaxed));
        self.tell(flow.id, flow.peer.0, Event::Closed { sent, received, duration });
    }

    /// Whether what comes next is told by itself.
    fn tells(&self) -> bool {
        locked(&self.told).take(Instant::now())
    }

    fn tell(&self, id: u64, peer: SocketAddr, event: Event) {
        let Some(teller) = &self.teller else { return };
        let ip = peer.ip().to_canonical();
        teller(&NetDecision {
            id,
            way: Way::Published(self.publish.port),
            host: Host::Address(ip),
            port: peer.port(),
            address: Some(ip),
            process: self.process.clone(),
            event,
            decision: None,
        });
    }
}

/// Carries a program's answers to a peer, until the flow ends.
async fn answers(port: Arc<Port>, flow: Arc<Flow>) {
    loop {
        let left = flow.left();
        if left.is_zero() {
            break;
        }
        match tokio::time::timeout(left, flow.socket.readable()).await {
            Err(_) => continue,
            Ok(Err(_)) => break,
            Ok(Ok(())) => {}
        }
        // The error that ends it says that there is nothing more: that is how it is noticed.
        let mut more = false;
        let _ = flow.socket.try_io(Interest::READABLE, || {
            more = port.carry(&flow);
            if more { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        if more {
            tokio::task::yield_now().await;
        }
    }
    if locked(&port.flows).remove(&flow.peer).is_some() {
        port.ended(&flow);
    }
}

#[cfg(test)]
mod tests;
