//! The listeners of the host's network that are the sandbox's (given for a published port, or a program's own in the
//! process tier), and whether what listens at an address is one of them.
//!
//! A program can close its listener, and somebody else may listen at that port later. The launcher keeps no copy
//! of it: clients would wait in a queue that nobody serves, and a program that closed its own would go on being told
//! of them by epoll(7). It keeps its number, which no other socket gets (`SO_COOKIE`), and asks the kernel.

use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, diag, lock, socket};
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// So many are noted before it is looked which of them listen no more.
const MANY: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Given {
    numbers: Mutex<Numbers>,
    /// To ask by, from the first question on.
    diag: Mutex<Option<OwnedFd>>,
    marks: OnceLock<Marks>,
}

/// Opens a file that all sandboxes of the user's have in common. Each has a lock on the bytes of its listeners' numbers,
/// which ends with its launcher.
pub type Common = Box<dyn Fn() -> Option<OwnedFd> + Send + Sync>;

/// That file, opened when it is first needed.
struct Marks {
    open: Common,
    file: OnceLock<Option<OwnedFd>>,
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").finish_non_exhaustive()
    }
}

/// The numbers of those that listen, and of those that did, until it is looked.
#[derive(Debug, Default)]
struct Numbers {
    all: HashSet<u64>,
    /// How many listened at the last look.
    listened: usize,
}

impl Given {
    /// What is given is known to other sandboxes of the user's by this file, and what is theirs by it here.
    pub fn mark(&self, open: Common) {
        let _ = self.marks.set(Marks { open, file: OnceLock::new() });
    }

    fn marks(&self) -> Option<BorrowedFd<'_>> {
        let marks = self.marks.get()?;
        marks.file.get_or_init(|| (marks.open)()).as_ref().map(AsFd::as_fd)
    }

    /// A listener is about to be given. Who opens servers one after the other, as a suite of tests does, has made very many
    /// in the end; the first one, which still serves, is none the less known.
    pub fn note(&self, listener: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = behalf::cookie(listener)?;
        let full = |numbers: &Numbers| numbers.all.len() >= MANY.max(numbers.listened * 2);
        if full(&locked(&self.numbers)) {
            // Without an answer none is taken for one of them anyway.
            let listen = self.ask(diag::all_listeners).unwrap_or_default();
            let mut numbers = locked(&self.numbers);
            let marks = self.marks();
            numbers.all.retain(|number| {
                let stays = listen.contains(number);
                if let Some(file) = marks.filter(|_| !stays) {
                    let _ = lock::release(file, *number);
                }
                stays
            });
            numbers.listened = numbers.all.len();
        }
        locked(&self.numbers).all.insert(number);
        if let Some(file) = self.marks() {
            // Where there are no locks, who asks for one gets no answer, and takes that for one.
            let _ = lock::share(file, number);
        }
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
        self.arrived(socket, server) && self.at(server).1
    }

    /// The numbers of those who listen there, if none of them is of a sandbox.
    ///
    /// # Errors
    /// Who does, in words. Without an answer one may be.
    pub fn others(&self, address: SocketAddr) -> Result<Vec<u64>, &'static str> {
        let there = self.ask(|by| diag::listeners(by, address));
        let there = there.ok_or("the kernel does not tell who listens there")?;
        let inside = |number: &u64| locked(&self.numbers).all.contains(number);
        if there.iter().any(inside) {
            return Err("a server inside listens there");
        }
        let Some(file) = self.marks() else { return Ok(there) };
        for &number in &there {
            match lock::is_held(file, number) {
                Ok(false) => {}
                Ok(true) => return Err("a server in another sandbox listens there"),
                Err(_) => {
                    return Err(
                        "who listens there may be a server in another sandbox, which the file system of \
                                ~/.local/state/ringfence cannot tell (it has no locks)",
                    );
                }
            }
        }
        Ok(there)
    }

    /// Whether a socket that was to be connected to one of `others`, who were there before, has arrived, and at none that
    /// was given: while one of them listens the kernel gives nobody else the port, but by `SO_REUSEPORT`, which is looked for.
    pub fn reached_others(
        &self,
        socket: BorrowedFd<'_>,
        server: SocketAddr,
        others: &[u64],
    ) -> bool {
        let still = |now: Vec<u64>| now.iter().any(|number| others.contains(number));
        self.arrived(socket, server) && self.others(server).is_ok_and(still)
    }

    /// Whether a connection is at the other end of a socket that was to be connected to a server.
    fn arrived(&self, socket: BorrowedFd<'_>, server: SocketAddr) -> bool {
        let local = behalf::local(socket);
        let Some(local) = local.filter(|_| !socket::is_under_way(socket)) else { return false };
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let other = self.ask(|by| diag::tcp(by, server, local));
        other.is_some_and(|other| !other.listens)
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
    use std::fs::File;
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

    #[test]
    fn somebody_elses_server_is_told_from_who_takes_its_place() {
        let given = Given::default();
        let here = || TcpListener::bind("127.0.0.1:0").expect("bound");
        let (other, own) = (here(), here());
        given.note(own.as_fd()).expect("noted");
        let at = |listener: &TcpListener| listener.local_addr().expect("an address");
        let number = behalf::cookie(other.as_fd()).expect("a number");
        assert_eq!(given.others(at(&other)), Ok(vec![number]));
        assert_eq!(given.others(at(&own)), Err("a server inside listens there"));
        let connected = |to| socket::begin_to_connect(to).expect("connected").0;
        let client = connected(at(&other));
        assert!(given.reached_others(client.as_fd(), at(&other), &[number]));
        // Whoever it was that had been there is there no more, or is not the one that was seen.
        assert!(!given.reached_others(client.as_fd(), at(&other), &[]));
        let client = connected(at(&own));
        assert!(!given.reached_others(client.as_fd(), at(&own), &[number]));
        let client = connected(at(&other));
        let place = at(&other);
        drop(other);
        assert_eq!(given.others(place), Ok(vec![]), "nobody");
        assert!(!given.reached_others(client.as_fd(), place, &[number]));
    }

    #[test]
    fn another_sandboxs_server_is_known_until_its_launcher_is_gone() {
        let path = std::env::temp_dir().join(format!("ringfence-marks-{}", std::process::id()));
        let marked = || {
            let (given, path) = (Given::default(), path.clone());
            given.mark(Box::new(move || {
                let file = File::options().read(true).append(true).create(true).open(&path);
                file.ok().map(OwnedFd::from)
            }));
            given
        };
        let (one, another) = (marked(), marked());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = listener.local_addr().expect("an address");
        let number = behalf::cookie(listener.as_fd()).expect("a number");
        assert_eq!(one.others(at), Ok(vec![number]));
        another.note(listener.as_fd()).expect("noted");
        assert_eq!(one.others(at), Err("a server in another sandbox listens there"));
        assert_eq!(another.others(at), Err("a server inside listens there"));
        drop(another);
        assert_eq!(one.others(at), Ok(vec![number]));
        std::fs::remove_file(path).expect("a file of ours");
    }
}
