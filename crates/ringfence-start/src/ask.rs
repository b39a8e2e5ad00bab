//! `exec` before libc: asks a session for a command, and waits for its end.
//!
//! libc's start would take longer than all that a session needs to run `true`. So the plain case is
//! carried out from the program's entry: a session by its name or identifier, no options, standard
//! streams of which none is a terminal. What is another case, or comes to be one (a signal arrives,
//! the session says something else than an exit code), goes on in `main` as always: nothing of what
//! came has been taken from the sockets then.

use crate::Errno;
use crate::bytes::{Text, equal};
use crate::call::{close, exit, sys};
use crate::inherited::{LEFT_ALONE, OF_THE_TERMINAL, mask, streams_are_usable};
use crate::key::Caller;
use crate::stamp::{AT_FDCWD, Looked, look};

/// Tells a request from later messages; the number changes with the layout.
pub const TAG: &[u8; 4] = b"exe2";
/// Bytes of what a request begins with ([`write_head`]).
pub const HEAD: usize = TAG.len() + 1 + 8 + 4;
/// The longest request within a message; a socket's buffer holds twice that by default.
pub const INLINE: usize = 64 * 1024;
/// What the session says of a command that ended by itself; its exit code follows.
pub const EXITED: u8 = b'x';

// As `ringfence_session` has them; where they were not the same, every start would be another case.
/// The directory, among those of sessions, that holds a link for each name.
const NAMES: &[u8] = b"by-name";
/// The socket of `exec` in a session's directory.
const SOCKET: &[u8] = b"control.sock";
/// The file, beside it, that says that the session is held still.
const SUSPENDED: &[u8] = b"suspended";

/// Nanoseconds after which a request that nobody has read is `main`'s to wait for, which says so.
const MOMENT: u64 = 200_000_000;

/// Letters of an identifier; a name of the same length is looked for behind it.
const IDENTIFIER: usize = 8;
/// `sun_path` (unix(7)).
const MOST_ADDRESS: usize = 108;

/// Where the command stands among the arguments of a plain `exec`: behind the session, or behind a
/// `--` there. Options on either side make it another case.
fn command(caller: &Caller) -> Option<usize> {
    if !equal(caller.argument(1)?, b"exec") || !is_plain(caller.argument(2)?) {
        return None;
    }
    let word = caller.argument(3)?;
    let place = if equal(word, b"--") { 4 } else { 3 };
    let option = place == 3 && word.first() == Some(&b'-');
    (!option && place < caller.count).then_some(place)
}

/// A name or identifier of a session that has nothing odd about it.
fn is_plain(word: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = word.get(at) {
        let inner = matches!(byte, b'-' | b'_') && at > 0;
        if !byte.is_ascii_alphanumeric() && !inner {
            return false;
        }
        at += 1;
    }
    at > 0 && at <= 64 && !equal(word, b"latest")
}

/// The directory of all sessions: the first of the places where `main` looks. In another user's a name could mean any of
/// the caller's sessions: `main` says so.
fn write_sessions(path: &mut Text<'_>, caller: &Caller) -> Option<()> {
    caller.write_base(path, b"XDG_STATE_HOME", b"/.local/state")?;
    path.push(b"/ringfence/sessions");
    Some(())
}

/// The session's directory in it, as far as the place where a file's name begins.
fn write_directory(path: &mut Text<'_>, caller: &Caller, session: &[u8]) -> Option<()> {
    write_sessions(path, caller)?;
    path.push(b"/");
    if session.len() != IDENTIFIER {
        path.push(NAMES);
        path.push(b"/");
    }
    path.push(session);
    path.push(b"/");
    Some(())
}

/// What a request begins with: which standard streams are to be a terminal, its size, and how many
/// words the command has.
pub fn write_head(request: &mut Text<'_>, streams: u8, size: [u16; 4], words: u32) {
    request.push(TAG);
    request.push(&[streams]);
    let mut at = 0;
    while let Some(number) = size.get(at) {
        request.push(&number.to_ne_bytes());
        at += 1;
    }
    request.push(&words.to_ne_bytes());
}

/// The request of a plain `exec`: where the session's command started, with its environment.
fn write_request(request: &mut Text<'_>, caller: &Caller, command: usize) {
    write_head(request, 0, [0; 4], (caller.count - command) as u32);
    request.push(b"\0");
    let mut at = command;
    while let Some(word) = caller.argument(at) {
        request.push(word);
        request.push(b"\0");
        at += 1;
    }
}

/// Asks for the command of a plain `exec`. The connection, over which the request has gone; none
/// where this is another case.
///
/// # Safety
/// As for [`Caller::at`].
pub(crate) unsafe fn ask(caller: &Caller, room: &mut [u8]) -> Option<i32> {
    let command = command(caller)?;
    if !streams_are_usable() || a_stream_is_a_terminal() {
        return None;
    }
    let connection = connect(caller, caller.argument(2)?)?;
    let mut request = Text::new(room);
    write_request(&mut request, caller, command);
    let Some(request) = request.get() else {
        close(connection);
        return None;
    };
    // From here on a signal is the command's, or waits for `main`.
    let before = mask(!(LEFT_ALONE | OF_THE_TERMINAL));
    if send_with_streams(connection, request) {
        wait(connection);
        return Some(connection);
    }
    mask(before);
    close(connection);
    None
}

/// Waits for the command's end, and ends with its exit code. Returns when something else happens,
/// which is still to be heard then.
fn wait(connection: i32) {
    const SFD_CLOEXEC_NONBLOCK: usize = 0o2_004_000;
    const POLLIN: u64 = 1;
    const MSG_PEEK_DONTWAIT: usize = 0x42;
    let signals = !(LEFT_ALONE | OF_THE_TERMINAL);
    // SAFETY: the pointer is to eight bytes.
    let made = unsafe { sys!(signalfd4, -1_isize, &raw const signals, 8, SFD_CLOEXEC_NONBLOCK) };
    let Ok(signals) = made else { return };
    // Two of struct pollfd: descriptor, wanted events, returned events.
    let watch = |fd: i32| u64::from(fd as u32) | POLLIN << 32;
    let mut watched = [watch(connection), watch(signals as i32)];
    // struct timespec.
    let mut moment = [0_u64, MOMENT];
    // SAFETY: the pointers are to two pollfds and a time; no mask is given.
    let came = unsafe { sys!(ppoll, watched.as_mut_ptr(), 2, moment.as_mut_ptr(), 0, 8) };
    if came == Ok(0) && is_read(connection) {
        // SAFETY: the pointer is to two pollfds; neither a time nor a mask is given.
        let _ = unsafe { sys!(ppoll, watched.as_mut_ptr(), 2, 0, 0, 8) };
    }
    close(signals as i32);
    let mut said = [0u8; 3];
    let length = said.len();
    // SAFETY: the pointer and length describe `said`, which is writable; no address is asked for.
    let got =
        unsafe { sys!(recvfrom, connection, said.as_mut_ptr(), length, MSG_PEEK_DONTWAIT, 0, 0) };
    if got == Ok(2) && said[0] == EXITED {
        exit(i32::from(said[1]))
    }
}

/// Whether the session has read the request (`SIOCOUTQ`); where that is not known, it has.
fn is_read(connection: i32) -> bool {
    const SIOCOUTQ: usize = 0x5411;
    let mut unread = 0i32;
    // SAFETY: the pointer is to an integer, which is what the request writes.
    let asked = unsafe { sys!(ioctl, connection, SIOCOUTQ, &raw mut unread) };
    asked.is_err() || unread == 0
}

/// Connects to the session's socket, unless the session is held still.
fn connect(caller: &Caller, session: &[u8]) -> Option<i32> {
    const AF_UNIX: u16 = 1;
    const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2_000_000;
    #[repr(C)]
    struct Address {
        family: u16,
        path: [u8; MOST_ADDRESS],
    }
    let mut address = Address { family: AF_UNIX, path: [0; MOST_ADDRESS] };
    let mut path = Text::new(&mut address.path);
    write_sessions(&mut path, caller)?;
    let mut looked = Looked::new();
    look(&mut looked, -100, path.terminated()?, 0)
        .is_ok_and(|stat| stat.is_own_directory(0o022))
        .then_some(())?;
    path.clear();
    write_directory(&mut path, caller, session)?;
    path.push(SUSPENDED);
    let suspended = path.terminated()?;
    // SAFETY: the path ends with a zero byte.
    if unsafe { sys!(faccessat, AT_FDCWD, suspended, 0) } != Err(Errno::ENOENT) {
        return None;
    }
    path.clear();
    write_directory(&mut path, caller, session)?;
    path.push(SOCKET);
    path.terminated()?;
    // SAFETY: takes numbers.
    let socket = unsafe { sys!(socket, AF_UNIX, SOCK_SEQPACKET_CLOEXEC, 0) }.ok()? as i32;
    // SAFETY: the pointer and size describe `address`.
    match unsafe { sys!(connect, socket, &raw const address, size_of::<Address>()) } {
        Ok(_) if is_own(socket) => Some(socket),
        _ => {
            close(socket);
            None
        }
    }
}

/// Whether who listens has the caller's user (unix(7), `SO_PEERCRED`): nothing is lent to others.
fn is_own(socket: i32) -> bool {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    // struct ucred: process, user, group.
    let mut peer = [u32::MAX; 3];
    let mut length = 12_u32;
    let (place, size) = (peer.as_mut_ptr(), &raw mut length);
    // SAFETY: the pointer and size describe `peer`, which is writable.
    let asked = unsafe { sys!(getsockopt, socket, SOL_SOCKET, SO_PEERCRED, place, size) };
    // SAFETY: takes nothing.
    let own = unsafe { sys!(geteuid) };
    asked.is_ok() && own == Ok(peer[1] as usize)
}

/// Whether one of the standard streams is a terminal: then there is more to be arranged.
fn a_stream_is_a_terminal() -> bool {
    const TCGETS: usize = 0x5401;
    let mut settings = core::mem::MaybeUninit::<[u64; 16]>::uninit();
    let mut fd = 0;
    // SAFETY: there is more room than the kernel's structure takes.
    while fd < 3 && unsafe { sys!(ioctl, fd, TCGETS, settings.as_mut_ptr()) }.is_err() {
        fd += 1;
    }
    fd < 3
}

/// Sends one message, and the standard streams with it (unix(7), `SCM_RIGHTS`).
fn send_with_streams(socket: i32, message: &[u8]) -> bool {
    const MSG_NOSIGNAL: usize = 0x4000;
    const SOL_SOCKET: u64 = 1;
    const SCM_RIGHTS: u64 = 1;
    // struct cmsghdr: the length of all that is meant, level and type in one word; then three
    // descriptors of four bytes each.
    let control: [u64; 4] = [16 + 12, SOL_SOCKET | SCM_RIGHTS << 32, 1 << 32, 2];
    let part = [message.as_ptr() as usize, message.len()];
    // struct msghdr: no address, one part, the control message, no flags.
    let header = [0, 0, part.as_ptr() as usize, 1, control.as_ptr() as usize, 32, 0];
    // SAFETY: the header describes `message` and `control`, which live as long as the call.
    let sent = unsafe { sys!(sendmsg, socket, header.as_ptr(), MSG_NOSIGNAL) };
    sent == Ok(message.len())
}
