//! `--libs exact`: the libraries of the command, as facts for the planner.

use ringfence_learn::closure::Surroundings;
use ringfence_learn::host::Look;
use ringfence_learn::program::{self, Answer, Question};
use ringfence_policy::{FileView, Policy};
use ringfence_sandbox::facts::{Facts, Libraries, PathFacts};
use ringfence_sandbox::inputs::Inputs;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Adds the libraries of a command to the facts, if the policy asks for just these.
pub fn find(policy: &Policy, argv: &[OsString], facts: &mut Facts, inputs: &Inputs) {
    if policy.exact_libraries && !argv.is_empty() {
        let answer = answer_from(policy, argv, inputs);
        if answer.arguments {
            inputs.arguments();
        }
        facts.libraries = Some(of(&answer));
    }
}

/// The exact set for a command, with reasons. Nothing is executed.
pub fn answer(policy: &Policy, argv: &[OsString]) -> Answer {
    answer_from(policy, argv, &Inputs::new())
}

fn answer_from(policy: &Policy, argv: &[OsString], inputs: &Inputs) -> Answer {
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD"] {
        inputs.variable(name);
    }
    let question = question(policy, argv);
    // Directories whose stamp stands for the names in them.
    let mut stamped: HashSet<OsString> = HashSet::new();
    program::libraries(&question, &mut |path, look| match look {
        Look::File | Look::Names => inputs.content(path),
        Look::Within if is_crowded(path, &question) => {
            inputs.names(path);
            stamped.insert(path.into());
        }
        Look::Within => {}
        Look::Link | Look::Absent
            if path.parent().is_some_and(|above| stamped.contains(above.as_os_str())) => {}
        Look::Link => drop(FileView::link(inputs, path)),
        Look::Absent => drop(PathFacts::kind(inputs, path)),
    })
}

/// Whether a directory is one in which many names are looked for and that changes rarely: one
/// stamp for it is cheaper than one for each name.
fn is_crowded(directory: &Path, question: &Question) -> bool {
    const SYSTEM: [&str; 3] = ["/usr", "/lib", "/lib64"];
    let system = SYSTEM.iter().any(|above| directory.starts_with(above));
    !question.is_busy(directory) && (system || question.search.iter().any(|one| one == directory))
}

/// What is asked: the command, in the environment that it will have.
fn question(policy: &Policy, argv: &[OsString]) -> Question {
    let variable = |name: &str| {
        let set = policy.environment.set.iter().find(|(known, _)| known.as_str() == name);
        set.map_or_else(|| std::env::var_os(name), |(_, (value, _))| Some(value.into()))
    };
    let bytes = |name: &str| variable(name).unwrap_or_default().as_bytes().to_vec();
    let search =
        variable("PATH").unwrap_or_else(|| OsStr::new("/usr/local/bin:/usr/bin:/bin").into());
    Question {
        argv: argv.to_vec(),
        search: std::env::split_paths(&search).collect(),
        workdir: policy.workdir.clone(),
        home: policy.home_dir.clone(),
        surroundings: Surroundings {
            library_path: bytes("LD_LIBRARY_PATH"),
            preload: bytes("LD_PRELOAD"),
        },
    }
}

/// The same as facts.
pub fn of(answer: &Answer) -> Libraries {
    let list = |paths: &std::collections::BTreeSet<PathBuf>| paths.iter().cloned().collect();
    Libraries {
        roots: list(&answer.roots),
        files: list(&answer.files),
        directories: list(&answer.directories),
        links: answer.links.iter().map(|(link, to)| (link.clone(), to.clone())).collect(),
    }
}
