//! The process tier's network filter: there is no network namespace to hold the program's sockets, so
//! that it may neither connect nor bind nor listen by itself (the calls come here), and has no sockets
//! but TCP ones. The launcher connects in its place, to the gateway, which decides and dials as it
//! does in the namespace tier.
//!
//! ```text
//! connect(203.0.113.7:443) ─► noted: 127.0.0.1:40001 was going there ─► connect(gateway) on a copy
//! connect(127.0.0.1:3000)  ─► a server of the sandbox's own: connected on a copy
//! bind(0.0.0.0:3000)       ─► bind(127.0.0.1:3000) on a copy: its servers are for the loopback
//! ```
//!
//! Nothing goes on in the kernel as it was made: what was judged is what is done.

use crate::calls::{self, Answer, Caller, To};
use crate::gateway;
use crate::listeners::{Listeners, Role};
use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag, socket};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_NETLINK: i32 = 16;
const AF_UNSPEC: u16 = 0;
const SOCK_STREAM: i32 = 1;
const HERE4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HERE6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Makes a gateway with listeners of the launcher's.
pub type Make = Box<dyn Fn(Listeners) -> gateway::Gateway + Send + Sync>;

/// Where connections to the gateway were going, and whose they are, by their own addresses.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Arc<Mutex<Noted>>);

/// By where they come from: where they were going, and the process. Of a connection that is given up before it is
/// accepted nobody tells.
type Noted = Latest<SocketAddr, (SocketAddr, Option<i32>)>;

impl Wanted {
    fn note(&self, from: SocketAddr, to: SocketAddr, process: Option<i32>) {
        locked(&self.0).note(from, (to, process));
    }

    fn forget(&self, from: SocketAddr) {
        locked(&self.0).take(&from);
    }

    /// Where the client at this address was going; nothing for one that is none of the sandbox's.
    pub(crate) fn take(&self, from: SocketAddr) -> Option<(SocketAddr, Option<i32>)> {
        locked(&self.0).take(&SocketAddr::new(from.ip().to_canonical(), from.port()))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the socket calls of a program in the process tier.
#[derive(Clone)]
pub struct Redirect(Arc<Inner>);

struct Inner {
    make: Make,
    gateway: Mutex<Option<Gateway>>,
    serving: Mutex<Option<gateway::Gateway>>,
    wanted: Wanted,
    /// Where connected sockets were going, by their numbers.
    peers: Mutex<Peers>,
    /// Servers of the sandbox's own: by port, where they listen, and the inode of the socket.
    servers: Mutex<HashMap<u16, (SocketAddr, u64)>>,
    waiting: Arc<AtomicUsize>,
}

/// Where sockets were going, by their numbers.
type Peers = Latest<u64, SocketAddr>;

/// What is known of things, of so many that were noted last: programs decide how many there are.
#[derive(Debug)]
struct Latest<K, V> {
    known: HashMap<K, (u64, V)>,
    /// In order, and with what has been forgotten since.
    noted: VecDeque<(u64, K)>,
    next: u64,
}

impl<K, V> Default for Latest<K, V> {
    fn default() -> Latest<K, V> {
        Latest { known: HashMap::new(), noted: VecDeque::new(), next: 0 }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Latest<K, V> {
    const MOST: usize = 4096;

    fn note(&mut self, key: K, value: V) {
        self.next += 1;
        self.known.insert(key.clone(), (self.next, value));
        self.noted.push_back((self.next, key));
        while self.noted.len() > Self::MOST {
            let Some((number, oldest)) = self.noted.pop_front() else { break };
            // It may have been noted anew.
            if self.known.get(&oldest).is_some_and(|known| known.0 == number) {
                self.known.remove(&oldest);
            }
        }
    }

    fn of(&self, key: &K) -> Option<V> {
        self.known.get(key).map(|known| known.1.clone())
    }

    fn take(&mut self, key: &K) -> Option<V> {
        self.known.remove(key).map(|known| known.1)
    }
}

/// Where the gateway listens.
#[derive(Clone, Copy)]
struct Gateway {
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
    socket: OwnedFd,
    ipv6: bool,
}

impl Copy {
    /// # Errors
    /// `EACCES` for any other socket: it was not made here.
    fn of(socket: OwnedFd) -> Result<Copy, Errno> {
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

    /// Where it is bound; nothing while its port is 0.
    fn bound(&self) -> Option<SocketAddr> {
        let local = behalf::local(self.fd())?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        (local.port() != 0).then_some(local)
    }

    /// Binds it to a port of the loopback, any one if it is not bound.
    fn bind(&self, port: u16) -> Result<SocketAddr, Errno> {
        let here = if self.ipv6 && behalf::only_ipv6(self.fd()) { HERE6 } else { HERE4 };
        behalf::bind(self.fd(), &behalf::raw(SocketAddr::new(here, port), self.ipv6))?;
        self.bound().ok_or(Errno::EADDRNOTAVAIL)
    }

    fn inode(&self) -> Option<u64> {
        let path = format!("/proc/self/fd/{}", self.socket.as_raw_fd());
        std::fs::metadata(path).ok().map(|data| data.ino())
    }
}

impl Redirect {
    /// A filter whose gateway is made by `make`, and started, when a program first connects.
    pub fn new(make: Make) -> Redirect {
        Redirect(Arc::new(Inner {
            make,
            gateway: Mutex::default(),
            serving: Mutex::default(),
            wanted: Wanted::default(),
            peers: Mutex::default(),
            servers: Mutex::default(),
            waiting: Arc::default(),
        }))
    }

    pub(crate) fn connect(&self, caller: &Caller<'_>) -> Answer {
        let judged = || {
            let raw = caller.address()?;
            let copy = Copy::of(caller.socket()?)?;
            if raw.get(..2) == Some(&AF_UNSPEC.to_ne_bytes()) {
                return Ok((copy, To::from(raw), None));
            }
            let to = socket::address(&raw).ok_or(Errno::EAFNOSUPPORT)?;
            let to = SocketAddr::new(to.ip().to_canonical(), to.port());
            if let Some(server) = self.server(to) {
                let raw = behalf::raw(server, copy.ipv6);
                return Ok((copy, To::from(raw), None));
            }
            let gateway = self.gateway()?;
            let gateway = match gateway.six {
                _ if !copy.ipv6 || !behalf::only_ipv6(copy.fd()) => gateway.four,
                Some(six) => six,
                None => return Err(Errno::ENETUNREACH),
            };
            let from = match copy.bound() {
                Some(from) => from,
                None => copy.bind(0)?,
            };
            self.0.wanted.note(from, to, ringfence_sys::caller::process(caller.call));
            locked(&self.0.peers).note(behalf::cookie(copy.fd())?, to);
            let raw = behalf::raw(gateway, copy.ipv6);
            Ok((copy, To::from(raw), Some(from)))
        };
        match judged() {
            Err(errno) => Answer::Done(Err(errno)),
            Ok((copy, to, Some(from))) => {
                let answer = calls::connect(caller, copy.socket, to, &self.0.waiting);
                if let Answer::Done(Err(errno)) = &answer
                    && *errno != Errno::EINPROGRESS
                {
                    self.0.wanted.forget(from);
                }
                answer
            }
            Ok((copy, to, None)) => {
                let server = socket::address(&to.raw);
                let Ok(again) = copy.socket.try_clone() else {
                    return Answer::Done(Err(Errno::EMFILE));
                };
                let answer = calls::connect(caller, copy.socket, to, &self.0.waiting);
                let place = server.map(|to| SocketAddr::new(to.ip().to_canonical(), to.port()));
                if place.is_some_and(|place| self.server(place).is_none()) {
                    // Its port may have been another's by the time that it was connected to.
                    let _ = behalf::connect(again.as_fd(), &[0; 16]);
                    if matches!(answer, Answer::Done(_)) {
                        return Answer::Done(Err(Errno::ECONNREFUSED));
                    }
                }
                answer
            }
        }
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
            let to = locked(&self.0.peers).of(&behalf::cookie(copy.fd()).ok()?)?;
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
                return behalf::bind(any.as_fd(), &raw);
            }
            let copy = Copy::of(any)?;
            let wanted = socket::address(&raw).ok_or(Errno::EAFNOSUPPORT)?;
            let ip = wanted.ip().to_canonical();
            if !ip.is_unspecified() && !ip.is_loopback() {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if ip.is_loopback() {
                return behalf::bind(copy.fd(), &raw);
            }
            copy.bind(wanted.port()).map(drop)
        };
        Answer::Done(bound())
    }

    pub(crate) fn listen(&self, caller: &Caller<'_>) -> Answer {
        let listened = || {
            let copy = Copy::of(caller.socket()?)?;
            let place = match copy.bound() {
                Some(place) => place,
                None => copy.bind(0)?,
            };
            behalf::listen(copy.fd(), caller.call.arguments[1] as i32)?;
            let inode = copy.inode().ok_or(Errno::EBADF)?;
            locked(&self.0.servers).insert(place.port(), (place, inode));
            Ok(())
        };
        Answer::Done(listened())
    }

    /// Where a server of the sandbox's own listens, if that is what is wanted: another one may have
    /// taken its port since.
    fn server(&self, wanted: SocketAddr) -> Option<SocketAddr> {
        if !wanted.ip().is_loopback() && !wanted.ip().is_unspecified() {
            return None;
        }
        let (place, inode) = *locked(&self.0.servers).get(&wanted.port())?;
        let nobody = match place.ip() {
            IpAddr::V4(_) => SocketAddr::new(HERE4, 0),
            IpAddr::V6(_) => SocketAddr::new(HERE6, 0),
        };
        let by = diag::open().ok()?;
        (diag::tcp(by.as_fd(), place, nobody) == Ok(inode)).then_some(place)
    }

    /// As [`gateway::Gateway::settle`], where one was started.
    pub fn settle(&self, limit: Duration) {
        if let Some(gateway) = locked(&self.0.serving).as_mut() {
            gateway.settle(limit);
        }
    }

    /// The gateway, started if it was not.
    fn gateway(&self) -> Result<Gateway, Errno> {
        let mut started = locked(&self.0.gateway);
        if let Some(gateway) = *started {
            return Ok(gateway);
        }
        let at = |ip| {
            let listener = TcpListener::bind((ip, 0)).ok()?;
            Some((listener.local_addr().ok()?, OwnedFd::from(listener)))
        };
        let (four, socket) = at(HERE4).ok_or(Errno::ENETDOWN)?;
        let six = at(HERE6);
        let mut sockets = vec![(Role::Wanted, socket)];
        let place = six.as_ref().map(|(place, _)| *place);
        sockets.extend(six.map(|(_, socket)| (Role::Wanted, socket)));
        let wanted = self.0.wanted.clone();
        let listeners = Listeners { ipv6: place.is_some(), sockets, wanted };
        let mut gateway = (self.0.make)(listeners);
        gateway.start().map_err(|_| Errno::ENETDOWN)?;
        *locked(&self.0.serving) = Some(gateway);
        Ok(*started.insert(Gateway { four, six: place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_and_no_more_than_those() {
        let mut latest = Latest::<u64, u64>::default();
        let most = Latest::<u64, u64>::MOST as u64;
        for round in 0..3 * most {
            latest.note(round, round * 2);
            latest.note(7, round);
        }
        assert!(latest.known.len() <= most as usize && latest.noted.len() <= most as usize);
        assert_eq!(latest.of(&7), Some(3 * most - 1), "noted anew again and again");
        assert_eq!((latest.of(&8), latest.of(&(3 * most - 1))), (None, Some(6 * most - 2)));
        assert_eq!((latest.take(&7), latest.take(&7)), (Some(3 * most - 1), None));
    }
}
