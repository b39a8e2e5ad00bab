//! The sockets made inside the sandbox and handed out to the launcher, in one message.

use crate::redirect::Wanted;
use ringfence_sys::{Result, socket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// First byte of the message that carries the listeners over the control socket.
pub const TAG: u8 = b'L';

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// TCP that nftables redirected: netfilter knows where it was going.
    Redirected,
    /// TCP that arrived at any address (no nftables): its own address is where it was going.
    AnyAddress,
    /// DNS over UDP.
    DnsUdp,
    /// DNS over TCP.
    DnsTcp,
    /// Programs that insist on a proxy: HTTP and SOCKS5.
    Proxy,
    /// No listener: sock_diag(7) of the sandbox's network namespace.
    Diag,
    /// TCP of the process tier, made by the launcher itself: it noted where each was going.
    Wanted,
}

impl Role {
    fn tag(self) -> u8 {
        match self {
            Role::Redirected => b'R',
            Role::AnyAddress => b'A',
            Role::DnsUdp => b'u',
            Role::DnsTcp => b't',
            Role::Proxy => b'P',
            Role::Diag => b'd',
            Role::Wanted => b'W',
        }
    }

    fn of(tag: u8) -> Option<Role> {
        let inside = [
            Role::Redirected,
            Role::AnyAddress,
            Role::DnsUdp,
            Role::DnsTcp,
            Role::Proxy,
            Role::Diag,
        ];
        inside.into_iter().find(|role| role.tag() == tag)
    }
}

/// The sockets of one sandbox.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Whether IPv6 works inside.
    pub ipv6: bool,
    /// What they are for, and the sockets.
    pub sockets: Vec<(Role, OwnedFd)>,
    /// Where connections to [`Role::Wanted`] were going.
    pub wanted: Wanted,
}

impl Listeners {
    /// Takes out the socket for one purpose.
    pub fn take(&mut self, wanted: Role) -> Option<OwnedFd> {
        let at = self.sockets.iter().position(|(role, _)| *role == wanted)?;
        Some(self.sockets.remove(at).1)
    }

    /// Sends all in one message over the control socket: [`TAG`], `6` or `4`, a byte for each.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, control: BorrowedFd<'_>) -> Result<()> {
        let message = Listeners::message(self.ipv6, self.sockets.iter().map(|(role, _)| *role));
        let fds: Vec<_> = self.sockets.iter().map(|(_, fd)| fd.as_fd()).collect();
        socket::send_with(control, &message, &fds)
    }

    /// What [`Listeners::send`] says of sockets for these purposes.
    pub(crate) fn message(ipv6: bool, roles: impl Iterator<Item = Role>) -> Vec<u8> {
        let head = [TAG, if ipv6 { b'6' } else { b'4' }];
        head.into_iter().chain(roles.map(Role::tag)).collect()
    }

    /// Reads what [`Listeners::send`] sent. `None` when the message is something else.
    pub fn of_message(message: &[u8], fds: Vec<OwnedFd>) -> Option<Listeners> {
        let (&family, roles) = message.strip_prefix(&[TAG])?.split_first()?;
        if roles.len() != fds.len() || !matches!(family, b'4' | b'6') {
            return None;
        }
        let roles = roles.iter().map(|&tag| Role::of(tag)).collect::<Option<Vec<_>>>()?;
        let sockets = roles.into_iter().zip(fds).collect();
        Some(Listeners { ipv6: family == b'6', sockets, wanted: Wanted::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_what_arrives() {
        let (ours, theirs) = ringfence_sys::fd::socket_pair().expect("a pair");
        let (read, write) = ringfence_sys::fd::pipe().expect("a pipe");
        let sockets = vec![(Role::DnsUdp, read), (Role::Redirected, write)];
        Listeners { ipv6: true, sockets, ..Listeners::default() }
            .send(theirs.as_fd())
            .expect("sent");
        let mut buffer = [0; 64];
        let (count, fds) = socket::receive_with(ours.as_fd(), &mut buffer, true).expect("received");
        let listeners = Listeners::of_message(&buffer[..count], fds).expect("listeners");
        assert!(listeners.ipv6);
        let roles: Vec<_> = listeners.sockets.iter().map(|(role, _)| *role).collect();
        assert_eq!(roles, [Role::DnsUdp, Role::Redirected]);
    }

    #[test]
    fn another_message_is_no_listeners() {
        for other in [&b""[..], b"L", b"R", b"L6R", b"L4?", b"LxR"] {
            assert!(Listeners::of_message(other, Vec::new()).is_none(), "{other:?}");
        }
        assert!(Listeners::of_message(b"L4", Vec::new()).is_some());
    }
}
