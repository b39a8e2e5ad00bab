//! [`Gateway`]: the launcher's side. Holds the listeners, and does nothing until somebody knocks.

use crate::decision::{Event, NetDecision, Sink, Way};
use crate::given::Given;
use crate::inspect::Inspection;
use crate::leaving::Leaving;
use crate::listeners::{Listeners, Role};
use crate::live::Control;
use crate::names::Names;
use crate::redirect::Wanted;
use crate::resolver::Resolver;
use crate::rules::{self, Own};
use crate::serve;
use crate::upstream::Upstream;
use crate::who::{Finding, Who};
use ringfence_policy::{Decision, Host, Policy};
use ringfence_sys::fd;
use ringfence_sys::limit::{self, Resource};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What all connections of a session share.
pub(crate) struct Shared {
    pub control: Control,
    pub resolver: Resolver,
    pub upstream: Upstream,
    /// For hosts whose requests are looked at.
    pub inspection: Option<Arc<Inspection>>,
    pub ipv6: bool,
    /// Whether an address is this host's own.
    pub own: Own,
    names: Mutex<Names>,
    pub who: Who,
    /// Where the connections of the process tier were going.
    pub wanted: Wanted,
    /// Servers inside listen at the host's own loopback (process tier).
    one_loopback: bool,
    pub leaving: Leaving,
    sink: Sink,
    next: AtomicU64,
}

impl Shared {
    /// The rules as they stand: they can change while the session lives.
    pub fn policy(&self) -> Arc<Policy> {
        self.control.policy()
    }

    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox's own servers, where they can be at addresses that the launcher connects to.
    pub fn beside(&self) -> Option<&Given> {
        self.one_loopback.then(|| self.wanted.own())
    }

    /// A number for what belongs together.
    pub fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn tell(&self, decision: NetDecision) {
        self.control.hear(&decision);
        (self.sink)(decision);
    }
}

/// The host's own loopback, in both families.
pub(crate) const HERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// One connection's identity, for telling what becomes of it.
#[derive(Clone)]
pub(crate) struct Subject {
    pub id: u64,
    pub way: Way,
    pub host: Host,
    /// What the program calls it, where it has said so and that is the same.
    pub named: Option<Host>,
    pub port: u16,
    pub address: Option<IpAddr>,
    pub decision: Option<Decision>,
    /// Who asks, as soon as that is known.
    pub process: Arc<Finding>,
}

impl Subject {
    /// The host as people are told of it. To a program that connects, the host's own loopback is an address, whatever
    /// it asked for; in rules it is `localhost`.
    pub fn shown(&self) -> Host {
        match (&self.named, &self.host) {
            (Some(named), _) => named.clone(),
            (None, Host::Address(address))
                if self.way == Way::Connect && HERE.contains(address) =>
            {
                Host::Name("localhost".to_owned())
            }
            (None, host) => host.clone(),
        }
    }

    pub fn tell(&self, shared: &Shared, event: Event) {
        self.tell_of(shared, event, self.decision.clone());
    }

    /// Tells of it with a decision of its own.
    pub fn tell_of(&self, shared: &Shared, event: Event, decision: Option<Decision>) {
        let Subject { id, way, port, address, .. } = *self;
        let host = self.shown();
        let told = NetDecision { id, way, host, port, address, process: None, event, decision };
        self.process.tell(shared, told);
    }
}

/// The launcher's side of a sandbox's network.
///
/// It starts no thread by itself: the launcher's loop watches [`Gateway::fds`], and calls
/// [`Gateway::start`] when one of them becomes readable. A sandbox that never connects costs four
/// descriptors.
pub struct Gateway {
    waiting: Option<Listeners>,
    shared: Arc<Shared>,
}

impl Gateway {
    /// A gateway that decides by the rules of `control` and tells `sink`. Names are resolved as
    /// this host does (`/etc/hosts`, `/etc/resolv.conf`), and the proxy variables of the caller's
    /// environment are honoured.
    pub fn new(control: Control, listeners: Listeners, sink: Sink) -> Gateway {
        let upstream = Upstream::of_environment(&|name| std::env::var(name).ok());
        Gateway::controlled(control, listeners, sink, Resolver::default(), upstream, rules::own)
    }

    /// The same, with what inspection needs, where the policy needs it. Without it, connections to
    /// hosts that rules about requests name are refused.
    #[must_use]
    pub fn inspecting(mut self, inspection: Option<Arc<Inspection>>) -> Gateway {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.inspection = inspection;
        }
        self
    }

    /// A gateway with rules that do not change, and a resolver, an upstream proxy and addresses of
    /// the host's own of the caller's.
    pub fn with(
        policy: Arc<Policy>,
        listeners: Listeners,
        sink: Sink,
        resolver: Resolver,
        upstream: Upstream,
        own: Own,
    ) -> Gateway {
        let control = Control::new(policy, None, Box::new(|_| {}));
        Gateway::controlled(control, listeners, sink, resolver, upstream, own)
    }

    fn controlled(
        control: Control,
        mut listeners: Listeners,
        sink: Sink,
        resolver: Resolver,
        upstream: Upstream,
        own: Own,
    ) -> Gateway {
        let shared = Shared {
            control,
            resolver,
            upstream,
            inspection: None,
            ipv6: listeners.ipv6,
            own,
            names: Mutex::default(),
            who: Who::new(listeners.take(Role::Diag)),
            wanted: listeners.wanted.clone(),
            one_loopback: listeners.sockets.iter().any(|(role, _)| *role == Role::Wanted),
            leaving: Leaving::default(),
            sink,
            next: AtomicU64::new(1),
        };
        Gateway { waiting: Some(listeners), shared: Arc::new(shared) }
    }

    /// What to watch for readability; nothing once started.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let sockets = self.waiting.iter().flat_map(|listeners| &listeners.sockets);
        sockets.map(|(_, fd)| fd.as_fd()).collect()
    }

    /// Starts the one thread that serves all connections. Later calls do nothing.
    ///
    /// It ends with the process; the caller must have blocked the signals that it handles itself.
    ///
    /// # Errors
    /// A sentence; the listeners are closed then, so that every connection inside is refused.
    pub fn start(&mut self) -> Result<(), String> {
        let Some(listeners) = self.waiting.take() else { return Ok(()) };
        // Two descriptors for each connection, up to six while it moves much.
        let _ = limit::set(Resource::OpenFiles, u64::MAX);
        let shared = self.shared.clone();
        std::thread::Builder::new()
            .name("ringfence-net".to_owned())
            .spawn(move || serve::serve(listeners, shared))
            .map(drop)
            .map_err(|error| format!("cannot start the thread of the network gateway: {error}"))
    }

    /// Lets what is left come to its end, once nobody is inside any more: connections that wait to be accepted,
    /// bytes on their way out, what is to be told of them. It takes no longer than `limit`. Later calls do nothing.
    pub fn settle(&mut self, limit: Duration) {
        let waiting = self.waiting.is_some();
        if waiting && !fd::poll_readable(&self.fds(), 0).is_ok_and(|ready| ready.contains(&true)) {
            return;
        }
        if self.start().is_ok() && self.shared.leaving.begin() {
            self.shared.leaving.wait(limit);
        }
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}
