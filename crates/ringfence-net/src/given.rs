//! The listeners of the host's network that are the sandbox's (given for a published port, or a program's own in the
//! process tier), and whether what listens at an address is one of them.
//!
//! A program can close its listener, and somebody else may listen at that port later. The launcher keeps no copy
//! of it: clients would wait in a queue that nobody serves, and a program that closed its own would go on being told
//! of them by epoll(7). It keeps its number, which no other socket gets (`SO_COOKIE`), and asks the kernel.

use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag, socket};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many are noted before it is looked which of them listen no more.
const MANY: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Given {
    numbers: Mutex<Numbers>,
    /// To ask by, from the first question on.
    diag: Mutex<Option<OwnedFd>>,
}

/// The numbers of those that listen, and of those that did, until it is looked.
#[derive(Debug, Default)]
struct Numbers {
    all: HashSet<u64>,
    /// How many listened at the last look.
    listened: usize,
}

impl Given {
    /// A listener is about to be given. Who opens servers one after the other, as a suite of tests does, has made very many
    /// in the end; the first one, which still serves, is none the less known.
    pub fn note(&self, listener: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = behalf::cookie(listener)?;
        let full = |numbers: &Numbers| numbers.all.len() >= MANY.max(numbers.listened * 2);
        if full(&locked(&self.numbers)) {
            // Without an answer none is taken for one of them anyway.
            let listen = self.ask(diag::all_listeners).unwrap_or_default();
            let mut numbers = locked(&self.numbers);
            numbers.all.retain(|number| listen.contains(number));
            numbers.listened = numbers.all.len();
        }
        locked(&self.numbers).all.insert(number);
        Ok(())
    }

    /// Whether somebody listens there, and whether nobody does who was not given the socket: one who shares the
    /// port (`SO_REUSEPORT`) gets some of what comes. Without an answer it is taken for somebody else's.
    pub fn at(&self, address: SocketAddr) -> (bool, bool) {
        let Some(there) = self.ask(|by| diag::listeners(by, address)) else { return (true, false) };
        let numbers = locked(&self.numbers);
        (!there.is_empty(), there.iter().all(|number| numbers.all.contains(number)))
    }

    /// Whether a socket that was to be connected to one of them, which was there before, has arrived at it. Nobody else
    /// is there after that, and at the other end is a connection: so nobody else can have taken it. That the listener is
    /// gone by then is no matter: servers of one connection close it at once.
    ///
    /// One that is under way would arrive at whoever listens there by then. And where the queue was full the kernel may
    /// answer without noting anything (a SYN cookie): who listens when the first bytes come gets that one.
    pub fn reached(&self, socket: BorrowedFd<'_>, server: SocketAddr) -> bool {
        let local = behalf::local(socket);
        let Some(local) = local.filter(|_| !socket::is_under_way(socket)) else { return false };
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let other = self.ask(|by| diag::tcp(by, server, local));
        other.is_some_and(|other| !other.listens) && self.at(server).1
    }

    fn ask<T>(&self, question: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Option<T> {
        let mut by = locked(&self.diag);
        if by.is_none() {
            *by = diag::open().ok();
        }
        question(by.as_ref()?.as_fd()).ok()
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn who_listens_is_known_whoever_did_meanwhile() {
        let given = Given::default();
        let open = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            given.note(listener.as_fd()).expect("noted");
            listener
        };
        let first = open();
        for _ in 0..3 * MANY {
            drop(open());
        }
        assert_eq!(given.at(first.local_addr().expect("an address")), (true, true));
        assert!(locked(&given.numbers).all.len() <= MANY);
        let other = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert_eq!(given.at(other.local_addr().expect("an address")), (true, false), "a stranger");
    }
}
