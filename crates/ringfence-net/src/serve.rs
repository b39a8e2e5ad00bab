//! The gateway's thread: accepts, answers DNS, and gives each connection a task of its own, so
//! that a slow one holds up nobody.

use crate::crowd;
use crate::decision::{Event, Process, Way};
use crate::dns::{self, Asked};
use crate::flow;
use crate::gateway::{Shared, Subject};
use crate::listeners::{Listeners, Role};
use crate::who::{self, Finding};
use crate::{capture, inward, names, proxy, rules};
use ringfence_policy::{Decision, Host};
use ringfence_sys::{caps, fd, socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// How long a DNS client may keep a TCP connection open without asking.
const DNS_IDLE: Duration = Duration::from_secs(10);

/// A query that is longer asks nothing that we answer: a name has 255 bytes.
const QUERY: usize = 1500;

/// How often it is looked at whether the last connection has ended, at a session's end.
const LOOK: Duration = Duration::from_millis(1);

/// Says at last, however it comes about, that nobody is served any more.
struct Told(Arc<Shared>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.leaving.end();
    }
}

/// Serves until the process ends.
///
/// What it reads was written by the program inside and by servers outside, so that it has no capabilities: dialling
/// takes none, and the processes inside are those of the user who made their namespace.
pub(crate) fn serve(listeners: Listeners, shared: Arc<Shared>) {
    let told = Told(shared.clone());
    // Its files are read as the user reads them.
    drop(shared.policy());
    if caps::give_up().is_err() {
        return;
    }
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // One thread looks for processes: each has an arena and caches of the allocator's, in which freed memory stays.
    builder.enable_all().max_blocking_threads(1).on_thread_start(crate::beside::begin_anywhere);
    let Ok(runtime) = builder.build() else {
        // Without a runtime the listeners close here: everything inside is refused.
        return;
    };
    runtime.block_on(async move {
        let mut watched = Vec::new();
        for (role, fd) in listeners.sockets {
            let copy = fd.try_clone();
            // A listener that cannot be watched closes, and what would come to it is refused.
            if spawn(role, fd, shared.clone()).is_ok() {
                watched.extend(copy);
            }
        }
        shared.leaving.begun().await;
        tokio::task::yield_now().await;
        let queued = || {
            let watched: Vec<_> = watched.iter().map(AsFd::as_fd).collect();
            fd::poll_readable(&watched, 0).is_ok_and(|ready| ready.contains(&true))
        };
        while crowd::some() || shared.who.searches() || queued() {
            tokio::time::sleep(LOOK).await;
        }
        drop(told);
        std::future::pending::<()>().await;
    });
}

fn spawn(role: Role, fd: OwnedFd, shared: Arc<Shared>) -> io::Result<()> {
    if role == Role::DnsUdp {
        let socket = std::net::UdpSocket::from(fd);
        socket.set_nonblocking(true)?;
        tokio::spawn(dns_udp(UdpSocket::from_std(socket)?, shared));
        return Ok(());
    }
    // What is accepted inherits it.
    let listener = std::net::TcpStream::from(fd);
    listener.set_nodelay(true)?;
    let listener = std::net::TcpListener::from(OwnedFd::from(listener));
    listener.set_nonblocking(true)?;
    tokio::spawn(crowd::serve(TcpListener::from_std(listener)?, move |client, from| {
        connection(role, client, from, shared.clone())
    }));
    Ok(())
}

async fn connection(role: Role, client: TcpStream, from: SocketAddr, shared: Arc<Shared>) {
    let known = (role == Role::Wanted).then(|| shared.wanted.by(client.as_fd(), from));
    let from = from.ip();
    let (to, process) = match known {
        // Nobody of the sandbox's, or nobody any more.
        Some(None) => return flow::reset(&client),
        Some(Some((to, process))) => (Some(to), Some(Finding::known(process.map(Process::of)))),
        None if role == Role::Proxy => (client.local_addr().ok(), None),
        // One that asks 127.0.0.1 itself was not redirected.
        None if role == Role::DnsTcp => {
            (destination(role, &client, from).or_else(|| client.local_addr().ok()), None)
        }
        None => (destination(role, &client, from), None),
    };
    let Some(to) = to else { return flow::reset(&client) };
    // Who takes no IPv4 was sent here over IPv6.
    let server = || shared.wanted.server(to, from.is_ipv6());
    if let Some(server) = (role == Role::Wanted).then(server).flatten() {
        return Box::pin(inward::relay(client, server, shared.wanted.own())).await;
    }
    match (role, to.port()) {
        (Role::DnsTcp, _) | (Role::Wanted, capture::DNS_PORT) => {
            let _ = Box::pin(dns_tcp(client, &shared, to, process)).await;
        }
        // Boxed: a plain connection is not to carry the room that these take.
        (Role::Proxy, _) => Box::pin(proxy::serve(client, &shared)).await,
        (Role::Wanted, capture::PROXY_PORT) if to.ip().is_loopback() => {
            Box::pin(proxy::serve(client, &shared)).await;
        }
        _ => {
            // Held to the connection's end.
            let (host, _name) = shared.names().host(to.ip(), Instant::now());
            let mut subject = flow::ask(&shared, Way::Connect, host, to.port());
            match process {
                Some(process) => subject.process = process,
                None => who::seek(&shared, &mut subject, &client, to),
            }
            flow::run(&shared, subject, client).await;
        }
    }
}

/// Where a connection was going.
fn destination(role: Role, client: &TcpStream, from: IpAddr) -> Option<SocketAddr> {
    let to = match role {
        Role::AnyAddress => client.local_addr().ok()?,
        // Both ends are of one family.
        _ => socket::original_destination(client.as_fd(), from.to_canonical().is_ipv6()).ok()?,
    };
    Some(SocketAddr::new(to.ip().to_canonical(), to.port()))
}

/// Answers a query. What was refused is to be told by the second.
fn resolve(query: &[u8], shared: &Shared) -> (Vec<u8>, Option<Subject>) {
    let policy = shared.policy();
    let mut names = shared.names();
    let allowed = &mut |host: &Host| shared.control.asks() || rules::some_port(&policy, host);
    let (answer, asked) = dns::answer(query, &mut names, shared.ipv6, allowed);
    let tells = matches!(asked, Asked::TooMany(..)) && names.tells();
    drop(names);
    let mut subject = match asked {
        Asked::TooMany(host, kind) if tells => {
            too_many(shared, flow::ask(shared, Way::Dns(kind), host, 443));
            return (answer, None);
        }
        Asked::Name(host, kind, false) => flow::ask(shared, Way::Dns(kind), host, 443),
        Asked::Odd(name, kind) => odd(flow::ask(shared, Way::Dns(kind), Host::Name(name), 443)),
        _ => return (answer, None),
    };
    subject.port = 0;
    (answer, Some(subject))
}

/// Tells that a name has no address. The next ones are answered in the same way, and not told.
fn too_many(shared: &Shared, mut subject: Subject) {
    subject.port = 0;
    subject.tell(
        shared,
        Event::Failed(format!(
            "{} names were used within {} seconds, which is the most: more are not resolved until some have not been \
             used for so long",
            names::MOST,
            dns::TTL
        )),
    );
}

/// Something that no rule can name, `*` neither.
fn odd(subject: Subject) -> Subject {
    let explanation = format!("{} is no name of a host", subject.host);
    let decision = subject.decision.map(|decision| Decision {
        allowed: false,
        rule: None,
        explanation,
        remedy: None,
        effect: None,
        ..decision
    });
    Subject { decision, ..subject }
}

fn refused(shared: &Shared, subject: &Subject) {
    let why = subject.decision.as_ref().map_or("", |decision| &decision.explanation);
    subject.tell(shared, Event::Denied(format!("{why}, so its name is not resolved")));
}

async fn dns_udp(socket: UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let mut buffer = [0u8; QUERY];
    loop {
        // An error is a client's that went away (ICMP), not the socket's.
        let Ok((count, from)) = socket.recv_from(&mut buffer).await else { continue };
        let (answer, denied) = resolve(&buffer[..count], &shared);
        let Some(mut subject) = denied else {
            if !answer.is_empty() {
                let _ = socket.try_send_to(&answer, from);
            }
            continue;
        };
        let client = SocketAddr::new(from.ip().to_canonical(), from.port());
        let search = || who::look(&shared, move |who| who.udp(client));
        let Some(finding) = shared.who.may_search(true).then(search).flatten() else {
            refused(&shared, &subject);
            let _ = socket.try_send_to(&answer, from);
            continue;
        };
        subject.process = finding;
        refused(&shared, &subject);
        // While it waits for its answer it is there to be found.
        let socket = socket.clone();
        tokio::spawn(async move {
            subject.process.settled().await;
            let _ = socket.try_send_to(&answer, from);
        });
    }
}

async fn dns_tcp(
    mut client: TcpStream,
    shared: &Arc<Shared>,
    to: SocketAddr,
    process: Option<Arc<Finding>>,
) -> io::Result<()> {
    let mut query = Vec::new();
    loop {
        let length = tokio::time::timeout(DNS_IDLE, client.read_u16()).await??;
        if usize::from(length) > QUERY {
            return Ok(());
        }
        query.resize(usize::from(length), 0);
        tokio::time::timeout(DNS_IDLE, client.read_exact(&mut query)).await??;
        let (answer, denied) = resolve(&query, shared);
        if let Some(mut subject) = denied {
            match &process {
                Some(process) => subject.process = process.clone(),
                None => who::seek(shared, &mut subject, &client, to),
            }
            refused(shared, &subject);
            subject.process.settled().await;
        }
        if answer.is_empty() {
            return Ok(());
        }
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        tokio::time::timeout(DNS_IDLE, client.write_all(&framed)).await??;
    }
}
