//! `ringfence run --trace-missing`: what the program looked for, the host has, and the sandbox
//! does not show; with what would show it.

use crate::error::Fault;
use crate::options::{POLICY, Parsed};
use crate::{advice, lesson, libraries, request};
use ringfence_learn::program::Answer;
use ringfence_learn::propose::is_named;
use ringfence_learn::secrets::Secrets;
use ringfence_learn::temporary::{missed, temporary};
use ringfence_learn::watch::{self, Act, Observed, Use, Watch};
use ringfence_policy::catalog::Kind;
use ringfence_policy::decide::Request;
use ringfence_policy::{
    HostFiles, Policy, Subject, TierChoice, decide, shown, too_much, unseen_above,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most lines that are printed.
const MOST: usize = 100;

/// Runs the command as it would be run without the option, watched; tells what is missing.
///
/// # Errors
/// Those of the run; a kernel without notification.
pub fn run(parsed: &Parsed, argv: &[OsString]) -> Result<u8, Fault> {
    ringfence_sandbox::launch::enough_descriptors().map_err(Fault::of)?;
    let name = argv.first().map(OsString::as_os_str);
    let policy = request::policy(&request::request(parsed, name))?;
    crate::vm::check(&policy, parsed)?;
    // In the process tier what is only looked for is there.
    let what = Watch { looks: policy.tier != TierChoice::Process, calls: false };
    let (status, observed) = watch::run(inner(parsed, argv)?, what).map_err(|error| {
        let why = "tracing needs seccomp notification (Linux 5.9), which --publish and some \
                   container runtimes use themselves";
        Fault::of(format!("the run cannot be watched: {error}; {why}"))
    })?;
    let code = lesson::exit_code(status);
    if observed.processes == 0 {
        return Ok(code);
    }
    let exact = policy.exact_libraries.then(|| libraries::answer(&policy, argv));
    let missing = missing(&policy, &observed, exact.as_ref());
    let features = features(parsed, name);
    let secrets = Secrets::of(&policy);
    for (path, Missing { uses, written }) in missing.iter().take(MOST) {
        let by: Vec<&str> = uses.by.iter().take(3).map(String::as_str).collect();
        let shows = |policy: &Policy| !written && is_shown(policy, path, exact.as_ref());
        let feature = features.iter().find(|(_, policy)| shows(policy));
        let remedy = match feature {
            Some((name, _)) => format!("feature {name} shows it"),
            None if *written => match too_much(path, &policy) {
                None => format!(
                    "it was to be written in, and {} lets that",
                    shown::option("--write", path, false)
                ),
                Some(reason) => format!(
                    "it was to be written in: make what is in it outside, and grant that alone ({reason})"
                ),
            },
            None => format!("{} shows it", option(&policy, path)),
        };
        let secret = secrets.secret(path);
        let secret = secret.map_or(String::new(), |whose| format!(" CREDENTIALS ({whose}),"));
        let line = format!(
            "ringfence: missing:{secret} {} (by {}); {remedy}",
            path.display(),
            by.join(", ")
        );
        // The host's names, and the program's own.
        ringfence_sys::say!("{}", shown::line(&line));
    }
    match missing.len() {
        0 => ringfence_sys::say!("ringfence: nothing that the host has was missing"),
        count if count > MOST => ringfence_sys::say!("ringfence: and {} more", count - MOST),
        _ => {}
    }
    Ok(code)
}

/// What is to be typed so that a path is shown.
fn option(policy: &Policy, path: &Path) -> String {
    if let Some(environment) = advice::virtual_environment(path) {
        return shown::option("--read", &environment, false);
    }
    let decision = decide(policy, &Request::Read(Subject::on_host(path, &HostFiles)));
    // Where a set of libraries leaves it out, no rule does.
    decision.remedy.unwrap_or_else(|| shown::option("--read", path, false))
}

/// The same run, without the option.
fn inner(parsed: &Parsed, argv: &[OsString]) -> Result<Command, Fault> {
    let mut command = ringfence_sandbox::itself::command();
    command.arg("run");
    let ours = ["trace-missing", "command"];
    for (name, value) in parsed.options.iter().filter(|(name, _)| !ours.contains(name)) {
        let mut option = OsString::from(format!("--{name}"));
        if POLICY.iter().any(|spec| spec.long == *name && spec.value.is_some()) {
            option.push("=");
            option.push(value);
        }
        command.arg(option);
    }
    command.arg("--").args(argv);
    Ok(command)
}

/// Whether a path of the host is in the view: by rules, and with exact libraries in their set too,
/// or named beside it.
fn is_shown(policy: &Policy, path: &Path, exact: Option<&Answer>) -> bool {
    let narrowed = exact.filter(|answer| answer.narrows(path));
    let named =
        |answer: &Answer| path.canonicalize().is_ok_and(|real| is_named(policy, answer, &real));
    decide(policy, &Request::Read(Subject::on_host(path, &HostFiles))).allowed
        && narrowed.is_none_or(named)
}

/// Something that was missing.
#[derive(Default)]
struct Missing {
    uses: Use,
    /// A directory that was to be written in.
    written: bool,
}

/// What was looked for, is there, and is not shown.
fn missing(
    policy: &Policy,
    observed: &Observed,
    exact: Option<&Answer>,
) -> BTreeMap<PathBuf, Missing> {
    let mut missing: BTreeMap<PathBuf, Missing> = BTreeMap::new();
    for ((path, act), uses) in &observed.paths {
        if policy.tier != TierChoice::Process && temporary(policy, path).is_some() {
            if let Some(missed) = missed(policy, observed, path, *act) {
                let missing = missing.entry(missed).or_default();
                missing.uses.join(uses);
                missing.written |= *act == Act::Write;
            }
            continue;
        }
        if *act == Act::Write {
            if let Some(directory) = lacked(policy, observed, path) {
                let missing = missing.entry(directory).or_default();
                missing.uses.join(uses);
                missing.written = true;
            }
            continue;
        }
        let own = ["/proc", "/dev"].iter().any(|own| path.starts_with(own))
            || policy.tier != TierChoice::Process && path == Path::new("/tmp");
        let own = own && !path.starts_with(&policy.home_dir);
        // Directories on the way to what is shown are there.
        let on_the_way = policy.paths.iter().any(|rule| rule.path.starts_with(path))
            || policy.home_dir.starts_with(path)
            || policy.workdir.starts_with(path);
        if own || on_the_way || path.symlink_metadata().is_err() {
            continue;
        }
        if !is_shown(policy, path, exact) {
            missing.entry(path.clone()).or_default().uses.join(uses);
        }
    }
    missing
}

/// The directory that a path was to be written in, where only the host has it, and the program did not make it itself.
fn lacked(policy: &Policy, observed: &Observed, path: &Path) -> Option<PathBuf> {
    if !path.starts_with(&policy.home_dir) {
        return None;
    }
    let decision = decide(policy, &Request::Write(Subject::on_host(path, &HostFiles)));
    let private = decision.allowed && decision.layer == "private";
    let above = private.then(|| unseen_above(policy, path, &HostFiles)).flatten()?;
    let made = observed.paths.contains_key(&(above.clone(), Act::Write));
    (!made).then_some(above)
}

/// The policies with each feature more.
fn features(parsed: &Parsed, command: Option<&OsStr>) -> Vec<(String, Policy)> {
    let base = request::request(parsed, command);
    let names = request::with_catalog(|catalog| {
        let listed = catalog.list(Kind::Feature);
        Ok(listed.into_iter().map(|listed| listed.name).collect::<Vec<_>>())
    });
    let with = |name: String| {
        let mut request = base.clone();
        request.features.push(name.clone());
        Some((name, request::policy(&request).ok()?))
    };
    names.unwrap_or_default().into_iter().filter_map(with).collect()
}
