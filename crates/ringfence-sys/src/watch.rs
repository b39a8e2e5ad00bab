//! Starts a program of which some calls are announced to a watcher before the kernel carries
//! them out (seccomp_unotify(2)): for learning, where everything goes on as it was made.

use crate::fd::{owned, socket_pair};
use crate::seccomp::{Instruction, Program};
use crate::signal::{self, SignalSet};
use crate::socket::{receive_with, send_with};
use crate::{Errno, Result, Sysno, sys};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::thread::{self, JoinHandle};

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6).
const SET_FLAGS: u32 = 0x4008_2104;
const SYNC_WAKE_UP: u64 = 1;

const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_NOTIFY: u32 = 0x7fc0_0000;

/// A program that is watched.
#[derive(Debug)]
pub struct Watched {
    /// Where its calls are announced; hung up when nothing runs under the filter any more.
    pub listener: OwnedFd,
    /// Readable when a signal has come that would have ended us.
    signals: OwnedFd,
    /// The program.
    program: OwnedFd,
    /// Waits for its end.
    end: JoinHandle<std::io::Result<ExitStatus>>,
    /// The mask of signals before.
    before: SignalSet,
}

/// The filter that announces these calls and lets all others through by their number alone; but
/// for `sendmsg` on `ours`, by which the listener itself is handed over: nobody listens yet. Those of `named` are announced where
/// that argument is no null pointer.
fn filter(calls: &[Sysno], named: &[(Sysno, u32)], ours: i32) -> Program {
    let load = |offset| Instruction { code: 0x20, jump_true: 0, jump_false: 0, operand: offset };
    let equal =
        |operand, jump_true, jump_false| Instruction { code: 0x15, jump_true, jump_false, operand };
    let give = |operand| Instruction { code: 0x06, jump_true: 0, jump_false: 0, operand };
    // Programs of another architecture are not watched: the sandbox's own filter refuses them.
    let mut program =
        vec![load(4), equal(crate::seccomp::AUDIT_ARCH, 1, 0), give(RETURN_ALLOW), load(0)];
    for call in calls {
        if *call == Sysno::sendmsg {
            // The low half of the first argument, at offset 16.
            program.extend([equal(*call as u32, 0, 4), load(16), equal(ours as u32, 0, 1)]);
            program.extend([give(RETURN_ALLOW), give(RETURN_NOTIFY)]);
            continue;
        }
        program.push(equal(*call as u32, 0, 1));
        program.push(give(RETURN_NOTIFY));
    }
    for (call, argument) in named {
        // Both halves of the argument.
        let at = 16 + 8 * argument;
        program.extend([equal(*call as u32, 0, 6), load(at), equal(0, 0, 2), load(at + 4)]);
        program.extend([equal(0, 1, 0), give(RETURN_NOTIFY), give(RETURN_ALLOW)]);
    }
    program.push(give(RETURN_ALLOW));
    Program(program)
}

/// Signals by which others end a program: they are for the one that is watched.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGHUP];

/// Starts a command; each of these calls, of it and of all that it starts, waits on the listener
/// for an answer; those of `named` where that argument is no null pointer. It ends when we do, however that is: without
/// us nobody would answer.
///
/// # Errors
/// The kernel has no notification, or a filter with a listener is in force already (`EBUSY`).
pub fn start(mut command: Command, calls: &[Sysno], named: &[(Sysno, u32)]) -> Result<Watched> {
    let (ours, mut theirs) = socket_pair()?;
    // A number that programs hardly ever reach: what they send on it is not seen.
    // SAFETY: duplicates a descriptor that is ours.
    let high = owned(unsafe { sys!(fcntl, theirs.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) }?);
    // The only one: its end is heard, where the child has no listener to send.
    drop(std::mem::replace(&mut theirs, high));
    let child_end = theirs.as_raw_fd();
    let program = filter(calls, named, child_end);
    let ending = SignalSet::of(&ENDING);
    let signals = signal::descriptor(ending)?;
    let before = signal::set_mask(ending)?;
    signal::set_mask(SignalSet::of_bits(before.bits() | ending.bits()))?;
    let parent = std::process::id();
    let confine = move || {
        signal::set_mask(before).map_err(io)?;
        // SAFETY: takes numbers only.
        unsafe { sys!(prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.map_err(io)?;
        // SAFETY: takes nothing.
        if unsafe { sys!(getppid) }.map_err(io)? as u32 != parent {
            return Err(io(Errno::ESRCH));
        }
        // SAFETY: takes numbers only.
        unsafe { sys!(prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.map_err(io)?;
        let listener = program.install_with_listener().map_err(io)?;
        // SAFETY: the socket is open in the child until it executes.
        let socket = unsafe { BorrowedFd::borrow_raw(child_end) };
        // SAFETY: takes nothing.
        let own = unsafe { sys!(getpid) }.map_err(io)? as u32;
        send_with(socket, &own.to_ne_bytes(), &[listener.as_fd()]).map_err(io)
    };
    // SAFETY: between fork and exec only system calls are made, on memory made before.
    unsafe { command.pre_exec(confine) };
    // Executing is a watched call itself: it waits for the answers that our caller gives.
    let end = thread::spawn(move || {
        let started = command.spawn();
        drop(theirs);
        started?.wait()
    });
    let mut number = [0; 4];
    let received = receive_with(ours.as_fd(), &mut number, true);
    let listener = received.and_then(|(_, mut passed)| passed.pop().ok_or(Errno::EPERM));
    let listener = match listener {
        Ok(listener) => listener,
        Err(errno) => {
            signal::set_mask(before)?;
            // What the child could not do says more than that it sent nothing.
            let ended = end.join().ok().and_then(std::io::Result::err);
            let why = ended.and_then(|error| error.raw_os_error());
            return Err(why.map_or(errno, Errno::new));
        }
    };
    // It waits for us, before it executes.
    let program = crate::process::pidfd(i32::from_ne_bytes(number))?;
    // The waiting side runs where the calling one was: no other processor must be woken. Older
    // kernels do without.
    // SAFETY: the flags are passed by value.
    let _ = unsafe { sys!(ioctl, listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
    Ok(Watched { listener, signals, program, end, before })
}

fn io(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.into_raw())
}

impl Watched {
    /// Waits for the program's end; from then on signals are ours again.
    ///
    /// # Errors
    /// It could not be started.
    pub fn ended(self) -> std::io::Result<ExitStatus> {
        let end = self.end.join().map_err(|_| std::io::Error::other("the watcher broke"))?;
        signal::set_mask(self.before).map_err(io)?;
        end
    }

    /// Waits for a call to be announced; false when nothing is watched any more. A signal that ends
    /// programs is passed on meanwhile.
    ///
    /// # Errors
    /// `EINTR`, and the kernel's.
    pub fn wait(&self) -> Result<bool> {
        loop {
            let entry = |fd: &OwnedFd| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut entries = [entry(&self.listener), entry(&self.signals)];
            let none = std::ptr::null::<u8>();
            // SAFETY: the pointer is to two entries; no time and no mask are given.
            unsafe { sys!(ppoll, entries.as_mut_ptr(), 2, none, none, 0) }?;
            while entries[1].revents != 0
                && let Ok(arrived) = signal::take(self.signals.as_fd())
            {
                // It may have ended already.
                let _ = signal::send(self.program.as_fd(), arrived.signal);
            }
            if entries[0].revents != 0 {
                return Ok(entries[0].revents & libc::POLLIN != 0);
            }
        }
    }
}

/// From now on Ctrl-C and Ctrl-\ are for the program that is watched, and not for us.
pub fn leave_interrupts_to_it() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler of ours runs: the signal is ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
