//! The record of a run: what `run` tells the ledger.

mod network;

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_net::{Control, NetDecision, Process as Caller};
use ringfence_sandbox::facts::{Availability, Facts};
use ringfence_sandbox::live::{End, Executed, Keeper, client};
use ringfence_sandbox::network::Filter;
use ringfence_sandbox::plan::{Gateway, GatewayTree, LimitStep, Plan};
use ringfence_sandbox::supervise::Outcome;
use ringfence_sandbox::vm::Machine;
use ringfence_session::gateway::{Peer, Scope, Service, Tree};
use ringfence_session::ledger::{Ended, Event, Ledger, Process, Recorder, Start, Verdict};
use ringfence_session::snapshot::fault;
use ringfence_session::{SessionError, live, place};
use ringfence_sys::say;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Keeps the record of one run. Trouble with it is told once, and is never the command's.
#[derive(Debug)]
pub struct Record {
    id: String,
    name: Option<String>,
    argv: Vec<OsString>,
    record: bool,
    /// Every program that is executed inside is on record: each waits for the launcher then.
    observes: bool,
    workdir: RefCell<PathBuf>,
    ledger: RefCell<Option<Ledger>>,
    /// Made before the launch.
    door: RefCell<Option<OwnedFd>>,
    /// The rules of the network, which can be changed while the session lives.
    control: RefCell<Option<Control>>,
    /// For the gateway's thread.
    recorder: Arc<OnceLock<Recorder>>,
    /// Commands that execute, by number.
    running: RefCell<HashMap<u32, (Process, Instant)>>,
    /// All programs that execute, by process; the gateway's thread asks for them.
    programs: Arc<Mutex<HashMap<i32, Process>>>,
    told: Cell<bool>,
    /// The record ends after the run, not with it: limits that were reached are looked up then,
    /// and what was changed.
    later: Cell<bool>,
    /// What changed is to follow.
    changes: Cell<bool>,
    /// What the command may ask for at the gateway, and who serves it.
    scope: RefCell<Option<Scope>>,
    gateway: RefCell<Option<Service>>,
    /// Where clones of a template are asked for.
    forks: RefCell<Option<OwnedFd>>,
    /// Whom forks are asked of.
    machine: RefCell<Option<Rc<RefCell<Machine>>>>,
    /// The session that this is a fork of.
    forked: RefCell<Option<String>>,
    /// The first row, of what was done before the launch.
    first: RefCell<Option<Event>>,
}

impl Record {
    /// What the command line says about the record.
    ///
    /// # Errors
    /// A name that is none, or that another running session has.
    pub fn of(parsed: &Parsed, id: &str, argv: &[OsString]) -> Result<Rc<Record>, Fault> {
        let name = parsed.last("name").map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = &name {
            place::check_name(name).map_err(Fault::of)?;
            if let Some(id) = live::named(name) {
                return Err(Fault::of(SessionError::Taken { name: name.clone(), id }));
            }
        }
        Ok(Rc::new(Record {
            id: id.to_owned(),
            name,
            argv: argv.to_vec(),
            record: !parsed.has("no-record"),
            observes: parsed.has("record-programs"),
            workdir: RefCell::default(),
            ledger: RefCell::default(),
            door: RefCell::default(),
            control: RefCell::default(),
            recorder: Arc::default(),
            running: RefCell::default(),
            programs: Arc::default(),
            told: Cell::default(),
            later: Cell::default(),
            changes: Cell::default(),
            scope: RefCell::default(),
            gateway: RefCell::default(),
            forks: RefCell::default(),
            machine: RefCell::default(),
            forked: RefCell::default(),
            first: RefCell::default(),
        }))
    }

    /// Says that what the run changes will be told, with what was done before it.
    pub fn changes_follow(&self, first: Option<Event>, apart: bool) {
        self.changes.set(self.record && (first.is_some() || apart));
        *self.first.borrow_mut() = first;
    }

    /// Lets others ask for forks; and says what this is a fork of.
    pub fn forks_of(&self, machine: &Rc<RefCell<Machine>>, source: Option<&str>) {
        *self.machine.borrow_mut() = Some(Rc::clone(machine));
        *self.forked.borrow_mut() = source.map(ToOwned::to_owned);
    }

    /// Records what the run changed, if that was said to follow.
    pub fn changes(&self, rows: impl FnOnce() -> Vec<Event>) {
        if let Some(recorder) = self.recorder.get().filter(|_| self.changes.get()) {
            rows().iter().for_each(|row| recorder.record(None, row));
        }
    }

    /// A filter whose decisions are recorded as well. Where the network is filtered by it, others may
    /// change its rules.
    pub fn listen(&self, filter: Option<Filter>, filtered: bool) -> Option<Filter> {
        let filter = filter?;
        if filtered {
            *self.control.borrow_mut() = Some(filter.control.clone());
        }
        if !self.record {
            return Some(filter);
        }
        let (recorder, sink) = (Arc::clone(&self.recorder), filter.sink.clone());
        let programs = Arc::clone(&self.programs);
        let sink = Arc::new(move |decision: &NetDecision| {
            sink(decision);
            let Some(recorder) = recorder.get() else { return };
            let process = decision
                .process
                .as_ref()
                .map(|process| known(&programs, process.pid).unwrap_or_else(|| described(process)));
            for event in network::network(decision) {
                recorder.record(process.as_ref(), &event);
            }
        });
        Some(Filter { sink, ..filter })
    }

    /// Records that another layer refused something.
    fn decision(&self, act: &str, object: String, rule: &str, layer: &str) {
        self.decided(None, Verdict::Deny, [act, rule, layer], object);
    }

    fn decided(
        &self,
        by: Option<&Process>,
        verdict: Verdict,
        [act, rule, layer]: [&str; 3],
        object: String,
    ) {
        if let Some(recorder) = self.recorder.get() {
            let (act, rule, layer) = (act.to_owned(), rule.to_owned(), layer.to_owned());
            recorder.record_here(by, &Event::Decision { verdict, act, object, rule, layer });
        }
    }

    fn warn(&self, what: &str, why: impl std::fmt::Display) {
        if !self.told.replace(true) {
            say!("ringfence: this session's record is not {what}: {why}");
        }
    }

    /// No command ran: there is nothing to keep.
    pub fn discard(&self) {
        if let Some(ledger) = self.ledger.borrow_mut().take() {
            ledger.remove();
        }
    }

    /// The session is over; limits that were reached are known by now.
    pub fn close(&self, outcome: &Outcome) {
        if let Some(ledger) = self.ledger.borrow_mut().take() {
            self.finish(ledger, outcome);
        }
    }

    fn finish(&self, ledger: Ledger, outcome: &Outcome) {
        ledger.recorder().ending();
        for sentence in &outcome.restored {
            self.decision("write", sentence.clone(), "protected names", "guard");
        }
        for sentence in &outcome.limits_hit {
            self.decision("use", sentence.clone(), "limits", "limits");
        }
        for asked in &outcome.asked {
            let verdict = if asked.allowed { Verdict::Allow } else { Verdict::Deny };
            let object = format!("{} by {}", asked.call, asked.by);
            let words = ["call", "syscalls = \"ask\"", "seccomp"];
            let by = asked.process.as_ref().map(described);
            self.decided(by.as_ref(), verdict, words, object);
        }
        if outcome.timed_out {
            let command = self.running.borrow().get(&0).map(|(process, _)| process.clone());
            let (words, what) = (["run", "--timeout", "supervisor"], "the time ran out".to_owned());
            self.decided(command.as_ref(), Verdict::Deny, words, what);
        }
        let ended = match outcome.signal {
            Some(signal) if !outcome.timed_out => Ended::Signal(signal),
            _ => Ended::Code(outcome.code),
        };
        self.exit(0, ended, outcome.ended);
        if let Err(error) = ledger.end(ended) {
            self.warn("whole", error);
        }
    }

    /// Whether a process is one of the session's commands.
    fn commands(&self, pid: i32) -> Option<u32> {
        let running = self.running.borrow();
        running.iter().find(|(_, (process, _))| process.pid == pid).map(|(number, _)| *number)
    }

    /// Has the plan tell what is executed, if that is on record.
    pub fn observe(&self, plan: &mut Plan, facts: &Facts) {
        if self.record && self.observes && facts.seccomp_notify == Availability::Yes {
            plan.observe();
        }
    }

    /// A command has ended, now or at a time that is over.
    fn exit(&self, number: u32, ended: Ended, at: Option<Instant>) {
        let command = self.running.borrow_mut().remove(&number);
        if let Some((process, _)) = &command {
            lock(&self.programs).remove(&process.pid);
        }
        if let (Some((process, since)), Some(recorder)) = (command, self.recorder.get()) {
            let at = at.unwrap_or_else(Instant::now);
            let duration = at.saturating_duration_since(since);
            recorder.record_since(
                Some(&process),
                &Event::Exit { ended: Some(ended), duration },
                at,
            );
        }
    }
}

impl Record {
    /// A session with a name is there before its command can run: whoever waits for something
    /// that the command does can reach it then. One without a name costs its start nothing.
    ///
    /// # Errors
    /// Another session took the name meanwhile.
    pub fn prepare(&self, plan: &Plan) -> Result<(), Fault> {
        if self.name.is_some() {
            self.discard();
            *self.door.borrow_mut() = self.open(plan)?;
        }
        Ok(())
    }

    fn open(&self, plan: &Plan) -> Result<Option<OwnedFd>, Fault> {
        let counted = |limit: &LimitStep| {
            matches!(limit, LimitStep::Cgroup { .. } | LimitStep::CgroupV1 { .. })
        };
        self.later.set(self.changes.get() || plan.limits.iter().any(counted));
        let start = Start {
            id: self.id.clone(),
            name: self.name.clone(),
            argv: self.argv.clone(),
            cwd: plan.workdir.clone(),
            tier: plan.tier_name(),
            record: self.record,
        };
        *self.workdir.borrow_mut() = plan.workdir.clone();
        *self.scope.borrow_mut() = plan.gateway.as_ref().map(|gateway| self.scope(gateway));
        let mut door = None;
        // Where sockets are refused (a sandbox in a sandbox), there is no exec; `exec` says so.
        let doors = |directory: &Path| {
            let socket = |name: &str| client::listen(&directory.join(name)).ok();
            door = socket(live::SOCKET);
            if plan.gateway.is_some() {
                *self.forks.borrow_mut() = socket(live::FORKS);
            }
            if let Some(machine) = &*self.machine.borrow()
                && let Some(socket) = socket(live::FORKS)
            {
                machine.borrow_mut().listen(socket);
            }
            if let Some(control) = &*self.control.borrow()
                && let Some(rules) = socket(live::RULES)
            {
                control.listen(rules, self.name.as_deref().unwrap_or(&self.id));
            }
        };
        let ledger = match Ledger::start(start, doors) {
            Ok(ledger) => ledger,
            Err(error @ SessionError::Taken { .. }) => return Err(Fault::of(error)),
            Err(error) => {
                // Nothing was to be kept of one without a record, and nobody knows how to call it.
                if self.record || self.name.is_some() {
                    self.warn("kept", error);
                }
                return Ok(None);
            }
        };
        if self.record {
            let recorder = self.recorder.get_or_init(|| ledger.recorder());
            if let Some(session) = self.forked.borrow_mut().take() {
                let words = ["fork", "ringfence fork", "vm"];
                self.decided(Some(&Process::own()), Verdict::Allow, words, session);
            }
            if let Some(first) = self.first.borrow_mut().take() {
                // It was done by the launcher.
                recorder.record_here(Some(&Process::own()), &first);
            }
        }
        *self.ledger.borrow_mut() = Some(ledger);
        Ok(door)
    }
}

impl Record {
    fn scope(&self, gateway: &Gateway) -> Scope {
        let tree =
            |tree: &GatewayTree| Tree { path: tree.tree.clone(), except: tree.except.clone() };
        Scope { session: self.id.clone(), trees: gateway.trees.iter().map(tree).collect() }
    }
}

impl Keeper for Record {
    fn begin(&self, plan: &Plan) -> Option<OwnedFd> {
        if self.ledger.borrow().is_some() {
            return self.door.borrow_mut().take();
        }
        self.open(plan).unwrap_or_else(|taken| {
            self.warn("kept", taken.message);
            None
        })
    }

    fn brief(&self, plan: &Plan) -> Option<(PathBuf, bool)> {
        // One with a name is there before its command.
        let plain = self.name.is_none() && !self.observes && plan.gateway.is_none();
        plain.then(|| place::sessions().ok()).flatten().map(|sessions| (sessions, self.record))
    }

    fn executed(&self, command: Executed) {
        let Some(recorder) = self.recorder.get() else { return };
        let own = command.number == 0;
        let argv = if own { &self.argv } else { &command.argv };
        let cwd = if own { self.workdir.borrow().clone() } else { command.workdir };
        let process = Process::new(command.pid, command.parent, command.path, argv);
        let exec = Event::Exec { argv: argv.clone(), cwd };
        let since = command.since.unwrap_or_else(Instant::now);
        recorder.record_since(Some(&process), &exec, since);
        lock(&self.programs).insert(process.pid, process.clone());
        self.running.borrow_mut().insert(command.number, (process, since));
    }

    fn noted(&self, program: Executed) {
        let Some(recorder) = self.recorder.get() else { return };
        let process = Process::new(program.pid, program.parent, program.path, &program.argv);
        let exec = Event::Exec { argv: program.argv, cwd: program.workdir };
        let since = program.since.unwrap_or_else(Instant::now);
        recorder.record_since(Some(&process), &exec, since);
        lock(&self.programs).insert(process.pid, process.clone());
        if let Some(number) = self.commands(process.pid) {
            self.running.borrow_mut().insert(number, (process, since));
        }
    }

    fn gone(&self, pid: i32, end: Option<End>, duration: Duration) {
        let process = lock(&self.programs).remove(&pid);
        // What is said of commands comes from who started them.
        if self.commands(pid).is_some() {
            return;
        }
        if let (Some(process), Some(recorder)) = (process, self.recorder.get()) {
            let ended = end.map(ended);
            recorder.record_here(Some(&process), &Event::Exit { ended, duration });
        }
    }

    fn serve(&self, listener: OwnedFd) {
        let Some(scope) = self.scope.borrow_mut().take() else { return };
        let (recorder, programs) = (Arc::clone(&self.recorder), Arc::clone(&self.programs));
        let told = Box::new(move |peer: &Peer, event: &Event| {
            let Some(recorder) = recorder.get() else { return };
            let by = peer
                .seen(|pid| known(&programs, pid).unwrap_or_else(|| described(&Caller::of(pid))));
            recorder.record(by.as_ref(), event);
        });
        fault::from_environment();
        match Service::start(listener, self.forks.borrow_mut().take(), scope, told) {
            Ok(service) => *self.gateway.borrow_mut() = Some(service),
            Err(error) => say!("ringfence: no snapshots can be made from inside: {error}"),
        }
    }

    fn goes_on(&self) -> bool {
        let mark = place::sessions().map(|all| all.join(&self.id).join(live::SUSPENDED));
        mark.is_ok_and(|mark| std::fs::remove_file(mark).is_ok())
    }

    fn close(&self) {
        drop(self.gateway.borrow_mut().take());
    }

    fn finished(&self, number: u32, end: End) {
        self.exit(number, ended(end), None);
    }

    fn ended(&self, outcome: &Outcome) {
        if !self.later.get() {
            self.close(outcome);
        }
    }
}

/// A process as its own row has it.
fn known(programs: &Mutex<HashMap<i32, Process>>, pid: i32) -> Option<Process> {
    lock(programs).get(&pid).cloned()
}

/// One that has none: it was made without executing anything, or what is executed is not on record. Nothing is looked up,
/// as it may be gone by now.
fn described(process: &Caller) -> Process {
    let exe = process.exe.clone().unwrap_or_default();
    Process::new(process.pid, process.parent.unwrap_or_default(), exe, &process.argv)
}

/// A panic elsewhere leaves each entry whole.
fn lock(programs: &Mutex<HashMap<i32, Process>>) -> MutexGuard<'_, HashMap<i32, Process>> {
    programs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(end: End) -> Ended {
    match end {
        End::Code(code) => Ended::Code(code),
        End::Signal(signal) => Ended::Signal(i32::from(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_by_the_time_of_its_row_has_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("a child");
        let seen = Caller::of(child.id() as i32);
        child.kill().expect("killed");
        child.wait().expect("an end");
        let row = described(&seen);
        assert_eq!((row.pid, row.parent), (child.id() as i32, std::process::id() as i32));
    }
}
