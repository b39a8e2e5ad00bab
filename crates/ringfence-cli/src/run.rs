//! `ringfence run` and `ringfence shell`.

use crate::error::Fault;
use crate::options::{POLICY, Parsed, parse};
use crate::record::Record;
use crate::status::Status;
use crate::{help, request};
use ringfence_policy::{Policy, TierChoice};
use ringfence_sandbox::facts::{Availability, Facts, HostPaths};
use ringfence_sandbox::launch::{self, Order};
use ringfence_sandbox::live::Keeper;
use ringfence_sandbox::supervise::Outcome;
use ringfence_sandbox::trace::Trace;
use ringfence_sandbox::{LaunchError, Plan, planner, text};
use std::ffi::OsString;
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
    let argv = command(&parsed)?;
    start(&parsed, argv, &trace)
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
    if !parsed.rest.is_empty() || parsed.has("command") {
        return Err(Fault::usage("ringfence shell takes no command; use ringfence run -- CMD"));
    }
    start(&parsed, vec![user_shell()], &trace)
}

fn user_shell() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

/// The command that the line names.
///
/// # Errors
/// None, or two.
pub fn command(parsed: &Parsed) -> Result<Vec<OsString>, Fault> {
    match (parsed.last("command"), parsed.rest.is_empty()) {
        (Some(string), true) => Ok(vec![user_shell(), "-c".into(), string.to_owned()]),
        (Some(_), false) => Err(Fault::usage("give either -c STRING or a command, not both")),
        (None, false) => Ok(parsed.rest.clone()),
        (None, true) => {
            Err(Fault::usage("no command given: ringfence run [OPTIONS] -- CMD [ARG...]"))
        }
    }
}

fn start(parsed: &Parsed, argv: Vec<OsString>, trace: &Trace) -> Result<u8, Fault> {
    let status = Status::of(parsed)?;
    let policy = request::policy(&request::request(parsed, argv.first().map(OsString::as_os_str)))?;
    let mut hooks = crate::hooks::begin(&policy)?;
    trace.mark("policy");
    let mut facts = Facts::quick(limits_wanted(&policy));
    crate::libraries::find(&policy, &argv, &mut facts);
    trace.mark("facts");
    let session = session_id();
    let record = Record::of(parsed, &session, &argv)?;
    let filter = record.listen(crate::monitor::filter(&policy, parsed.has("monitor"))?);
    let keeper: Rc<dyn Keeper> = record.clone();
    let announce_start = status.wanted();
    let order = Order { argv, session, announce: announce_start, filter, keeper: Some(keeper) };
    let mut plan = planner::plan(&policy, &facts, &HostPaths).map_err(Fault::of)?;
    let layers = crate::overlay::begin(&mut plan, &order.session, parsed.has("dry-run"))?;
    trace.mark("plan");
    announce(&plan);
    let started = |plan: &Plan| status.started(&order.session, plan);
    record.prepare(&plan);
    let result = launch::run(&plan, &order, trace, &started);
    let result = match result {
        // The launch itself was the probe: the next best tier, or the reason why not.
        Err(LaunchError::NoNamespaces(reason)) if policy.tier == TierChoice::Auto => {
            facts.namespaces = Availability::No(reason);
            plan = planner::plan(&policy, &facts, &HostPaths).map_err(Fault::of)?;
            announce(&plan);
            record.prepare(&plan);
            launch::run(&plan, &order, trace, &started)
        }
        other => other,
    };
    let outcome = result.map_err(|error| {
        let hint = hidden_program(&error, &order.argv[0]);
        Fault { message: format!("{error}{hint}"), code: error.exit_code() }
    });
    match &outcome {
        Ok(outcome) => record.close(outcome),
        Err(fault) => {
            record.discard();
            status.failed(&order.session, fault);
        }
    }
    hooks.end();
    let code = finish(&outcome?, &plan, &status, &order.session);
    Ok(layers.map_or(code, |layers| layers.end(code)))
}

/// Where a command that the sandbox cannot see is on the host, and what would grant it.
fn hidden_program(error: &LaunchError, name: &OsString) -> String {
    let LaunchError::NotFound(_) = error else { return String::new() };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&search).map(|path| path.join(name)).find(|path| path.is_file());
    match found.as_ref().and_then(|path| Some((path, path.parent()?.parent()?))) {
        Some((path, tree)) => format!(
            "; on the host it is {}, which no rule grants: -r {}",
            path.display(),
            tree.display()
        ),
        None => String::new(),
    }
}

/// What the user should know before the run.
fn announce(plan: &Plan) {
    for warning in &plan.warnings {
        eprintln!("ringfence: {warning}");
    }
    for degraded in &plan.degraded {
        let layer = text::layer(degraded.layer);
        eprintln!("ringfence: running without {layer}: {}", degraded.what);
    }
}

fn finish(outcome: &Outcome, plan: &Plan, status: &Status, session: &str) -> u8 {
    for sentence in &outcome.restored {
        eprintln!("ringfence: {sentence}");
    }
    if outcome.timed_out {
        let limit = launch::timeout(plan).unwrap_or_default();
        eprintln!("ringfence: timed out after {limit:?} (--timeout)");
    }
    for sentence in &outcome.limits_hit {
        eprintln!("ringfence: {sentence}");
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

/// Eight hexadecimal digits from the kernel's random source.
fn session_id() -> String {
    let random = launch::random();
    format!("{random:08x}")
}
