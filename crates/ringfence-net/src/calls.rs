//! Socket calls that come here by seccomp user notification: `bind`, and, where the program may not
//! do them itself, `connect` and `listen`. They are rare.
//!
//! What is judged is what is done: the address is read once, the socket is copied, and the call is
//! made on the copy ([`ringfence_sys::listener::behalf`]). The kernel carries a call out as it was
//! made ([`notify::go_on`]) only where nothing that the program may swap meanwhile matters:
//!
//! | | supervised | a call that goes on in the kernel could be at worst |
//! |---|---|---|
//! | [`Reach::Own`] | `bind` | a bind of a socket of its own namespace, or of one locked to its port |
//! | [`Reach::Confined`] | `bind`, `connect`, `listen` | a bind that Landlock refuses: no TCP port, no Unix socket |
//! | [`Reach::Redirected`] | the same, `getpeername`, `getsockopt` for `SO_PEERNAME`, `setsockopt` for `SO_REUSEPORT` | nothing: none goes on but questions |

use crate::forward::Teller;
use crate::publish::Published;
use crate::redirect::Redirect;
use crate::unix;
use ringfence_policy::Publish;
use ringfence_sys::listener::{Lock, behalf};
use ringfence_sys::notify::{self, Notification};
use ringfence_sys::taken::Taken;
use ringfence_sys::{Errno, Sysno};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The most bytes of an address: `struct sockaddr_storage`.
const MOST: usize = 128;
/// The most calls that wait for a connection at the same time.
const MOST_WAITING: usize = 128;
/// How long they do, in milliseconds: longer than the kernel tries.
const PATIENCE: i32 = 150_000;
/// `O_CLOEXEC`, as `/proc/PID/fdinfo` shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
/// The first port that takes no privilege to bind, as every network namespace begins
/// (`net.ipv4.ip_unprivileged_port_start`).
pub(crate) const FIRST_UNPRIVILEGED: u16 = 1024;
pub(crate) const AF_UNSPEC: u16 = 0;
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_STREAM: i32 = 1;
const SOCK_DGRAM: i32 = 2;

/// What the program's sockets reach by themselves.
#[derive(Clone, Debug, Default)]
pub enum Reach {
    /// Their own network namespace; a published socket is locked to its port.
    #[default]
    Own,
    /// The same, but the program may neither connect nor listen but through here.
    Confined {
        /// Published sockets are not locked: sockets over which they could leave the sandbox are refused, but for these
        /// Unix sockets of the host, held by descriptors without rights (`O_PATH`): another one may get their names, and no
        /// other one their numbers. None: they are.
        granted: Option<Arc<[OwnedFd]>>,
    },
    /// The host's network namespace, in which they may connect to nothing but the gateway.
    Redirected(Redirect),
}

/// Answers the socket calls of one sandbox.
#[derive(Clone, Debug)]
pub struct Handler {
    published: Published,
    reach: Reach,
    waiting: Arc<AtomicUsize>,
}

/// What becomes of a call.
pub(crate) enum Answer {
    /// The kernel carries it out as it was made.
    GoOn,
    /// It is done, or failed.
    Done(Result<(), Errno>),
    /// It failed, and its user should know why.
    Told(Errno, String),
    /// Answered elsewhere, or later.
    Later,
}

/// A call that waits, and who made it.
pub(crate) struct Caller<'a> {
    pub listener: BorrowedFd<'a>,
    pub call: &'a Notification,
}

impl Caller<'_> {
    /// The address that the call names, once.
    pub fn address(&self) -> Result<Vec<u8>, Errno> {
        let [_, at, length, ..] = self.call.arguments;
        let length = length as u32 as usize;
        if length > MOST {
            return Err(Errno::EINVAL);
        }
        let mut raw = vec![0; length];
        let memory = File::open(format!("/proc/{}/mem", self.call.thread));
        let memory = memory.map_err(|_| Errno::EPERM)?;
        memory.read_exact_at(&mut raw, at).map_err(|_| Errno::EFAULT)?;
        Ok(raw)
    }

    /// Writes an address where the call wants to have it (getpeername(2)): as much as there is room
    /// for, and how long it is.
    pub fn give(&self, raw: &[u8]) -> Result<(), Errno> {
        let [_, at, length_at, ..] = self.call.arguments;
        let mut room = [0; 4];
        notify::read_memory(self.call.thread, length_at, &mut room)?;
        let room = i32::from_ne_bytes(room);
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        notify::write_memory(self.call.thread, at, &raw[..room.min(raw.len())])?;
        notify::write_memory(self.call.thread, length_at, &(raw.len() as u32).to_ne_bytes())
    }

    /// The same where the call asks for an option (getsockopt(2), `SO_PEERNAME`): all that it has room for,
    /// which may not be more than there is.
    pub fn give_option(&self, raw: &[u8]) -> Result<(), Errno> {
        let [_, _, _, at, length_at, _] = self.call.arguments;
        let mut room = [0; 4];
        notify::read_memory(self.call.thread, length_at, &mut room)?;
        let room = usize::try_from(i32::from_ne_bytes(room)).map_err(|_| Errno::EINVAL)?;
        let raw = raw.get(..room).ok_or(Errno::EINVAL)?;
        notify::write_memory(self.call.thread, at, raw)
    }

    /// The number of the socket's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.call.arguments[0] as i32
    }

    /// A copy of its socket.
    pub fn socket(&self) -> Result<Taken, Errno> {
        ringfence_sys::caller::descriptor(self.listener, self.call, self.descriptor())
    }

    /// Whether its descriptor closes on exec.
    pub fn closes_on_exec(&self) -> bool {
        let path = format!("/proc/{}/fdinfo/{}", self.call.thread, self.descriptor());
        let info = fs::read_to_string(path).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags
            .and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok())
            .is_some_and(|flags| flags & CLOSE_ON_EXEC != 0)
    }

    /// Opens a file below the caller's `/proc` directory.
    pub fn place(&self, what: &str) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/{}/{what}", self.call.thread);
        let path = std::ffi::CString::new(path).map_err(|_| Errno::EINVAL)?;
        let place = ringfence_sys::fd::open_at(
            ringfence_sys::fd::CWD,
            &path,
            ringfence_sys::fd::PATH_ONLY,
            0,
        )?;
        if notify::waits(self.listener, self.call.id) { Ok(place) } else { Err(Errno::ENOENT) }
    }
}

impl Handler {
    /// A handler for these published ports.
    pub fn new(published: Vec<Publish>) -> Handler {
        let published = Published::new(published);
        Handler { published, reach: Reach::Own, waiting: Arc::default() }
    }

    /// The same for programs whose sockets reach that far.
    #[must_use]
    pub fn with(self, reach: Reach) -> Handler {
        Handler { reach, ..self }
    }

    /// The same, and `teller` hears of the peers of published UDP ports.
    #[must_use]
    pub fn telling(self, teller: Teller) -> Handler {
        self.published.forwarders.tell(teller);
        self
    }

    /// The sandbox has ended: tells so of what was forwarded, and lets what is left come to its end, within `limit`.
    pub fn end(&self, limit: Duration) {
        if let Reach::Redirected(redirect) = &self.reach {
            redirect.settle(limit);
        }
        self.published.forwarders.end();
    }

    /// Answers a call that waits. Returns a sentence when a published port could not be had.
    ///
    /// Takes no longer than a few system calls, none of which waits for anybody: the program may share the sockets that
    /// they are about, and what it does with them meanwhile makes none wait either.
    pub fn answer(&self, listener: BorrowedFd<'_>, call: &Notification) -> Option<String> {
        let caller = Caller { listener, call };
        let answer = match (Sysno::new(call.call as usize), &self.reach) {
            (Some(Sysno::bind), Reach::Own) => self.published.bind(&caller),
            (Some(Sysno::bind), Reach::Confined { granted }) => {
                self.bind(&caller, granted.is_none())
            }
            (Some(Sysno::connect), Reach::Confined { granted }) => {
                self.connect(&caller, granted.as_deref())
            }
            (Some(Sysno::listen), Reach::Confined { .. }) => listen(&caller),
            (Some(Sysno::bind), Reach::Redirected(redirect)) => redirect.bind(&caller),
            (Some(Sysno::connect), Reach::Redirected(redirect)) => redirect.connect(&caller),
            (Some(Sysno::listen), Reach::Redirected(redirect)) => redirect.listen(&caller),
            (Some(Sysno::setsockopt), Reach::Redirected(redirect)) => redirect.share(&caller),
            (Some(Sysno::getpeername), Reach::Redirected(redirect)) => {
                redirect.peer(&caller, |caller, raw| caller.give(raw))
            }
            (Some(Sysno::getsockopt), Reach::Redirected(redirect)) => {
                redirect.peer(&caller, |caller, raw| caller.give_option(raw))
            }
            _ => Answer::Done(Err(Errno::ENOSYS)),
        };
        let (result, sentence) = match answer {
            Answer::GoOn => {
                let _ = notify::go_on(listener, call.id);
                return None;
            }
            Answer::Later => return None,
            Answer::Done(result) => (result, None),
            Answer::Told(errno, sentence) => (Err(errno), Some(sentence)),
        };
        // A caller that was killed meanwhile needs no answer.
        let _ = notify::finish(listener, call.id, result);
        sentence
    }

    fn bind(&self, caller: &Caller<'_>, locked: bool) -> Answer {
        let judged = || {
            let raw = caller.address()?;
            let copy = caller.socket()?;
            Ok((raw, behalf::family_and_type(copy.as_fd())?, copy))
        };
        match judged() {
            Err(errno) => Answer::Done(Err(errno)),
            // Whatever it is by now, Landlock refuses TCP ports.
            Ok((_, (AF_UNIX, _), _)) if locked => Answer::GoOn,
            Ok((raw, (AF_UNIX, _), copy)) => Answer::Done(unix::bind(caller, &copy, &raw)),
            Ok((raw, (family @ (AF_INET | AF_INET6), SOCK_STREAM), copy)) => {
                if !own(copy.as_fd()) {
                    return Answer::Done(Err(Errno::EINVAL));
                }
                let lock = if locked { Lock::Socket } else { Lock::Program };
                let raw = to_bind(raw, family);
                let own = || {
                    // What cannot be read here is not left to the kernel to read: nobody has judged its port.
                    let place = ringfence_sys::socket::address(&raw).ok_or(Errno::EAFNOSUPPORT)?;
                    let port = place.port();
                    // The launcher has the capability over that namespace, and the program does not.
                    if takes_privilege(port, FIRST_UNPRIVILEGED) && !self.published.names(port) {
                        return Err(Errno::EACCES);
                    }
                    behalf::bind(copy.as_fd(), &raw)
                };
                self.published.put(caller, &raw, &copy, lock).unwrap_or_else(|| Answer::Done(own()))
            }
            // Whatever it is by now, Landlock refuses TCP ports and Unix sockets.
            Ok((raw, _, copy)) => {
                self.published.datagrams(caller, &raw, &copy).unwrap_or(Answer::GoOn)
            }
        }
    }

    fn connect(&self, caller: &Caller<'_>, granted: Option<&[OwnedFd]>) -> Answer {
        let judged = || {
            let raw = caller.address()?;
            let copy = caller.socket()?;
            let (family, _) = behalf::family_and_type(copy.as_fd())?;
            if family == AF_UNIX {
                let Some(granted) = granted else { return Ok(None) };
                return Ok(Some((unix::address(caller, &raw, granted)?, copy)));
            }
            if own(copy.as_fd()) { Ok(Some((To::from(raw), copy))) } else { Err(Errno::EACCES) }
        };
        match judged() {
            Err(errno) => Answer::Done(Err(errno)),
            Ok(None) => Answer::GoOn,
            Ok(Some((to, copy))) => connect(caller, copy, to, &self.waiting),
        }
    }
}

/// An address to connect to, and what keeps it meaning what it means.
pub(crate) struct To {
    pub raw: Vec<u8>,
    pub place: Option<OwnedFd>,
}

impl From<Vec<u8>> for To {
    fn from(raw: Vec<u8>) -> To {
        To { raw, place: None }
    }
}

/// Whether a socket belongs to a network namespace that is not ours; when in doubt it does not.
pub(crate) fn own(socket: BorrowedFd<'_>) -> bool {
    static HOST: OnceLock<Option<u64>> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let ours = std::os::unix::net::UnixDatagram::unbound().ok()?;
        behalf::namespace(ours.as_fd()).ok()
    });
    let theirs = behalf::namespace(socket).ok();
    host.is_some() && theirs.is_some() && theirs != *host
}

/// An address to bind a socket of a family to, as the kernel takes it: it reads one of no family as one of IPv4 where that
/// is all addresses (`__inet_bind`), and its port counts. What is bound is what was read here.
pub(crate) fn to_bind(mut raw: Vec<u8>, family: i32) -> Vec<u8> {
    const ALL: Option<&[u8]> = Some(&[0; 4]);
    let unspecified = raw.get(..2) == Some(&AF_UNSPEC.to_ne_bytes());
    if family == AF_INET && unspecified && raw.get(4..8) == ALL {
        raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    }
    raw
}

/// Whether it takes `CAP_NET_BIND_SERVICE` to bind a port.
pub(crate) fn takes_privilege(port: u16, first_without: u16) -> bool {
    port != 0 && port < first_without
}

/// A listener of the host listens already; whatever else is of the host was accepted by it, and
/// would listen at some port of the host's.
fn listen(caller: &Caller<'_>) -> Answer {
    let listened = || {
        let copy = caller.socket()?;
        let (family, _) = behalf::family_and_type(copy.as_fd())?;
        if family != AF_UNIX && !own(copy.as_fd()) && !behalf::listens(copy.as_fd()) {
            return Err(Errno::EACCES);
        }
        behalf::listen(copy.as_fd(), caller.call.arguments[1] as i32)
    };
    Answer::Done(listened())
}

/// Connects a copy. What takes time is waited for on a thread of its own, and so is what may: whether connect(2) waits is
/// up to a flag of the open socket, which is the program's as well, so that no such call is made here.
pub(crate) fn connect(
    caller: &Caller<'_>,
    copy: Taken,
    to: To,
    waiting: &Arc<AtomicUsize>,
) -> Answer {
    let fd = copy.as_fd();
    let kind = behalf::family_and_type(fd);
    if to.raw.get(..2) == Some(&AF_UNSPEC.to_ne_bytes()) || matches!(kind, Ok((_, SOCK_DGRAM))) {
        // Nobody is asked for anything.
        return Answer::Done(behalf::connect(fd, &to.raw));
    }
    let waits = match behalf::nonblocking(fd) {
        Ok(nonblocking) => !nonblocking,
        Err(errno) => return Answer::Done(Err(errno)),
    };
    let begun = match behalf::begin_to_connect(fd, &to.raw) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) if waits => true,
        Err(Errno::EOPNOTSUPP) => false,
        result => return Answer::Done(result),
    };
    if begun && behalf::writable(fd, 0) {
        // A second time tells how the first one ended.
        return Answer::Done(behalf::begin_to_connect(fd, &to.raw));
    }
    let Ok(listener) = caller.listener.try_clone_to_owned() else {
        return Answer::Done(Err(Errno::EMFILE));
    };
    if waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
        waiting.fetch_sub(1, Ordering::Relaxed);
        return Answer::Done(Err(Errno::EAGAIN));
    }
    let (id, count) = (caller.call.id, waiting.clone());
    let wait = move || {
        // The address may name the place by its descriptor.
        let To { raw, place: _open } = &to;
        let result = if begun {
            behalf::writable(copy.as_fd(), PATIENCE);
            behalf::begin_to_connect(copy.as_fd(), raw)
        } else {
            behalf::connect(copy.as_fd(), raw)
        };
        count.fetch_sub(1, Ordering::Relaxed);
        let _ = notify::finish(listener.as_fd(), id, result);
    };
    match std::thread::Builder::new().name("ringfence-wait".to_owned()).spawn(wait) {
        Ok(_) => Answer::Later,
        Err(_) => {
            waiting.fetch_sub(1, Ordering::Relaxed);
            Answer::Done(Err(Errno::EAGAIN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_sys::socket::address;

    #[test]
    fn an_address_to_bind_is_read_as_the_kernel_reads_it() {
        let port = |family: u16, ip: [u8; 4], of: i32| {
            let mut raw = family.to_ne_bytes().to_vec();
            raw.extend([0, 81].into_iter().chain(ip).chain([0; 8]));
            address(&to_bind(raw, of)).map(|place| place.port())
        };
        assert_eq!(port(AF_INET as u16, [0; 4], AF_INET), Some(81), "the control");
        assert_eq!(port(AF_UNSPEC, [0; 4], AF_INET), Some(81));
        // These it refuses.
        assert_eq!(port(AF_UNSPEC, [127, 0, 0, 1], AF_INET), None);
        assert_eq!(port(AF_UNSPEC, [0; 4], AF_INET6), None);
        assert_eq!(to_bind(vec![0, 0, 0], AF_INET), [0; 3]);
    }
}
