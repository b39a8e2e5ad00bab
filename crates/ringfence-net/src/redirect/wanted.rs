//! Where the connections of the process tier were going, which the launcher notes when it makes them and the
//! gateway asks for when it accepts them.
//!
//! What the two know in common is a connection's addresses, and these are not enough: of one that was reset the
//! port is another one's at once, while the first still waits to be accepted. So it is noted by the number of the
//! program's socket, which no other one gets ([`behalf::cookie`]), and sock_diag(7) tells the number of the socket
//! that an accepted connection leads to, as long as there is a connection.

use super::locked;
use crate::given::Given;
use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag, socket};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

/// Where the program's sockets were going, and whose they are; and the servers of the sandbox's own.
#[derive(Clone, Debug, Default)]
pub struct Wanted(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// By the number of the socket. Of one that is closed nobody tells.
    noted: Mutex<Latest<u64, Destination>>,
    /// To ask by, from the first question on.
    diag: OnceLock<Mutex<OwnedFd>>,
    /// Where servers of the sandbox's own were, by port and whether it is one of IPv6.
    pub servers: Mutex<HashMap<(u16, bool), SocketAddr>>,
    pub own: Given,
}

/// Where a socket was going, and the process that it was of.
pub(crate) type Destination = (SocketAddr, Option<i32>);

impl Wanted {
    /// A socket is about to be connected to the gateway.
    pub(super) fn note(&self, socket: BorrowedFd<'_>, to: Destination) -> Result<(), Errno> {
        let number = behalf::cookie(socket)?;
        locked(&self.0.noted).note(number, to);
        Ok(())
    }

    /// A socket is about to be connected to somebody else.
    pub(super) fn forget(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = behalf::cookie(socket)?;
        locked(&self.0.noted).forget(&number);
        Ok(())
    }

    /// Where a socket of the program's was going.
    pub(super) fn of(&self, socket: BorrowedFd<'_>) -> Option<SocketAddr> {
        let number = behalf::cookie(socket).ok()?;
        locked(&self.0.noted).of(&number).map(|(to, _)| to)
    }

    /// Where the client of an accepted connection was going; nothing for one that is none of the sandbox's, or is
    /// gone.
    pub(crate) fn by(&self, accepted: BorrowedFd<'_>, from: SocketAddr) -> Option<Destination> {
        let here = behalf::local(accepted)?;
        let client = self.find(from, here).ok()?;
        let wanted = locked(&self.0.noted).of(&client.number)?;
        // Between these addresses there is one connection at a time. It is this one if this one still is, and if
        // that one is more than a wish: then the socket that was found is at its other end.
        (!client.connecting && !socket::is_over(accepted)).then_some(wanted)
    }

    /// The TCP socket at `local` that is connected to `remote`, or else listens there.
    ///
    /// # Errors
    /// `ENOENT` when there is none; `EPROTONOSUPPORT` where the kernel does not tell; those of socket(2).
    pub(super) fn find(&self, local: SocketAddr, remote: SocketAddr) -> Result<diag::Found, Errno> {
        let by = match self.0.diag.get() {
            Some(by) => by,
            // One that could not be had for want of descriptors may be had the next time.
            None => {
                let opened = Mutex::new(diag::open()?);
                self.0.diag.get_or_init(|| opened)
            }
        };
        diag::tcp(locked(by).as_fd(), local, remote)
    }
}

/// What is known of things, of so many that were noted last: programs decide how many there are.
#[derive(Debug)]
pub(super) struct Latest<K, V> {
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

impl<K: Clone + Eq + std::hash::Hash, V: Clone> Latest<K, V> {
    /// More than are served and wait to be accepted at once.
    const MOST: usize = 16_384;

    pub fn note(&mut self, key: K, value: V) {
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

    pub fn of(&self, key: &K) -> Option<V> {
        self.known.get(key).map(|known| known.1.clone())
    }

    pub fn forget(&mut self, key: &K) {
        self.known.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tokio::net::TcpSocket;

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
        latest.forget(&7);
        assert_eq!(latest.of(&7), None);
    }

    fn nowhere(port: u16) -> SocketAddr {
        ([203, 0, 113, 7], port).into()
    }

    /// A client of the gateway's that is noted to go to a port of nowhere.
    fn client(
        wanted: &Wanted,
        gateway: SocketAddr,
        from: Option<SocketAddr>,
        port: u16,
    ) -> TcpSocket {
        let make = if gateway.is_ipv6() { TcpSocket::new_v6 } else { TcpSocket::new_v4 };
        let client = make().expect("a socket");
        if let Some(from) = from {
            client.bind(from).expect("bound");
        }
        wanted.note(client.as_fd(), (nowhere(port), None)).expect("noted");
        let raw = behalf::raw(gateway, gateway.is_ipv6());
        let _ = behalf::connect(client.as_fd(), &raw);
        assert!(behalf::writable(client.as_fd(), 10_000));
        client
    }

    #[test]
    fn a_port_that_was_taken_anew_does_not_tell_of_the_connection_before() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(here) else { continue };
            let gateway = listener.local_addr().expect("an address");
            let wanted = Wanted::default();
            let first = client(&wanted, gateway, None, 1);
            let from = first.local_addr().expect("an address");
            first.set_zero_linger().expect("set");
            drop(first);
            let second = client(&wanted, gateway, Some(from), 2);
            assert_eq!(second.local_addr().ok(), Some(from), "the same addresses");
            let by = || {
                let (accepted, from) = listener.accept().expect("accepted");
                wanted.by(accepted.as_fd(), from)
            };
            assert_eq!(by(), None);
            assert_eq!(by(), Some((nowhere(2), None)));
        }
    }

    #[test]
    fn who_said_something_and_left_is_known_and_a_stranger_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let gateway = listener.local_addr().expect("an address");
        let wanted = Wanted::default();
        drop(client(&wanted, gateway, None, 1));
        let stranger = TcpStream::connect(gateway).expect("connected");
        let by = || {
            let (accepted, from) = listener.accept().expect("accepted");
            wanted.by(accepted.as_fd(), from)
        };
        assert_eq!(by(), Some((nowhere(1), None)));
        assert_eq!(by(), None);
        drop(stranger);
    }
}
