//! The guest has no network card: every connection comes to the agent, as in the namespace tier it
//! comes to the gateway, and goes on by the stream.

use ringfence_net::Capture;
use ringfence_net::capture;
use ringfence_net::listeners::{Listeners, Role};
use ringfence_sys::{fd, socket};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The most queries and connections whose answers are awaited.
const MOST_AWAITED: usize = 1024;
/// How long a server of the guest's own may take to accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// What somebody in the guest wants of the network.
pub enum Wanted {
    /// To connect.
    Connection {
        /// The client's socket, accepted.
        fd: OwnedFd,
        /// 4 or 16 bytes.
        address: Vec<u8>,
        /// The port.
        port: u16,
    },
    /// To know a name.
    Name {
        /// The query.
        query: Vec<u8>,
        /// Who asked.
        client: SocketAddr,
    },
}

enum Listener {
    Names(UdpSocket),
    Connections(Role, TcpListener),
}

/// The guest's captured network; by default none is.
#[derive(Default)]
pub struct Network {
    listeners: Vec<Listener>,
    /// Connections that the host has not answered yet.
    pub pending: BTreeMap<u32, OwnedFd>,
    asked: BTreeMap<u32, SocketAddr>,
    /// How much the agent had open when there was no room for one more connection.
    full: Option<usize>,
}

impl Network {
    /// Captures everything.
    ///
    /// # Errors
    /// A sentence.
    pub fn capture(loopback: &[(u16, u16)]) -> Result<Network, String> {
        let (ours, theirs) = fd::socket_pair().map_err(|errno| format!("socketpair: {errno:?}"))?;
        let capture = Capture { loopback: loopback.to_vec(), ports: Vec::new() };
        capture::inside(theirs.as_fd(), &capture)?;
        let mut buffer = [0; 64];
        let (count, sockets) = socket::receive_with(ours.as_fd(), &mut buffer, true)
            .map_err(|errno| format!("the listeners: {errno:?}"))?;
        let listeners =
            Listeners::of_message(&buffer[..count], sockets).ok_or("the listeners are none")?;
        let mut network = Network::default();
        for (role, fd) in listeners.sockets {
            fd::never_wait(fd.as_fd()).map_err(|errno| format!("fcntl: {errno:?}"))?;
            match role {
                Role::DnsUdp => network.listeners.push(Listener::Names(fd.into())),
                Role::Diag | Role::Wanted => {}
                role => network.listeners.push(Listener::Connections(role, fd.into())),
            }
        }
        Ok(network)
    }

    /// What to watch, where the agent has so much open: what there was no room for waits until something is closed.
    pub fn listeners(&self, open: usize) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let awaited = self.pending.len() < MOST_AWAITED;
        let room = self.full.is_none_or(|full| open < full);
        let listeners = self.listeners.iter().enumerate();
        listeners.filter_map(move |(at, listener)| match listener {
            Listener::Names(socket) => awaited.then(|| (at, socket.as_fd())),
            Listener::Connections(_, socket) => (awaited && room).then(|| (at, socket.as_fd())),
        })
    }

    /// Takes what came to a listener, where the agent has so much open.
    pub fn accept(&mut self, at: usize, open: usize) -> Option<Wanted> {
        match self.listeners.get(at)? {
            Listener::Names(socket) => {
                let mut query = vec![0; 1500];
                let (count, client) = socket.recv_from(&mut query).ok()?;
                query.truncate(count);
                (count > 0).then_some(Wanted::Name { query, client })
            }
            Listener::Connections(role, listener) => {
                let client = match listener.accept() {
                    Ok((client, _)) => client,
                    Err(error) => {
                        let number = Errno::from_io_error(&error);
                        let full = matches!(number, Some(Errno::MFILE | Errno::NFILE));
                        self.full = full.then_some(open.max(1));
                        return None;
                    }
                };
                let _ = client.set_nodelay(true);
                client.set_nonblocking(true).ok()?;
                let to = destination(*role, &client)?;
                let address = match to.ip().to_canonical() {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                Some(Wanted::Connection { fd: client.into(), address, port: to.port() })
            }
        }
    }

    /// Remembers who asked.
    pub fn asked(&mut self, channel: u32, client: SocketAddr) {
        if self.asked.len() >= MOST_AWAITED {
            // The oldest has given up long ago.
            self.asked.pop_first();
        }
        self.asked.insert(channel, client);
    }

    /// The answer to a query.
    pub fn answer(&mut self, channel: u32, answer: &[u8]) {
        let Some(client) = self.asked.remove(&channel) else { return };
        let names = self.listeners.iter().find_map(|listener| match listener {
            Listener::Names(socket) => Some(socket),
            Listener::Connections(..) => None,
        });
        if let Some(socket) = names {
            let _ = socket.send_to(answer, client);
        }
    }
}

/// Where a connection was going.
fn destination(role: Role, client: &TcpStream) -> Option<SocketAddr> {
    let local = client.local_addr().ok()?;
    if role == Role::Proxy {
        return Some(SocketAddr::from((Ipv4Addr::LOCALHOST, capture::PROXY_PORT)));
    }
    let ipv6 = matches!(local.ip().to_canonical(), IpAddr::V6(_));
    let original = socket::original_destination(client.as_fd(), ipv6).ok();
    // One that asks 127.0.0.1 itself for a name was not redirected.
    original.or((role == Role::DnsTcp).then_some(local))
}

/// Connects to a server of the guest's own; the error number where there is none.
pub fn inward(port: u16) -> Result<OwnedFd, u16> {
    let number = |error: std::io::Error| error.raw_os_error().unwrap_or(111) as u16;
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)];
    let mut refused = 111;
    for address in addresses {
        // On the loopback it is there, or it is not: this does not wait.
        match TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                stream.set_nonblocking(true).map_err(number)?;
                return Ok(stream.into());
            }
            Err(error) => refused = number(error),
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_waits_until_something_is_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("it does not wait");
        let names = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let connections = Listener::Connections(Role::Proxy, listener);
        let listeners = vec![Listener::Names(names), connections];
        let mut network = Network { listeners, full: Some(3), ..Network::default() };
        let watched = |network: &Network, open| -> Vec<usize> {
            network.listeners(open).map(|(at, _)| at).collect()
        };
        assert_eq!((watched(&network, 3), watched(&network, 2)), (vec![0], vec![0, 1]));
        // Nobody came meanwhile: there is room.
        assert!(network.accept(1, 2).is_none());
        assert_eq!(watched(&network, 3), [0, 1]);
    }
}
