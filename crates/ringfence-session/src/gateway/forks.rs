//! Clones of a warm program: `ringfence fork SESSION N`.
//!
//! A program inside that has got its imports, models and caches together connects to the gateway and
//! says `ready`: it is the session's template. From then on it is told to fork. What comes out shares
//! its memory copy-on-write, and is as confined as it is, since the kernel has every child inherit its
//! namespaces, its Landlock domain, its filters, `no_new_privs`, its capabilities, limits and control
//! group: nobody has to put them on again, and nobody can forget one.
//!
//! ```text
//! template ──► ready\n
//!          ◄── fork NUMBER CLONES BYTES\n + BYTES of words, each with a NUL; four descriptors
//!          ──► ended NUMBER CODE CODE…\n   in the order of the clones
//! ```
//!
//! The descriptors are the standard streams for the clones ([`super::lent`]), and a pipe that closes when whoever asked
//! is gone: the template ends its clones then. Clones end with the template (`PR_SET_PDEATHSIG`), since nobody else knows
//! which processes they are. It has one request at a time; others wait.
//!
//! What a template says of its clones is its word. It is confined like them, and can lie about nothing
//! but exit codes.

use super::lent::{self, Screen};
use crate::error::{Result, SessionError};
use crate::snapshot::fault;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most clones of one request.
pub const MOST_CLONES: u32 = 10_000;
/// The most bytes of words.
const MOST_WORDS: usize = 60 << 10;
/// Requests that wait.
const MOST_WAITING: usize = 64;
/// The session is gone.
const ENDED: &str = "the session ended, and the clones with it";
/// Why nothing is lent.
const NO_STREAM: &str =
    "failed a standard stream is a directory, or opened by its name alone (O_PATH)";
/// The longest message between the service and who asks.
const LONGEST: usize = 64 << 10;

/// A wish for clones.
struct Wish {
    client: OwnedFd,
    clones: u32,
    words: Vec<u8>,
    /// It was asked to lend its streams: not earlier, else they would lie in our queue, held open,
    /// for as long as there is no template.
    asked: bool,
    passed: Vec<OwnedFd>,
}

/// The service's part.
#[derive(Default)]
pub(super) struct Forks {
    door: Option<OwnedFd>,
    /// Connected, and has not said anything.
    arriving: Vec<OwnedFd>,
    waiting: VecDeque<Wish>,
    /// Its number, and who waits for the end.
    running: Option<(u64, u32, OwnedFd)>,
    next: u64,
}

impl Forks {
    pub fn new(door: Option<OwnedFd>) -> Forks {
        Forks { door, ..Forks::default() }
    }

    /// What to watch.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let waiting = self.waiting.iter().map(|wish| wish.client.as_fd());
        self.door.iter().chain(&self.arriving).map(AsFd::as_fd).chain(waiting)
    }

    /// Takes what came, in the order of [`Forks::watched`].
    pub fn serve(&mut self, ready: &[bool]) {
        let door = usize::from(self.door.is_some());
        let (arriving, waiting) = ready[door..].split_at(self.arriving.len());
        // Who was not asked has nothing more to say: it is gone.
        let mut heard = waiting.iter();
        self.waiting.retain_mut(|wish| {
            if !heard.next().copied().unwrap_or(false) {
                return true;
            }
            let Ok((_, passed)) = receive(wish.client.as_fd()) else { return false };
            wish.passed = passed;
            if !wish.passed.iter().all(|fd| lent::may_be_lent(fd.as_fd())) {
                tell(&wish.client, NO_STREAM);
                return false;
            }
            wish.asked && wish.passed.len() == 4
        });
        for at in (0..arriving.len()).rev().filter(|&at| arriving[at]) {
            let client = self.arriving.swap_remove(at);
            match receive(client.as_fd()) {
                Err(Errno::AGAIN) => self.arriving.push(client),
                Ok((message, _)) => self.wish(client, &message),
                Err(_) => {}
            }
        }
        if let Some(door) = self.door.as_ref().filter(|_| ready.first() == Some(&true) && door == 1)
        {
            let accepted = rustix::net::accept_with(door, SocketFlags::CLOEXEC);
            let own = rustix::process::geteuid();
            let known = |client: &OwnedFd| {
                rustix::net::sockopt::socket_peercred(client).is_ok_and(|peer| peer.uid == own)
            };
            let room = self.arriving.len() + self.waiting.len() < MOST_WAITING;
            self.arriving.extend(accepted.ok().filter(|client| room && known(client)));
        }
    }

    fn wish(&mut self, client: OwnedFd, message: &[u8]) {
        let parsed = message.iter().position(|&byte| byte == b'\n').and_then(|end| {
            let head = std::str::from_utf8(&message[..end]).ok()?;
            let clones: u32 = head.strip_prefix("fork ")?.parse().ok()?;
            (1..=MOST_CLONES).contains(&clones).then(|| (clones, message[end + 1..].to_vec()))
        });
        match parsed {
            Some((clones, words)) => {
                fault::point("fork-wish");
                let (asked, passed) = (false, Vec::new());
                self.waiting.push_back(Wish { client, clones, words, asked, passed });
            }
            None => {
                tell(&client, "failed this session was started by another version of ringfence")
            }
        }
    }

    /// The template has nothing to do: gives it the next wish. The bytes that it did not take at
    /// once are returned.
    pub fn give(&mut self, template: BorrowedFd<'_>) -> Vec<u8> {
        if self.running.is_some() {
            return Vec::new();
        }
        if let Some(wish) = self.waiting.front_mut().filter(|wish| wish.passed.is_empty()) {
            if !wish.asked {
                wish.asked = true;
                tell(&wish.client, "lend");
                fault::point("fork-lend");
            }
            return Vec::new();
        }
        let Some(wish) = self.waiting.pop_front() else { return Vec::new() };
        self.next += 1;
        let head = format!("fork {} {} {}\n", self.next, wish.clones, wish.words.len());
        let bytes = [head.as_bytes(), &wish.words].concat();
        match send(template, &bytes, &wish.passed) {
            Ok(sent) => {
                fault::point("fork-given");
                self.running = Some((self.next, wish.clones, wish.client));
                bytes[sent.min(bytes.len())..].to_vec()
            }
            Err(_) => {
                tell(&wish.client, "failed the template does not listen");
                Vec::new()
            }
        }
    }

    /// The template says that clones have ended; false: it does not keep to the protocol.
    pub fn ended(&mut self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let number = words.nth(1).and_then(|number| number.parse::<u64>().ok());
        let codes: Option<Vec<u8>> = words.map(|code| code.parse().ok()).collect();
        let (Some((running, clones, _)), Some(codes)) = (&self.running, codes) else {
            return false;
        };
        if number != Some(*running) || codes.len() != *clones as usize {
            return false;
        }
        fault::point("fork-ended");
        if let Some((_, _, client)) = self.running.take() {
            let codes: Vec<String> = codes.iter().map(u8::to_string).collect();
            tell(&client, &format!("ended {}", codes.join(" ")));
        }
        true
    }

    /// The template is gone, and with it whatever was under way; who waits for one goes on waiting.
    pub fn lost(&mut self) {
        let running = self.running.take().map(|(_, _, client)| client);
        // Who was asked to lend waits for no end but the clones'.
        let (asked, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|wish| wish.asked);
        self.waiting = waiting;
        let asked: VecDeque<Wish> = asked;
        for client in running.into_iter().chain(asked.into_iter().map(|wish| wish.client)) {
            tell(&client, "failed the template ended before its clones");
        }
    }
}

fn tell(client: &OwnedFd, text: &str) {
    // Who is gone needs no answer.
    let _ = rustix::net::send(client, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send(to: BorrowedFd<'_>, bytes: &[u8], pass: &[OwnedFd]) -> std::result::Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pass: Vec<BorrowedFd<'_>> = pass.iter().map(AsFd::as_fd).collect();
    control.push(SendAncillaryMessage::ScmRights(&pass));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags)
}

fn receive(from: BorrowedFd<'_>) -> std::result::Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; LONGEST];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    bytes.truncate(got.bytes);
    let mut passed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            passed.extend(descriptors);
        }
    }
    Ok((bytes, passed))
}

/// Asks a session's template for clones, lends them the standard streams, and waits for their
/// ends: the exit codes, in order. When the caller dies its clones are ended.
///
/// # Errors
/// One sentence: there is no template within `patience`, or it ended.
pub fn fork(socket: &Path, clones: u32, words: &[OsString], patience: Duration) -> Result<Vec<u8>> {
    let failed = |call| {
        move |error: Errno| match error {
            Errno::PIPE | Errno::CONNRESET => SessionError::usage(ENDED),
            error => SessionError::call(call, socket, error),
        }
    };
    if !(1..=MOST_CLONES).contains(&clones) {
        return Err(SessionError::usage(format!("the number of clones is 1 to {MOST_CLONES}")));
    }
    let connection = connect(socket).map_err(|error| match error {
        Errno::NOENT => SessionError::usage(
            "this session has no gateway, which a template needs: start it with --gateway",
        ),
        error => failed("connect")(error),
    })?;
    let mut message = format!("fork {clones}\n").into_bytes();
    for word in words {
        if word.as_bytes().contains(&0) {
            return Err(SessionError::usage("a word holds a NUL byte"));
        }
        message.extend_from_slice(word.as_bytes());
        message.push(0);
    }
    if message.len() > MOST_WORDS {
        return Err(SessionError::usage(format!("the words are longer than {MOST_WORDS} bytes")));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    fault::point("fork-connected");
    rustix::net::send(&connection, &message, flags).map_err(failed("send"))?;
    fault::point("fork-asked");
    let (theirs, _ours) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed("pipe"))?;
    let (mut theirs, mut screen) = (Some(theirs), None);
    let mut deadline = Some(Instant::now() + patience);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut watched = vec![PollFd::new(&connection, PollFlags::IN)];
        let printed = screen.as_ref().and_then(Screen::watched);
        watched.extend(printed.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
        let polled = poll(&mut watched, left.as_ref());
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(watched);
        match polled {
            Ok(0) => {
                return Err(SessionError::usage(format!(
                    "no program in this session said that it is a warm template within {patience:?} \
                     (see ringfence fork --help)"
                )));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed("poll")(error)),
        }
        if let Some(screen) = screen.as_mut().filter(|_| ready.get(1) == Some(&true)) {
            screen.print();
        }
        if !ready[0] {
            continue;
        }
        let (reply, _) = match receive(connection.as_fd()) {
            Err(Errno::AGAIN) => continue,
            other => other.map_err(failed("recvmsg"))?,
        };
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let (word, rest) = reply.split_once(' ').unwrap_or((&reply, ""));
        if word != "lend" {
            screen.iter_mut().for_each(Screen::print_rest);
        }
        match (word, rest) {
            ("lend", _) => {
                deadline = None;
                fault::point("fork-told");
                screen = lend(connection.as_fd(), theirs.take()).map_err(failed("sendmsg"))?;
                fault::point("fork-lent");
            }
            ("ended", codes) => {
                fault::point("fork-over");
                return Ok(codes.split(' ').filter_map(|code| code.parse().ok()).collect());
            }
            ("failed", why) => return Err(SessionError::usage(why)),
            _ => return Err(SessionError::usage(ENDED)),
        }
    }
}

/// Passes the standard streams on, and the pipe that tells of our end; what is to be printed meanwhile.
fn lend(
    connection: BorrowedFd<'_>,
    life: Option<OwnedFd>,
) -> std::result::Result<Option<Screen>, Errno> {
    let (mut pass, screen) = lent::streams()?;
    pass.extend(life);
    send(connection, b"streams", &pass)?;
    Ok(screen)
}

/// A path that is too long for an address is reached by way of its directory.
fn connect(path: &Path) -> std::result::Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let directory;
    let address = match SocketAddrUnix::new(path) {
        Err(Errno::NAMETOOLONG) => {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            let parent = path.parent().ok_or(Errno::INVAL)?;
            directory = rustix::fs::open(parent, flags, rustix::fs::Mode::empty())?;
            let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
            SocketAddrUnix::new(short.join(path.file_name().ok_or(Errno::INVAL)?))?
        }
        other => other?,
    };
    rustix::net::connect(&socket, &address)?;
    // Nothing is lent to somebody else.
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.uid == rustix::process::geteuid() { Ok(socket) } else { Err(Errno::PERM) }
}
