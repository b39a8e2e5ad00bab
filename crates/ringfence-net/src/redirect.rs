//! The process tier's network filter: there is no network namespace to hold the program's sockets, so
//! that it may neither connect nor bind nor listen by itself (the calls come here), and has no sockets
//! but TCP ones. The launcher connects in its place, to the gateway, which decides and dials as it
//! does in the namespace tier.
//!
//! ```text
//! connect(203.0.113.7:443) ─► noted: this socket was going there ─► connect(gateway) on a copy
//! connect(127.0.0.1:3000)  ─► a server of the sandbox's own: connected on a copy, or else relayed by the gateway
//! connect(127.0.0.1:3001)  ─► nobody listens, and no rule grants that port of the host's: ECONNREFUSED
//! bind(0.0.0.0:3000)       ─► bind(127.0.0.1:3000) on a copy: its servers are for the loopback
//! ```
//!
//! Nothing goes on in the kernel as it was made: what was judged is what is done.

mod bound;
mod groups;
mod servers;
mod wanted;

pub use crate::given::Common;
pub use wanted::Wanted;

use crate::calls::{self, AF_UNSPEC, Answer, Caller, To};
use crate::gateway::Gateway;
use crate::listeners::{Listeners, Role};
use crate::{capture, flow};
use bound::Bound;
use groups::Groups;
use ringfence_sys::listener::behalf;
use ringfence_sys::taken::Taken;
use ringfence_sys::{Errno, describe, socket};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_NETLINK: i32 = 16;
const SOCK_STREAM: i32 = 1;
const HERE4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HERE6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Makes a gateway with listeners of the launcher's.
pub type Make = Box<dyn Fn(Listeners) -> Gateway + Send + Sync>;
/// Whether a rule grants this port of the host's own loopback.
pub type Grants = Box<dyn Fn(u16) -> bool + Send + Sync>;
/// What a port of the host's own loopback is kept for, so that nothing inside may listen there.
pub type Kept = Box<dyn Fn(u16) -> Option<String> + Send + Sync>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the socket calls of a program in the process tier.
#[derive(Clone)]
pub struct Redirect(Arc<Inner>);

struct Inner {
    make: Make,
    grants: Grants,
    kept: Kept,
    /// From the first connection on.
    serving: Mutex<Option<Serving>>,
    wanted: Wanted,
    bound: Bound,
    groups: Groups,
    waiting: Arc<AtomicUsize>,
}

/// The gateway that was started, and where it listens.
struct Serving {
    gateway: Gateway,
    four: SocketAddr,
    six: Option<SocketAddr>,
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redirect").finish_non_exhaustive()
    }
}

/// A copy of a TCP socket of the caller's.
struct Copy {
    socket: Taken,
    ipv6: bool,
}

impl Copy {
    /// # Errors
    /// `EACCES` for any other socket: it was not made here.
    fn of(socket: Taken) -> Result<Copy, Errno> {
        match behalf::family_and_type(socket.as_fd())? {
            (family @ (AF_INET | AF_INET6), SOCK_STREAM) => {
                Ok(Copy { socket, ipv6: family == AF_INET6 })
            }
            _ => Err(Errno::EACCES),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn only_ipv6(&self) -> bool {
        self.ipv6 && behalf::only_ipv6(self.fd())
    }

    /// Where it is bound; nothing while its port is 0.
    fn bound(&self) -> Option<SocketAddr> {
        let local = behalf::local(self.fd())?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        (local.port() != 0).then_some(local)
    }

    /// Where a server is that asks for all addresses.
    fn here(&self, port: u16) -> SocketAddr {
        SocketAddr::new(if self.only_ipv6() { HERE6 } else { HERE4 }, port)
    }
}

impl Redirect {
    /// A filter whose gateway is made by `make`, and started, when a program first connects.
    /// Its servers are marked for other sandboxes of the user's in the file that `common` opens.
    pub fn new(make: Make, grants: Grants, kept: Kept, common: Common) -> Redirect {
        let wanted = Wanted::default();
        wanted.own().mark(common);
        Redirect(Arc::new(Inner {
            make,
            grants,
            kept,
            serving: Mutex::default(),
            wanted,
            bound: Bound::default(),
            groups: Groups::default(),
            waiting: Arc::default(),
        }))
    }

    pub(crate) fn connect(&self, caller: &Caller<'_>) -> Answer {
        let judged = || {
            let raw = caller.address()?;
            let copy = Copy::of(caller.socket()?)?;
            if raw.get(..2) == Some(&AF_UNSPEC.to_ne_bytes()) {
                return Ok(Err((copy, raw)));
            }
            let to = socket::address(&raw).ok_or(Errno::EAFNOSUPPORT)?;
            let to = SocketAddr::new(to.ip().to_canonical(), to.port());
            // The kernel answers for one that is connected, or on its way: what is noted of it stays true.
            let idle = socket::is_over(copy.fd());
            if idle && let Some(server) = self.0.wanted.server(to, copy.only_ipv6()) {
                self.0.wanted.forget(copy.fd())?;
                if let Some(result) = self.join(&copy, server)? {
                    return Ok(Ok(result));
                }
            } else if idle && self.0.wanted.nobody_at(to) && !(self.0.grants)(to.port()) {
                return Err(Errno::ECONNREFUSED.into());
            }
            let gateway = self.gateway(copy.only_ipv6())?;
            if idle {
                let process = ringfence_sys::caller::process(caller.call);
                self.0.wanted.note(copy.fd(), (to, process))?;
            }
            let raw = behalf::raw(gateway, copy.ipv6);
            Ok(Err((copy, raw)))
        };
        match judged() {
            Err(Unreached(errno, None)) => Answer::Done(Err(errno)),
            Err(Unreached(errno, Some(why))) => Answer::Told(errno, why),
            Ok(Ok(result)) => Answer::Done(result),
            Ok(Err((copy, raw))) => {
                calls::connect(caller, copy.socket, To::from(raw), &self.0.waiting)
            }
        }
    }

    /// Connects a copy to a server of the sandbox's own, if that takes it at once; it is as it was where it does not.
    ///
    /// Nothing is waited for, whatever the program does with the socket meanwhile: a server of this machine that has room
    /// has answered when the call returns, and the launcher looks after all else in the same loop. One whose queue is full
    /// is the gateway's to wait for, and so is any where the system does not let a connection be begun so.
    ///
    /// A wish must not stay: it would be carried out when the server has room, at whoever listens there by then.
    fn join(&self, copy: &Copy, server: SocketAddr) -> Result<Option<Result<(), Errno>>, Errno> {
        let raw = behalf::raw(server, copy.ipv6);
        let waits = !behalf::nonblocking(copy.fd())?;
        let mut result = behalf::begin_to_connect(copy.fd(), &raw);
        if result == Err(Errno::EOPNOTSUPP) {
            return Ok(None);
        }
        if result == Err(Errno::EINPROGRESS) && waits && behalf::writable(copy.fd(), 0) {
            // A second time tells how the first one ended.
            result = behalf::begin_to_connect(copy.fd(), &raw);
        }
        // No call to the server's address comes after this look. One that is over has reached nobody.
        if socket::is_over(copy.fd()) || self.0.wanted.own().reached(copy.fd(), server) {
            // It may have come to its end a moment ago.
            let late = result == Err(Errno::EINPROGRESS) && waits;
            return Ok(Some(if late { behalf::ended(copy.fd()) } else { result }));
        }
        behalf::connect(copy.fd(), &[0; 16])?;
        // That it was called off is not for the program to hear.
        let _ = behalf::ended(copy.fd());
        Ok(None)
    }

    /// `getpeername(2)` and its kin: where the program wanted to go. What it asks of other sockets, and how it
    /// asks of those that are not connected, the kernel answers.
    pub(crate) fn peer(
        &self,
        caller: &Caller<'_>,
        give: impl FnOnce(&Caller<'_>, &[u8]) -> Result<(), Errno>,
    ) -> Answer {
        let known = || {
            let copy = Copy::of(caller.socket().ok()?).ok()?;
            let to = self.0.wanted.of(copy.fd())?;
            behalf::connected(copy.fd()).then(|| behalf::raw(to, copy.ipv6))
        };
        match known() {
            Some(raw) => Answer::Done(give(caller, &raw)),
            None => Answer::GoOn,
        }
    }

    pub(crate) fn bind(&self, caller: &Caller<'_>) -> Answer {
        let bound = || {
            let raw = caller.address()?;
            let any = caller.socket()?;
            if matches!(behalf::family_and_type(any.as_fd()), Ok((AF_NETLINK, _))) {
                // Routing queries, the only ones that the filter lets be made.
                return Ok(behalf::bind(any.as_fd(), &raw)?);
            }
            let copy = Copy::of(any)?;
            let raw = calls::to_bind(raw, if copy.ipv6 { AF_INET6 } else { AF_INET });
            let wanted = socket::address(&raw).ok_or(Errno::EAFNOSUPPORT)?;
            let (ip, port) = (wanted.ip().to_canonical(), wanted.port());
            if !ip.is_unspecified() && !ip.is_loopback() {
                return Err(Errno::EADDRNOTAVAIL.into());
            }
            // The launcher may be root, or hold the capability, and the program does not.
            if calls::takes_privilege(port, first_unprivileged()) {
                return Err(Errno::EACCES.into());
            }
            if let Some(why) = (self.0.kept)(port).filter(|_| port != 0) {
                let why = format!(
                    "nothing inside may listen at port {port} of the loopback, which is the host's own in the process \
                     tier: {why}; let it use another port, or use the namespace tier"
                );
                return Err(Unreached(Errno::EACCES, Some(why)));
            }
            let place = if ip.is_loopback() { SocketAddr::new(ip, port) } else { copy.here(port) };
            if self.0.groups.join(caller, &copy, place)? {
                return Ok(());
            }
            let raw = if ip.is_loopback() { raw } else { behalf::raw(place, copy.ipv6) };
            self.0.bound.bind(&copy, &raw)?;
            self.0.groups.bound(caller, &copy);
            Ok(())
        };
        match bound() {
            Err(Unreached(errno, Some(why))) => Answer::Told(errno, why),
            Err(Unreached(errno, None)) => Answer::Done(Err(errno)),
            Ok(()) => Answer::Done(Ok(())),
        }
    }

    /// `setsockopt(2)` for `SO_REUSEPORT`.
    pub(crate) fn share(&self, caller: &Caller<'_>) -> Answer {
        let asked = || self.0.groups.ask(caller, &Copy::of(caller.socket()?)?);
        Answer::Done(asked())
    }

    pub(crate) fn listen(&self, caller: &Caller<'_>) -> Answer {
        let listened = || {
            let copy = Copy::of(caller.socket()?)?;
            let place = match copy.bound().filter(|_| behalf::listens(copy.fd())) {
                Some(place) => place,
                None => self.0.bound.to_listen(&copy)?,
            };
            // Known before anybody can arrive at it.
            self.0.wanted.serves(place, copy.fd())?;
            behalf::listen(copy.fd(), caller.call.arguments[1] as i32)?;
            // The program may have had it lose its port meanwhile, not its address, and the kernel gives it another one.
            match copy.bound().filter(|now| *now != place) {
                Some(now) => self.0.wanted.serves(now, copy.fd()),
                None => Ok(()),
            }
        };
        Answer::Done(listened())
    }

    /// As [`Gateway::settle`], where one was started.
    pub fn settle(&self, limit: Duration) {
        if let Some(serving) = locked(&self.0.serving).as_mut() {
            serving.gateway.settle(limit);
        }
    }

    /// Where the gateway listens, started if it was not, for such a socket.
    fn gateway(&self, only_ipv6: bool) -> Result<SocketAddr, Unreached> {
        let mut serving = locked(&self.0.serving);
        let serving = match &mut *serving {
            Some(serving) => serving,
            none => none.insert(self.start()?),
        };
        match serving.six {
            _ if !only_ipv6 => Ok(serving.four),
            Some(six) => Ok(six),
            None => Err(Errno::ENETUNREACH.into()),
        }
    }

    fn start(&self) -> Result<Serving, Unreached> {
        let failed = |why: String| {
            Unreached(Errno::ENETDOWN, Some(format!("no connection can be made: {why}")))
        };
        let at = |ip| {
            let listener = TcpListener::bind((ip, 0))?;
            behalf::listen(listener.as_fd(), capture::BACKLOG)
                .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))?;
            Ok((listener.local_addr()?, OwnedFd::from(listener)))
        };
        let (four, socket) = at(HERE4).map_err(|error: io::Error| {
            failed(format!("cannot listen at {HERE4}: {}", flow::io_text(&error)))
        })?;
        let nobody = SocketAddr::new(HERE4, 0);
        self.0.wanted.find(four, nobody).map_err(|errno| {
            let why = describe(errno);
            failed(format!(
                "the kernel does not tell whose connections are (sock_diag, CONFIG_INET_DIAG): {why}"
            ))
        })?;
        let six = at(HERE6).ok();
        let mut sockets = vec![(Role::Wanted, socket)];
        let place = six.as_ref().map(|(place, _)| *place);
        sockets.extend(six.map(|(_, socket)| (Role::Wanted, socket)));
        let wanted = self.0.wanted.clone();
        let listeners = Listeners { ipv6: place.is_some(), sockets, wanted };
        let mut gateway = (self.0.make)(listeners);
        gateway.start().map_err(failed)?;
        Ok(Serving { gateway, four, six: place })
    }
}

/// The first port of this network namespace that takes no privilege to bind.
fn first_unprivileged() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(calls::FIRST_UNPRIVILEGED)
}

/// Why a call is not made, and what its user should know of it.
struct Unreached(Errno, Option<String>);

impl From<Errno> for Unreached {
    fn from(errno: Errno) -> Unreached {
        Unreached(errno, None)
    }
}
