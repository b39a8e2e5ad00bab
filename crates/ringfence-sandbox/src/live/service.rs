//! The warden's half of `exec`: takes connections, starts what they ask for, says how it ended.
//!
//! Whoever connects is the session's own user, outside: the socket is in a directory of the
//! user's alone that nothing inside can see. Both are checked here once more, for what a kernel
//! or a policy could get wrong.

use super::protocol::{INLINE, MOST, Reply, Request, Wish};
use super::spawn::{Refusal, Spawner};
use crate::descendants;
use crate::plan::Tier;
use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use sys::Errno;
use sys::process::Change;

/// Connections at once.
const MOST_VISITS: usize = 512;
/// What a client may want done with a command that is still to be executed.
const MOST_WISHES: usize = 64;
/// What of a command's words fits into the message to the launcher.
const REPORTED: usize = 3500;

/// Message to the launcher: a command of `exec` executes.
pub(crate) const STARTED: u8 = b'Q';
/// Message to the launcher: a command of `exec` has ended.
pub(crate) const ENDED: u8 = b'q';
/// Message from the launcher: the socket to listen on.
pub(crate) const LISTEN: u8 = b'L';

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

/// Why a command did not begin whose process was stopped before it was confined.
const STOPPED: &str =
    "a program in the sandbox stopped the command before it began, and it was ended";

/// Somebody who is connected.
struct Visit {
    connection: OwnedFd,
    /// The command that it asked for, while that runs: its number in the session, its process.
    command: Option<(u32, i32)>,
    /// It is still to be executed.
    begins: Option<Begins>,
}

/// A command whose process is not confined yet. What is inside can stop that, so nobody waits for it.
struct Begins {
    argv: Vec<CString>,
    master: Option<OwnedFd>,
    /// What the client wants done with it.
    wishes: Vec<Wish>,
    /// Somebody stopped it, and it was ended for that.
    stopped: bool,
}

impl Visit {
    /// It has not been asked yet what it wants.
    fn waits(&self) -> bool {
        self.command.is_none() && self.begins.is_none()
    }
}

/// Serves `exec`.
pub(crate) struct Service {
    listener: Option<OwnedFd>,
    visits: Vec<Visit>,
    spawner: Spawner,
    tier: Tier,
    /// Commands started so far.
    started: u32,
}

impl Service {
    pub fn new(spawner: Spawner, tier: Tier) -> Service {
        Service { listener: None, visits: Vec::new(), spawner, tier, started: 0 }
    }

    /// The socket to take connections from.
    pub fn listen(&mut self, listener: OwnedFd) {
        self.listener = Some(listener);
    }

    /// What to watch. Who asks for a command while another one begins has to wait.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let begun = self.spawner.carrier.begun();
        let visits = self.visits.iter().map(move |visit| match begun {
            Some(begun) if visit.waits() => begun,
            _ => visit.connection.as_fd(),
        });
        self.listener.iter().map(AsFd::as_fd).chain(visits).chain(begun)
    }

    /// Does what the descriptors that are ready (in the order of [`Service::descriptors`]) ask for.
    pub fn serve(&mut self, ready: &[bool], launcher: BorrowedFd<'_>) {
        let (knocked, ready) = match (&self.listener, ready.split_first()) {
            (Some(_), Some((knocked, rest))) => (*knocked, rest),
            _ => (false, ready),
        };
        // From behind, so that leaving ones do not move those still to be looked at.
        for at in (0..self.visits.len()).rev() {
            if ready.get(at).copied().unwrap_or(false) && !self.hear(at) {
                self.leave(at);
            }
        }
        self.settle(false, launcher);
        if knocked {
            self.welcome();
        }
    }

    /// Takes the waiting connections.
    fn welcome(&mut self) {
        while let Some(listener) = &self.listener
            && let Ok(connection) = sys::unix::accept(listener.as_fd())
        {
            if !self.known(connection.as_fd()) || self.visits.len() >= MOST_VISITS {
                // Closed: the client says so.
                continue;
            }
            self.visits.push(Visit { connection, command: None, begins: None });
            // The request is usually there already.
            let at = self.visits.len() - 1;
            if !self.hear(at) {
                self.leave(at);
            }
        }
    }

    /// The user's own process, and none of those inside: a namespace's numbers are its own, and a
    /// process outside has none.
    fn known(&self, connection: BorrowedFd<'_>) -> bool {
        let Ok((pid, user, _)) = sys::socket::peer_credentials(connection) else { return false };
        user == sys::identity::user() && (self.tier == Tier::Process || pid == 0)
    }

    /// Takes all messages of a visit; false: it is over.
    fn hear(&mut self, at: usize) -> bool {
        loop {
            let visit = &mut self.visits[at];
            if visit.waits() && self.spawner.carrier.begun().is_some() {
                return true;
            }
            // A request comes once; what follows is two bytes long.
            let mut buffer = vec![0; if visit.waits() { INLINE } else { 16 }];
            let received = sys::socket::receive_with(visit.connection.as_fd(), &mut buffer, false);
            let (length, descriptors) = match received {
                Ok((length @ 1.., descriptors)) => (length, descriptors),
                Err(Errno::EAGAIN) => return true,
                _ => return false,
            };
            match (visit.command, &mut visit.begins) {
                (Some((_, pid)), _) => Wish::decode(&buffer[..length])
                    .into_iter()
                    .for_each(|wish| carry_out(pid, wish)),
                (None, Some(begins)) => match Wish::decode(&buffer[..length]) {
                    Some(Wish::Kill) => self.spawner.carrier.begins().into_iter().for_each(end),
                    wish if begins.wishes.len() < MOST_WISHES => begins.wishes.extend(wish),
                    _ => return false,
                },
                // It has given up: what would be begun would end at once, somewhere in the middle.
                (None, None) if sys::unix::is_hung_up(visit.connection.as_fd()) => return false,
                (None, None) => {
                    if let Err((code, text)) = self.begin(at, &buffer[..length], descriptors) {
                        self.tell(at, &Reply::Failed(code, text), &[]);
                        return false;
                    }
                }
            }
        }
    }

    fn begin(
        &mut self,
        at: usize,
        message: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let refused = |why: &str| (125, why.to_owned());
        let mut descriptors = descriptors.into_iter();
        let long;
        let message = match message {
            // Nothing but descriptors: the last one is the request.
            b"M" => {
                let file = descriptors.next_back().ok_or_else(|| refused("no request came"))?;
                long = sys::fd::content(file.as_fd(), MOST)
                    .map_err(|_| refused("the command line is too long"))?;
                &long[..]
            }
            message => message,
        };
        let request = Request::decode(message)
            .ok_or_else(|| refused("the session was started by another version of ringfence"))?;
        let terminal = request.terminal.map(|terminal| {
            let opened = sys::terminal::open(c"/dev/ptmx").and_then(|(ours, theirs)| {
                sys::terminal::set_size(ours.as_fd(), sys::terminal::Size(terminal.size))?;
                Ok((ours, theirs))
            });
            opened.map_err(|errno| {
                let why = sys::describe(errno);
                (125, format!("cannot open a terminal inside: {why} ({errno:?})"))
            })
        });
        let (master, inner) = terminal.transpose()?.unzip();
        let mut kept: Vec<OwnedFd> = descriptors.collect();
        let mut lent = kept.iter().map(AsRawFd::as_raw_fd);
        let own = request.terminal.map(|terminal| terminal.streams).unwrap_or_default();
        let own_terminal = inner.as_ref().map(AsRawFd::as_raw_fd);
        let streams = own.map(|own| if own { own_terminal } else { lent.next() });
        let ([Some(input), Some(output), Some(error)], None) = (streams, lent.next()) else {
            return Err(refused("the standard streams did not come"));
        };
        kept.extend(inner);
        self.spawner.begin(&request, [input, output, error], kept)?;
        let (argv, wishes) = (request.argv, Vec::new());
        self.visits[at].begins = Some(Begins { argv, master, wishes, stopped: false });
        Ok(())
    }

    /// Says what came of the command that has begun, if that is known: it executes, or has ended and was `collected`.
    fn settle(&mut self, collected: bool, launcher: BorrowedFd<'_>) {
        let Some(result) = self.spawner.result(collected) else { return };
        let Some(at) = self.visits.iter().position(|visit| visit.begins.is_some()) else { return };
        let Some(begins) = self.visits[at].begins.take() else { return };
        match result {
            Ok(_) if begins.stopped => self.refuse(at, (125, STOPPED.to_owned())),
            Err(refusal) => self.refuse(at, refusal),
            Ok(spawned) => {
                self.started += 1;
                self.visits[at].command = Some((self.started, spawned.pid));
                if let Some(master) = &begins.master {
                    self.tell(at, &Reply::Started, &[master.as_fd()]);
                }
                let words = [&spawned.path, &spawned.workdir].into_iter().chain(&begins.argv);
                let report = report(self.started, spawned.pid, words);
                let _ = sys::unix::send_about(launcher, &report, spawned.pid);
                begins.wishes.into_iter().for_each(|wish| carry_out(spawned.pid, wish));
            }
        }
    }

    fn refuse(&mut self, at: usize, (code, text): Refusal) {
        self.tell(at, &Reply::Failed(code, text), &[]);
        self.leave(at);
    }

    fn tell(&self, at: usize, reply: &Reply, pass: &[BorrowedFd<'_>]) {
        // A client that is gone is noticed when it is listened to.
        let _ = sys::socket::send_with(self.visits[at].connection.as_fd(), &reply.encode(), pass);
    }

    /// The client is gone, or was refused: so is its command.
    fn leave(&mut self, at: usize) {
        let visit = self.visits.remove(at);
        if visit.begins.is_some() {
            // It may execute by now, and have begun more.
            self.spawner.carrier.begins().into_iter().for_each(end);
            self.spawner.carrier.abandon();
        }
        if let Some((_, pid)) = visit.command {
            end(pid);
        }
    }

    /// Hears of a child's change; false when it is nobody's command.
    pub fn changed(&mut self, pid: i32, change: Change, launcher: BorrowedFd<'_>) -> bool {
        if self.spawner.carrier.begins() == Some(pid) {
            let collected = matches!(change, Change::Exited(_) | Change::Killed(_));
            if matches!(change, Change::Stopped(_)) && !self.spawner.carrier.is_over() {
                // By whom is inside. It has all rights still, and holds up who waits behind it.
                self.visits
                    .iter_mut()
                    .filter_map(|visit| visit.begins.as_mut())
                    .for_each(|begins| begins.stopped = true);
                let _ = sys::signal::kill(pid, SIGKILL);
            }
            self.settle(collected, launcher);
        }
        let own = |visit: &Visit| visit.command.is_some_and(|(_, own)| own == pid);
        let Some(at) = self.visits.iter().position(own) else { return false };
        let reply = match change {
            Change::Exited(code) => Reply::Exited(code as u8),
            Change::Killed(signal) => Reply::Killed(signal as u8),
            Change::Stopped(signal) => Reply::Stopped(signal as u8),
            Change::Continued => Reply::Continued,
        };
        self.tell(at, &reply, &[]);
        if let (Some((number, _)), Reply::Exited(_) | Reply::Killed(_)) =
            (self.visits[at].command, &reply)
        {
            self.visits.remove(at);
            let message = [&[ENDED][..], &number.to_ne_bytes(), &reply.encode()].concat();
            let _ = sys::fd::send(launcher, &message);
        }
        true
    }
}

/// What the client wants done with its command, which has not been waited for: its number is its
/// own.
fn carry_out(pid: i32, wish: Wish) {
    let _ = match wish {
        Wish::Signal(signal) => sys::signal::kill(pid, i32::from(signal)),
        // It began a session: its group has its number.
        Wish::Group(signal) => sys::signal::kill(-pid, i32::from(signal)),
        Wish::Kill => {
            end(pid);
            Ok(())
        }
    };
}

/// Ends a command and what descends from it, as far as it did not leave its parents.
fn end(pid: i32) {
    let _ = sys::signal::kill(pid, SIGSTOP);
    descendants::kill_all(pid);
    let _ = sys::signal::kill(-pid, SIGKILL);
    let _ = sys::signal::kill(pid, SIGKILL);
}

fn report<'a>(number: u32, pid: i32, words: impl Iterator<Item = &'a CString>) -> Vec<u8> {
    let mut message = [&[STARTED][..], &number.to_ne_bytes(), &pid.to_ne_bytes()].concat();
    for word in words {
        message.extend_from_slice(word.as_bytes_with_nul());
        if message.len() > REPORTED {
            message.truncate(REPORTED);
            break;
        }
    }
    message
}
