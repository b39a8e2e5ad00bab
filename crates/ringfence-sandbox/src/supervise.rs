//! The launcher's watch over a running sandbox: signals in both directions, stops, the
//! timeout, and the end.

mod covers;
mod duties;
mod guards;
mod job;
mod messages;
mod record;
mod stops;
mod time;

pub(crate) use duties::Duties;
pub(crate) use job::Job;
pub(crate) use messages::Heard;

use self::covers::Covers;
use self::stops::Stops;
use crate::ask::{self, Lot, Questions};
use crate::creations::Creations;
use crate::dbus::Bus;
use crate::descendants;
use crate::error::LaunchError;
use crate::executions::{self, Executions, Listener};
use crate::gone;
use crate::guard::Vigil;
use crate::live::{self, Executed};
use crate::network::Network;
pub use crate::outcome::Outcome;
use crate::plan::Tier;
use crate::trace::Trace;
use ringfence_sys as sys;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use sys::process::Change;
use sys::signal::{After, Arrived, SignalSet};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;
const SIGTTIN: i32 = 21;
const SIGTTOU: i32 = 22;
const SIGWINCH: i32 = 28;
/// The faults that only ourselves could cause keep their effect on the launcher. Ctrl-Z (SIGTSTP) is
/// the command's to take or to ignore: the launcher stops when the command did.
const LEFT_ALONE: [i32; 8] = [4, 5, 6, 7, 8, 11, SIGKILL, SIGSTOP];

/// Signals that ask a command to end.
const ASK_FOR_THE_END: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// After so long a launcher makes itself small.
const IDLE: Duration = Duration::from_millis(100);

/// A command that runs for longer is watched for protected names; after a shorter one all of them
/// are looked for anyway.
const VIGIL: Duration = Duration::from_millis(20);
/// Nor does a launcher stay without libc for longer.
const _: () = assert!(ringfence_start::brief::MOMENT as u128 == VIGIL.as_nanos());

/// How long names that are made are left to gather: a wake for each would slow down a command
/// that makes many.
const GATHER: Duration = Duration::from_millis(20);

/// Supervised calls that are answered in one turn.
const CALLS_AT_ONCE: usize = 64;
/// And for so long: some take the kernel long, as the look for who listens at a port of which a program has taken very
/// many addresses.
const TIME_AT_ONCE: Duration = Duration::from_millis(5);

/// How long a command may take to end itself after a timeout's SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// The milliseconds until a moment, as ppoll(2) has them.
fn left(next: Option<Instant>) -> i32 {
    next.map_or(-1, |next| {
        let left = next.saturating_duration_since(Instant::now());
        i32::try_from(left.as_millis()).unwrap_or(i32::MAX).saturating_add(1)
    })
}

/// Signals that the launcher takes from a descriptor.
pub(crate) fn handled_signals() -> SignalSet {
    SignalSet::ALL.without(&LEFT_ALONE)
}

/// The running child.
pub(crate) struct Child {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
    pub tier: Tier,
    /// Its command is a job of its own.
    pub job: Option<Job>,
    /// When it was made.
    pub began: Instant,
    /// What was taken from the control socket already.
    pub heard: Vec<Heard>,
}

struct Watch<'a, 'g> {
    child: &'a Child,
    outcome: Outcome,
    failure: Option<LaunchError>,
    duties: &'a Duties<'g>,
    /// Protected paths are as they should be.
    put_right: bool,
    /// In the order in which their commands were started.
    listeners: Vec<Listener>,
    /// The programs that are executed inside.
    executions: Executions,
    /// Those of a command whose start is still to be told.
    early: Vec<Executed>,
    /// Calls that would make protected names.
    creations: Option<Creations>,
    /// Protected names that are made.
    vigil: Option<Vigil<'g>>,
    /// When they are watched for, and when names that are made have gathered.
    vigil_begins: Option<Instant>,
    gathering: Option<Instant>,
    /// Mounts on names of the host's.
    covers: Covers,
    /// Where `exec` knocks, until the warden has it.
    door: Option<OwnedFd>,
    /// Where the command knocks for snapshots, until the keeper serves it.
    gateway: Option<OwnedFd>,
    /// The private home that the command writes to.
    home: Option<OwnedFd>,
    /// The session bus.
    bus: Bus,
    /// The command executes.
    executes: bool,
    /// The child's end of the control socket is closed: it ends, and only its end is left to be told.
    silent: bool,
    /// The record of the session is complete.
    recorded: bool,
    /// When the time of a limited run is up.
    deadline: Option<Instant>,
    /// Who has stopped.
    stops: Stops,
    job: Option<Job>,
    /// When a stop that could not be followed is to be.
    stops_again: Option<Instant>,
    /// What is said while somebody stands in for us.
    held: Option<Vec<Heard>>,
    network: Network,
    /// What the user is asked about calls.
    questions: Option<Questions>,
}

/// Waits until the sandbox has ended.
///
/// # Errors
/// What the child reported when it could not execute the command.
pub(crate) fn until_end<'g>(
    mut child: Child,
    network: Network,
    timeout: Option<Duration>,
    trace: &Trace,
    duties: &Duties<'g>,
) -> Result<Outcome, LaunchError> {
    let signals = sys::signal::descriptor(handled_signals()).map_err(|errno| {
        LaunchError::call(
            "signalfd",
            errno,
            "raise the limit of open files (--open-files, ulimit -n)",
        )
    })?;
    trace.mark("watching");
    let (heard, job) = (std::mem::take(&mut child.heard), child.job.take());
    let mut idle = Some(Instant::now() + IDLE);
    let mut watch = Watch {
        child: &child,
        outcome: Outcome::default(),
        failure: None,
        duties,
        put_right: false,
        listeners: Vec::new(),
        executions: Executions::default(),
        creations: Creations::of(duties.plan),
        vigil: None,
        vigil_begins: Some(child.began + VIGIL),
        gathering: None,
        covers: Covers::default(),
        early: Vec::new(),
        door: None,
        gateway: None,
        home: None,
        bus: Bus::None,
        executes: false,
        silent: false,
        recorded: false,
        deadline: timeout.map(|timeout| Instant::now() + timeout),
        stops: Stops::default(),
        job,
        stops_again: None,
        held: None,
        network,
        questions: Questions::of(duties.plan),
    };
    if let Some(keeper) = duties.keeper {
        // From here on the sandbox builds itself, and there is nothing else to do.
        let _ = sys::unix::ask_for_processes(child.control.as_fd());
        watch.door = keeper.begin(duties.plan);
        trace.mark("recording");
    }
    heard.into_iter().for_each(|heard| watch.heard(heard));
    let code = loop {
        let machine = duties.machine.map(RefCell::borrow);
        let begins = machine.as_ref().and_then(|machine| machine.until());
        let times = watch.deadline.into_iter().chain(idle).chain(begins).chain(watch.stops_again);
        let times = times.chain(watch.guards_next()).chain(watch.job_next());
        let wait = left(times.min());
        // A closed socket would be ready over and over while the kernel takes the sandbox apart.
        let control = if watch.silent { signals.as_fd() } else { child.control.as_fd() };
        let mut watched = vec![signals.as_fd(), control];
        watched.extend(watch.door.iter().filter(|_| watch.executes).map(AsFd::as_fd));
        let door = watched.len();
        watched.extend(watch.gateway.iter().map(AsFd::as_fd));
        let gateway = watched.len();
        watched.extend(watch.bus.descriptor());
        let plain = watched.len();
        watched.extend(watch.listeners.iter().map(|listener| listener.descriptor.as_fd()));
        let supervised = watched.len();
        if watch.early.is_empty() && !watch.listeners.iter().any(Listener::waits) {
            watched.extend(watch.executions.descriptor());
        }
        let noted = watched.len();
        watched.extend(watch.guards_descriptors());
        let seen = watched.len();
        watched.extend(watch.questions.as_ref().and_then(Questions::descriptor));
        let asked = watched.len();
        watched.extend(watch.network.descriptors());
        let knocked = watched.len();
        watched.extend(machine.iter().flat_map(|machine| machine.descriptors()));
        // A command that runs for a while: what is needed of ourselves until something happens fits into a few pages.
        let poll =
            if idle.is_some() { sys::fd::poll_readable } else { sys::fd::rest_until_readable };
        let ready = poll(&watched, wait)
            .map_err(|errno| LaunchError::call("ppoll", errno, "this should not happen"))?;
        drop(machine);
        let mut busy = ready.contains(&true);
        if let Some(machine) = duties.machine
            && (ready[knocked..].contains(&true)
                || begins.is_some_and(|begins| Instant::now() >= begins))
        {
            machine.borrow_mut().attend();
            busy = true;
        }
        idle = if busy {
            Some(Instant::now() + IDLE)
        } else {
            idle.filter(|idle| Instant::now() < *idle)
        };
        watch.guards_due();
        watch.job_due();
        if let Some(passed) = watch.deadline.filter(|deadline| Instant::now() >= *deadline) {
            watch.deadline = watch.time_is_up(passed);
        }
        // Signals first: a SIGCONT makes reports of the stop before it history.
        if ready[0] {
            while let Ok(arrived) = sys::signal::take(signals.as_fd()) {
                watch.signal(arrived);
            }
        }
        if ready[1] {
            watch.take_messages();
        }
        watch.follow();
        // From behind, as one may be dropped; new ones, which came with messages, are not ready.
        for at in (plain..supervised).rev().filter(|&at| ready[at]) {
            watch.supervise(at - plain);
        }
        if ready[2..door].contains(&true) {
            watch.open_door();
        }
        if ready[door..gateway].contains(&true) {
            watch.open_gateway();
        }
        if ready[gateway..plain].contains(&true) {
            watch.bus.serve(duties.plan.bus.as_ref());
        }
        if ready[supervised..noted].contains(&true) {
            let gone = watch.executions.ended();
            watch.tell_gone(&gone);
        }
        if ready[noted..seen].contains(&true) {
            watch.guards_serve();
        }
        if ready[seen..asked].contains(&true) {
            let allowed = watch.questions.as_mut().map(Questions::typed);
            for (listener, call) in allowed.into_iter().flatten() {
                ask::carry_out(watch.duties, &mut watch.outcome, listener.as_fd(), &call);
            }
        }
        if ready[asked..knocked].contains(&true)
            && let Err(sentence) = watch.network.serve()
        {
            watch.outcome.limits_hit.push(sentence);
        }
        if let Some(code) = watch.ended() {
            break code;
        }
    };
    // What came while the last messages were read: of a Ctrl-C the command has died, and nobody has looked since.
    while let Ok(arrived) = sys::signal::take(signals.as_fd()) {
        watch.outcome.interrupted |= arrived.signal == SIGINT && !arrived.by_process;
    }
    watch.take_messages();
    watch.outcome.ended.get_or_insert_with(Instant::now);
    if child.tier == Tier::Process {
        // A supervisor that was killed leaves its orphans to us.
        descendants::end_all();
    }
    drop(watch.job.take());
    // Nobody inside is there any more to stop it anew. What is to be said of a timeout holds up nobody.
    sys::terminal::show_output(watch.outcome.timed_out);
    crate::foreground::take_back();
    if let Some(failure) = watch.failure {
        return Err(failure);
    }
    watch.record(code);
    if !watch.put_right {
        // The warden was killed before it could ask.
        watch.put_right();
    }
    Ok(watch.outcome)
}

impl Watch<'_, '_> {
    fn send(&self, signal: i32) {
        let _ = sys::signal::send(self.child.pidfd.as_fd(), signal);
    }

    fn signal(&mut self, arrived: Arrived) {
        if arrived.signal == SIGTSTP {
            self.stops.wanted();
        }
        self.pass_key(arrived);
        if ASK_FOR_THE_END.contains(&arrived.signal) {
            self.wake();
        }
        match arrived.signal {
            SIGCHLD => {}
            SIGCONT => {
                self.take_messages();
                let after = self.stops.go_on();
                self.go_on(after);
                self.stop_anew();
            }
            // Who uses the terminal from the background stops all of his group: us as well, but not who keeps watch.
            SIGTTIN | SIGTTOU if !arrived.by_process => self.stop(),
            SIGINT if !arrived.by_process => self.outcome.interrupted = true,
            // Everything inside; what is left is done as at any end.
            sys::signal::END if arrived.by_process => self.end_all(),
            signal if arrived.by_process => self.send_to_command(signal),
            _ => {}
        }
    }

    /// Stops as the command did, if it still is. Asked for in each turn: whoever took the message that told of it,
    /// a SIGCONT's own look at messages or the stand-in of the last stop, leaves it at that.
    fn follow(&mut self) {
        if self.stops_again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        self.stops_again = None;
        if self.stops.due() && !self.goes_on_at_once() {
            self.stop();
        }
    }

    /// Passes a SIGCONT on.
    fn go_on(&mut self, after: Option<After>) {
        if let Some(after) = after {
            let who = self.who_goes_on();
            let _ = sys::signal::go_on(self.child.pidfd.as_fd(), after, who);
        }
    }

    /// Answers calls that wait on a listener, not so many that there is no time for anything else:
    /// who is inside may make them faster than they are answered.
    fn supervise(&mut self, at: usize) {
        let began = Instant::now();
        for _ in 0..CALLS_AT_ONCE {
            if began.elapsed() > TIME_AT_ONCE {
                return;
            }
            let listener = self.listeners[at].descriptor.as_fd();
            match sys::caller::waiting(listener) {
                Some(true) => {
                    let Ok(call) = sys::notify::receive(listener) else { continue };
                    let lot = self.questions.as_mut().map(|all| all.take(listener, &call));
                    if executions::noted(&call) && lot != Some(Lot::Taken) {
                        let program = self.executions.answer(listener, &call);
                        let program =
                            program.and_then(|program| self.listeners[at].in_order(program));
                        self.note(program);
                    } else if let Some(creations) = self.creations.as_mut()
                        && lot != Some(Lot::Taken)
                        && Creations::concerns(&call)
                    {
                        creations.answer(listener, &call);
                    } else if lot != Some(Lot::Taken) {
                        ask::carry_out(self.duties, &mut self.outcome, listener, &call);
                    }
                }
                Some(false) => return,
                None => {
                    // All of them are gone, perhaps before their start was heard.
                    self.early.extend(self.listeners.remove(at).started());
                    return;
                }
            }
        }
    }

    /// Somebody knocks: from now on the warden answers by itself.
    fn open_door(&mut self) {
        if let Some(door) = self.door.take() {
            let pass = [door.as_fd()];
            let _ = sys::socket::send_with(self.child.control.as_fd(), &[live::LISTEN], &pass);
            // A simple warden reads nothing, it waits for signals.
            self.send(sys::image::SERVICE);
        }
    }

    /// Somebody inside wants snapshots: served by the keeper from now on.
    fn open_gateway(&mut self) {
        if let (Some(listener), Some(keeper)) = (self.gateway.take(), self.duties.keeper) {
            keeper.serve(listener);
        }
    }

    /// Puts protected paths right: those that were taken away meanwhile are told first.
    fn put_right(&mut self) {
        // What it is about may be a protected name.
        self.gateway = None;
        if let Some(keeper) = self.duties.keeper {
            keeper.close();
        }
        let left = self.left_open();
        self.outcome.restored = self.vigil.take().map(Vigil::said).unwrap_or_default();
        let private = self.duties.watches.private;
        let home = self.home.take().or_else(|| gone::of_session(private?));
        let real = self.duties.plan.home.as_ref();
        self.outcome.gone = home.zip(real).and_then(|(home, real)| gone::told(&home, real));
        // The names that we made in a private directory (`TMPDIR` may be in a writable tree) are no program's.
        let trees = &self.duties.plan.guarded_trees;
        if let Some(private) = private
            && trees.iter().any(|tree| private.starts_with(&tree.tree))
        {
            crate::state::remove_private(private);
        }
        let enforced = (self.duties.enforce)();
        self.replaced(&left);
        self.outcome.restored.extend(enforced);
        self.outcome.restored.extend(self.creations.iter().flat_map(Creations::said));
    }

    /// The exit code, once the child has ended.
    fn ended(&self) -> Option<u8> {
        while let Ok(Some((pid, change))) = sys::process::wait_any(false) {
            if pid != self.child.pid {
                continue;
            }
            match change {
                Change::Exited(code) => return Some(code as u8),
                Change::Killed(signal) => return Some((128 + signal) as u8),
                Change::Stopped(_) | Change::Continued => {}
            }
        }
        None
    }
}
