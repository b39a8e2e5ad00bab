//! Rules that change while a session lives: who may change them, who hears of what was refused, and
//! refusals that wait for an answer.
//!
//! ```text
//! ringfence allow, watch ──connect──► rules.sock ──► launcher: Control ◄── gateway: policy(), ask()
//! ```
//!
//! The socket lies in the session's directory, which nothing inside can see, and only its owner can
//! connect to it. Messages are lines of words with tabs between them:
//!
//! | from the client | |
//! |---|---|
//! | `allow HOST[:PORT]` | allowed from now on, while the session lives |
//! | `watch` | tell refusals, the latest ones first |
//! | `once N`, `session N`, `deny N` | the answer to a refusal that waits, or to one that was |
//!
//! | from the session | |
//! |---|---|
//! | `ok TEXT`, `error TEXT` | the answer to a message |
//! | `refused N WAITS PLACE PROCESS WHY` | refused, or, with WAITS seconds, about to be |
//! | `settled N TEXT` | what became of one that waited |

pub mod client;
mod questions;

use crate::decision::{Event, NetDecision, Process, Way};
use crate::gateway::HERE;
use crate::rules;
use questions::{Left, Put, Questions};
use ringfence_policy::host::Target;
use ringfence_policy::{Decision, Host, HostRule, NetworkRule, Policy, Source, shown};
use ringfence_sys::listener::behalf;
use ringfence_sys::{fd, socket, unix};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// The latest refusals that one who comes later is told.
const REMEMBERED: usize = 32;
/// The longest message.
const LONGEST: usize = 4096;

/// The rules of a session, as they stand.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

/// Finds out what the policy is.
type Load = Box<dyn Fn() -> Policy + Send + Sync>;

struct Inner {
    /// Nothing until somebody wants to know.
    policy: RwLock<Option<Arc<Policy>>>,
    load: Load,
    ask: Option<Duration>,
    next: AtomicU64,
    /// Never closed: there is one for each attempt to launch.
    door: Mutex<Option<&'static OwnedFd>>,
    watchers: Mutex<Vec<Arc<OwnedFd>>>,
    refused: Mutex<VecDeque<Refused>>,
    questions: Questions,
    /// What the session is called, once it can be reached.
    session: OnceLock<String>,
    /// A person is told that somebody waits for an answer.
    notice: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("ask", &self.0.ask).finish_non_exhaustive()
    }
}

/// What was refused.
#[derive(Clone)]
struct Refused {
    number: u64,
    host: Host,
    /// None where it was the name that was refused, for whatever port.
    port: Option<u16>,
    line: String,
}

impl Refused {
    /// As a rule has it, so that one for a name is for the usual ports.
    fn place(&self) -> String {
        match self.port {
            Some(port) => place(&self.host, port),
            None => self.host.to_string(),
        }
    }
}

/// What a person says to a refusal that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This connection may be made.
    Once,
    /// A rule allows it now.
    Session,
    /// It may not.
    Deny,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// The rules of a policy. With `ask`, a connection that no rule allows waits so long for an
    /// answer; `notice` is told a sentence then.
    pub fn new(
        policy: Arc<Policy>,
        ask: Option<Duration>,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Control {
        Control::with(Some(policy), Box::new(Policy::default), ask, notice)
    }

    /// The same for a policy that is asked for when the first program connects: most commands of a
    /// filtered sandbox never do.
    pub fn later(
        load: impl Fn() -> Policy + Send + Sync + 'static,
        ask: Option<Duration>,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Control {
        Control::with(None, Box::new(load), ask, notice)
    }

    fn with(
        policy: Option<Arc<Policy>>,
        load: Load,
        ask: Option<Duration>,
        notice: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Control {
        Control(Arc::new(Inner {
            policy: RwLock::new(policy),
            load,
            ask,
            next: AtomicU64::new(1),
            door: Mutex::default(),
            watchers: Mutex::default(),
            refused: Mutex::default(),
            questions: Questions::default(),
            session: OnceLock::new(),
            notice,
        }))
    }

    /// The policy as it stands.
    pub fn policy(&self) -> Arc<Policy> {
        let known = self.0.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or_else(|| {
            let mut policy = self.0.policy.write().unwrap_or_else(PoisonError::into_inner);
            policy.get_or_insert_with(|| Arc::new((self.0.load)())).clone()
        })
    }

    /// Whether a rule grants this port of the host's own loopback (`localhost:PORT`). Nobody changes that meanwhile.
    pub fn grants_loopback(&self, port: u16) -> bool {
        let here = Host::Address(HERE[0]);
        rules::connect(&self.policy(), &here, port, |_| false).allowed
    }

    /// The header by which a credential goes to this port of the host's own loopback. Nobody changes that meanwhile.
    pub fn injects_at_loopback(&self, port: u16) -> Option<String> {
        let here = Host::Address(HERE[0]);
        rules::injected(&self.policy(), &here, port).map(str::to_owned)
    }

    /// Whether refusals wait for an answer: names are resolved to synthetic addresses then, whatever
    /// they are, so that there is a connection that can wait.
    pub(crate) fn asks(&self) -> bool {
        self.0.ask.is_some()
    }

    /// Whether a person is asked about a decision. What a rule denies stays denied, and the host's own loopback is
    /// granted when a session starts or not at all.
    fn asks_about(&self, decision: &Decision) -> bool {
        let here = rules::asked(decision).is_some_and(|(host, _)| host.is_loopback());
        self.asks() && !decision.allowed && decision.rule.is_none() && !here
    }

    /// Takes the socket at which clients of a session knock, and what that is called.
    pub fn listen(&self, door: OwnedFd, session: &str) {
        // There is one session, however often it is launched.
        let _ = self.0.session.set(session.to_owned());
        *locked(&self.0.door) = Some(Box::leak(Box::new(door)));
    }

    /// The socket to watch for readability.
    pub fn door(&self) -> Option<BorrowedFd<'static>> {
        locked(&self.0.door).map(AsFd::as_fd)
    }

    /// Takes the clients that wait, each on a thread of its own.
    pub fn serve(&self) {
        let Some(door) = self.door() else { return };
        while let Ok(client) = unix::accept(door) {
            let ours = socket::peer_credentials(client.as_fd())
                .is_ok_and(|(_, user, _)| user == ringfence_sys::identity::user());
            if ours && behalf::set_nonblocking(client.as_fd(), true).is_ok() {
                let control = self.clone();
                let serve = move || control.client(&Arc::new(client));
                let name = "ringfence-rules".to_owned();
                let _ = std::thread::Builder::new().name(name).spawn(serve);
            }
        }
    }

    fn client(&self, client: &Arc<OwnedFd>) {
        let mut buffer = [0; LONGEST];
        while fd::poll_readable(&[client.as_fd()], -1).is_ok() {
            let Ok(count @ 1..) = fd::receive(client.as_fd(), &mut buffer, false) else { break };
            let text = String::from_utf8_lossy(&buffer[..count]);
            let answer = match text.split_once('\t') {
                Some(("allow", host)) => self.allow(host),
                Some((word @ ("once" | "session" | "deny"), number)) => self.answer(word, number),
                None if text == "watch" => self.watch(client),
                _ => Err("this session does not understand that".to_owned()),
            };
            let line = match answer {
                Ok(text) => format!("ok\t{text}"),
                Err(text) => format!("error\t{text}"),
            };
            let _ = fd::send(client.as_fd(), line.as_bytes());
        }
        locked(&self.0.watchers).retain(|watcher| !Arc::ptr_eq(watcher, client));
    }

    fn watch(&self, client: &Arc<OwnedFd>) -> Result<String, String> {
        for refused in locked(&self.0.refused).iter() {
            let _ = fd::send(client.as_fd(), refused.line.as_bytes());
        }
        locked(&self.0.watchers).push(client.clone());
        Ok(String::new())
    }

    /// Adds a rule. What waits and is allowed by it goes on.
    ///
    /// # Errors
    /// A sentence.
    pub fn allow(&self, text: &str) -> Result<String, String> {
        let host = HostRule::parse(text).map_err(|error| error.to_string())?;
        if host.target == Target::Loopback {
            return Err(format!(
                "{text}: the host's own loopback can only be granted when a session starts: \
                 ringfence run {}",
                shown::allow_host(text)
            ));
        }
        let policy = self.policy();
        if let Some(denied) = denied(&policy, &host) {
            return Err(format!(
                "{text} is denied by `{}` ({}), and stays so while this session lives",
                denied.text, denied.origin
            ));
        }
        drop(policy);
        let source = Source {
            origin: "ringfence allow".to_owned(),
            key: String::new(),
            text: text.to_owned(),
        };
        let mut policy = self.0.policy.write().unwrap_or_else(PoisonError::into_inner);
        let now = policy.get_or_insert_default();
        if !now.network.allow.iter().any(|rule| rule.host == host) {
            Arc::make_mut(now).network.allow.push(NetworkRule { host, source });
        }
        let now = now.clone();
        drop(policy);
        let allowed = |refused: &Refused| {
            let port = refused.port.unwrap_or(443);
            rules::connect(&now, &refused.host, port, rules::own).allowed
        };
        for question in self.0.questions.take_all(allowed) {
            self.settle(question, Answer::Session);
        }
        Ok(format!("{text} is allowed while this session lives"))
    }

    fn answer(&self, word: &str, number: &str) -> Result<String, String> {
        let number: u64 = number.parse().map_err(|_| format!("{number} is no number"))?;
        let found = self.0.questions.take(number);
        if word == "session" {
            let refused = match &found {
                Some(question) => Some(question.refused().clone()),
                None => {
                    let refused = locked(&self.0.refused);
                    refused.iter().find(|refused| refused.number == number).cloned()
                }
            };
            let refused = refused.ok_or("that refusal is forgotten")?;
            let answer = self.allow(&refused.place());
            if let Some(question) = found {
                self.settle(question, if answer.is_ok() { Answer::Session } else { Answer::Deny });
            }
            return answer;
        }
        let question = found.ok_or("nobody waits for that answer any more")?;
        let place = question.refused().place();
        let (answer, text) = match word {
            "once" => (Answer::Once, format!("{place} is allowed this once")),
            _ => (Answer::Deny, format!("{place} stays refused")),
        };
        self.settle(question, answer);
        Ok(text)
    }

    /// All that wait for the question are answered, and those who watch are told.
    fn settle(&self, question: questions::Open, answer: Answer) {
        let what = match answer {
            Answer::Once => "allowed once",
            Answer::Session => "allowed",
            Answer::Deny => "refused",
        };
        self.tell_watchers(&format!("settled\t{}\t{what}", question.refused().number));
        question.answer(answer);
    }

    /// Waits for a person's answer to a refusal, if this session asks.
    pub(crate) async fn ask(
        &self,
        host: &Host,
        port: u16,
        process: Option<&Process>,
        decision: &Decision,
    ) -> Option<Answer> {
        let patience = self.0.ask?;
        if !self.asks_about(decision) {
            return None;
        }
        let why = &decision.explanation;
        let said = |waits| self.refused((host, Some(port)), process, why, waits);
        let pid = process.map(|process| process.pid);
        // Those who watch are told before anybody can answer: none of them is waited for.
        let put =
            self.0.questions.put(host, port, pid, patience, || said(patience.as_secs().max(1)));
        let Some(Put { number, place, deadline, new, answered }) = put else {
            said(0);
            return None;
        };
        let mut waits =
            Waits { control: self, number, place, without: "refused: the program ended" };
        if new {
            // It may take as long as whoever reads it.
            let place = self::place(host, port);
            let session = self.0.session.get().map_or("SESSION", String::as_str);
            (self.0.notice)(&format!(
                "{place} is not allowed; it waits {patience:?} for an answer: ringfence watch, or \
                 ringfence allow {session} {}",
                shown::word(&place)
            ));
        }
        // A rule may have come since the decision was made, and have found nobody waiting.
        if rules::connect(&self.policy(), host, port, rules::own).allowed {
            waits.without = "allowed";
            return Some(Answer::Session);
        }
        let answered = tokio::time::timeout_at(deadline, answered).await;
        waits.without = "refused: no answer came";
        Some(answered.ok().and_then(Result::ok).unwrap_or(Answer::Deny))
    }

    /// Hears of a decision, and tells those who watch of refusals.
    pub(crate) fn hear(&self, decision: &NetDecision) {
        let (Event::Denied(why) | Event::Cut { why, .. } | Event::Held(why)) = &decision.event
        else {
            return;
        };
        if decision.decision.as_ref().is_some_and(|decision| self.asks_about(decision)) {
            return;
        }
        // Who asks for a name has not said a port.
        let port = (!matches!(decision.way, Way::Dns(_))).then_some(decision.port);
        self.refused((&decision.host, port), decision.process.as_ref(), why, 0);
    }

    fn refused(
        &self,
        (host, port): (&Host, Option<u16>),
        process: Option<&Process>,
        why: &str,
        waits: u64,
    ) -> Refused {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let name = process.map_or(String::new(), |process| {
            let exe = process.exe.as_deref().unwrap_or(std::path::Path::new("?"));
            format!("{}[{}]", exe.display(), process.pid)
        });
        let mut refused = Refused { number, host: host.clone(), port, line: String::new() };
        let place = refused.place();
        refused.line = ["refused", &number.to_string(), &waits.to_string(), &place, &name, why]
            .map(|word| shown::line(word).into_owned())
            .join("\t");
        let mut remembered = locked(&self.0.refused);
        remembered.push_back(refused.clone());
        while remembered.len() > REMEMBERED {
            remembered.pop_front();
        }
        drop(remembered);
        self.tell_watchers(&refused.line);
        refused
    }

    /// One who does not read misses what he is told; nobody waits for him.
    fn tell_watchers(&self, line: &str) {
        let line = line.as_bytes();
        for watcher in locked(&self.0.watchers).iter() {
            let _ = fd::send(watcher.as_fd(), &line[..line.len().min(LONGEST)]);
        }
    }
}

/// A connection that waits for an answer. However that ends, it does not wait any more; with the last one
/// of a question that was not answered those who watch are told.
struct Waits<'a> {
    control: &'a Control,
    number: u64,
    place: u64,
    /// What became of it where nobody answered.
    without: &'static str,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let Waits { control, number, place, without } = self;
        if control.0.questions.leave(*number, *place) == Left::Nobody {
            control.tell_watchers(&format!("settled\t{number}\t{without}"));
        }
    }
}

/// The rule that denies all of what one would allow, if there is one: deny beats allow.
fn denied<'p>(policy: &'p Policy, wanted: &HostRule) -> Option<&'p Source> {
    let covers = |rule: &HostRule| {
        let hosts = match (&rule.target, &wanted.target) {
            (one, other) if one == other => true,
            (_, Target::Name(name)) => rule.matches_host(&Host::Name(name.clone())),
            (Target::Below(parent), Target::Below(name)) => name.ends_with(&format!(".{parent}")),
            (Target::Net(net), Target::Net(inner)) => {
                net.contains(inner.address()) && net.prefix() <= inner.prefix()
            }
            _ => false,
        };
        let ports = |&(first, last): &(u16, u16)| {
            rule.ports.ranges().iter().any(|&(from, to)| from <= first && last <= to)
        };
        hosts && wanted.ports.ranges().iter().all(ports)
    };
    let mut rules = policy.network.deny.iter();
    rules.find(|rule| covers(&rule.host)).map(|rule| &rule.source)
}

/// As people read it.
pub(crate) fn place(host: &Host, port: u16) -> String {
    match host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests;
