//! The listeners of the host's network that are the sandbox's (given for a published port, or a program's own in the
//! process tier), and whether what listens at an address is one of them.
//!
//! A program can close its listener, and somebody else may listen at that port later. The launcher keeps no copy
//! of it: clients would wait in a queue that nobody serves, and a program that closed its own would go on being told
//! of them by epoll(7). It keeps its number, which no other socket gets (`SO_COOKIE`), and asks the kernel.

use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag, socket};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than a program has at once; an older one is forgotten, and not served any longer.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Given {
    numbers: Mutex<VecDeque<u64>>,
    /// To ask by, from the first question on.
    diag: Mutex<Option<OwnedFd>>,
}

impl Given {
    /// A listener is about to be given.
    pub fn note(&self, listener: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = behalf::cookie(listener)?;
        let mut numbers = locked(&self.numbers);
        if numbers.contains(&number) {
            return Ok(());
        }
        if numbers.len() >= MOST {
            numbers.pop_front();
        }
        numbers.push_back(number);
        Ok(())
    }

    /// Whether somebody listens there, and whether nobody does who was not given the socket: one who shares the
    /// port (`SO_REUSEPORT`) gets some of what comes. Without an answer it is taken for somebody else's.
    pub fn at(&self, address: SocketAddr) -> (bool, bool) {
        let Some(there) = self.ask(|by| diag::listeners(by, address)) else { return (true, false) };
        let numbers = locked(&self.numbers);
        (!there.is_empty(), there.iter().all(|number| numbers.contains(number)))
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
