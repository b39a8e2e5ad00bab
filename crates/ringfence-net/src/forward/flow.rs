//! One peer's datagrams, in and out.

use super::{IDLE, Peer, UNANSWERED};
use ringfence_sys::datagram;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

/// What is carried between a peer and the program.
pub(super) struct Flow {
    pub id: u64,
    /// The socket's own (`SO_COOKIE`).
    pub number: u64,
    /// It is told of by itself.
    pub told: bool,
    pub peer: Peer,
    pub socket: UdpSocket,
    pub target: SocketAddr,
    pub begun: Instant,
    /// When something came last, in microseconds since it was begun.
    pub last: AtomicU64,
    /// Bytes from the program.
    pub sent: AtomicU64,
    /// Bytes to the program.
    pub received: AtomicU64,
    pub task: OnceLock<AbortHandle>,
}

impl Flow {
    /// When something came last.
    pub fn heard(&self) -> Instant {
        self.begun + Duration::from_micros(self.last.load(Relaxed))
    }

    pub fn silent(&self) -> Duration {
        self.heard().elapsed()
    }

    pub fn touch(&self) {
        self.last.store(self.begun.elapsed().as_micros() as u64, Relaxed);
    }

    pub fn answered(&self) -> bool {
        self.sent.load(Relaxed) > 0
    }

    /// Time left until it ends.
    pub fn left(&self) -> Duration {
        let patience = if self.answered() { IDLE } else { UNANSWERED };
        patience.saturating_sub(self.silent())
    }

    /// Carries one datagram to the program. What it has no room for, or nobody is there for, is lost,
    /// as datagrams are.
    pub fn inward(&self, bytes: &[u8]) {
        self.touch();
        if datagram::send(self.socket.as_fd(), bytes, self.target, None).is_ok() {
            self.received.fetch_add(bytes.len() as u64, Relaxed);
        }
    }
}
