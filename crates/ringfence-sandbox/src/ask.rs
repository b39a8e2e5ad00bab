//! `syscalls = "ask"`: calls that no list allows wait until the user has said what becomes of
//! them, on the terminal that the launcher has.
//!
//! Only the number of a call is asked about; what rules refuse by its arguments is refused before.
//! Nobody to ask, no answer, a question that cannot be printed: refused. An answer holds for this
//! run at the most, and is never written anywhere but to the record.

use crate::outcome::Outcome;
use crate::plan::{AllowedCalls, Plan, Verdict};
use crate::supervise::Duties;
use ringfence_net::Process;
use ringfence_policy::calls::family;
use ringfence_sys as sys;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use sys::notify::{self, Notification};
use sys::terminal::Mode;
use sys::{Errno, Sysno};

/// The most calls that wait for the user; more are refused.
const MOST_WAITING: usize = 256;

/// What became of a call by the user's word, or for want of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The call, by its family's name.
    pub call: String,
    /// The program, by its own word.
    pub by: String,
    /// Its process, if that was there still when it was looked at.
    pub process: Option<Process>,
    /// It was let through.
    pub allowed: bool,
}

/// A call that waits.
struct Waiting {
    listener: OwnedFd,
    call: Notification,
    name: &'static str,
    by: String,
    process: Option<Process>,
}

/// The most bytes of an answer.
const LONGEST: usize = 256;
/// How long a terminal that takes no more is waited for.
const PATIENCE: Duration = Duration::from_millis(250);

/// The terminal, while a question stands on it.
///
/// It is a program's as well, which may read from it, and change how it is read, at any moment: no call on it waits.
struct Asking {
    terminal: OwnedFd,
    /// What was typed of the answer.
    typed: Vec<u8>,
    /// How it was, and whose it was.
    before: Mode,
    foreground: i32,
}

/// Asks, one question at a time.
#[derive(Default)]
pub(crate) struct Questions {
    listed: BTreeSet<i32>,
    /// Answers for the whole run, by family.
    answers: BTreeMap<&'static str, bool>,
    waiting: VecDeque<Waiting>,
    asking: Option<Asking>,
    /// What was decided, each once.
    pub decided: BTreeSet<Asked>,
}

/// What is to be done with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lot {
    /// As if it were listed.
    Listed,
    /// It was refused, or waits for an answer.
    Taken,
}

impl Questions {
    /// Those of a plan that asks.
    pub fn of(plan: &Plan) -> Option<Questions> {
        let list = plan.allowed_calls.as_ref().filter(|list| asks(list))?;
        let numbers = list.calls.iter().filter_map(|name| name.parse::<Sysno>().ok());
        Some(Questions { listed: numbers.map(|call| call.id()).collect(), ..Questions::default() })
    }

    /// Takes a call that is not listed.
    pub fn take(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Lot {
        if self.listed.contains(&call.call) {
            return Lot::Listed;
        }
        let known = usize::try_from(call.call).ok().and_then(Sysno::new);
        let Some(known) = known else {
            // One that this program does not know cannot be asked about.
            let _ = notify::finish(listener, call.id, Err(Errno::ENOSYS));
            return Lot::Taken;
        };
        let name = family(known.name());
        match self.answers.get(name) {
            Some(true) => return Lot::Listed,
            Some(false) => {}
            None if self.waiting.len() < MOST_WAITING => {
                if let Ok(listener) = listener.try_clone_to_owned() {
                    let (by, process) = (program(call.thread), caller(listener.as_fd(), call));
                    let waiting = Waiting { listener, call: *call, name, by, process };
                    self.waiting.push_back(waiting);
                    if self.asking.is_none() {
                        self.ask();
                    }
                    return Lot::Taken;
                }
            }
            None => {}
        }
        let _ = notify::finish(listener, call.id, Err(Errno::EPERM));
        Lot::Taken
    }

    /// The terminal, while an answer is awaited.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.asking.as_ref().map(|asking| asking.terminal.as_fd())
    }

    /// Puts the question about the first call that waits; refuses all where nobody can be asked.
    fn ask(&mut self) {
        let mut told = BTreeSet::new();
        while let Some(first) = self.waiting.front() {
            match Asking::put(&question(first)) {
                Ok(asking) => {
                    self.asking = Some(asking);
                    return;
                }
                Err(why) => {
                    let (name, by) = (first.name, first.by.clone());
                    if told.insert(name) {
                        sys::say::soon(format_args!(
                            "ringfence: {by} is refused {name}, which no rule lists: {why}"
                        ));
                    }
                    // It will be no other way the next time, and is said once.
                    self.answers.insert(name, false);
                    self.settle(false);
                }
            }
        }
    }

    /// The user has typed: the calls that are to be carried out now.
    pub fn typed(&mut self) -> Vec<(OwnedFd, Notification)> {
        let Some(asking) = &mut self.asking else { return Vec::new() };
        let Some(line) = asking.line() else { return Vec::new() };
        let word = line.trim_ascii().to_ascii_lowercase();
        let (allowed, whole_run) = match word.as_slice() {
            b"o" | b"once" => (true, false),
            b"s" | b"session" => (true, true),
            b"d" | b"deny" => (false, true),
            _ => (false, false),
        };
        self.asking = None;
        if whole_run && let Some(first) = self.waiting.front() {
            self.answers.insert(first.name, allowed);
        }
        let mut go_on: Vec<_> = self.settle(allowed).into_iter().collect();
        // Others about which the same answer was given.
        while let Some(&known) = self.waiting.front().and_then(|next| self.answers.get(next.name)) {
            go_on.extend(self.settle(known));
        }
        self.ask();
        go_on
    }

    /// Ends the first call that waits; one that is allowed is handed out.
    fn settle(&mut self, allowed: bool) -> Option<(OwnedFd, Notification)> {
        let Waiting { listener, call, name, by, process } = self.waiting.pop_front()?;
        self.decided.insert(Asked { call: name.to_owned(), by, process, allowed });
        if allowed {
            return Some((listener, call));
        }
        let _ = notify::finish(listener.as_fd(), call.id, Err(Errno::EPERM));
        None
    }
}

/// Whether a list asks about what is not on it.
pub(crate) fn asks(list: &AllowedCalls) -> bool {
    list.otherwise == Verdict::Ask
}

/// Calls that the network's side answers.
const SOCKET_CALLS: [Sysno; 6] = [
    Sysno::bind,
    Sysno::connect,
    Sysno::listen,
    Sysno::getpeername,
    Sysno::getsockopt,
    Sysno::setsockopt,
];

/// Carries out a supervised call; one that the user has allowed and no rule supervises goes on.
pub(crate) fn carry_out(
    duties: &Duties<'_>,
    outcome: &mut Outcome,
    listener: BorrowedFd<'_>,
    call: &Notification,
) {
    let call_is = Sysno::new(call.call as usize);
    if duties.plan.opens_input && call_is == Some(Sysno::openat) {
        crate::vm::answer_open(listener, call);
    } else if !supervised(duties.plan, call_is) {
        let _ = notify::go_on(listener, call.id);
    } else if call_is.is_some_and(|call| SOCKET_CALLS.contains(&call)) {
        // It may be tried again and again, and is told once.
        let told = duties.publish.answer(listener, call);
        outcome.limits_hit.extend(told.filter(|told| !outcome.limits_hit.contains(told)));
    } else if call_is == Some(Sysno::inotify_add_watch) {
        duties.watches.answer(listener, call);
    } else if call_is == Some(Sysno::kill) {
        crate::own_group::answer(listener, call);
    } else if crate::told_of_input::is(call) {
        crate::told_of_input::answer(listener, call);
    } else if call_is == Some(Sysno::setpgid) {
        crate::other_group::answer(listener, call);
    } else if crate::foreground::gives(call) {
        crate::foreground::answer(listener, call, duties.plan.tier);
    } else if let Some(at) = crate::own_number::place(call_is) {
        crate::own_number::answer(listener, call, at);
    } else {
        duties.metadata.answer(listener, call);
    }
}

/// Whether a rule has the launcher carry a call out; without a list to ask about, each that it is
/// told of.
fn supervised(plan: &Plan, call: Option<Sysno>) -> bool {
    let is = |name: &str| call.is_some_and(|call| call.name() == name);
    !plan.allowed_calls.as_ref().is_some_and(asks)
        || plan.seccomp.iter().any(|rule| rule.verdict == Verdict::Supervise && is(rule.call))
}

impl Asking {
    /// Prints a question on the controlling terminal, and has what is typed from now on, by lines.
    fn put(question: &str) -> Result<Asking, &'static str> {
        let none = "there is no terminal to ask on";
        // Opened for ourselves: whether calls wait is a flag of what was opened, of which programs have others.
        let terminal = sys::terminal::own().ok_or(none)?;
        let own = sys::process::group();
        let foreground = sys::terminal::foreground(terminal.as_fd()).map_err(|_| none)?;
        // A shell inside gives the terminal to its jobs; another one's job is left alone.
        if foreground != own && !is_inside(foreground) {
            return Err("ringfence is in the background: fg, and run it again");
        }
        let before = sys::terminal::mode(terminal.as_fd()).map_err(|_| none)?;
        sys::terminal::set_foreground(terminal.as_fd(), own).map_err(|_| none)?;
        let asking = Asking { terminal, typed: Vec::new(), before, foreground };
        let fd = asking.terminal.as_fd();
        sys::terminal::set_mode_at_once(fd, &before.lines()).map_err(|_| none)?;
        // What was typed before the question is no answer to it.
        sys::terminal::drop_input(fd).map_err(|_| none)?;
        sys::fd::write_within(fd, question.as_bytes(), PATIENCE).map_err(|errno| match errno {
            Errno::EAGAIN => "the terminal shows no question: its output is stopped",
            _ => none,
        })?;
        Ok(asking)
    }

    /// The line that was typed, once it has ended; an empty one where the terminal is gone, or another's.
    fn line(&mut self) -> Option<Vec<u8>> {
        let mut typed = [0; LONGEST];
        match sys::fd::read(self.terminal.as_fd(), &mut typed) {
            // A program took it.
            Err(Errno::EAGAIN) => return None,
            Ok(0) | Err(_) => return Some(Vec::new()),
            Ok(length) => self.typed.extend(&typed[..length]),
        }
        let end = self.typed.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        if end.is_none() && self.typed.len() < LONGEST {
            // It came by pieces, so that a program has changed the mode: the rest comes by lines again.
            let _ = sys::terminal::set_mode_at_once(self.terminal.as_fd(), &self.before.lines());
            return None;
        }
        self.typed.truncate(end.unwrap_or(LONGEST));
        Some(std::mem::take(&mut self.typed))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = sys::terminal::set_mode_at_once(self.terminal.as_fd(), &self.before);
        let _ = sys::terminal::set_foreground(self.terminal.as_fd(), self.foreground);
    }
}

fn question(waiting: &Waiting) -> String {
    let Waiting { name, by, call, .. } = waiting;
    let thread = call.thread;
    format!(
        "\r\nringfence: {by} (process {thread}) calls {name}, which no rule lists: [o]nce, for the \
         [s]ession, [N]o, [d]eny for the session: "
    )
}

/// The process that a call is of, as the kernel has it.
fn caller(listener: BorrowedFd<'_>, call: &Notification) -> Option<Process> {
    let pid = sys::caller::process(call)?;
    let found = Process::of(pid);
    // Else its number may be another's by now.
    notify::waits(listener, call.id).then_some(found)
}

/// What a program is called, in letters that a terminal does nothing with.
fn program(thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
    let plain = ringfence_policy::shown::line(name.trim_end()).into_owned();
    if plain.is_empty() { "a program".to_owned() } else { plain }
}

/// Whether a group of processes is one of a sandbox: its leader's namespace is further down.
fn is_inside(group: i32) -> bool {
    let own = sys::process::numbers(std::process::id()).len();
    let other = sys::process::numbers(group.cast_unsigned()).len();
    own > 0 && other > own
}
