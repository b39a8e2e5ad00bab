//! Which sockets have an address of the loopback, and keep it.
//!
//! A socket that the kernel gave an address when it was connected has none any more when that is over (`tcp_disconnect`:
//! a `connect` to `AF_UNSPEC`, a `shutdown` before an answer came), and no port either, though getsockname(2) goes on
//! telling the last one. Were it to listen so, the kernel would bind it then: to all addresses of the host. One that was
//! bound keeps its address (`SOCK_BINDADDR_LOCK` in `__inet_bind`), which nothing tells. So nothing listens but what was
//! bound here.

use super::wanted::Latest;
use super::{Copy, locked};
use ringfence_sys::Errno;
use ringfence_sys::listener::behalf;
use std::net::SocketAddr;
use std::sync::Mutex;

/// The sockets that were bound, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Bound(Mutex<Latest<u64, ()>>);

impl Bound {
    /// Binds a socket to an address of the loopback.
    ///
    /// # Errors
    /// Those of `bind(2)`: `EINVAL` where it has a port.
    pub fn bind(&self, copy: &Copy, address: &[u8]) -> Result<(), Errno> {
        let number = behalf::cookie(copy.fd())?;
        behalf::bind(copy.fd(), address)?;
        locked(&self.0).note(number, ());
        Ok(())
    }

    /// Has a socket that is to listen bound, and says where it is.
    ///
    /// # Errors
    /// `EINVAL` for one that is connected, or was bound by nobody that is known; those of `bind(2)`.
    pub fn to_listen(&self, copy: &Copy) -> Result<SocketAddr, Errno> {
        let local = behalf::local(copy.fd()).map(|local| local.ip().to_canonical());
        let ip = local.filter(|ip| ip.is_loopback()).unwrap_or_else(|| copy.here(0).ip());
        let address = behalf::raw(SocketAddr::new(ip, 0), copy.ipv6);
        match self.bind(copy, &address) {
            Ok(()) if copy.bound().is_none() => {
                // It was to get its port when it is connected (`IP_BIND_ADDRESS_NO_PORT`, ip(7)).
                behalf::takes_its_port_when_bound(copy.fd())?;
                self.bind(copy, &address)?;
            }
            Ok(()) => {}
            Err(Errno::EINVAL) if self.knows(copy)? => {}
            Err(errno) => return Err(errno),
        }
        copy.bound().filter(|place| place.ip().is_loopback()).ok_or(Errno::EADDRNOTAVAIL)
    }

    fn knows(&self, copy: &Copy) -> Result<bool, Errno> {
        let number = behalf::cookie(copy.fd())?;
        Ok(locked(&self.0).of(&number).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_sys::taken::Taken;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::{AsFd, OwnedFd};
    use tokio::net::TcpSocket;

    fn copy(socket: impl Into<OwnedFd>) -> Copy {
        Copy::of(Taken::from(socket.into())).expect("a TCP socket")
    }

    #[test]
    fn one_that_was_connected_listens_at_the_loopback_alone() {
        let server = TcpListener::bind("127.0.0.1:0").expect("bound");
        let bound = Bound::default();
        let stream = TcpStream::connect(server.local_addr().expect("there")).expect("connected");
        let copy = copy(stream);
        // While it is connected it is the kernel's to refuse.
        assert_eq!(bound.to_listen(&copy), Err(Errno::EINVAL));
        behalf::connect(copy.fd(), &[0; 16]).expect("called off");
        let told = behalf::local(copy.fd()).expect("an address");
        assert!(told.ip().is_unspecified() && told.port() != 0, "what this is about: {told}");
        let place = bound.to_listen(&copy).expect("bound");
        assert_eq!(place.ip(), Ipv4Addr::LOCALHOST);
        behalf::listen(copy.fd(), 1).expect("listens");
        assert_eq!(behalf::local(copy.fd()), Some(place));
        assert_eq!(bound.to_listen(&copy), Ok(place), "again");
    }

    #[test]
    fn one_that_is_bound_listens_there_and_one_that_somebody_else_bound_does_not() {
        let bound = Bound::default();
        // Bound and listening, by nobody that is known.
        let strange = copy(TcpListener::bind("0.0.0.0:0").expect("bound"));
        assert_eq!(bound.to_listen(&strange), Err(Errno::EINVAL));
        let new = || {
            let socket = TcpSocket::new_v4().expect("a socket");
            copy(socket.as_fd().try_clone_to_owned().expect("a copy"))
        };
        let own = new();
        let there = "127.0.0.2:0".parse().expect("an address");
        bound.bind(&own, &behalf::raw(there, false)).expect("bound");
        assert_eq!(bound.to_listen(&own).ok(), own.bound());
        assert_eq!(own.bound().map(|place| place.ip()), Some(there.ip()));
        let unbound = new();
        let place = bound.to_listen(&unbound).expect("bound");
        assert!(place.ip().is_loopback() && place.port() != 0);
    }
}
