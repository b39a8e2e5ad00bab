//! A published port as programs inside reach it: through the socket that the server made itself,
//! which stays in the sandbox's network namespace, relayed to the host's that stands in its place.

use ringfence_sys::listener::behalf;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use tokio::net::{TcpListener, TcpStream};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens at a bound socket of the sandbox's and relays what comes to `host`, on a thread that ends
/// with the process.
///
/// # Errors
/// The kernel's.
pub(crate) fn serve(socket: OwnedFd, host: SocketAddr) -> io::Result<()> {
    let failed = |errno: ringfence_sys::Errno| io::Error::from_raw_os_error(errno.into_raw());
    behalf::listen(socket.as_fd(), BACKLOG).map_err(failed)?;
    behalf::set_nonblocking(socket.as_fd(), true).map_err(failed)?;
    let to = SocketAddr::new(reachable(host.ip()), host.port());
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(accept(socket, to));
        }
    };
    std::thread::Builder::new().name("ringfence-inward".to_owned()).spawn(work).map(drop)
}

async fn accept(socket: OwnedFd, to: SocketAddr) {
    let Ok(listener) = TcpListener::from_std(std::net::TcpListener::from(socket)) else { return };
    // An error (no descriptor is left) ends it: connections inside are refused from then on.
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, to));
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr) {
    let _ = client.set_nodelay(true);
    match TcpStream::connect(to).await {
        Ok(mut server) => {
            let _ = server.set_nodelay(true);
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
        Err(_) => {
            let _ = client.set_zero_linger();
        }
    }
}

/// An address at which a listener at `address` is reached.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
