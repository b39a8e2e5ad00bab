//! `ringfence run` and `ringfence shell`.

use crate::changes::Before;
use crate::error::Fault;
use crate::fork::Source;
use crate::options::{POLICY, Parsed, parse};
use crate::record::Record;
use crate::status::Status;
use crate::{help, request};
use ringfence_policy::{NetworkMode, Policy, TierChoice, Transport, shown};
use ringfence_sandbox::dbus;
use ringfence_sandbox::facts::{Availability, Facts, PathFacts};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::launch::{self, Order, Resumed};
use ringfence_sandbox::live::Keeper;
use ringfence_sandbox::supervise::Outcome;
use ringfence_sandbox::trace::Trace;
use ringfence_sandbox::vm;
use ringfence_sandbox::{LaunchError, Plan, planner};
use ringfence_sys::file::time_mark;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// `ringfence run [OPTIONS] [--] CMD [ARG...]`
///
/// # Errors
/// Bad input, a missing layer, or a command that cannot be executed.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<u8, Fault> {
    let trace = Trace::from_environment();
    let parsed = parse(&POLICY, arguments, true)?;
    if parsed.has("help") {
        return help::command("run");
    }
    help::no_json("run", &parsed)?;
    let argv = command("run", &parsed)?;
    if parsed.has("trace-missing") {
        return crate::missing::run(&parsed, &argv);
    }
    start(&parsed, argv, None, &trace)
}

/// `ringfence shell [OPTIONS]`
///
/// # Errors
/// As [`run`].
pub fn shell(arguments: impl IntoIterator<Item = OsString>) -> Result<u8, Fault> {
    let trace = Trace::from_environment();
    let parsed = parse(&POLICY, arguments, true)?;
    if parsed.has("help") {
        return help::command("shell");
    }
    help::no_json("shell", &parsed)?;
    if !parsed.rest.is_empty() || parsed.has("command") {
        return Err(Fault::usage("ringfence shell takes no command; use ringfence run -- CMD"));
    }
    start(&parsed, vec![user_shell()], None, &trace)
}

/// What goes on as a fork of a session: started as that was, but for its machine.
///
/// # Errors
/// As [`run`]; the session's launcher refuses.
pub fn forked(mut words: impl Iterator<Item = OsString>) -> Result<u8, Fault> {
    let trace = Trace::from_environment();
    let source = Source::of(&mut words)?;
    let shell = words.next().is_some_and(|word| word == "shell");
    let mut parsed = parse(&POLICY, words, true)?;
    source.rename(&mut parsed)?;
    let argv = if shell { vec![user_shell()] } else { command("run", &parsed)? };
    start(&parsed, argv, Some(&source), &trace)
}

fn user_shell() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

/// The command that the line of one of ringfence's commands (`of`) names.
///
/// # Errors
/// None, or two.
pub fn command(of: &str, parsed: &Parsed) -> Result<Vec<OsString>, Fault> {
    match (parsed.last("command"), parsed.rest.is_empty()) {
        (Some(string), true) => Ok(vec![user_shell(), "-c".into(), string.to_owned()]),
        (Some(_), false) => Err(Fault::usage("give either -c STRING or a command, not both")),
        (None, false) => Ok(parsed.rest.clone()),
        (None, true) => {
            let usage = format!("ringfence {of} [OPTIONS] -- CMD [ARG...]");
            Err(Fault::usage(format!("no command given: {usage}")))
        }
    }
}

fn start(
    parsed: &Parsed,
    argv: Vec<OsString>,
    source: Option<&Source>,
    trace: &Trace,
) -> Result<u8, Fault> {
    launch::take_all_descriptors().map_err(Fault::of)?;
    let status = Status::of(parsed)?;
    let resumed = launch::resumed().map_err(Fault::of)?;
    let session = resumed.as_ref().map_or_else(launch::random, Resumed::session);
    let record = Record::of(parsed, &launch::session_name(session), &argv)?;
    let keeper: Rc<dyn Keeper> = record.clone();
    let mut order = Order {
        argv,
        session,
        place: launch::place(parsed.rest.len()),
        announce: status.wanted(),
        filter: None,
        // A part of another session, which has the record.
        keeper: std::env::var_os(vm::INNER).is_none().then_some(keeper),
        machine: None,
        since: 0,
    };
    if let Some(resumed) = resumed {
        trace.mark("resumed");
        let plan = resumed.plan().clone();
        if plan.network == NetworkMode::Filtered {
            let command = order.argv.first().map(OsString::as_os_str);
            let filter = crate::monitor::filter_later(parsed, command)?;
            order.filter = record.listen(Some(filter), true);
        } else if plan.publish.iter().any(|publish| publish.transport == Transport::Udp) {
            let hearing = crate::monitor::hearing(Policy::default(), parsed.has("monitor"));
            order.filter = record.listen(Some(hearing), false);
        }
        let started = |plan: &Plan| status.started(&order.session_name(), plan);
        match launch::resume(resumed, &order, trace, &started) {
            Err(LaunchError::Stale) => record.discard(),
            result => return conclude(result, &plan, &order, (parsed, &status), &record),
        }
    }
    let inputs = Inputs::new();
    let request = request::request(parsed, order.argv.first().map(OsString::as_os_str));
    let mut policy = request::policy_from(&request, &inputs)?;
    policy.opens_input = std::env::var_os(vm::INNER).is_some();
    crate::vm::check(&policy, parsed)?;
    crate::monitor::check(&mut policy, parsed)?;
    if let Some(fault) = missing(&policy, &order.argv) {
        record.discard();
        status.failed(&order.session_name(), &fault);
        return Err(fault);
    }
    let mut hooks = crate::hooks::begin(&policy)?;
    note(&policy, parsed, &inputs);
    trace.mark("policy");
    let mut facts = Facts::quick(limits_wanted(&policy));
    crate::libraries::find(&policy, &order.argv, &mut facts, &inputs);
    dbus::look(&policy, &mut facts, &inputs);
    crate::vm::look(&policy, &mut facts);
    let guest = crate::vm::start(&mut policy, &facts, source, trace)?;
    trace.mark("facts");
    let ask = crate::monitor::patience(parsed)?;
    let filtered = policy.network.mode == NetworkMode::Filtered;
    let filter = crate::monitor::filter(&policy, parsed.has("monitor"), ask)?;
    order.filter = record.listen(filter, filtered);
    order.since = time_mark();
    let mut plan = planner::plan(&policy, &facts, &inputs).map_err(Fault::of)?;
    if let Some(guest) = &guest {
        inputs.fleeting("a virtual machine runs beside it");
        order.argv = guest.command(&plan, &order.argv);
        order.place = None;
        order.machine = Some(guest.machine.clone());
        record.forks_of(&guest.machine, source.map(Source::session));
    } else {
        record.observe(&mut plan, &facts);
    }
    let dry_run = parsed.has("dry-run");
    let machine = guest.as_ref().map(|guest| &*guest.machine);
    let forked = source.zip(machine);
    let layers = crate::overlay::begin(&mut plan, &order.session_name(), dry_run, forked)?;
    if let Some((_, machine)) = forked {
        // Without layers there is nothing that the session's going on would change.
        let _ = machine.borrow_mut().copied(true);
    }
    trace.mark("plan");
    announce(&plan);
    let before = crate::changes::keep(&policy, parsed, &plan, &order.session_name())?;
    // What is learnt from is watched: what it wrote is not looked at.
    let apart = layers.is_some() && ringfence_session::place::learning().is_none();
    record.changes_follow(before.as_ref().map(Before::row), apart);
    trace.mark("kept");
    let started = |plan: &Plan| status.started(&order.session_name(), plan);
    record.prepare(&plan)?;
    let mut result = launch::run(&plan, &order, &inputs, trace, &started);
    let mut vanished = 0;
    // The launch itself was the probe: the next best tier, another place, or the reason why not.
    while match &result {
        // Somebody outside takes a protected name away, git a worktree: what there is now is planned.
        Err(LaunchError::Vanished(_)) if vanished < MOST_VANISHED => {
            vanished += 1;
            inputs.fleeting("what it names came and went");
            true
        }
        Err(LaunchError::NoNamespaces(reason)) if policy.tier == TierChoice::Auto => {
            facts.namespaces = Availability::No(reason.clone());
            // What is around us said no: the next plan does not hold where that is something else.
            PathFacts::kind(&inputs, Path::new("/proc/self/ns/mnt"));
            true
        }
        Err(LaunchError::NoPlace(_)) => facts.keep_apart(),
        Err(LaunchError::NoSkeleton(reason)) => {
            facts.data_layers = Availability::No(reason.clone());
            true
        }
        _ => false,
    } {
        let said = plan.announcement();
        // All that the first plan was told, or no plan.
        let again = planner::plan(&policy, &facts, &inputs).map_err(Fault::of);
        let again = again.and_then(|mut plan| {
            layers.as_ref().map_or(Ok(()), |layers| layers.serve(&mut plan)).map(|()| plan)
        });
        plan = again.inspect_err(|_| record.discard())?;
        if guest.is_none() {
            record.observe(&mut plan, &facts);
        }
        if plan.announcement() != said {
            announce(&plan);
        }
        record.prepare(&plan)?;
        result = launch::run(&plan, &order, &inputs, trace, &started);
    }
    let result = result.map_err(|error| crate::vm::explain(guest.as_ref(), error));
    if result.is_ok() {
        record.changes(|| match (before, &layers) {
            (Some(before), _) => before.rows(),
            (None, Some(layers)) => layers.rows(),
            (None, None) => Vec::new(),
        });
    }
    let code = conclude(result, &plan, &order, (parsed, &status), &record);
    hooks.end();
    let code = code?;
    Ok(layers.map_or(code, |layers| layers.end(code)))
}

/// So often is planned anew because something that was planned for is gone.
const MOST_VANISHED: usize = 8;

/// What the plan depends on beside what the policy looked at.
fn note(policy: &Policy, parsed: &Parsed, inputs: &Inputs) {
    if parsed.has("name") {
        inputs.fleeting("a session with a name is there before its command");
    }
    if crate::changes::kept(policy, parsed) {
        inputs.fleeting("a snapshot comes before its command");
    }
    if !policy.before.is_empty() || !policy.after.is_empty() {
        inputs.fleeting("hooks are run outside");
    }
    if policy.arguments.is_some() {
        inputs.arguments();
    }
    // They were made just now; where they are gone, they are made again.
    for made in &policy.made {
        PathFacts::kind(inputs, &made.path);
    }
}

/// What the user is told of the end, and the exit code.
fn conclude(
    result: Result<Outcome, LaunchError>,
    plan: &Plan,
    order: &Order,
    (parsed, status): (&Parsed, &Status),
    record: &Record,
) -> Result<u8, Fault> {
    let outcome = result.map_err(|error| {
        let hint = crate::advice::beside(&error, &order.argv[0], parsed);
        Fault { message: format!("{error}{hint}"), code: error.exit_code() }
    });
    match &outcome {
        Ok(outcome) => record.close(outcome),
        Err(fault) => {
            record.discard();
            status.failed(&order.session_name(), fault);
        }
    }
    Ok(finish(&outcome?, plan, status, &order.session_name()))
}

/// That the command is nowhere, where something would be made for it first: an agent's state, for one that is not
/// installed.
fn missing(policy: &Policy, argv: &[OsString]) -> Option<Fault> {
    let message = nowhere(policy, argv).filter(|_| !policy.made.is_empty())?;
    Some(Fault { message, code: 127 })
}

/// That a command is in no directory of `PATH`: inside there is no program that is not on the host.
pub fn nowhere(policy: &Policy, argv: &[OsString]) -> Option<String> {
    let name = argv.first().filter(|name| !name.as_bytes().contains(&b'/'))?;
    let set = policy.environment.set.get("PATH").map(|(value, _)| OsString::from(value));
    let search = set.or_else(|| std::env::var_os("PATH"))?;
    let there = |place: PathBuf| policy.workdir.join(place).join(name).exists();
    if name.is_empty() || std::env::split_paths(&search).any(there) {
        return None;
    }
    let name = name.display();
    Some(format!(
        "command not found: {name} is in no directory of PATH that the sandbox can see, nor in any other"
    ))
}

/// What the user should know before the run.
fn announce(plan: &Plan) {
    ringfence_sys::say::text(format_args!("{}", plan.announcement()));
}

fn finish(outcome: &Outcome, plan: &Plan, status: &Status, session: &str) -> u8 {
    for sentence in &outcome.restored {
        ringfence_sys::say!("ringfence: {}", shown::message(sentence));
    }
    if outcome.timed_out {
        let limit = launch::timeout(plan).unwrap_or_default();
        ringfence_sys::say!("ringfence: timed out after {limit:?} (--timeout)");
    }
    for sentence in outcome.limits_hit.iter().chain(&outcome.gone) {
        ringfence_sys::say!("ringfence: {sentence}");
    }
    let allowed: BTreeSet<&str> = outcome
        .asked
        .iter()
        .filter(|asked| asked.allowed)
        .map(|asked| asked.call.as_str())
        .collect();
    if !allowed.is_empty() {
        let names: Vec<String> = allowed.iter().map(|name| format!("\"{name}\"")).collect();
        ringfence_sys::say!(
            "ringfence: allowed by you in this run, and in no profile: to keep it, [syscalls] allow = [{}]",
            names.join(", ")
        );
    }
    status.exited(session, outcome);
    if outcome.interrupted && outcome.signal == Some(2) {
        // A shell loop around us must see that Ctrl-C ended the command, not an exit code.
        launch::die_of_interrupt();
    }
    outcome.code
}

fn limits_wanted(policy: &Policy) -> bool {
    let limits = &policy.limits;
    limits.memory.is_some() || limits.pids.is_some() || limits.cpus.is_some()
}
