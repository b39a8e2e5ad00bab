//! Who asks at the gateway.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;

/// A process that is connected, by its number on the host.
#[derive(Debug)]
pub struct Peer {
    pid: i32,
    /// Readable when it has ended: from then on the number may be another's.
    handle: Option<OwnedFd>,
}

impl Peer {
    /// A process that lives, as who has just connected does.
    pub fn new(pid: i32) -> Peer {
        Peer { pid, handle: ringfence_sys::process::pidfd(pid).ok() }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What `look` finds out about it by its number; nothing where it has ended by then, since that may be about
    /// another process.
    pub fn seen<T>(&self, look: impl FnOnce(i32) -> T) -> Option<T> {
        let found = look(self.pid);
        let handle = self.handle.as_ref()?;
        let mut watched = [PollFd::new(handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        (poll(&mut watched, Some(&now)) == Ok(0)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn nothing_is_said_of_who_has_ended() {
        let mut child =
            Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let peer = Peer::new(child.id() as i32);
        assert_eq!(peer.seen(|pid| pid), Some(child.id() as i32));
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(peer.seen(|pid| pid), None);
    }
}
