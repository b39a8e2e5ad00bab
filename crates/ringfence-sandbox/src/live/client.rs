//! `exec` from outside: asks a session's warden for a command, lends it the standard streams or
//! a terminal, passes signals on, and waits for its end.

use super::protocol::{INLINE, MOST, Reply, Request, Terminal, Wish};
use super::terminal::{Relay, screen};
use super::uptake::Uptake;
use crate::supervise;
use ringfence_start::entry::{self, Role};
use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::fd::Watched;
use sys::signal::{Arrived, SignalSet};

const SIGINT: i32 = 2;
/// What ends `exec` itself, as long as there is no command: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ENDING: [i32; 4] = [1, SIGINT, 3, 15];
const SIGTERM: u8 = 15;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;
const SIGXFSZ: i32 = 25;
const SIGWINCH: i32 = 28;

/// How long a command may take to end itself after a timeout's SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// How a command of `exec` ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The exit code that stands for it.
    pub code: u8,
    /// A terminal's Ctrl-C ended it, and us.
    pub interrupted: bool,
    /// The time ran out.
    pub timed_out: bool,
}

/// Why no command ran, or not to its end: the exit code that stands for it, and a sentence.
pub type Failure = (u8, String);

/// Connects to a session's socket.
///
/// # Errors
/// `ENOENT` where there is none, `ECONNREFUSED` where the session has ended, `EPERM` where it is
/// somebody else's, to whom nothing is lent, and others.
pub fn connect(socket: &Path) -> Result<OwnedFd, Errno> {
    let connection = match sys::unix::connect(socket) {
        // Too long for an address: by way of its directory, which has a number.
        Err(Errno::ENAMETOOLONG) => short(socket, sys::unix::connect),
        other => other,
    }?;
    let (_, user, _) = sys::socket::peer_credentials(connection.as_fd())?;
    if user == sys::identity::user() { Ok(connection) } else { Err(Errno::EPERM) }
}

/// Listens on a session's socket.
///
/// # Errors
/// The file system's; those of a sandbox in which sockets are refused.
pub fn listen(socket: &Path) -> Result<OwnedFd, Errno> {
    match sys::unix::listen(socket) {
        Err(Errno::ENAMETOOLONG) => short(socket, sys::unix::listen),
        other => other,
    }
}

/// Calls `f` with a short path to the same place.
fn short<T>(path: &Path, f: impl FnOnce(&Path) -> Result<T, Errno>) -> Result<T, Errno> {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL);
    };
    let parent =
        std::ffi::CString::new(parent.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let flags = sys::fd::PATH_ONLY;
    let directory = sys::fd::open_at(sys::fd::CWD, &parent, flags, 0)?;
    f(&Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

/// The terminal that the command should get inside, in the place of the user's own.
///
/// The user's is never lent: what is inside goes on when the command has ended, and could go on
/// reading what is typed, by output's descriptor as well as by input's. What is typed is the
/// command's only where it also prints on the terminal: a program that it prints to, like `less`,
/// reads the keyboard itself.
pub fn terminal() -> Option<Terminal> {
    let [input, output, error] = [0, 1, 2].map(sys::fd::is_terminal);
    let streams = [input && output, output, error];
    let size = sys::terminal::size(screen()?.as_fd()).map(|size| size.0).unwrap_or_default();
    Some(Terminal { streams, size })
}

/// The connection over which the command of this process was asked for before libc was up
/// ([`ringfence_start::ask`]).
pub fn asked() -> Option<OwnedFd> {
    match entry::role() {
        Role::Client(connection) => sys::fd::adopt(connection),
        _ => None,
    }
}

/// Signals that are taken from a descriptor. A stop for using the terminal from the background has its usual effect:
/// who keeps watch over the command is the session's launcher.
fn handled_signals() -> SignalSet {
    const SIGTTIN: i32 = 21;
    const SIGTTOU: i32 = 22;
    supervise::handled_signals().without(&[SIGTTIN, SIGTTOU])
}

/// Asks the session behind a connection for a command. From here on signals are the command's.
///
/// # Errors
/// [`Failure`]: the request is too long, or the session ended.
pub fn ask(connection: &OwnedFd, request: &Request) -> Result<(), Failure> {
    sys::fd::ensure_standard_streams().map_err(|errno| failed("open(/dev/null)", errno))?;
    if let Some(why) = crate::launch::refused_streams(true) {
        return Err((125, why));
    }
    let _ = sys::signal::set_mask(handled_signals());
    send(connection.as_fd(), request)
}

/// Waits for the end of the command that was asked for.
///
/// # Errors
/// [`Failure`]: it cannot be executed, was not found, or its session ended.
pub fn wait(connection: &OwnedFd, timeout: Option<Duration>) -> Result<Finished, Failure> {
    let signals =
        sys::signal::descriptor(handled_signals()).map_err(|errno| failed("signalfd", errno))?;
    let mut exec = Exec {
        connection: connection.as_fd(),
        signals: signals.as_fd(),
        relay: None,
        time: Limit::of(timeout),
        uptake: Uptake::begin(),
        stopping: false,
        interrupted: false,
    };
    loop {
        if let Some(finished) = exec.turn()? {
            return Ok(finished);
        }
    }
}

pub(super) fn failed(call: &str, errno: Errno) -> Failure {
    (125, format!("{call}: {} ({errno:?})", sys::describe(errno)))
}

fn send(connection: BorrowedFd<'_>, request: &Request) -> Result<(), Failure> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let nothing = sys::fd::is_terminal(0)
        .then(|| sys::fd::open_at(sys::fd::CWD, c"/dev/null", sys::fd::READ_ONLY, 0))
        .transpose();
    let nothing = nothing.map_err(|errno| failed("open(/dev/null)", errno))?;
    let input = nothing.as_ref().map_or(input.as_fd(), AsFd::as_fd);
    lend(connection, request, [input, output.as_fd(), error.as_fd()])
}

/// Sends a request, with the streams that the command is lent; those that are a terminal of its own are not.
pub(super) fn lend(
    connection: BorrowedFd<'_>,
    request: &Request,
    streams: [BorrowedFd<'_>; 3],
) -> Result<(), Failure> {
    let bytes = request.encode();
    if bytes.len() > MOST {
        return Err((125, format!("the command line is too long ({} bytes)", bytes.len())));
    }
    let own = request.terminal.map(|terminal| terminal.streams).unwrap_or_default();
    let streams = streams.into_iter().zip(own);
    let mut pass: Vec<_> = streams.filter(|(_, own)| !own).map(|(stream, _)| stream).collect();
    let long = (bytes.len() > INLINE).then(|| sys::fd::in_memory(&bytes)).transpose();
    let long = long.map_err(|errno| failed("memfd_create", errno))?;
    pass.extend(long.as_ref().map(AsFd::as_fd));
    let message = if long.is_some() { b"M" } else { &bytes[..] };
    sys::socket::send_with(connection, message, &pass).map_err(|errno| gone(Some(errno)))
}

/// What the warden has said, with the descriptors that came along; `None`: nothing more yet.
#[expect(clippy::type_complexity, reason = "a reply that is none, and what came with it")]
pub(super) fn next_reply(
    connection: BorrowedFd<'_>,
) -> Result<Option<(Option<Reply>, Vec<OwnedFd>)>, Failure> {
    let mut message = [0; 2048];
    let mut received = sys::socket::receive_with(connection, &mut message, false);
    if received.as_ref().err() == Some(&Errno::ECONNRESET) {
        // A wish that came too late to be read makes a reset of the warden's closing, and a
        // socket tells its error before what lies in its queue: the answer may still be there.
        received = sys::socket::receive_with(connection, &mut message, false);
    }
    match received {
        Ok((length @ 1.., descriptors)) => {
            Ok(Some((Reply::decode(&message[..length]), descriptors)))
        }
        Err(Errno::EAGAIN) => Ok(None),
        Ok(_) => Err(gone(None)),
        Err(errno) => Err(gone(Some(errno))),
    }
}

/// Asks the warden for something about the command.
pub(super) fn wish(connection: BorrowedFd<'_>, wish: Wish) {
    // Without a session there will be no answer, and that is noticed.
    let _ = sys::fd::send(connection, &wish.encode());
}

fn gone(errno: Option<Errno>) -> Failure {
    match errno {
        None | Some(Errno::EPIPE | Errno::ECONNRESET) => {
            (128 + 9, "the session ended, and the command with it".to_owned())
        }
        Some(errno) => (125, format!("the session cannot be asked: {}", sys::describe(errno))),
    }
}

/// A command of `exec`, seen from outside.
struct Exec<'a> {
    connection: BorrowedFd<'a>,
    signals: BorrowedFd<'a>,
    relay: Option<Relay>,
    time: Limit,
    /// Before the command has begun there is nobody to whom a signal could be passed.
    uptake: Uptake,
    /// We asked for a stop: the report of it is no news.
    stopping: bool,
    interrupted: bool,
}

/// The time that a command has: when it has run out, first SIGTERM, then after a grace the end.
pub(super) struct Limit {
    until: Option<Instant>,
    /// It has run out.
    pub passed: bool,
}

impl Limit {
    /// One that begins now. Who has none, or more than clocks count, has all the time there is.
    pub(super) fn of(timeout: Option<Duration>) -> Limit {
        Limit { until: timeout.and_then(|time| Instant::now().checked_add(time)), passed: false }
    }

    /// How long to wait for what comes before it, in milliseconds; -1 is for ever.
    pub(super) fn wait(&self) -> i32 {
        self.until.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now());
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX).saturating_add(1)
        })
    }

    /// Whether it has run out, and that is still to be looked at.
    pub(super) fn is_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Does what is due. To be asked after the replies: who ended in time did, however late we look.
    pub(super) fn look(&mut self, connection: BorrowedFd<'_>) {
        if !self.is_up() {
            return;
        }
        if self.passed {
            self.until = None;
            wish(connection, Wish::Kill);
        } else {
            self.passed = true;
            self.until = Some(Instant::now() + GRACE);
            wish(connection, Wish::Signal(SIGTERM));
            wish(connection, Wish::Signal(SIGCONT as u8));
        }
    }
}

impl Exec<'_> {
    /// Waits once, and does what came; the end, if it came.
    fn turn(&mut self) -> Result<Option<Finished>, Failure> {
        let read = |fd| Watched { fd, read: true, write: false };
        let mut watched = vec![read(self.connection), read(self.signals)];
        watched.extend(self.relay.iter().flat_map(Relay::watched));
        let ready = sys::fd::poll(&watched, self.uptake.wait(self.time.wait()))
            .map_err(|errno| (125, format!("ppoll: {}", sys::describe(errno))))?;
        if ready[1].read {
            while let Ok(arrived) = sys::signal::take(self.signals) {
                if let Some(finished) = self.ends_at(arrived) {
                    return Ok(Some(finished));
                }
                self.signal(arrived);
            }
        }
        if let Some(relay) = self.relay.as_mut() {
            relay.carry(&ready[2..]);
        }
        let finished = if ready[0].read { self.replies()? } else { None };
        if finished.is_none() {
            if self.time.is_up() && !self.uptake.taken(self.connection) {
                self.uptake.say(self.connection);
                return Ok(Some(Finished { code: 124, interrupted: false, timed_out: true }));
            }
            self.time.look(self.connection);
            self.uptake.look(self.connection);
        }
        Ok(finished)
    }

    /// The end that a signal makes of one whose command has not begun; the session begins none for who is gone.
    fn ends_at(&mut self, arrived: Arrived) -> Option<Finished> {
        let taken = self.uptake.taken(self.connection);
        if taken || !ENDING.contains(&arrived.signal) {
            return None;
        }
        let interrupted = arrived.signal == SIGINT && !arrived.by_process;
        Some(Finished { code: 128 + arrived.signal as u8, interrupted, timed_out: false })
    }

    fn wish(&self, wanted: Wish) {
        wish(self.connection, wanted);
    }

    fn signal(&mut self, arrived: Arrived) {
        match arrived.signal {
            SIGCHLD => {}
            SIGWINCH if self.relay.is_some() => {
                if let Some(relay) = &self.relay {
                    relay.resize();
                }
            }
            SIGTSTP => {
                self.stopping = true;
                self.wish(Wish::Group(SIGSTOP as u8));
                self.stop(None);
            }
            SIGCONT => self.wish(Wish::Group(SIGCONT as u8)),
            // For what it wrote itself.
            SIGXFSZ if !arrived.by_process => {}
            signal if arrived.by_process => self.wish(Wish::Signal(signal as u8)),
            signal => {
                self.interrupted |= signal == SIGINT;
                self.wish(Wish::Group(signal as u8));
            }
        }
    }

    /// Stops ourselves, with the terminal as it was; goes on when told to, or at a time.
    fn stop(&self, until: Option<Instant>) {
        if let Some(relay) = &self.relay {
            relay.restore();
        }
        sys::signal::stop_until(until);
        if let Some(relay) = &self.relay {
            relay.resume();
        }
    }

    fn replies(&mut self) -> Result<Option<Finished>, Failure> {
        while let Some((reply, descriptors)) = next_reply(self.connection)? {
            match reply {
                Some(Reply::Started) => {
                    self.relay = descriptors.into_iter().next().and_then(Relay::new);
                }
                Some(Reply::Stopped(_)) if self.stopping => self.stopping = false,
                // The command's own: our time goes on.
                Some(Reply::Stopped(_)) => self.stop(self.time.until),
                // Of a stop that a SIGCONT overtook there is no report.
                Some(Reply::Continued) => self.stopping = false,
                None => {}
                Some(Reply::Failed(code, text)) => return Err((code, text)),
                Some(Reply::Exited(code)) => return Ok(Some(self.finished(code, false))),
                Some(Reply::Killed(signal)) => {
                    // A terminal of the command's own makes the signal itself.
                    let typed = self.relay.as_ref().is_some_and(Relay::takes_keys);
                    let interrupted = self.interrupted || typed;
                    let interrupted = interrupted && i32::from(signal) == SIGINT;
                    return Ok(Some(self.finished(signal.saturating_add(128), interrupted)));
                }
            }
        }
        Ok(None)
    }

    fn finished(&mut self, code: u8, interrupted: bool) -> Finished {
        if let Some(mut relay) = self.relay.take() {
            relay.print_rest();
        }
        let code = if self.time.passed { 124 } else { code };
        Finished { code, interrupted, timed_out: self.time.passed }
    }
}
