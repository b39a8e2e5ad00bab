//! The guest's connections, made by this process: in the sandbox's network namespace, where what
//! filters every program's connections filters these.

use super::{GUESTS, Settings, settings};
use crate::flow::{Connection, Said, reset};
use crate::wire::{ToGuest, ToHost};
use ringfence_sys::fd::Ready;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The first channel of connections that come from the host.
pub const INWARD: u32 = 1 << 30;
/// Of a guest's memory, for each connection: its kernel and ours hold some hundred kilobytes for one.
const MEMORY_OF_A_CONNECTION: u64 = 1 << 20;
/// The most connections at once, and those that any guest may have.
const MOST: u64 = 4096;
const LEAST: u64 = 64;
/// The most names that are asked for at once.
const MOST_NAMES: usize = 256;
/// `ENETUNREACH`.
const UNREACHABLE: u16 = 101;

/// What of the network is ready.
#[derive(Clone, Copy, Debug)]
pub enum Whose {
    /// A published port's listener.
    Listener(usize),
    /// A connection.
    Connection(u32),
    /// An answer of the resolver's.
    Name(u32),
}

enum Link {
    /// Outward: not made yet.
    Connecting(OwnedFd),
    /// Inward: the guest has not answered yet.
    Waiting(OwnedFd),
    Open(Connection),
}

/// The guest's connections.
pub struct Network {
    allowed: bool,
    listeners: Vec<(u16, TcpListener)>,
    links: BTreeMap<u32, Link>,
    names: BTreeMap<u32, UdpSocket>,
    next: u32,
    /// The most connections at once.
    most: usize,
}

type Messages = Vec<(u32, ToGuest)>;

impl Network {
    /// Listens at the published ports.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(settings: &Settings) -> Result<Network, String> {
        let listen = |&port: &u16| {
            let made = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((port, listener))
            });
            // The launcher, which binds in this process's place, has said why: in a better sentence.
            let told = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
            made.map_err(|error| match told(&error) {
                true => String::new(),
                false => format!("cannot publish port {port}: {error}"),
            })
        };
        Ok(Network {
            allowed: settings.network,
            listeners: settings.publish.iter().map(listen).collect::<Result<_, _>>()?,
            links: BTreeMap::new(),
            names: BTreeMap::new(),
            next: INWARD,
            most: (settings.memory / MEMORY_OF_A_CONNECTION)
                .clamp(LEAST, MOST)
                .min(settings::inherited_files().1 / 4) as usize,
        })
    }

    /// What to watch.
    pub fn watched(&self) -> impl Iterator<Item = (Whose, BorrowedFd<'_>, bool, bool)> {
        let listeners = self.listeners.iter().enumerate();
        let listeners = listeners
            .map(|(at, (_, listener))| (Whose::Listener(at), listener.as_fd(), true, false));
        let links = self.links.iter().filter_map(|(&channel, link)| match link {
            Link::Connecting(fd) => Some((Whose::Connection(channel), fd.as_fd(), false, true)),
            Link::Waiting(_) => None,
            Link::Open(connection) => {
                let (read, write) = connection.wanted();
                Some((Whose::Connection(channel), connection.fd.as_fd(), read, write))
            }
        });
        let names =
            self.names.iter().map(|(&channel, fd)| (Whose::Name(channel), fd.as_fd(), true, false));
        listeners.chain(links).chain(names)
    }

    /// Does what is ready.
    pub fn turn(&mut self, whose: Whose, ready: Ready) -> Messages {
        match whose {
            Whose::Listener(at) => self.accept(at),
            Whose::Name(channel) => self.named(channel),
            Whose::Connection(channel) => match self.links.get(&channel) {
                Some(Link::Connecting(_)) => self.made(channel),
                Some(Link::Open(_)) => self.flow(channel, ready.read),
                _ => Vec::new(),
            },
        }
    }

    /// Hears what the guest wants of the network.
    pub fn hear(&mut self, channel: u32, message: ToHost) -> Messages {
        match message {
            ToHost::Connect(address, port) => self.connect(channel, &address, port),
            ToHost::Query(query) => {
                self.ask(channel, &query);
                Vec::new()
            }
            ToHost::Connected(0) => match self.links.remove(&channel) {
                Some(Link::Waiting(fd)) => {
                    self.links.insert(channel, Link::Open(Connection::new(fd)));
                    self.flow(channel, false)
                }
                Some(other) => {
                    self.links.insert(channel, other);
                    Vec::new()
                }
                None => vec![(channel, ToGuest::Close)],
            },
            ToHost::Connected(_) | ToHost::Close => match self.links.get_mut(&channel) {
                Some(Link::Open(connection)) => {
                    connection.abort();
                    self.flow(channel, false)
                }
                _ => {
                    if let Some(Link::Waiting(fd) | Link::Connecting(fd)) =
                        self.links.remove(&channel)
                    {
                        reset(&fd);
                    }
                    Vec::new()
                }
            },
            ToHost::Data(bytes) => {
                if let Some(Link::Open(connection)) = self.links.get_mut(&channel) {
                    if !connection.add(&bytes) {
                        reset(&connection.fd);
                        self.links.remove(&channel);
                        return vec![(channel, ToGuest::Close)];
                    }
                    return self.flow(channel, false);
                }
                Vec::new()
            }
            ToHost::DataEnd => {
                if let Some(Link::Open(connection)) = self.links.get_mut(&channel) {
                    connection.end();
                    return self.flow(channel, false);
                }
                Vec::new()
            }
            ToHost::DataTaken(count) => {
                if let Some(Link::Open(connection)) = self.links.get_mut(&channel) {
                    connection.taken(count);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn connect(&mut self, channel: u32, address: &[u8], port: u16) -> Messages {
        let refused = |errno: u16| vec![(channel, ToGuest::Connected(errno))];
        if channel < GUESTS || self.links.contains_key(&channel) {
            return Vec::new();
        }
        let ip = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            (Ok(four), _) => IpAddr::V4(Ipv4Addr::from(four)),
            (_, Ok(sixteen)) => IpAddr::V6(Ipv6Addr::from(sixteen)),
            _ => return refused(UNREACHABLE),
        };
        if !self.allowed || self.links.len() >= self.most {
            return refused(UNREACHABLE);
        }
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let made = rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let fd = match made {
            Ok(fd) => fd,
            Err(errno) => return refused(errno.raw_os_error() as u16),
        };
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        match rustix::net::connect(&fd, &SocketAddr::new(ip, port)) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.links.insert(channel, Link::Connecting(fd));
                Vec::new()
            }
            Err(errno) => refused(errno.raw_os_error() as u16),
        }
    }

    /// A connection was made, or refused.
    fn made(&mut self, channel: u32) -> Messages {
        let Some(Link::Connecting(fd)) = self.links.remove(&channel) else { return Vec::new() };
        let error = match rustix::net::sockopt::socket_error(&fd) {
            Ok(Ok(())) => None,
            Ok(Err(errno)) | Err(errno) => Some(errno),
        };
        let connection = match error {
            None => Connection::new(fd),
            // A connection that is not made is refused: this one was, and has ended since. What it said comes first.
            Some(Errno::CONNRESET | Errno::PIPE) => Connection::that_was_reset(fd),
            Some(errno) => return vec![(channel, ToGuest::Connected(errno.raw_os_error() as u16))],
        };
        self.links.insert(channel, Link::Open(connection));
        vec![(channel, ToGuest::Connected(0))]
    }

    fn flow(&mut self, channel: u32, read: bool) -> Messages {
        let Some(Link::Open(connection)) = self.links.get_mut(&channel) else { return Vec::new() };
        let (said, over) = connection.turn(read);
        let mut messages: Messages = said
            .into_iter()
            .map(|said| {
                let message = match said {
                    Said::Data(bytes) => ToGuest::Data(bytes),
                    Said::End => ToGuest::DataEnd,
                    Said::Taken(count) => ToGuest::DataTaken(count),
                };
                (channel, message)
            })
            .collect();
        if let Some(broken) = over {
            self.links.remove(&channel);
            if broken {
                messages.push((channel, ToGuest::Close));
            }
        }
        messages
    }

    /// Somebody on the host connects in.
    fn accept(&mut self, at: usize) -> Messages {
        let Some((port, listener)) = self.listeners.get(at) else { return Vec::new() };
        let Ok((client, _)) = listener.accept() else { return Vec::new() };
        let (port, channel) = (*port, self.next);
        if client.set_nonblocking(true).is_err() || self.links.len() >= self.most {
            reset(&client);
            return Vec::new();
        }
        let _ = client.set_nodelay(true);
        self.next = INWARD | ((self.next + 1) % INWARD);
        self.links.insert(channel, Link::Waiting(client.into()));
        vec![(channel, ToGuest::Inward(port))]
    }

    /// Asks the sandbox's resolver.
    fn ask(&mut self, channel: u32, query: &[u8]) {
        if !self.allowed {
            return;
        }
        let asked = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect((Ipv4Addr::LOCALHOST, 53))?;
            socket.send(query)?;
            Ok(socket)
        });
        if let Ok(socket) = asked {
            if self.names.len() >= MOST_NAMES {
                self.names.pop_first();
            }
            self.names.insert(channel, socket);
        }
    }

    fn named(&mut self, channel: u32) -> Messages {
        let Some(socket) = self.names.remove(&channel) else { return Vec::new() };
        let mut answer = vec![0; 4096];
        match socket.recv(&mut answer) {
            Ok(count @ 1..) => {
                answer.truncate(count);
                vec![(channel, ToGuest::Answer(answer))]
            }
            _ => Vec::new(),
        }
    }
}
