//! Which process a connection is of: from its addresses to the socket's inode (sock_diag(7), in the
//! sandbox's network namespace), from there to the process that holds it.
//!
//! It is looked for beside the connection, which does not wait for it; what is told about the
//! connection meanwhile is kept until the answer is there. A search costs as much as a small connection,
//! so of a burst some stay without an answer: a record is no reason to hold up a program.

use crate::budget::Budget;
use crate::decision::{NetDecision, Process};
use crate::gateway::{Shared, Subject};
use ringfence_sys::diag;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The most searches at the same time.
const MOST: usize = 8;
/// So many searches can be made at once, and as many in each second that follows.
const BURST: f64 = 100.0;
/// What is kept of them for what is refused, which people want to know more about.
const FOR_REFUSALS: f64 = 50.0;
/// The most processes that are looked at.
const MOST_PROCESSES: usize = 4096;

/// Finds processes.
#[derive(Debug)]
pub(crate) struct Who {
    /// Asks in the sandbox's network namespace.
    diag: Option<Mutex<OwnedFd>>,
    /// Those that were found last, which most often are those that come next.
    recent: Mutex<Vec<i32>>,
    searching: AtomicUsize,
    budget: Mutex<Budget>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Who {
    pub fn new(diag: Option<OwnedFd>) -> Who {
        Who {
            diag: diag.map(Mutex::new),
            recent: Mutex::default(),
            searching: AtomicUsize::default(),
            budget: Mutex::new(Budget::new(BURST, BURST)),
        }
    }

    /// Whether there is a search left, for something that is refused or for something that is not.
    pub fn may_search(&self, refused: bool) -> bool {
        let kept = if refused { 0.0 } else { FOR_REFUSALS };
        self.diag.is_some() && locked(&self.budget).take(Instant::now(), kept)
    }

    /// Whether somebody is being looked for.
    pub fn searches(&self) -> bool {
        self.searching.load(Ordering::SeqCst) > 0
    }

    /// Whose the client's end of a TCP connection is.
    pub fn tcp(&self, client: SocketAddr, to: SocketAddr) -> Option<Process> {
        let diag = locked(self.diag.as_ref()?);
        // A socket for both families knows IPv4 addresses as mapped ones; the kernel looks in both.
        let socket = diag::tcp(diag.as_fd(), client, to).ok()?;
        drop(diag);
        self.holder(socket.inode?)
    }

    /// Whose a UDP socket is.
    pub fn udp(&self, client: SocketAddr) -> Option<Process> {
        let diag = locked(self.diag.as_ref()?);
        let at = |ipv6| diag::udp(diag.as_fd(), ipv6, client.port());
        let inode = at(client.is_ipv6()).or_else(|_| at(true)).ok()?;
        drop(diag);
        self.holder(inode)
    }

    fn holder(&self, inode: u64) -> Option<Process> {
        let name = format!("socket:[{inode}]");
        let recent = locked(&self.recent).clone();
        let found = recent.into_iter().find_map(|pid| held(pid, &name));
        let found = found.or_else(|| descendants().into_iter().find_map(|pid| held(pid, &name)))?;
        let mut recent = locked(&self.recent);
        recent.retain(|&pid| pid != found.pid);
        recent.insert(0, found.pid);
        recent.truncate(4);
        Some(found)
    }
}

/// The process, if it holds the socket.
fn held(pid: i32, name: &str) -> Option<Process> {
    let is = |link: &PathBuf| fs::read_link(link).is_ok_and(|link| link == Path::new(name));
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let link = entries.flatten().map(|entry| entry.path()).find(is)?;
    let process = Process::of(pid);
    // Still the same process: its number was not given to another one meanwhile.
    is(&link).then_some(process)
}

/// All that descends from this process: what runs in the sandbox does.
fn descendants() -> Vec<i32> {
    let mut found = vec![std::process::id() as i32];
    let mut at = 0;
    while let Some(&pid) = found.get(at).filter(|_| found.len() < MOST_PROCESSES) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        at += 1;
    }
    found.remove(0);
    found
}

/// What is known of a connection's process.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Debug)]
enum State {
    /// All that will be.
    Known(Option<Process>),
    /// It is being looked for; this is to be told then.
    Sought(Vec<NetDecision>),
}

impl Default for State {
    fn default() -> State {
        State::Known(None)
    }
}

impl Finding {
    /// One that is known from the start.
    pub fn known(process: Option<Process>) -> Arc<Finding> {
        Arc::new(Finding { state: Mutex::new(State::Known(process)), settled: Notify::new() })
    }

    /// Tells a decision, now or once the process is known, in order.
    pub fn tell(&self, shared: &Shared, mut decision: NetDecision) {
        match &mut *locked(&self.state) {
            State::Known(process) => {
                decision.process.clone_from(process);
                shared.tell(decision);
            }
            State::Sought(kept) => kept.push(decision),
        }
    }

    fn settle(&self, shared: &Shared, process: Option<Process>) {
        let mut state = locked(&self.state);
        if let State::Sought(kept) = &mut *state {
            for mut decision in std::mem::take(kept) {
                decision.process.clone_from(&process);
                shared.tell(decision);
            }
        }
        *state = State::Known(process);
        self.settled.notify_waiters();
    }

    /// The process, if it is known.
    pub fn get(&self) -> Option<Process> {
        match &*locked(&self.state) {
            State::Known(process) => process.clone(),
            State::Sought(_) => None,
        }
    }

    /// Waits until the process is known, or it is known that it will not be.
    pub async fn settled(&self) {
        let notified = self.settled.notified();
        let mut notified = std::pin::pin!(notified);
        notified.as_mut().enable();
        if matches!(&*locked(&self.state), State::Known(_)) {
            return;
        }
        notified.await;
    }
}

/// Begins to look for the process of a TCP connection that was going to `to`.
pub(crate) fn seek(
    shared: &Arc<Shared>,
    subject: &mut Subject,
    client: &TcpStream,
    to: SocketAddr,
) {
    let refused = subject.decision.as_ref().is_some_and(|decision| !decision.allowed);
    if !shared.who.may_search(refused) {
        return;
    }
    let Ok(peer) = client.peer_addr() else { return };
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    if let Some(finding) = look(shared, move |who| who.tcp(peer, to)) {
        subject.process = finding;
    }
}

/// Begins a search on a thread for such things.
pub(crate) fn look(
    shared: &Arc<Shared>,
    search: impl FnOnce(&Who) -> Option<Process> + Send + 'static,
) -> Option<Arc<Finding>> {
    let who = &shared.who;
    if who.searching.fetch_add(1, Ordering::Relaxed) >= MOST {
        who.searching.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let state = Mutex::new(State::Sought(Vec::new()));
    let finding = Arc::new(Finding { state, settled: Notify::new() });
    let (theirs, shared) = (finding.clone(), shared.clone());
    tokio::task::spawn_blocking(move || {
        let process = search(&shared.who);
        theirs.settle(&shared, process);
        shared.who.searching.fetch_sub(1, Ordering::SeqCst);
    });
    Some(finding)
}
