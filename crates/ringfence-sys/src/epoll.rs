//! Many descriptors watched through one (epoll(7)).

use crate::fd::owned;
use crate::{Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `struct epoll_event`, packed on x86-64 only.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
#[derive(Clone, Copy, Default)]
struct Event {
    events: u32,
    data: u64,
}

/// Descriptors that are watched until they say something, once each.
#[derive(Debug)]
pub struct Set(OwnedFd);

/// What a watched descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The number it was added under.
    pub key: u64,
    /// It is hung up; else it is readable.
    pub hung_up: bool,
}

impl Set {
    /// An empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new() -> Result<Set> {
        // SAFETY: takes numbers only.
        unsafe { sys!(epoll_create1, libc::EPOLL_CLOEXEC) }.map(owned).map(Set)
    }

    /// The descriptor that is readable when one in the set has something to say.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    fn control(&self, what: i32, fd: BorrowedFd<'_>, key: u64, events: i32) -> Result<()> {
        let event = Event { events: events as u32, data: key };
        let (set, fd, event) = (self.0.as_raw_fd(), fd.as_raw_fd(), &raw const event);
        // SAFETY: the kernel reads the structure, whose layout it expects, during the call.
        unsafe { sys!(epoll_ctl, set, what, fd, event) }.map(drop)
    }

    /// Watches a descriptor until it is readable.
    ///
    /// # Errors
    /// `ENOSPC` at the user's limit of watches.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, libc::EPOLLIN | libc::EPOLLONESHOT)
    }

    /// Watches one of the set until it is hung up, whether it is readable or not.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn until_hung_up(&self, fd: BorrowedFd<'_>, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, libc::EPOLLONESHOT)
    }

    /// Takes what was said, some at a time, without waiting.
    pub fn take(&self) -> Vec<Said> {
        let mut events = [Event::default(); 64];
        let (set, room) = (self.0.as_raw_fd(), events.as_mut_ptr());
        let null = std::ptr::null::<u8>();
        // SAFETY: `room` has place for the number of events given.
        let count = unsafe { sys!(epoll_pwait, set, room, events.len(), 0, null, 8) }.unwrap_or(0);
        let said = |event: &Event| {
            let Event { events, data: key } = *event;
            Said { key, hung_up: events & libc::EPOLLHUP as u32 != 0 }
        };
        events[..count].iter().map(said).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn each_says_once_what_it_has_to_say() {
        let set = Set::new().expect("a set");
        let (ours, theirs) = crate::fd::socket_pair().expect("a pair");
        set.add(ours.as_fd(), 7).expect("added");
        assert_eq!(set.take(), []);
        crate::fd::send(theirs.as_fd(), b"x").expect("sent");
        assert_eq!(set.take(), [Said { key: 7, hung_up: false }]);
        assert_eq!(set.take(), []);
        set.until_hung_up(ours.as_fd(), 7).expect("watched again");
        assert_eq!(set.take(), []);
        drop(theirs);
        assert_eq!(set.take(), [Said { key: 7, hung_up: true }]);
    }
}
