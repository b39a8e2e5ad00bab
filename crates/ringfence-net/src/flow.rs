//! One connection: asked about, dialled, checked on the wire, relayed.

use crate::decision::{Event, Way};
use crate::first::{self, First};
use crate::gateway::{HERE, Shared, Subject};
use crate::inspect::{self, Inspection};
use crate::leaving;
use crate::live::{self, Answer};
use crate::reach;
use crate::relay::{self, Counts, Gate, Verdict};
use crate::rules::{self, Leads};
use ringfence_policy::{Decision, Host};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;

/// The most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Closes with a reset, which programs report at once as a refusal.
pub(crate) fn reset(client: &TcpStream) {
    let _ = client.set_zero_linger();
}

/// Puts the question to the policy.
pub(crate) fn ask(shared: &Shared, way: Way, host: Host, port: u16) -> Subject {
    let mut decision = rules::connect(&shared.policy(), &host, port, shared.own);
    let (mut host, mut named) = (host, None);
    // Programs read this host's file of names themselves, and have an address by the time that they connect.
    if let Host::Address(address) = host
        && !decision.allowed
        && !host.is_loopback()
        && !shared.upstream.resolves(&host, port)
    {
        for name in shared.resolver.names(address).unwrap_or_default() {
            let by_name = rules::connect(&shared.policy(), &name, port, shared.own);
            if by_name.allowed && !name.is_loopback() {
                (host, decision) = (name, by_name);
                break;
            }
        }
    }
    // And by the proxy they name what they would have found there.
    if let Host::Name(name) = &host
        && !decision.allowed
        && !matches!(way, Way::Dns(_))
        && let addresses = shared.resolver.listed(name).unwrap_or_default()
        && let Some((address, by)) =
            rules::by_address(&shared.policy(), (name, port), &addresses, shared.own)
    {
        named = Some(std::mem::replace(&mut host, Host::Address(address)));
        decision = by;
    }
    Subject {
        id: shared.id(),
        way,
        host,
        named,
        port,
        address: None,
        decision: Some(decision),
        process: Arc::default(),
    }
}

/// Why there is no connection.
pub(crate) enum Refusal {
    /// A rule, or what the name led to.
    Denied(String),
    /// The network.
    Failed(String),
}

/// How a connection goes on that is allowed.
pub(crate) enum Course<'a> {
    /// Its requests are looked at, and its server is dialled by who does that.
    Inspected(&'a Arc<Inspection>),
    /// It is relayed to this server.
    Relayed(TcpStream),
}

/// Serves a redirected connection from its beginning to its end.
pub(crate) async fn run(shared: &Arc<Shared>, mut subject: Subject, client: TcpStream) {
    match settle(Some(&client), shared, &mut subject).await {
        Ok(Course::Inspected(inspection)) => {
            // By itself it is small: what is not inspected does not carry what inspection needs.
            let inspected = inspect::connection(shared, inspection, subject, client, Vec::new());
            Box::pin(inspected).await;
        }
        Ok(Course::Relayed(server)) => carry(shared, &subject, client, server, Vec::new()).await,
        Err(refusal) => {
            tell(shared, &subject, refusal);
            // Until then it is there to be found.
            subject.process.settled().await;
            reset(&client);
        }
    }
}

/// The one way to a server, whoever asks for it and however: what the rules or a person say is settled first, then whether
/// the requests are looked at, and what is relayed is dialled last. That takes no longer than `client` waits for it.
pub(crate) async fn settle<'a>(
    client: Option<&TcpStream>,
    shared: &'a Shared,
    subject: &mut Subject,
) -> Result<Course<'a>, Refusal> {
    consider(shared, subject).await?;
    if concerned(shared, &subject.host, subject.port) {
        let none = "rules about its requests need inspection, which this gateway does not have";
        let inspection = shared.inspection.as_ref();
        let inspection = inspection.ok_or_else(|| Refusal::Denied(none.to_owned()))?;
        return Ok(Course::Inspected(inspection));
    }
    let dialled = dial(shared, subject, false);
    let server = match client {
        Some(client) => {
            let dialled = leaving::before(dialled, gone(client, shared)).await;
            dialled.unwrap_or_else(|| Err(ended()))?
        }
        None => dialled.await?,
    };
    Ok(Course::Relayed(server))
}

/// Whether rules about requests or credentials name a host, as they stand.
fn concerned(shared: &Shared, host: &Host, port: u16) -> bool {
    rules::concerned(&shared.policy(), host, port)
}

/// Tells a refusal; returns its sentence.
pub(crate) fn tell(shared: &Shared, subject: &Subject, refusal: Refusal) -> String {
    let (event, text) = match refusal {
        Refusal::Denied(text) => (Event::Denied(text.clone()), text),
        Refusal::Failed(text) => (Event::Failed(text.clone()), text),
    };
    subject.tell(shared, event);
    text
}

/// Waits until there is nobody whom a connection would serve: at a session's end a client that has nothing left to say is
/// gone, and a server that does not answer would hold up the launcher.
async fn gone(client: &TcpStream, shared: &Shared) {
    shared.leaving.begun().await;
    // At its end there is something to read too.
    if client.peek(&mut [0]).await.is_ok_and(|count| count > 0) {
        std::future::pending::<()>().await;
    }
}

/// What becomes of a connection that nobody waits for any more.
pub(crate) fn ended() -> Refusal {
    Refusal::Failed("the program ended before there was an answer".to_owned())
}

/// Connects to what is settled to be allowed, by an address that was checked: where requests are looked at; all else goes by
/// [`settle`]. `credential`: one of the user's goes along, which is for no server of the sandbox's own.
pub(crate) async fn dial(
    shared: &Shared,
    subject: &mut Subject,
    credential: bool,
) -> Result<TcpStream, Refusal> {
    if !subject.decision.as_ref().is_some_and(|decision| decision.allowed) {
        return Err(Refusal::Denied("nothing allowed it".to_owned()));
    }
    if let Some(proxy) = shared.upstream.proxy(&subject.host, subject.port) {
        return proxy.dial(shared, subject).await.map_err(Refusal::Failed);
    }
    let addresses = addresses(shared, subject).await?;
    let own = shared.beside().filter(|_| credential);
    match reach::first(&addresses, subject.port, own).await {
        Ok((server, address)) => {
            subject.address = Some(address);
            Ok(server)
        }
        Err(why) => Err(Refusal::Failed(format!("cannot connect to {}: {why}", subject.shown()))),
    }
}

/// What the policy said, or what a person says who is asked.
async fn consider(shared: &Shared, subject: &mut Subject) -> Result<(), Refusal> {
    let denied = subject.decision.as_ref().filter(|decision| !decision.allowed);
    let Some(denied) = denied.cloned() else { return Ok(()) };
    let refusal = Refusal::Denied(denied.explanation.clone());
    if !shared.control.asks() {
        return Err(refusal);
    }
    let (host, port) = (&subject.host, subject.port);
    let asked = async {
        subject.process.settled().await;
        let process = subject.process.get();
        shared.control.ask(&subject.shown(), port, process.as_ref(), &denied).await
    };
    // At the session's end there is nobody left to allow it to.
    match shared.leaving.before(asked).await.flatten() {
        Some(Answer::Once) => {
            subject.decision = Some(once(denied, &subject.shown(), port));
            Ok(())
        }
        Some(Answer::Session) => {
            let decision = rules::connect(&shared.policy(), host, port, shared.own);
            let allowed = decision.allowed;
            subject.decision = Some(decision);
            if allowed { Ok(()) } else { Err(refusal) }
        }
        Some(Answer::Deny) | None => Err(refusal),
    }
}

/// What a person's answer makes of a refusal: no rule, and nothing to change.
fn once(denied: Decision, host: &Host, port: u16) -> Decision {
    let explanation = format!("{} is allowed this once, by an answer", live::place(host, port));
    Decision { allowed: true, rule: None, explanation, remedy: None, effect: None, ..denied }
}

/// The addresses to try, each allowed.
async fn addresses(shared: &Shared, subject: &Subject) -> Result<Vec<IpAddr>, Refusal> {
    let name = match &subject.host {
        // `localhost:PORT` grants the host's loopback, at whichever family the server listens.
        host if host.is_loopback() => return Ok(HERE.to_vec()),
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    let found = shared.resolver.resolve(name).await;
    let found =
        found.map_err(|error| Refusal::Failed(format!("cannot resolve {name}: {error}")))?;
    let policy = shared.policy();
    let astray = |address, leads| {
        let judged = rules::address(&policy, (name, leads), address, subject.port, shared.own);
        judged.err().map(|astray| astray.to_string())
    };
    let listed = || shared.resolver.listed(name).unwrap_or_default();
    chosen(found, astray, listed).map_err(|refused| match refused {
        Some(why) => Refusal::Denied(why),
        None => Refusal::Failed(format!("{name} has no address")),
    })
}

/// The addresses of a name that may be tried. `astray` says why one may not; of a refusal `listed` says what the host's own
/// file gives the name: that can be long, and is read once.
///
/// # Errors
/// There is none, and why, where there were any.
fn chosen(
    found: Vec<IpAddr>,
    astray: impl Fn(IpAddr, Leads) -> Option<String>,
    listed: impl FnOnce() -> Vec<IpAddr>,
) -> Result<Vec<IpAddr>, Option<String>> {
    let (good, refused): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|&address| astray(address, Leads::ByDns).is_none());
    if good.is_empty() {
        let last = refused.last().copied();
        return Err(last.and_then(|last| {
            let leads = if listed().contains(&last) { Leads::ByHosts } else { Leads::ByDns };
            astray(last, leads)
        }));
    }
    let mut good = in_turn(good);
    good.truncate(MOST_ADDRESSES);
    Ok(good)
}

/// Addresses of both families in turn (RFC 8305 §4), so that many of a family that leads nowhere leave room for the
/// other.
fn in_turn(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut six, mut four): (VecDeque<IpAddr>, VecDeque<IpAddr>) =
        addresses.into_iter().partition(IpAddr::is_ipv6);
    let mut all = Vec::with_capacity(four.len() + six.len());
    while !four.is_empty() || !six.is_empty() {
        all.extend(four.pop_front());
        all.extend(six.pop_front());
    }
    all
}

/// Relays between the two, after the client's first bytes have been found to fit. `early` holds
/// what was read from the client already.
pub(crate) async fn carry(
    shared: &Shared,
    subject: &Subject,
    client: TcpStream,
    server: TcpStream,
    early: Vec<u8>,
) {
    subject.tell(shared, Event::Allowed);
    let begun = Instant::now();
    let counts = Counts::default();
    let judge = |bytes: &[u8]| judge(shared, subject, bytes);
    let head = |first: &First| fits(shared, subject, first);
    let held = |count: usize| {
        let why = format!(
            "{count} bytes are held, since they may be the beginning of a request or of TLS, and nothing follows them; what \
             speaks another protocol, allow by its address"
        );
        subject.tell(shared, Event::Held(why));
    };
    let gate = Gate { early, judge: &judge, head: &head, held: &held };
    let result = relay::both(client, server, gate, &counts, &shared.leaving).await;
    let refused = match result {
        Err(relay::Broken::Refused(text)) => Some(text),
        Err(_) | Ok(()) => None,
    };
    subject.tell(shared, ended_as(refused, counts.sent(), counts.received(), begun));
}

/// What became of an allowed connection that has ended: refused for what was seen on the wire, or not.
pub(crate) fn ended_as(refused: Option<String>, sent: u64, received: u64, begun: Instant) -> Event {
    let duration = begun.elapsed();
    match refused {
        Some(why) if sent == 0 && received == 0 => Event::Denied(why),
        Some(why) => Event::Cut { why, sent, received, duration },
        None => Event::Closed { sent, received, duration },
    }
}

/// What is done with the client's first bytes.
fn judge(shared: &Shared, subject: &Subject, bytes: &[u8]) -> Verdict {
    if !by_name(subject) && rules::by_what_is_said(&shared.policy(), subject.port).is_none() {
        // Nothing that it may say is of any account, and it may wait for an answer to half a line.
        return Verdict::Pass;
    }
    let first = first::first(bytes);
    match first {
        First::More if bytes.len() < first::MOST => return Verdict::Hold,
        First::Word | First::Watch => return Verdict::PassAndWatch,
        _ => {}
    }
    match fits(shared, subject, &first) {
        Err(text) => Verdict::Refuse(text),
        Ok(()) if matches!(first, First::Http { .. } | First::Like { .. }) => Verdict::Requests,
        Ok(()) if matches!(first, First::Tls { .. }) => Verdict::Hello,
        Ok(()) => Verdict::Pass,
    }
}

/// Whether a name was granted, behind whose address others may be.
fn by_name(subject: &Subject) -> bool {
    matches!(&subject.host, Host::Name(_)) && !subject.host.is_loopback()
}

/// Whether what the client says fits what was granted.
fn fits(shared: &Shared, subject: &Subject, first: &First) -> Result<(), String> {
    match (&subject.host, first) {
        (Host::Name(name), _) if by_name(subject) => {
            first::fits(first, name, rules::every_name(&shared.policy(), subject.port))
        }
        // The address is what was granted; a name that is denied stays so.
        (
            _,
            First::Tls { name: Some(host), .. }
            | First::Http { host: Some(host), .. }
            | First::Like { host: Some(host) },
        ) if rules::denied(&shared.policy(), host, subject.port) => {
            Err(format!("the client connected to {} and asked for {host}", subject.host))
        }
        // By its name its requests would be looked at.
        (
            _,
            First::Tls { name: Some(host), .. }
            | First::Http { host: Some(host), .. }
            | First::Like { host: Some(host) },
        ) if *host != subject.host && concerned(shared, host, subject.port) => Err(format!(
            "the client connected to {} and asked for {host}, whose requests are looked at; \
                 connect to it by its name",
            subject.host
        )),
        // A server may find such a name in it.
        (_, First::Broken(what)) => {
            let policy = shared.policy();
            let because = rules::by_what_is_said(&policy, subject.port);
            let because = because.map(|rule| format!("; `{}` has it looked at", rule.text));
            Err(format!(
                "the client of {} sent {what}{}",
                subject.host,
                because.unwrap_or_default()
            ))
        }
        _ => Ok(()),
    }
}

/// An error's text for a client.
pub(crate) fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_family_keeps_the_other_from_being_tried() {
        let ip = |text: &str| text.parse::<IpAddr>().expect(text);
        let turn = |all: &[&str]| {
            let turned = in_turn(all.iter().map(|text| ip(text)).collect());
            turned.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            turn(&["1.1.1.1", "2.2.2.2", "3.3.3.3", "::4", "::5"]),
            "1.1.1.1 ::4 2.2.2.2 ::5 3.3.3.3"
        );
        assert_eq!(turn(&["::4", "::5"]), "::4 ::5");
        assert_eq!(turn(&["1.1.1.1"]), "1.1.1.1");
        assert_eq!(turn(&[]), "");
    }

    /// Of thousands of refused addresses each had the file read again, while nobody else was served.
    #[test]
    fn the_hosts_own_file_is_asked_about_refusals_once() {
        let found: Vec<IpAddr> =
            (0..4000u32).map(|low| std::net::Ipv4Addr::from_bits(10 << 24 | low).into()).collect();
        let last = found[3999];
        let public: IpAddr = [192, 0, 2, 1].into();
        let astray = |address: IpAddr, leads: Leads| {
            (address != public).then(|| format!("{address} {leads:?}"))
        };
        let reads = std::cell::Cell::new(0);
        let listed = |all: Vec<IpAddr>| {
            reads.set(reads.get() + 1);
            all
        };
        let refused = chosen(found.clone(), astray, || listed(vec![last]));
        assert_eq!(refused, Err(Some(format!("{last} {:?}", Leads::ByHosts))));
        let refused = chosen(found.clone(), astray, || listed(Vec::new()));
        assert_eq!(refused, Err(Some(format!("{last} {:?}", Leads::ByDns))));
        assert_eq!(reads.get(), 2);
        // Where one is good, the others are not told.
        let some = [found, vec![public]].concat();
        assert_eq!(chosen(some, astray, || listed(Vec::new())), Ok(vec![public]));
        assert_eq!(chosen(Vec::new(), astray, || listed(Vec::new())), Err(None));
        assert_eq!(reads.get(), 2);
    }
}
