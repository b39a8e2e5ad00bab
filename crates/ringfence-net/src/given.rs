//! The listeners of the host that programs were given, and whether what listens at an address is one of them.
//!
//! A program can close its listener, and somebody else may listen at that port later. The launcher keeps no copy
//! of it: clients would wait in a queue that nobody serves, and a program that closed its own would go on being told
//! of them by epoll(7). It keeps its number, which no other socket gets (`SO_COOKIE`), and asks the kernel.

use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag};
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
        if numbers.len() >= MOST {
            numbers.pop_front();
        }
        numbers.push_back(number);
        Ok(())
    }

    /// Whether somebody listens there, and whether nobody does who was not given the socket: one who shares the
    /// port (`SO_REUSEPORT`) gets some of what comes. Without an answer it is taken for somebody else's.
    pub fn at(&self, address: SocketAddr) -> (bool, bool) {
        let mut by = locked(&self.diag);
        if by.is_none() {
            *by = diag::open().ok();
        }
        let Some(by) = &*by else { return (true, false) };
        let Ok(there) = diag::listeners(by.as_fd(), address) else { return (true, false) };
        let numbers = locked(&self.numbers);
        (!there.is_empty(), there.iter().all(|number| numbers.contains(number)))
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
