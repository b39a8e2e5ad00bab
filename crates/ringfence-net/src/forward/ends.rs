//! When the programs' sockets at a published UDP port end. The launcher keeps no copy of them: the kernel tells
//! (sock_diag(7)) of every one that ends in the sandbox's network namespace, and who is left.

use super::{TURN, failed};
use ringfence_sys::datagram::Within;
use ringfence_sys::diag;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Sockets to be told by and to ask by.
pub(super) struct Ends {
    told: OwnedFd,
    by: OwnedFd,
    port: u16,
}

/// The same, watched.
pub(super) struct Watched {
    told: UdpSocket,
    by: OwnedFd,
    port: u16,
}

impl Ends {
    /// Those of a port inside. Without CONFIG_INET_DIAG there are none, and the host's port stays bound.
    pub fn of(within: &Within, port: u16) -> Option<Ends> {
        let told = within.diag(diag::ENDS_OF_DATAGRAMS).ok()?;
        Some(Ends { told, by: within.diag(0).ok()?, port })
    }

    pub fn watch(self) -> Option<Watched> {
        // It is watched as any socket of datagrams is, and asked for nothing else.
        let told = UdpSocket::from_std(std::net::UdpSocket::from(self.told)).ok()?;
        Some(Watched { told, by: self.by, port: self.port })
    }
}

impl Watched {
    /// Ready when something is told.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.told.poll_recv_ready(context)
    }

    /// Whether one has ended, of what a turn has room for.
    pub fn any(&self) -> bool {
        let next = || {
            let told = || diag::has_ended(self.told.as_fd(), self.port).map_err(failed);
            self.told.try_io(Interest::READABLE, told).ok()
        };
        std::iter::from_fn(next).take(TURN).fold(false, |any, one| any | one)
    }

    /// The numbers of those that are bound, where the kernel tells.
    pub fn left(&self) -> Option<Vec<u64>> {
        diag::bound(self.by.as_fd(), self.port).ok()
    }
}
