//! `ringfence explain`: why a file is in the view of a command, or why it is not.

use crate::error::Fault;
use crate::generate::print;
use crate::options::{POLICY, parse};
use crate::{help, libraries, request};
use ringfence_learn::program::Answer;
use ringfence_policy::decide::Request;
use ringfence_policy::{HostFiles, Subject, decide, shown};
use ringfence_sandbox::dbus;
use ringfence_sandbox::facts::{Facts, HostPaths};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::plan::{MountOp, MountStep, Plan};
use ringfence_sandbox::{planner, text};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The longest chain of reasons that is told.
const LONGEST: usize = 32;

/// `ringfence explain [OPTIONS] PATH [CMD...]`: exit 0 in the view, 1 not.
///
/// # Errors
/// Bad input; a policy that this host cannot carry out.
pub fn explain(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&POLICY, arguments, true)?;
    if let Some(done) = help::asked("explain", &parsed) {
        return done;
    }
    let Some((path, argv)) = parsed.rest.split_first() else {
        return Err(Fault::usage("name a path: ringfence explain [OPTIONS] PATH [CMD...]"));
    };
    let command = argv.first().map(OsString::as_os_str);
    let policy = request::policy(&request::request(&parsed, command))?;
    let exact = policy.exact_libraries;
    if exact && argv.is_empty() {
        let path = path.display();
        return Err(Fault::usage(format!(
            "with --libs exact it depends on the command: ringfence explain --libs exact {path} CMD"
        )));
    }
    let answer = if exact { libraries::answer(&policy, argv) } else { Answer::default() };
    let mut facts = Facts::probed();
    facts.libraries = exact.then(|| libraries::of(&answer));
    dbus::look(&policy, &mut facts, &Inputs::new());
    let plan = planner::plan(&policy, &facts, &HostPaths).map_err(Fault::of)?;
    let path = policy.workdir.join(path);
    let real = real(&path);
    let mut lines = Vec::new();
    let seen = view(&plan, &path, &real, &mut lines);
    reasons(&answer, &path, &real, &mut lines);
    if !seen {
        let narrowed = answer.roots.iter().any(|root| real.starts_with(root));
        let granted = decide(&policy, &Request::Read(Subject::on_host(&path, &HostFiles)));
        if narrowed && granted.allowed {
            if is_on_host(&path, &mut lines) {
                let hides = "the command was not found to need it: --libs exact hides it";
                lines.push(hides.to_owned());
                lines.push(format!("to change it: {}", shown::option("--read", &path, false)));
            }
        } else if !granted.allowed {
            lines.push(granted.explanation);
            lines.extend(granted.remedy.map(|remedy| format!("to change it: {remedy}")));
        }
    }
    if parsed.has("json") {
        let told = serde_json::json!({"schema": 1, "path": path.to_string_lossy(), "in_view": seen, "reasons": lines});
        print(shown::json(&format!("{told:#}\n")).as_bytes())?;
        return Ok(u8::from(!seen));
    }
    let verdict = if seen { "in the view" } else { "not in the view" };
    // A name with an end of line in it would make lines of its own.
    let lines: Vec<_> = lines.iter().map(|line| shown::line(line)).collect();
    let named = path.display().to_string();
    let text = format!("{}: {verdict}\n  {}\n", shown::line(&named), lines.join("\n  "));
    print(shown::message(&text).as_bytes())?;
    Ok(u8::from(!seen))
}

/// What a path leads to. The processes of `/proc/self` are not these ones.
fn real(path: &Path) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = Path::new("/proc").join(std::process::id().to_string());
    real.strip_prefix(own).map_or_else(|_| real.clone(), |rest| Path::new("/proc/self").join(rest))
}

/// Whether a path is in the view, and by which step.
fn view(plan: &Plan, path: &Path, real: &Path, lines: &mut Vec<String>) -> bool {
    if plan.mounts.is_empty() {
        // The process tier has no view: what may be read is what there is.
        let rules = plan.landlock.iter().flat_map(|landlock| &landlock.files);
        let mut rules = rules.filter(|rule| real.starts_with(&rule.path));
        let Some(rule) = rules.next() else { return false };
        lines.push(format!("readable below {}: {}", rule.path.display(), text::source(&rule.rule)));
        return is_on_host(real, lines);
    }
    let covering = |at: &Path| {
        let steps = plan.mounts.iter().filter(|step| at.starts_with(&step.path));
        let shown =
            |op: &MountOp| !matches!(op, MountOp::Pin | MountOp::PinLink | MountOp::Protect);
        steps.filter(|step| shown(&step.op)).max_by_key(|step| step.path.components().count())
    };
    // By its own name first: a link of the view is told before what it leads to.
    let names = [path, real];
    for at in names.into_iter().take(1 + usize::from(path != real)) {
        let Some(step) = covering(at) else { continue };
        let source = text::source(&step.rule);
        let exact = step.path == at;
        match &step.op {
            MountOp::Mask { .. } | MountOp::MaskLink => {
                lines.push(format!("hidden by {source}"));
                return false;
            }
            MountOp::Symlink { target } if exact => {
                lines.push(format!("{} is a link to {}", at.display(), target.display()));
                // What it leads to is another one's for each process.
                if at == real {
                    return true;
                }
            }
            _ if at != real => {}
            MountOp::Root { .. } | MountOp::Cover | MountOp::Skeleton | MountOp::Symlink { .. } => {
                return is_on_the_way(plan, at, lines);
            }
            MountOp::Private { .. } | MountOp::Emptied => {
                lines.push(format!("{} is the sandbox's own: {source}", step.path.display()));
                return exact || is_on_the_way(plan, at, lines);
            }
            MountOp::Proc if is_process(at) => {
                lines.push(format!(
                    "{} is the sandbox's own, without the host's processes: {source}",
                    step.path.display()
                ));
                return false;
            }
            op => {
                lines.push(format!("shown with {}: {source}", step.path.display()));
                // The others hold what the host has elsewhere, or not at all.
                let same = matches!(op, MountOp::Bind { .. } | MountOp::Library | MountOp::Proc);
                return !same || is_on_host(at, lines);
            }
        }
    }
    false
}

/// Whether there is something at a path outside: what is not there is in no view.
fn is_on_host(path: &Path, lines: &mut Vec<String>) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let found = path.symlink_metadata();
    let absent = found.is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory));
    if absent {
        lines.push(format!("there is no {} on this host", path.display()));
    }
    !absent
}

/// Whether a directory is there for what is shown in it, and for nothing else.
fn is_on_the_way(plan: &Plan, path: &Path, lines: &mut Vec<String>) -> bool {
    let hides = |op: &MountOp| matches!(op, MountOp::Mask { .. } | MountOp::MaskLink);
    let within =
        |step: &&MountStep| step.path != path && step.path.starts_with(path) && !hides(&step.op);
    let Some(first) = plan.mounts.iter().find(within) else { return false };
    lines.push(format!(
        "inside it is a directory of the view's own, with just what is granted below it: {}, for one",
        first.path.display()
    ));
    true
}

/// Whether a path of `/proc` is about one process of the host's.
fn is_process(path: &Path) -> bool {
    let name = path.strip_prefix("/proc").ok().and_then(|rest| rest.components().next());
    name.is_some_and(|name| name.as_os_str().as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

/// The chain that led to a file: by what it is needed, and by what that is.
fn reasons(answer: &Answer, path: &Path, real: &Path, lines: &mut Vec<String>) {
    let above = |path: &Path| {
        path.ancestors().find(|above| answer.reasons.contains_key(*above)).map(Path::to_owned)
    };
    let mut at: Option<PathBuf> = above(real).or_else(|| above(path));
    let mut told = BTreeSet::new();
    while let Some(path) = at.take() {
        if told.len() >= LONGEST || !told.insert(path.clone()) {
            break;
        }
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let reason = answer.reasons.get(&path).or_else(|| answer.reasons.get(&real));
        let Some(reason) = reason else { break };
        lines.push(match &reason.by {
            Some(by) => format!("{}: {} {}", path.display(), reason.how, by.display()),
            None => format!("{}: {}", path.display(), reason.how),
        });
        at.clone_from(&reason.by);
    }
}
