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
    let directory = ringfence_sandbox::state::directory(&home);
    Evidence::open(&directory).map_err(|error| {
        let file = directory.join("learnt.db");
        Fault::of(format!("what was learnt before cannot be read: {}: {error}", file.display()))
    })
}

/// Under which name calls are learnt: the file that is written or added to, else the profile.
pub fn subject(file: Option<&Path>, policy: &Policy) -> String {
    if let Some(file) = file {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        return format!("file {}", file.display());
    }
    let named = |name: &&String| name.starts_with("profile ") || name.starts_with("file ");
    policy.profiles.iter().rfind(named).cloned().unwrap_or_else(|| "profile default".to_owned())
}

/// Adds what was seen to what is known of the profile, and proposes what its list lacks.
///
/// # Errors
/// The evidence cannot be written.
pub fn propose(
    proposal: &mut Proposal,
    policy: &Policy,
    observed: &Observed,
    subject: &str,
) -> Result<(), Fault> {
    let Some(list) = &policy.calls else { return Ok(()) };
    let mut evidence = open()?;
    evidence.add(subject, observed).map_err(Fault::of)?;
    let learnt = evidence.of(subject).map_err(Fault::of)?;
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
