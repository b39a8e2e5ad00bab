//! Connecting to a server: by the first of its addresses that answers, and on this machine to nobody inside.

use crate::flow::{io_text, reset};
use crate::given::Given;
use crate::inward;
use ringfence_sys::{Errno, socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long one address may take to answer when there are others to try.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long the last one may take.
const LAST_ATTEMPT: Duration = Duration::from_secs(20);

/// Connects to the first of these addresses that answers, but on this machine's loopback to nobody of `own`.
pub(crate) async fn first(
    addresses: &[IpAddr],
    port: u16,
    own: Option<&Given>,
) -> Result<(TcpStream, IpAddr), String> {
    let mut failure = String::from("it has no address");
    let mut inside = None;
    for (index, &address) in addresses.iter().enumerate() {
        let patience = if index + 1 < addresses.len() { ATTEMPT } else { LAST_ATTEMPT };
        let to = SocketAddr::new(address, port);
        let here = SocketAddr::new(inward::reachable(address.to_canonical()), port);
        let connected = match own.filter(|_| here.ip().is_loopback()) {
            // Boxed: other connections are not to carry its room.
            Some(own) => match Box::pin(apart(here, patience, own)).await {
                Err(Apart::Inside(why)) => {
                    inside = inside.or(Some(format!("{to}: {why}")));
                    continue;
                }
                Err(Apart::Failed(error)) => Err(error),
                Ok(server) => Ok(server),
            },
            None => connect(to, patience).await,
        };
        match connected {
            Ok(server) => return Ok((server, address)),
            Err(error) => failure = format!("{to}: {}", io_text(&error)),
        }
    }
    Err(inside.unwrap_or(failure))
}

/// Why there is no connection to somebody else on this machine.
enum Apart {
    /// Who listens there may be inside.
    Inside(String),
    /// The network.
    Failed(io::Error),
}

/// Connects to a server of the loopback that is not the sandbox's own: before somebody listens there who is not, and has
/// all along when the connection is made.
async fn apart(to: SocketAddr, patience: Duration, own: &Given) -> Result<TcpStream, Apart> {
    let inside = |why: &str| {
        Apart::Inside(format!(
            "{why}, to which nothing of yours is sent: start the program outside that it is for first, or use the namespace \
             tier, where servers have a loopback of their own"
        ))
    };
    let others = own.others(to).map_err(inside)?;
    if others.is_empty() {
        let why = "nobody listens there; where netfilter leads on without a listener (Docker without its userland proxy), \
                   use the namespace tier";
        return Err(Apart::Failed(io::Error::new(io::ErrorKind::ConnectionRefused, why)));
    }
    let server = connect(to, patience).await.map_err(Apart::Failed)?;
    if own.reached_others(server.as_fd(), to, &others) {
        return Ok(server);
    }
    reset(&server);
    Err(inside(
        "who listened there is not who answers (it has ended, or netfilter leads elsewhere)",
    ))
}

/// Connects. To a server on this machine that takes neither a timer nor a turn of the event loop, which
/// cost as much as the connection.
async fn connect(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let failed = |errno: Errno| io::Error::from_raw_os_error(errno.into_raw());
    let (socket, connected) = socket::begin_to_connect(to).map_err(failed)?;
    let stream = TcpStream::from_std(socket.into())?;
    if connected {
        return Ok(stream);
    }
    match tokio::time::timeout(patience, stream.writable()).await {
        Err(_) => Err(io::Error::other("no answer")),
        Ok(ready) => {
            ready?;
            match stream.take_error()? {
                Some(error) => Err(error),
                None => Ok(stream),
            }
        }
    }
}
