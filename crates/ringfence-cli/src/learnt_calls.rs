//! The system calls that `learn` has seen under a profile: kept as evidence, proposed as a list.

use crate::error::Fault;
use crate::generate::print;
use ringfence_learn::evidence::{Evidence, Learnt};
use ringfence_learn::propose::{Proposal, Rule};
use ringfence_learn::watch::{Observed, Use};
use ringfence_policy::{Policy, calls};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

fn open() -> Result<Evidence, Fault> {
    let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Fault::of("there is no home to keep what was learnt in"))?;
    let directory = ringfence_sandbox::state::directory(&home).map_err(Fault::of)?;
    Evidence::open(&directory).map_err(|error| {
        let file = directory.join("learnt.db");
        Fault::of(format!("what was learnt before cannot be read: {}: {error}", file.display()))
    })
}

/// Which profiles system calls are evidence for.
#[derive(Debug, Default)]
pub struct About {
    /// One that is there and was named: what is seen adds to what was learnt under it before.
    pub known: Option<String>,
    /// One that is made of this run: what its name meant before is another one's.
    pub made: Option<String>,
}

impl About {
    /// The last profile of a policy that the user named one of, and the file that is made.
    pub fn of(named: Option<&Policy>, output: Option<&Path>) -> About {
        let known = named.map(subject);
        let made = output.map(file).filter(|made| known.as_ref() != Some(made));
        About { known, made }
    }
}

/// Under which name calls are learnt: the last profile's.
pub fn subject(policy: &Policy) -> String {
    let named = |name: &&String| name.starts_with("profile ") || name.starts_with("file ");
    match policy.profiles.iter().rfind(named) {
        Some(name) => name.strip_prefix("file ").map_or(name.clone(), |path| file(Path::new(path))),
        None => "profile default".to_owned(),
    }
}

/// A profile in a file, by the one name that it has.
fn file(path: &Path) -> String {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize();
    let found = path.canonicalize().ok().or_else(|| Some(above.ok()?.join(path.file_name()?)));
    format!("file {}", found.unwrap_or_else(|| path.to_owned()).display())
}

/// Keeps what was seen as evidence, and proposes what the list lacks: of a profile that is there what was learnt under it
/// of programs as they are installed now, else what this run called.
///
/// # Errors
/// The evidence cannot be written.
pub fn propose(
    proposal: &mut Proposal,
    policy: &Policy,
    observed: &Observed,
    about: &About,
) -> Result<(), Fault> {
    let Some(list) = &policy.calls else { return Ok(()) };
    if let Some(made) = &about.made {
        let mut evidence = open()?;
        evidence.forget(made).map_err(Fault::of)?;
        evidence.add(made, observed).map_err(Fault::of)?;
    }
    let learnt = match &about.known {
        Some(known) => {
            let mut evidence = open()?;
            evidence.add(known, observed).map_err(Fault::of)?;
            current(evidence.of(known).map_err(Fault::of)?)
        }
        None => {
            let seen = observed.calls.iter().map(|((program, call), count)| Learnt {
                program: program.to_string_lossy().into_owned(),
                build: String::new(),
                call: call.clone(),
                count: *count,
            });
            seen.collect()
        }
    };
    let allowed: BTreeSet<&str> = list.allow.iter().flat_map(|name| calls::members(name)).collect();
    let mut wanted: BTreeMap<&str, Use> = BTreeMap::new();
    for one in &learnt {
        if !allowed.contains(one.call.as_str()) && !calls::is_always(&one.call) {
            let uses = wanted.entry(&one.call).or_default();
            uses.count += one.count;
            uses.by.insert(name(&one.program).to_owned());
        }
    }
    for (call, uses) in wanted {
        let refused = ringfence_sandbox::planner::calls::refused_to_all(call);
        let reason = refused.map(|reason| format!("no command may call it: it {reason}"));
        let text = call.to_owned();
        let reason = reason.unwrap_or_default();
        let rule = Rule { key: ("syscalls", "allow"), text, uses, reason };
        if rule.reason.is_empty() {
            proposal.rules.push(rule);
        } else {
            proposal.withheld.push(rule);
        }
    }
    Ok(())
}

/// Without builds that have been replaced since: what these called is no need of the ones that run now.
fn current(learnt: Vec<Learnt>) -> Vec<Learnt> {
    let mut builds: BTreeMap<String, String> = BTreeMap::new();
    let mut is_current = |one: &Learnt| {
        let now = builds
            .entry(one.program.clone())
            .or_insert_with(|| ringfence_learn::evidence::build(Path::new(&one.program)));
        *now == one.build
    };
    learnt.into_iter().filter(|one| is_current(one)).collect()
}

fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// `ringfence profile syscalls NAME [forget]`: what was learnt, by program and build.
///
/// # Errors
/// No such profile; the evidence cannot be read.
pub fn show(name: &str, list: Option<&BTreeSet<String>>, forget: bool) -> Result<u8, Fault> {
    let mut evidence = open()?;
    if forget {
        let count = evidence.forget(name).map_err(Fault::of)?;
        return print(format!("{count} calls forgotten\n").as_bytes());
    }
    let learnt = evidence.of(name).map_err(Fault::of)?;
    if learnt.is_empty() {
        return Err(Fault::usage(format!(
            "nothing was learnt under {name}: ringfence learn --syscalls learned -p PROFILE -- CMD"
        )));
    }
    print(table(&learnt, list).as_bytes())
}

fn table(learnt: &[Learnt], list: Option<&BTreeSet<String>>) -> String {
    let allowed: BTreeSet<&str> =
        list.into_iter().flatten().flat_map(|name| calls::members(name)).collect();
    let mut text = String::new();
    let mut programs: BTreeMap<(&str, &str), Vec<&Learnt>> = BTreeMap::new();
    for one in learnt {
        programs.entry((&one.program, &one.build)).or_default().push(one);
    }
    for ((program, build), learnt) in programs {
        let now = ringfence_learn::evidence::build(Path::new(program));
        let stale = if now == build { "" } else { ", not the one that is installed now" };
        let shown: String = program.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let _ = writeln!(text, "{shown} (build {build}{stale})");
        for one in learnt {
            let state = if allowed.contains(one.call.as_str()) { "listed" } else { "not listed" };
            let _ = writeln!(text, "  {:<24} {:>8} times  {state}", one.call, one.count);
        }
    }
    text
}
