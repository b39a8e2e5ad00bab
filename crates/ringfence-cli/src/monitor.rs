//! `--monitor`: decisions about the network, a line each, as they are made.

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_net::dns::record_name;
use ringfence_net::{Control, Event, Exchange, Inspection, NetDecision, Way};
use ringfence_policy::{NetworkMode, Policy, Transport};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::network::Filter;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// How long a refusal waits for an answer, unless it is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// By what the run's network is filtered; where it is not, and UDP ports are published, what hears of
/// their peers; else nothing.
///
/// # Errors
/// A credential that a rule names cannot be had.
pub fn filter(
    policy: &Policy,
    monitor: bool,
    ask: Option<Duration>,
) -> Result<Option<Filter>, Fault> {
    if policy.network.mode != NetworkMode::Filtered {
        let hears = policy.network.publishes(Transport::Udp);
        return Ok(hears.then(|| hearing(policy.clone(), monitor)));
    }
    let inspection = Inspection::prepare(policy).map_err(Fault::of)?.map(Arc::new);
    let control = Control::new(Arc::new(policy.clone()), ask, Box::new(notice));
    Ok(Some(Filter { control, sink: sink(monitor), inspection }))
}

/// What hears of a network that is not filtered.
pub fn hearing(policy: Policy, monitor: bool) -> Filter {
    let control = Control::new(Arc::new(policy), None, Box::new(notice));
    Filter { control, sink: sink(monitor), inspection: None }
}

/// The same for a run whose plan came from the cache: its policy is found out when a program
/// connects for the first time.
///
/// # Errors
/// `--ask` names no duration.
pub fn filter_later(parsed: &Parsed, command: Option<&OsStr>) -> Result<Filter, Fault> {
    let request = crate::request::request(parsed, command);
    let load = move || match crate::request::policy_from(&request, &Inputs::new()) {
        Ok(policy) => policy,
        Err(fault) => {
            // The profile was changed since the command began.
            notice(&format!("nothing may be connected to, since {}", fault.message));
            Policy::default()
        }
    };
    let control = Control::later(load, patience(parsed)?, Box::new(notice));
    Ok(Filter { control, sink: sink(parsed.has("monitor")), inspection: None })
}

fn notice(sentence: &str) {
    ringfence_sys::say!("ringfence: {}", ringfence_policy::shown::message(sentence));
}

fn sink(monitor: bool) -> Arc<dyn Fn(&NetDecision) + Send + Sync> {
    if monitor { Arc::new(print) } else { Arc::new(|_| {}) }
}

/// How long a refusal waits for an answer (`--ask`).
///
/// # Errors
/// It is no duration.
pub fn patience(parsed: &Parsed) -> Result<Option<Duration>, Fault> {
    let Some(text) = parsed.last("ask") else { return Ok(None) };
    if text.is_empty() {
        return Ok(Some(PATIENCE));
    }
    let text = text.to_string_lossy();
    let duration = ringfence_policy::size::duration(&text);
    duration.map(Some).map_err(|why| Fault::usage(format!("--ask {text}: {why}")))
}

/// Whether there is anything to be asked about: with a mode that the command line chose too, one of the two is a mistake.
///
/// # Errors
/// It is so.
pub fn check(policy: &mut Policy, parsed: &Parsed) -> Result<(), Fault> {
    let why = match policy.network.mode {
        NetworkMode::Filtered => return Ok(()),
        NetworkMode::None => "there is no network",
        NetworkMode::Host => "the host's network is used as it is",
    };
    if parsed.last("ask").is_none() {
        return Ok(());
    }
    if let Some(mode) = parsed.last("network") {
        let mode = mode.to_string_lossy();
        return Err(Fault::usage(format!(
            "option --ask: {why} with --network {mode}; leave one of the two out"
        )));
    }
    let chosen = policy.network.chosen.as_ref();
    let chosen = chosen.map_or(String::new(), |of| format!(" ({}: {})", of.text, of.origin));
    policy
        .warnings
        .push(format!("--ask has no effect: {why}{chosen}; --network filtered changes that"));
    Ok(())
}

fn print(decision: &NetDecision) {
    // A program chooses the paths that it asks for, and a server what its certificate says.
    ringfence_sys::say!("ringfence: {}", ringfence_policy::shown::line(&line(decision)));
}

fn line(decision: &NetDecision) -> String {
    let place = match decision.way {
        Way::Dns(kind) => format!("name {} ({})", decision.host, record_name(kind)),
        Way::Published(port) => {
            format!("datagrams from {}:{} to port {port}", decision.host, decision.port)
        }
        _ => format!("{}:{}", decision.host, decision.port),
    };
    let place = place + &by(decision);
    match &decision.event {
        Event::Counted { flows, sent, received } => {
            let port = match decision.way {
                Way::Published(port) => port,
                _ => decision.port,
            };
            format!(
                "closed datagrams from {flows} more peers to port {port}: {sent} bytes sent, {received} received"
            )
        }
        Event::Allowed => match decision.address {
            Some(address) => format!("allowed {place} ({address})"),
            None => format!("allowed {place}"),
        },
        Event::Denied(why) => {
            let remedy = decision.decision.as_ref().and_then(|decision| decision.remedy.as_ref());
            // Who asks for a name has not said a port.
            let ports = match decision.way {
                Way::Dns(_) => format!(" (ports 80 and 443; another one: {}:PORT)", decision.host),
                _ => String::new(),
            };
            match remedy {
                Some(remedy) => format!("denied {place}: {why}; to allow it: {remedy}{ports}"),
                None => format!("denied {place}: {why}"),
            }
        }
        Event::Failed(why) => format!("failed {place}: {why}"),
        Event::Held(why) => format!("held {place}: {why}"),
        Event::Cut { why, sent, received, duration } => format!(
            "denied {place}: {why}; until then {sent} bytes sent, {received} received, {duration:.1?}"
        ),
        Event::Closed { sent, received, duration } => {
            format!("closed {place}: {sent} bytes sent, {received} received, {duration:.1?}")
        }
        Event::Request(exchange) => {
            request(&format!("{}:{}", decision.host, decision.port), exchange, decision)
        }
    }
}

/// Who asked, where that is known.
fn by(decision: &NetDecision) -> String {
    let Some(process) = &decision.process else { return String::new() };
    let name = process.exe.as_ref().and_then(|exe| exe.file_name());
    let name = name.map_or_else(|| "a process".into(), |name| name.to_string_lossy());
    format!(" by {}[{}]", name.escape_debug(), process.pid)
}

fn request(place: &str, exchange: &Exchange, decision: &NetDecision) -> String {
    let Exchange { method, path, sent, received, duration, .. } = exchange;
    let asked = format!("{method} {place}{path}");
    if let Some(why) = &exchange.refused {
        let remedy = decision.decision.as_ref().and_then(|decision| decision.remedy.as_ref());
        return match remedy {
            Some(remedy) => format!("denied {asked}: {why}; to allow it: {remedy}"),
            None => format!("denied {asked}: {why}"),
        };
    }
    let injected = exchange.injected.iter().map(|one| one.header.as_str()).collect::<Vec<_>>();
    let injected = match injected.join(", ") {
        names if names.is_empty() => names,
        names => format!(", with {names}"),
    };
    if let Some(why) = &exchange.failed {
        return format!("failed {asked}{injected}: {why}");
    }
    let status =
        exchange.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    let carried = format!("{sent} bytes sent, {received} received, {duration:.1?}");
    match &exchange.broken {
        Some(why) => format!("failed {asked}{injected}: {why}; until then {status}, {carried}"),
        None => format!("{status} {asked}{injected}: {carried}"),
    }
}
