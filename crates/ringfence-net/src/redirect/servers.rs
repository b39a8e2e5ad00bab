//! Servers of the sandbox's own in the process tier. Their ports are the host's: who listens at one may be somebody else by
//! the time that a program connects, and a service of the host's may have the same port in the other family.

use super::{Wanted, locked};
use crate::capture::{DNS_PORT, PROXY_PORT};
use crate::given::Given;
use crate::inward;
use ringfence_sys::Errno;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

impl Wanted {
    /// A socket of the program's is about to listen at `place`.
    pub(super) fn serves(&self, place: SocketAddr, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.own.note(socket)?;
        locked(&self.0.servers).insert((place.port(), place.is_ipv6()), place);
        Ok(())
    }

    /// Where a server of the sandbox's own listens, and nobody else, if that is what is wanted, by a socket for both
    /// families or for one. A server that asked for all addresses of both is bound in IPv4, and none of IPv6 is reached
    /// by an address of IPv4.
    pub(crate) fn server(&self, wanted: SocketAddr, only_ipv6: bool) -> Option<SocketAddr> {
        if !wanted.ip().is_loopback() && !wanted.ip().is_unspecified() {
            return None;
        }
        let families: &[bool] = match wanted {
            SocketAddr::V4(_) => &[false],
            SocketAddr::V6(_) if only_ipv6 => &[true],
            SocketAddr::V6(_) => &[true, false],
        };
        families
            .iter()
            .filter_map(|&six| locked(&self.0.servers).get(&(wanted.port(), six)).copied())
            .find(|&place| self.0.own.at(place) == (true, true))
    }

    /// Whether this is a port of the loopback at which nobody at all listens, nor the gateway answers. Who only asks
    /// whether a port is served (`nc -z`, a client that starts its daemon) is told what the kernel would say.
    ///
    /// The kernel is not left to say it: somebody may listen by the time that it looks.
    pub(super) fn nobody_at(&self, wanted: SocketAddr) -> bool {
        let ip = inward::reachable(wanted.ip());
        ip.is_loopback()
            && !matches!(wanted.port(), DNS_PORT | PROXY_PORT)
            && !self.0.own.at(SocketAddr::new(ip, wanted.port())).0
    }

    /// All that listens for the sandbox.
    pub(crate) fn own(&self) -> &Given {
        &self.0.own
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Copy, HERE4, Redirect};
    use super::*;
    use ringfence_sys::listener::behalf;
    use std::net::TcpListener;
    use std::os::fd::{AsFd, OwnedFd};

    #[test]
    fn who_listens_in_the_other_family_is_not_taken_for_the_server() {
        let Ok(own) = TcpListener::bind("[::1]:0") else { return };
        let place = own.local_addr().expect("an address");
        let wanted = Wanted::default();
        wanted.serves(place, own.as_fd()).expect("noted");
        let four = SocketAddr::from(([127, 0, 0, 1], place.port()));
        let server = |to| [wanted.server(to, false), wanted.server(to, true)];
        assert_eq!((server(place), server(four)), ([Some(place); 2], [None; 2]));
        drop(own);
        assert_eq!(server(place), [None; 2]);
        let Ok(own) = TcpListener::bind(four) else { return };
        wanted.serves(four, own.as_fd()).expect("noted");
        assert_eq!((server(place), server(four)), ([Some(four), None], [Some(four); 2]));
    }

    #[test]
    fn nobody_is_where_nobody_listens() {
        let host = TcpListener::bind("127.0.0.1:0").expect("bound");
        let place = host.local_addr().expect("an address");
        let wanted = Wanted::default();
        let at =
            |ip: &str| wanted.nobody_at(SocketAddr::new(ip.parse().expect("one"), place.port()));
        assert_eq!(["127.0.0.1", "0.0.0.0"].map(at), [false; 2], "the host's");
        assert_eq!(["::1", "127.0.0.2"].map(at), [true; 2]);
        assert!(!at("192.0.2.1"), "no address of the loopback");
        drop(host);
        assert_eq!(["127.0.0.1", "0.0.0.0"].map(at), [true; 2]);
        for port in [DNS_PORT, PROXY_PORT] {
            assert!(!wanted.nobody_at(SocketAddr::new(HERE4, port)), "the gateway answers");
        }
    }

    #[test]
    fn a_connection_that_is_under_way_has_reached_nobody() {
        let own = TcpListener::bind("127.0.0.1:0").expect("bound");
        let place = own.local_addr().expect("an address");
        behalf::listen(own.as_fd(), 0).expect("listens");
        let wanted = Wanted::default();
        wanted.serves(place, own.as_fd()).expect("noted");
        // Of so many some find no room in its queue.
        let clients = [(); 4].map(|()| {
            let (client, _) = ringfence_sys::socket::begin_to_connect(place).expect("begun");
            behalf::writable(client.as_fd(), 100);
            let under_way = ringfence_sys::socket::is_under_way(client.as_fd());
            assert_eq!(wanted.own().reached(client.as_fd(), place), !under_way);
            (client, under_way)
        });
        assert!(clients.iter().any(|(_, under_way)| *under_way));
        assert!(clients.iter().any(|(_, under_way)| !*under_way));
        // Somebody else's, by all that is known here.
        let other = Wanted::default();
        let reached = |client| other.own().reached(client, place);
        assert!(clients.iter().all(|(client, _)| !reached(client.as_fd())));
    }

    /// How often this thread has given its processor up to wait for something.
    fn waits() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("read");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("counted")
    }

    /// A socket of TCP, as a program has it.
    fn unconnected() -> OwnedFd {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let socket = socket.as_fd().try_clone_to_owned().expect("another one");
        behalf::set_nonblocking(socket.as_fd(), false).expect("set");
        socket
    }

    #[test]
    fn nobody_waits_for_room_in_the_queue_of_a_server() {
        let make = Box::new(|_| panic!("no gateway is needed"));
        let redirect =
            Redirect::new(make, Box::new(|_| false), Box::new(|_| None), Box::new(|| None));
        let own = TcpListener::bind("127.0.0.1:0").expect("bound");
        let place = own.local_addr().expect("an address");
        behalf::listen(own.as_fd(), 0).expect("listens");
        redirect.0.wanted.serves(place, own.as_fd()).expect("noted");
        let join = |held: &mut Vec<Copy>| {
            let copy = Copy { socket: unconnected().into(), ipv6: false };
            let before = waits();
            let joined = redirect.join(&copy, place).expect("asked");
            held.push(copy);
            (joined, waits() - before)
        };
        let mut held = Vec::new();
        let all: Vec<_> = (0..32).map(|_| join(&mut held)).collect();
        assert_eq!(all[0].0, Some(Ok(())), "the control: there is room for one");
        let full: Vec<_> = all.iter().filter(|(joined, _)| joined.is_none()).collect();
        assert!(full.len() > 16, "{all:?}");
        // Whoever else needs the processor is no matter: that would be involuntary.
        assert_eq!(full.iter().map(|(_, waits)| waits).min(), Some(&0), "{full:?}");
    }
}
