//! `--monitor`: decisions about the network, a line each, as they are made.

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_net::{Control, Event, Exchange, Inspection, NetDecision, Way};
use ringfence_policy::{NetworkMode, Policy};
use ringfence_sandbox::network::Filter;
use std::sync::Arc;
use std::time::Duration;

/// How long a refusal waits for an answer, unless it is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// By what the run's network is filtered; nothing where it is not.
///
/// # Errors
/// A credential that a rule names cannot be had.
pub fn filter(
    policy: &Policy,
    monitor: bool,
    ask: Option<Duration>,
) -> Result<Option<Filter>, Fault> {
    if policy.network.mode != NetworkMode::Filtered {
        return Ok(None);
    }
    let policy = Arc::new(policy.clone());
    let notice = Box::new(|sentence: &str| eprintln!("ringfence: {sentence}"));
    Ok(Some(Filter {
        control: Control::new(policy.clone(), ask, notice),
        sink: if monitor { Arc::new(print) } else { Arc::new(|_| {}) },
        inspection: Inspection::prepare(&policy).map_err(Fault::of)?.map(Arc::new),
        policy,
    }))
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

fn print(decision: &NetDecision) {
    eprintln!("ringfence: {}", line(decision));
}

fn line(decision: &NetDecision) -> String {
    let place = match decision.way {
        Way::Dns => format!("name {}", decision.host),
        _ => format!("{}:{}", decision.host, decision.port),
    };
    let place = place + &by(decision);
    match &decision.event {
        Event::Allowed => match decision.address {
            Some(address) => format!("allowed {place} ({address})"),
            None => format!("allowed {place}"),
        },
        Event::Denied(why) => {
            let remedy = decision.decision.as_ref().and_then(|decision| decision.remedy.as_ref());
            match remedy {
                Some(remedy) => format!("denied {place}: {why}; to allow it: {remedy}"),
                None => format!("denied {place}: {why}"),
            }
        }
        Event::Failed(why) => format!("failed {place}: {why}"),
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
    let status =
        exchange.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    let injected = match exchange.injected.join(", ") {
        names if names.is_empty() => names,
        names => format!(", with {names}"),
    };
    format!("{status} {asked}{injected}: {sent} bytes sent, {received} received, {duration:.1?}")
}
