//! PID 1 of the namespace tier, the subreaper of the process tier: stays with the command, reaps,
//! passes signals on, reports stops to the launcher, and sees to the end.
//!
//! What needs more than system calls (putting protected paths right when the launcher is dead,
//! starting more programs inside, hunting down descendants without a PID namespace) is left to
//! the launcher's own code: [`watch`] returns then, and this process becomes one with libc.

use crate::Errno;
use crate::call::{exit, glance, is_hung_up, receive, send, sys};
use crate::code;
use crate::job;
use crate::order;
use crate::teardown::{self, Circle};
use crate::trace::PARENT_DEATH;

/// The launcher asks for a service: ours, which nobody else sends.
pub const SERVICE: i32 = 63;

/// The launcher passes a SIGCONT on, with the stop that is meant as the value. The SIGCONT of a
/// shell, which continues a whole group, arrives here too, and two of a kind would become one: a
/// real-time signal stays by itself.
pub const GO_ON: i32 = 60;

/// In the value of [`GO_ON`]: the command is a job of its own ([`crate::job`]), all of which is to go on.
pub const OF_JOB: i32 = 512;
/// In the value of [`GO_ON`] and [`TO_JOB`]: the terminal is handed to that first.
pub const WITH_TERMINAL: i32 = 1024;

/// The launcher passes a signal on that its own job was sent, as the value (with [`WITH_TERMINAL`]), to the command's. Of
/// signals that wait the lower number comes first (signal(7)): a job goes on before it is stopped anew.
pub const TO_JOB: i32 = 62;

/// The launcher has the sandbox ended: what it does then it does itself, and the command is killed. Who is outside
/// asks a launcher for it by the same signal.
pub const END: i32 = 61;

/// Where a `siginfo_t` of a queued signal has its value, two `int`s ([`order`]), counted in `int`s.
pub const VALUE: usize = 6;
/// Its value when any stop is meant, not only the one with this number.
pub const ANY_STOP: i32 = 256;

/// After so long it makes itself small: a `struct timespec`.
static IDLE: [i64; 2] = [0, 100_000_000];

const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;
const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;

/// Why the simple warden does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The launcher died.
    Orphaned,
    /// The launcher asks for something; what was told of the command's stops.
    Service(Stops),
    /// The command ended, by exit (`x`) with this code or by this signal (`k`), and in the
    /// process tier something of it still runs.
    Finish(u8, i32),
}

/// Stops of the command that the launcher was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// How many, modulo 256.
    pub count: u8,
    /// It has not gone on since the last one.
    pub stopped: bool,
}

impl Stops {
    /// It stopped.
    pub fn stopped(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.stopped = true;
    }

    /// It goes on.
    pub fn continued(&mut self) {
        self.stopped = false;
    }

    /// Whether a launcher's word means the command as it is (`after`: the stop that is meant, or
    /// [`ANY_STOP`]), and whether a SIGCONT is to be sent for it. To one that goes on already none
    /// is: it would undo a stop that is on its way to it.
    // rustc 1.95 forgets to compute `meant` where this is put into another crate's function and optimised there.
    #[inline(never)]
    pub fn judge(self, after: i32) -> (bool, bool) {
        let any = after == ANY_STOP;
        let meant = any || after == self.count as i32;
        (meant, any || (meant && self.stopped))
    }
}

/// Does what the launcher says of the command by [`GO_ON`] or [`TO_JOB`] ([`order::open`]); whether that is as the launcher
/// thinks, which it is to be told.
pub fn pass_on(signal: i32, value: i32, command: i32, stops: Stops) -> Option<bool> {
    const TERMINAL: i32 = 0;
    let terminal = value & WITH_TERMINAL != 0;
    if signal == TO_JOB {
        if terminal {
            let _ = job::give(TERMINAL, command);
        }
        job::signal(command, value & !WITH_TERMINAL);
        return None;
    }
    let (meant, send) = stops.judge(value & !(OF_JOB | WITH_TERMINAL));
    if meant && terminal {
        let _ = job::give(TERMINAL, command);
    }
    if send && value & OF_JOB != 0 {
        job::signal(command, SIGCONT);
    } else if send {
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(kill, command, SIGCONT) };
    }
    Some(meant)
}

/// What it watches over.
#[derive(Clone, Copy, Debug)]
pub struct Warden {
    /// The command's PID, as seen here.
    pub command: i32,
    /// The way to the launcher.
    pub control: i32,
    /// No PID namespace.
    pub process_tier: bool,
    /// [`crate::image::PASSING`].
    pub passing: bool,
}

impl Warden {
    /// Waits for the command's end and exits with its code.
    pub fn watch(&self) -> Wanted {
        // While nobody waits for us.
        let mut circle = if self.passing { Circle::prepare() } else { None };
        teardown::forget_processors();
        // What it has used of its code it would let go of at its end.
        code::let_go();
        let wanted = self.wait(&mut circle);
        if let Some(circle) = circle {
            circle.undo();
        }
        wanted
    }

    fn wait(&self, circle: &mut Option<Circle>) -> Wanted {
        let mut stops = Stops { count: 0, stopped: false };
        let mut limit: *const i64 = IDLE.as_ptr();
        loop {
            if let Some(wanted) = self.reap(&mut stops, circle) {
                return wanted;
            }
            let mut info = [0i32; 32];
            let all = u64::MAX;
            // SAFETY: the pointers are to the set, to room for a siginfo_t, and to a struct timespec that lives on, or to none.
            let arrived =
                unsafe { sys!(rt_sigtimedwait, &raw const all, info.as_mut_ptr(), limit, 8) };
            if arrived == Err(Errno::EAGAIN) {
                // The command is one that runs for a while: what is needed until its end fits into a few pages.
                code::let_go();
                limit = core::ptr::null();
            }
            let Ok(signal) = arrived else { continue };
            // si_code and si_pid: sent by kill(2), and from outside of the PID namespace, where
            // numbers of senders are 0. A terminal's signals reach the command by themselves.
            let sent = info[2] == SI_USER && (self.process_tier || info[4] == 0);
            match signal as i32 {
                SIGCHLD => {}
                // With no room for what a real-time signal says of itself, who is inside can say so too (sigqueue(3)).
                PARENT_DEATH if sent && is_hung_up(self.control) => return Wanted::Orphaned,
                // Somebody holds the launcher's end for a moment still, if it is true: that is watched then.
                PARENT_DEATH if sent => return Wanted::Service(stops),
                SERVICE if sent => return Wanted::Service(stops),
                signal @ (GO_ON | TO_JOB) if info[2] == SI_QUEUE => {
                    let value = [info[VALUE], info[VALUE + 1]].map(|half| u64::from(half as u32));
                    let Some(order) = order::open(value[0] | value[1] << 32) else { continue };
                    // What became of it by now.
                    if let Some(wanted) = self.reap(&mut stops, circle) {
                        return wanted;
                    }
                    if let Some(meant) = pass_on(signal, order, self.command, stops) {
                        self.tell(b'A', u8::from(meant));
                    }
                }
                // Of whoever continues our group: the launcher's word comes as well.
                SIGCONT => {}
                signal if sent => {
                    let signal = if signal == END { SIGKILL } else { signal };
                    // SAFETY: takes numbers.
                    let _ = unsafe { sys!(kill, self.command, signal) };
                }
                _ => {}
            }
        }
    }

    fn reap(&self, stops: &mut Stops, circle: &mut Option<Circle>) -> Option<Wanted> {
        const WNOHANG_UNTRACED_CONTINUED: usize = 1 | 2 | 8;
        loop {
            let mut status = 0i32;
            // SAFETY: `status` is room for the answer; no usage is asked for.
            let result =
                unsafe { sys!(wait4, -1_isize, &raw mut status, WNOHANG_UNTRACED_CONTINUED, 0) };
            let pid = match result {
                Ok(0) | Err(Errno::ECHILD) => return None,
                Ok(pid) => pid as i32,
                Err(_) => continue,
            };
            if pid != self.command {
                continue;
            }
            let signal = status & 0x7f;
            if status == 0xffff {
                stops.continued();
                self.tell(b'C', 0);
            } else if status & 0xff == 0x7f {
                stops.stopped();
                let _ = send(self.control, &[b'S', (status >> 8) as u8, stops.count]);
            } else if signal == 0 {
                return self.end(b'x', status >> 8 & 0xff, circle);
            } else {
                // Told apart from an exit with the same number: the launcher dies of a
                // terminal's SIGINT as the command did.
                self.tell(b'K', signal as u8);
                return self.end(b'k', signal, circle);
            }
        }
    }

    fn tell(&self, what: u8, number: u8) {
        let _ = send(self.control, &[what, number]);
    }

    /// The command has ended: ends the rest, and sees to it that protected paths are put right
    /// before anything else can happen.
    fn end(&self, kind: u8, value: i32, circle: &mut Option<Circle>) -> Option<Wanted> {
        if !self.end_everything() {
            return Some(Wanted::Finish(kind, value));
        }
        let _ = send(self.control, &[b'W', kind, value as u8]);
        // While the launcher looks whether there is anything to put right.
        if let Some(circle) = circle.take() {
            circle.leave();
        }
        let mut reply = [0u8; 16];
        // Mostly the launcher has nothing to put right, and says so at once.
        let _ = glance(|| receive(self.control, &mut reply, false) != Err(Errno::EAGAIN));
        while reply[0] != b'w' {
            // Only a reply means that it was done: the socket of a launcher that died with our
            // message unread says ECONNRESET before it says that it is closed.
            if receive(self.control, &mut reply, true).unwrap_or(0) == 0 {
                return Some(Wanted::Orphaned);
            }
        }
        exit(if kind == b'k' { 128 + value } else { value })
    }

    /// In a PID namespace one signal reaches all. Without one, nothing may be left already.
    ///
    /// Whatever else lives in a PID namespace descends from its first process, to which it falls when its
    /// parent ends: without a child that one is alone. The signal would be offered to each process of the host.
    fn end_everything(&self) -> bool {
        const WNOHANG: usize = 1;
        let mut flags = WNOHANG;
        loop {
            let mut status = 0i32;
            // SAFETY: `status` is room for the answer; no usage is asked for.
            match unsafe { sys!(wait4, -1_isize, &raw mut status, flags, 0) } {
                Err(Errno::ECHILD) => return true,
                Ok(0) if self.process_tier => return false,
                Ok(0) => {
                    // SAFETY: takes numbers; PID 1 itself is spared.
                    let _ = unsafe { sys!(kill, -1_isize, SIGKILL) };
                    flags = 0;
                }
                _ => {}
            }
        }
    }
}
