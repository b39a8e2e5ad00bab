//! A published port as programs inside reach it: through the socket that the server made itself,
//! which stays in the sandbox's network namespace, relayed to the host's that stands in its place, and to no other
//! that listens there when the program has closed it. In the process tier so is what finds no room at a server inside.

use crate::crowd;
use crate::flow;
use crate::given::Given;
use ringfence_sys::limit::{self, Resource};
use ringfence_sys::listener::behalf;
use ringfence_sys::socket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// How long a listener's queue may be full: as long as the kernel tries.
const PATIENCE: Duration = Duration::from_secs(130);
/// What an answer on this machine takes at most, else there is no room; and the pauses between tries.
const PROMPT: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_secs(1);

/// Listens at a bound socket of the sandbox's and relays what comes to `host`, on a thread that ends
/// with the process.
///
/// # Errors
/// The kernel's.
pub(crate) fn serve(socket: OwnedFd, host: SocketAddr, given: Arc<Given>) -> io::Result<()> {
    let failed = |errno: ringfence_sys::Errno| io::Error::from_raw_os_error(errno.into_raw());
    behalf::listen(socket.as_fd(), BACKLOG).map_err(failed)?;
    behalf::set_nonblocking(socket.as_fd(), true).map_err(failed)?;
    let to = SocketAddr::new(reachable(host.ip()), host.port());
    // Two descriptors for each connection.
    let _ = limit::set(Resource::OpenFiles, u64::MAX);
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without it the socket closes here: connections inside are refused.
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async move {
            if let Ok(listener) = TcpListener::from_std(std::net::TcpListener::from(socket)) {
                crowd::serve(listener, move |client, _| {
                    let given = Arc::clone(&given);
                    async move { relay(client, to, &given).await }
                })
                .await;
            }
        });
    };
    std::thread::Builder::new().name("ringfence-inward".to_owned()).spawn(work).map(drop)
}

/// Relays a connection to a listener of the sandbox's.
pub(crate) async fn relay(mut client: TcpStream, to: SocketAddr, given: &Given) {
    let _ = client.set_nodelay(true);
    match tokio::time::timeout(PATIENCE, connect(to, given)).await {
        Ok(Ok(mut server)) => {
            let _ = server.set_nodelay(true);
            let relayed = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            if relayed.is_err() {
                // What was cut off is not to look as if it were complete.
                flow::reset(&client);
                flow::reset(&server);
            }
        }
        Ok(Err(_)) | Err(_) => flow::reset(&client),
    }
}

/// Connects to a listener that was given, as soon as it has room. A connection that waits for that itself would arrive at
/// whoever listens there by then.
async fn connect(to: SocketAddr, given: &Given) -> io::Result<TcpStream> {
    let mut pause = PROMPT;
    loop {
        if given.at(to) != (true, true) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let begun = socket::begin_to_connect(to);
        let (server, _) = begun.map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))?;
        if socket::is_under_way(server.as_fd()) {
            tokio::time::sleep(PROMPT).await;
        }
        if given.reached(server.as_fd(), to) {
            return TcpStream::from_std(std::net::TcpStream::from(server));
        }
        drop(server);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// An address at which a listener at `address` is reached.
pub(crate) fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
