//! [`decide`]: whether a policy allows something, why, and what to type to change it.
//!
//! Everything that needs to know asks here: `why`, the network filter, learning, the ledger.

use crate::files::FileView;
use crate::host::Host;
use crate::policy::{Policy, Source};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// The version of the JSON form of a [`Decision`].
pub const SCHEMA: u32 = 1;

/// A path that is asked about: as written, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// Absolute and lexically normal.
    #[serde(serialize_with = "text")]
    pub path: PathBuf,
    /// With every link followed, when that is known and different.
    #[serde(serialize_with = "text_of", skip_serializing_if = "Option::is_none")]
    pub real: Option<PathBuf>,
    /// It is known not to exist, so that a rule about it must say that it may be missing.
    #[serde(skip)]
    pub missing: bool,
}

/// A path as it is shown: what is no text in it is U+FFFD.
fn text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn text_of<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}

impl Subject {
    /// A path as it stands; nothing is looked up.
    pub fn lexical(path: &Path) -> Subject {
        Subject { path: crate::path::normal(path), real: None, missing: false }
    }

    /// A path, and where it leads on this host.
    pub fn on_host(path: &Path, files: &dyn FileView) -> Subject {
        let path = crate::path::normal(path);
        let real = crate::files::Resolver::once(files).real(&path).ok();
        let missing = real.as_ref().is_some_and(|real| !real.exists);
        let real = real.map(|real| real.path).filter(|real| *real != path);
        Subject { path, real, missing }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Request {
    /// To read a file or list a directory.
    Read(Subject),
    /// To write, create, rename or remove.
    Write(Subject),
    /// To execute.
    Exec(Subject),
    /// To connect over TCP.
    Connect {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// To send an HTTP request.
    Http {
        /// The method, upper case.
        method: String,
        /// The address.
        url: String,
    },
    /// To connect to a Unix socket.
    Socket(Subject),
    /// To see a variable of the environment.
    Env {
        /// Its name.
        name: String,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Whether it is allowed.
    pub allowed: bool,
    /// What was asked.
    pub request: Request,
    /// The rule that decides; none when no rule speaks of it.
    pub rule: Option<Source>,
    /// The part of the policy that decides: `filesystem`, `protect`, `private`, `network`,
    /// `http`, `socket`, `environment`.
    pub layer: &'static str,
    /// Why, in one sentence.
    pub explanation: String,
    /// What to type to have it otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What it comes to, when that is not what one would expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl std::fmt::Display for Decision {
    /// `allowed: …` or `denied: …`, then the rule, the effect and the remedy, a line each.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", if self.allowed { "allowed" } else { "denied" }, self.explanation)?;
        if let Some(rule) = &self.rule {
            write!(f, "\n  rule:   {rule}")?;
        }
        if let Some(effect) = &self.effect {
            write!(f, "\n  effect: {effect}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "\n  change: {remedy}"),
            None => Ok(()),
        }
    }
}

/// An answer before the question is put to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub allowed: bool,
    pub rule: Option<Source>,
    pub layer: &'static str,
    pub explanation: String,
    pub remedy: Option<String>,
    pub effect: Option<String>,
}

impl Verdict {
    pub fn new(allowed: bool, layer: &'static str, explanation: impl Into<String>) -> Verdict {
        let explanation = explanation.into();
        Verdict { allowed, rule: None, layer, explanation, remedy: None, effect: None }
    }

    pub fn rule(mut self, rule: &Source) -> Verdict {
        self.rule = Some(rule.clone());
        self
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Verdict {
        self.remedy = Some(remedy.into());
        self
    }

    pub fn effect(mut self, effect: impl Into<String>) -> Verdict {
        self.effect = Some(effect.into());
        self
    }
}

impl Decision {
    fn of(request: Request, verdict: Verdict) -> Decision {
        Decision {
            schema: SCHEMA,
            allowed: verdict.allowed,
            request,
            rule: verdict.rule,
            layer: verdict.layer,
            explanation: verdict.explanation,
            remedy: verdict.remedy,
            effect: verdict.effect,
        }
    }
}

/// Decides about a request over a connection that was decided about already, by the rules or by a person.
pub fn decide_over(policy: &Policy, connection: &Decision, method: &str, url: &str) -> Decision {
    let Decision { allowed, rule, layer, explanation, remedy, effect, .. } = connection.clone();
    let connection = Verdict { allowed, rule, layer, explanation, remedy, effect };
    let verdict = crate::judge_network::over(policy, Some(connection), method, url);
    Decision::of(Request::Http { method: method.to_owned(), url: url.to_owned() }, verdict)
}

/// Decides.
pub fn decide(policy: &Policy, request: &Request) -> Decision {
    use crate::{judge_environment, judge_network, judge_path};
    let verdict = match request {
        Request::Read(subject) => judge_path::file(policy, subject, judge_path::Act::Read),
        Request::Write(subject) => judge_path::file(policy, subject, judge_path::Act::Write),
        Request::Exec(subject) => judge_path::file(policy, subject, judge_path::Act::Exec),
        Request::Socket(subject) => judge_path::socket(policy, subject),
        Request::Connect { host, port } => judge_network::connect(policy, host, *port),
        Request::Http { method, url } => judge_network::http(policy, method, url),
        Request::Env { name } => judge_environment::variable(policy, name),
    };
    Decision::of(request.clone(), verdict)
}
