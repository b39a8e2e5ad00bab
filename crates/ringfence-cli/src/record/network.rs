//! What the network's filter decided, as rows.

use ringfence_net::dns::record_name;
use ringfence_net::{Event as Happened, Exchange, Injection, NetDecision, Way};
use ringfence_session::ledger::{Event, Verdict};
use std::time::Duration;

/// The rows that a decision about the network makes: an allowed connection makes its own when it
/// ends, an inspected request its own as well, with one for each credential that went with it and one for a
/// call of a language model.
pub(super) fn network(decision: &NetDecision) -> Vec<Event> {
    let (address, mut peers) = (decision.address, None);
    let (verdict, why, (sent, received, duration)) = match &decision.event {
        Happened::Allowed if !matches!(decision.way, Way::Dns(_)) => return Vec::new(),
        Happened::Request(exchange) => return request(decision.host.to_string(), exchange),
        Happened::Counted { flows, sent, received } => {
            peers = Some(*flows);
            (Verdict::Allow, None, (*sent, *received, Duration::ZERO))
        }
        Happened::Closed { sent, received, duration } => {
            (Verdict::Allow, None, (*sent, *received, *duration))
        }
        Happened::Cut { why, sent, received, duration } => {
            (Verdict::Deny, Some(why.clone()), (*sent, *received, *duration))
        }
        Happened::Allowed => (Verdict::Allow, None, (0, 0, Duration::ZERO)),
        // What is held goes on with what may follow it.
        Happened::Failed(why) | Happened::Held(why) => {
            (Verdict::Allow, Some(why.clone()), (0, 0, Duration::ZERO))
        }
        Happened::Denied(why) => (Verdict::Deny, Some(why.clone()), (0, 0, Duration::ZERO)),
    };
    let host = decision.host.to_string();
    let published = match decision.way {
        Way::Dns(kind) => {
            // RFC 1035, 4.1.1: no such name; the server failed; no error.
            let code = match &decision.event {
                Happened::Denied(_) => 3,
                Happened::Failed(_) => 2,
                _ => 0,
            };
            let record = record_name(kind).into_owned();
            return vec![Event::Dns {
                name: host,
                record,
                code,
                answer: address,
                verdict,
                duration,
            }];
        }
        Way::Published(port) => Some(port),
        _ => None,
    };
    // Many have none in common.
    let one = peers.is_none();
    vec![Event::Network {
        protocol: if published.is_some() { "udp" } else { "tcp" },
        host: one.then_some(host),
        address: address.filter(|_| one),
        port: one.then_some(decision.port),
        published,
        peers,
        sent,
        received,
        duration,
        verdict,
        why,
    }]
}

fn request(host: String, exchange: &Exchange) -> Vec<Event> {
    let verdict = if exchange.refused.is_some() { Verdict::Deny } else { Verdict::Allow };
    let substituted = |put: &Injection| {
        let Injection { header, source } = put.clone();
        Event::Substitution { host: host.clone(), header, source }
    };
    let mut rows: Vec<Event> = exchange.injected.iter().map(substituted).collect();
    rows.extend(exchange.model.as_ref().map(|call| Event::ModelCall {
        provider: call.provider.clone(),
        model: call.model.clone(),
        input: Some(call.input),
        output: Some(call.output),
        tool_calls: call.tool_calls.into(),
        status: exchange.status,
        duration: exchange.duration,
    }));
    rows.push(Event::Http {
        method: exchange.method.clone(),
        host: host.clone(),
        path: exchange.path.clone(),
        status: exchange.status,
        sent: exchange.sent,
        received: exchange.received,
        duration: exchange.duration,
        verdict,
        why: exchange.why().map(str::to_owned),
    });
    rows
}
