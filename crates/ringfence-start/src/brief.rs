//! The first moment of a launcher whose command runs: it sleeps, before libc is up.
//!
//! libc's start, main and the end of a process that has been through both touch some 280 pages, and each
//! costs microseconds in a virtual machine: a quarter of `run -- true` (4.0 ms and 3.1 without it, in one run).
//! So the launcher listens here for a moment. If the command ends within it and left nothing to be put right,
//! what remains is done right here, and the process ends with the command's exit code.
//!
//! Whatever else happens (the command goes on, stops, connects, makes a supervised call, dies of a signal,
//! touches a guarded directory) goes on in `main` as always: it gets what was [`Heard`], and what it is to
//! answer has not been taken from the sockets.

use crate::Errno;
use crate::account::{self, Account, Filing};
use crate::bytes::from;
use crate::call::{exit, glance, send, sys};
use crate::entry::Launched;
use crate::image::{Image, RECORDED};
use crate::key::Caller;
use crate::quiet::{self, Ahead};
use crate::spawn::MOST_PATH;

/// So long, in nanoseconds: as long as a command is not watched for protected names by anybody.
pub const MOMENT: u64 = 20_000_000;
/// Messages with descriptors that a child sends while it builds the sandbox, and descriptors in one.
pub const MOST_MESSAGES: usize = 6;
/// See [`MOST_MESSAGES`].
pub const MOST_DESCRIPTORS: usize = 16;
/// Bytes of such a message.
const SHORT: usize = 32;
/// Bytes of what the child says of the command that executes: its path at most.
const LONG: usize = MOST_PATH + 8;

/// What the child sends with descriptors: listeners of supervised calls, of the network, of the gateway for
/// snapshots, of the session bus. The launcher has nothing to do for them until one is ready to be read.
pub mod passed {
    /// A listener of supervised calls (seccomp_unotify(2)).
    pub const CALLS: u8 = b'F';
    /// Listeners of the network.
    pub const NETWORK: u8 = b'L';
    /// The listener of the gateway for snapshots.
    pub const GATEWAY: u8 = b'G';
    /// The listener of the session bus.
    pub const BUS: u8 = b'B';
}

/// A message that was taken from the control socket, for `main`.
#[derive(Clone, Copy)]
pub struct Message {
    length: usize,
    bytes: [u8; SHORT],
    count: usize,
    descriptors: [i32; MOST_DESCRIPTORS],
}

/// What was taken from the control socket. The long message comes last: mostly all is on one page then.
#[repr(C)]
pub struct Heard {
    messages: [Message; MOST_MESSAGES],
    count: usize,
    length: usize,
    pid: i32,
    /// When that was, in microseconds since 1970 and by the monotonic clock in nanoseconds.
    executed: u64,
    heard: u64,
    watched: [u64; 1 + MOST_MESSAGES * MOST_DESCRIPTORS],
    /// Of these, listeners whose processes are all gone: there is nothing to hear from them.
    gone: [bool; 1 + MOST_MESSAGES * MOST_DESCRIPTORS],
    control: [u64; CONTROL],
    said: [u8; LONG],
}

impl Heard {
    pub(crate) const fn new() -> Heard {
        const NONE: Message =
            Message { length: 0, bytes: [0; SHORT], count: 0, descriptors: [0; MOST_DESCRIPTORS] };
        Heard {
            messages: [NONE; MOST_MESSAGES],
            count: 0,
            said: [0; LONG],
            length: 0,
            pid: 0,
            executed: 0,
            heard: 0,
            watched: [0; 1 + MOST_MESSAGES * MOST_DESCRIPTORS],
            gone: [false; 1 + MOST_MESSAGES * MOST_DESCRIPTORS],
            control: [0; CONTROL],
        }
    }

    /// Messages with descriptors, in their order.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], &[i32])> {
        let known = self.messages.get(..self.count).unwrap_or(&[]);
        known.iter().map(|message| {
            let bytes = message.bytes.get(..message.length).unwrap_or(&[]);
            (bytes, message.descriptors.get(..message.count).unwrap_or(&[]))
        })
    }

    /// Whether there are listeners of calls, and none of them has anybody to listen to.
    fn nobody_calls(&self) -> bool {
        let (mut place, mut message, mut any) = (1, 0, false);
        while message < self.count
            && let Some(known) = self.messages.get(message)
        {
            let mut at = 0;
            while at < known.count {
                if known.bytes.first() == Some(&passed::CALLS) {
                    any = true;
                    if self.gone.get(place) != Some(&true) {
                        return false;
                    }
                }
                (place, at) = (place + 1, at + 1);
            }
            message += 1;
        }
        any
    }

    /// What the child said when the command executed, the process it was about, and when, by the monotonic
    /// clock in nanoseconds; it came last.
    pub fn said(&self) -> Option<(&[u8], i32, u64)> {
        let said = self.said.get(..self.length).filter(|said| !said.is_empty())?;
        Some((said, self.pid, self.heard))
    }
}

/// Memory that is used here only.
#[repr(C)]
pub(crate) struct Room {
    pub ahead: Ahead,
    pub lines: [u8; account::MOST],
    pub walk: [u8; quiet::ROOM],
}

impl Room {
    pub const NEW: Room =
        Room { ahead: Ahead::NONE, lines: [0; account::MOST], walk: [0; quiet::ROOM] };
}

/// Sleeps until the child has something to say: that its command executes, or that none will.
///
/// libc's start would only be in the way before. A launcher that stays busy leaves the child to
/// a processor that has to be woken first, which takes a virtual machine longer (1.1 ms
/// measured) than all that the child does.
pub(crate) fn let_child_run(control: i32) {
    const POLLIN: u16 = 1;
    #[repr(C)]
    struct Poll {
        fd: i32,
        events: u16,
        returned: u16,
    }
    let mut poll = Poll { fd: control, events: POLLIN, returned: 0 };
    // Signals wait meanwhile; a child that takes longer is watched as any other.
    let limit = [1u64, 0];
    // SAFETY: the pointers are to one pollfd and a timespec; no mask is given.
    let _ = unsafe { sys!(ppoll, &raw mut poll, 1, limit.as_ptr(), 0, 8) };
}

/// Asks for the process that a message is about (`SO_PASSCRED`, unix(7)).
pub(crate) fn ask_for_processes(control: i32) {
    const SOL_SOCKET: usize = 1;
    const SO_PASSCRED: usize = 16;
    let on = 1i32;
    // SAFETY: the pointer is to four bytes.
    let _ = unsafe { sys!(setsockopt, control, SOL_SOCKET, SO_PASSCRED, &raw const on, 4) };
}

/// Waits for the command's end, and ends with it. Returns when `main` has to go on.
pub(crate) fn wait(
    image: &Image,
    caller: &Caller,
    launched: &Launched,
    heard: &mut Heard,
    room: &mut Room,
) {
    let mut filing = Filing::NONE;
    listen(image, caller, launched, heard, room, &mut filing);
    filing.undo();
    room.ahead.close();
}

fn listen(
    image: &Image,
    caller: &Caller,
    launched: &Launched,
    heard: &mut Heard,
    room: &mut Room,
    filing: &mut Filing,
) {
    let began = launched.before.began;
    let until = began + MOMENT;
    let elapsed = || (crate::trace::now() - began) / 1_000_000;
    let mut settled = false;
    loop {
        let now = crate::trace::now();
        if now >= until {
            return;
        }
        match ready(launched.control, heard, until - now) {
            Ready::Message => {}
            Ready::Again => continue,
            // The warden is about to say how the command ended: what remains to be seen is looked at meanwhile.
            Ready::Ending if heard.length > 0 && !settled => {
                if !settle(image, launched, elapsed(), room) {
                    return;
                }
                settled = true;
                let _ = glance(|| peek(launched.control).is_some());
                continue;
            }
            Ready::Ending => continue,
            Ready::Main => return,
        }
        match peek(launched.control) {
            Some((b'R', _)) if heard.length == 0 => {
                if hear_execution(launched.control, heard).is_none() {
                    return;
                }
                // There is nothing else to do while the command runs.
                if image.header().flags & RECORDED != 0
                    && filing.begin(image, launched.session, &mut room.lines).is_none()
                {
                    return;
                }
                run(image, launched, 0).look_ahead(&mut room.ahead, &mut room.walk);
                crate::teardown::forget_processors();
            }
            Some((passed::CALLS | passed::NETWORK | passed::GATEWAY | passed::BUS, _))
                if heard.count < MOST_MESSAGES && heard.length == 0 =>
            {
                if hear(launched, heard).is_none() {
                    return;
                }
            }
            // The command has ended by itself: `W`, how, the exit code.
            Some((b'W', Some(code))) if heard.length > 0 => {
                if !settled && !settle(image, launched, elapsed(), room) {
                    return;
                }
                return Ended { image, caller, launched, heard, filing, code }.end(room);
            }
            Some((0, _)) => {}
            _ => return,
        }
    }
}

/// Whether there is nothing to put right after a run that took so many milliseconds, and nobody who could change that
/// any more; what the run had outside is given back then. `main` can do each of it again.
fn settle(image: &Image, launched: &Launched, milliseconds: u64, room: &mut Room) -> bool {
    let run = run(image, launched, milliseconds as usize);
    let quiet = run.is_quiet(&room.ahead, &mut room.walk) && crate::private::remove(image, room);
    let settled = quiet && launched.runs.as_ref().is_none_or(|begun| begun.end(launched.clock));
    if settled {
        show_output();
        // Before it is asked for: the kernel takes the sandbox apart while the record is written.
        let _ = send(launched.control, b"w");
    }
    settled
}

/// The run, so many milliseconds after its start.
fn run<'a>(image: &'a Image, launched: &'a Launched, milliseconds: usize) -> quiet::Run<'a> {
    quiet::Run { image, notes: &launched.before.notes, since: launched.before.since, milliseconds }
}

/// What [`ready`] says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    /// There is a message.
    Message,
    /// Only something to wait on was lost.
    Again,
    /// As [`Ready::Again`], and nobody is left who could make a call: a listener of calls has nobody to listen to
    /// (seccomp_unotify(2)) when all under its filter have been reaped, or are past their last call (`do_exit` in
    /// kernel/exit.c, Linux 6.12).
    Ending,
    /// There is something for `main`, or the moment is over.
    Main,
}

/// Waits for a message, at most so many nanoseconds.
fn ready(control: i32, heard: &mut Heard, most: u64) -> Ready {
    const POLLIN: u64 = 1;
    // struct pollfd: descriptor (none where it is negative), wanted events, returned events.
    let watch = |fd: i32| u64::from(fd as u32) | POLLIN << 32;
    let returned = |entry: &u64| entry >> 48;
    heard.watched[0] = watch(control);
    let mut count = 1;
    let mut message = 0;
    while message < heard.count {
        let Some(known) = heard.messages.get(message) else { return Ready::Main };
        let mut at = 0;
        while at < known.count {
            let (Some(fd), Some(gone)) = (known.descriptors.get(at), heard.gone.get(count)) else {
                return Ready::Main;
            };
            let fd = if *gone { -1 } else { *fd };
            let Some(place) = heard.watched.get_mut(count) else { return Ready::Main };
            *place = watch(fd);
            count += 1;
            at += 1;
        }
        message += 1;
    }
    let time = [most / 1_000_000_000, most % 1_000_000_000];
    let watched = heard.watched.as_mut_ptr();
    // SAFETY: the pointers are to so many pollfds and a timespec; no mask is given. Signals are blocked, and
    // wait for `main`.
    if unsafe { sys!(ppoll, watched, count, time.as_ptr(), 0, 8) }.unwrap_or(0) == 0 {
        return Ready::Main;
    }
    let mut at = 1;
    while at < count {
        let Some(events) = heard.watched.get(at).map(returned) else { return Ready::Main };
        if events & POLLIN != 0 {
            return Ready::Main;
        }
        if events != 0
            && let Some(gone) = heard.gone.get_mut(at)
        {
            *gone = true;
        }
        at += 1;
    }
    match heard.watched.first().map(returned) {
        Some(0) if heard.nobody_calls() => Ready::Ending,
        Some(0) => Ready::Again,
        _ => Ready::Message,
    }
}

/// The next message's first byte, and the exit code if it tells of one; nothing at the socket's end.
fn peek(control: i32) -> Option<(u8, Option<u8>)> {
    const MSG_PEEK_DONTWAIT_TRUNC: usize = 0x2 | 0x40 | 0x20;
    let mut first = [0u8; 4];
    // SAFETY: the pointer and length describe `first`, which is writable; no address is asked for.
    let got =
        unsafe { sys!(recvfrom, control, first.as_mut_ptr(), 4, MSG_PEEK_DONTWAIT_TRUNC, 0, 0) };
    match got {
        Ok(3) if first[0] == b'W' && first[1] == b'x' => Some((b'W', Some(first[2]))),
        Ok(1..) => Some((first[0], None)),
        Err(Errno::EINTR) => Some((0, None)),
        _ => None,
    }
}

/// Takes what is said of the command that executes.
fn hear_execution(control: i32, heard: &mut Heard) -> Option<()> {
    let place = (heard.said.as_mut_ptr(), LONG);
    let (length, controls) = take(control, place, &mut heard.control).ok()?;
    let mut at = 0;
    while let Some((kind, data, after)) = next(&heard.control, at, controls) {
        if kind == SCM_CREDENTIALS {
            heard.pid = *heard.control.get(data.0)? as i32;
        }
        at = after;
    }
    heard.length = length;
    heard.executed = account::now();
    heard.heard = crate::trace::now();
    Some(())
}

/// Takes a message with descriptors.
fn hear(launched: &Launched, heard: &mut Heard) -> Option<()> {
    let taken = take_passed(launched.control, heard);
    if taken == Err(Errno::EAGAIN) || taken == Err(Errno::EINTR) {
        return None;
    }
    if taken.is_err() {
        // More than there is room for, or than we may have open: a listener was lost, and with it somebody who
        // answers. Nothing can be left of that run.
        const SIGKILL: usize = 9;
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(kill, launched.pid, SIGKILL) };
    }
    taken.ok()
}

fn take_passed(control: i32, heard: &mut Heard) -> crate::Result<()> {
    let message = heard.messages.get_mut(heard.count).ok_or(Errno::EAGAIN)?;
    let place = (message.bytes.as_mut_ptr(), SHORT);
    let (length, controls) = take(control, place, &mut heard.control)?;
    let mut at = 0;
    while let Some((kind, (start, bytes), after)) = next(&heard.control, at, controls) {
        let mut number = 0;
        while kind == SCM_RIGHTS && number < bytes / 4 {
            let pair = *heard.control.get(start + number / 2).ok_or(Errno::EMSGSIZE)?;
            let place = message.descriptors.get_mut(message.count).ok_or(Errno::EMSGSIZE)?;
            *place = (pair >> (32 * (number % 2))) as i32;
            message.count += 1;
            number += 1;
        }
        at = after;
    }
    message.length = length;
    heard.count += 1;
    Ok(())
}

const SCM_RIGHTS: u64 = 1;
const SCM_CREDENTIALS: u64 = 2;
/// Words of room for control messages: of sixteen descriptors and of credentials.
const CONTROL: usize = 16;

/// Takes a message; its length, and how many bytes of control messages came with it.
fn take(
    socket: i32,
    (bytes, room): (*mut u8, usize),
    control: &mut [u64; CONTROL],
) -> crate::Result<(usize, usize)> {
    const MSG_DONTWAIT_CMSG_CLOEXEC: usize = 0x40 | 0x4000_0000;
    const MSG_TRUNC_CTRUNC: usize = 0x20 | 0x8;
    let part = [bytes as usize, room];
    // struct msghdr: no address, one part, the control messages, flags.
    let mut header =
        [0, 0, part.as_ptr() as usize, 1, control.as_mut_ptr() as usize, 8 * CONTROL, 0];
    // SAFETY: the header describes the caller's writable bytes and `control`.
    let length = unsafe { sys!(recvmsg, socket, header.as_mut_ptr(), MSG_DONTWAIT_CMSG_CLOEXEC) }?;
    if header[6] & MSG_TRUNC_CTRUNC != 0 {
        return Err(Errno::EMSGSIZE);
    }
    Ok((length, header[5]))
}

/// The control message (struct cmsghdr) at a word: its kind, the word where its data is and how many bytes
/// that has, the word where the next one is.
fn next(control: &[u64; CONTROL], at: usize, bytes: usize) -> Option<(u64, (usize, usize), usize)> {
    let length = *control.get(at).filter(|_| at * 8 + 16 <= bytes)? as usize;
    let kind = *control.get(at + 1)? >> 32;
    let data = length.checked_sub(16)?;
    Some((kind, (at + 2, data), at + length.div_ceil(8)))
}

/// Lets the output of the terminal among the standard streams be shown again, where the command stopped it for good
/// (`tcflow(3)`). SIGTTOU is blocked.
fn show_output() {
    const TCXONC: usize = 0x540a;
    const TCOON: usize = 1;
    let mut fd = 0;
    while fd < 3 {
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(ioctl, fd, TCXONC, TCOON) };
        fd += 1;
    }
}

/// A command that has ended by itself within the moment.
struct Ended<'a> {
    image: &'a Image,
    caller: &'a Caller,
    launched: &'a Launched,
    heard: &'a Heard,
    filing: &'a Filing,
    code: u8,
}

impl Ended<'_> {
    /// Does what remains, and ends; returns when that is for `main`, which can do each of it again: the warden has its
    /// answer by [`settle`], and what it said has only been looked at. Nothing else of the sandbox is left.
    fn end(self, room: &mut Room) {
        const WNOHANG: usize = 1;
        if self.image.header().flags & RECORDED != 0 && self.record(room).is_none() {
            return;
        }
        // As it was told, unless the warden ends in another way.
        let mut status = i32::from(self.code) << 8;
        let mut collect = |flags: usize| {
            // SAFETY: `status` is room for the answer; no usage is asked for.
            unsafe { sys!(wait4, self.launched.pid, &raw mut status, flags, 0) }
        };
        if !glance(|| collect(WNOHANG) != Ok(0)) {
            while collect(0) == Err(Errno::EINTR) {}
        }
        if self.launched.job {
            crate::job::take_back(0);
        }
        let signal = status & 0x7f;
        exit(if signal == 0 { status >> 8 & 0xff } else { 128 + signal })
    }

    fn record(&self, room: &mut Room) -> Option<()> {
        // `R`, the command's number inside, its path.
        let said = self.heard.said.get(..self.heard.length)?;
        let number = from(said, 1).first_chunk::<4>()?;
        let process = self.image.header().flags & crate::image::PROCESS_TIER != 0;
        let pid = if process { i32::from_ne_bytes(*number) } else { self.heard.pid };
        // Sent by the warden as about itself: the kernel would not say more.
        let pid = if pid == self.launched.pid { 0 } else { pid };
        let Heard { executed, .. } = *self.heard;
        let (image, caller, launched, code) = (self.image, self.caller, self.launched, self.code);
        let exe = from(said, 5);
        Account { image, caller, launched, pid, exe, executed, code }
            .write(self.filing, &mut room.lines)
    }
}
