//! The command's environment: the caller's, changed as the plan says.

use crate::plan::{EnvironmentStep, PRIVATE, Plan, Tier};
use crate::state::SESSION_MARK;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is kept and what is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// For each of the caller's variables, in order, whether the command gets it.
    pub kept: Vec<bool>,
    /// `NAME=value` strings.
    pub set: Vec<Vec<u8>>,
}

/// What names a place for temporary files, and what stands there below the process tier's directory:
/// some programs look at one of the others only (zsh at the last, for its here-documents).
const TEMPORARY: [(&str, &str); 4] =
    [("TMPDIR", "tmp"), ("TEMP", "tmp"), ("TMP", "tmp"), ("TMPPREFIX", "tmp/zsh")];

/// Variables that stay under `--clean-env`.
const ALWAYS: [&str; 6] = ["PATH", "HOME", "TERM", "LANG", "USER", "LOGNAME"];

/// Whether the command has a variable of this name, where the caller has one.
pub fn has_variable(plan: &Plan, name: &str) -> bool {
    let private = (plan.tier == Tier::Process).then_some(Path::new(PRIVATE));
    let made = environment(plan, &[(name.as_bytes().to_vec(), Vec::new())], private);
    let sets = |entry: &Vec<u8>| {
        let value = entry.strip_prefix(name.as_bytes());
        value.is_some_and(|value| value.starts_with(b"="))
    };
    made.kept == [true] || made.set.iter().any(sets)
}

/// Decides over the caller's variables, given in their order. `private` is the process tier's
/// directory.
pub(super) fn environment(
    plan: &Plan,
    caller: &[(Vec<u8>, Vec<u8>)],
    private: Option<&Path>,
) -> Environment {
    let mut hidden: HashSet<&str> = HashSet::new();
    let mut passed: HashSet<&str> = HashSet::new();
    let mut set: Vec<(&str, &str)> = Vec::new();
    let mut clean = false;
    for step in &plan.environment {
        match step {
            EnvironmentStep::Set { name, value, .. } => set.push((name, value)),
            EnvironmentStep::Hide { name, .. } => {
                hidden.insert(name);
            }
            EnvironmentStep::Pass { name, .. } => {
                passed.insert(name);
            }
            EnvironmentStep::Clean { .. } => clean = true,
        }
    }
    let replaced = |name: &str| {
        set.iter().any(|(other, _)| *other == name)
            || private.is_some() && name == "HOME"
            || private.is_some() && TEMPORARY.iter().any(|(other, _)| *other == name)
            // Ours alone: not the business of what runs inside.
            || matches!(name, "RINGFENCE_TRACE_LAUNCH" | "RINGFENCE_FAULT" | "RINGFENCE_SESSION")
            || matches!(name, "PWD" | "OLDPWD")
    };
    let mut made = Environment::default();
    for (name, _) in caller {
        // The plan speaks of names as text; one that is no text is known by its lossy form.
        let name = String::from_utf8_lossy(name);
        let wanted = !clean || ALWAYS.contains(&&*name) || passed.contains(&*name);
        made.kept.push(wanted && !hidden.contains(&*name) && !replaced(&name));
    }
    if let Some(private) = private {
        let had = |wanted: &[u8]| caller.iter().any(|(name, _)| name == wanted);
        let at = |name: &str| private.join(name).as_os_str().as_bytes().to_vec();
        if had(b"HOME") && !set.iter().any(|(name, _)| *name == "HOME") {
            made.set.push([b"HOME=".to_vec(), at("home")].concat());
        }
        for (name, place) in TEMPORARY {
            // The two that only some programs know are there where the caller has them.
            let due = !matches!(name, "TEMP" | "TMP") || !clean && had(name.as_bytes());
            if due && !set.iter().any(|(other, _)| *other == name) {
                made.set.push([name.as_bytes(), b"=", &at(place)].concat());
            }
        }
    }
    if !set.iter().any(|(name, _)| *name == "PWD") {
        made.set.push([b"PWD=", plan.workdir.as_os_str().as_bytes()].concat());
    }
    made.set.push(format!("RINGFENCE_SESSION={SESSION_MARK}").into_bytes());
    let own = |value: &str| match private {
        Some(private) => value.replace(PRIVATE, &private.to_string_lossy()),
        None => value.to_owned(),
    };
    made.set.extend(set.iter().map(|(name, value)| format!("{name}={}", own(value)).into_bytes()));
    made.set.retain(|entry| !entry.contains(&0));
    made
}
