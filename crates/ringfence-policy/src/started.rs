//! The command itself, where it lies in a tree that it may write.
//!
//! Agents' installers put the program into the agent's own state (Codex: `~/.codex/packages/standalone`,
//! <https://github.com/openai/codex/issues/17022>), which its preset makes writable. What it leaves there is what the
//! user starts the next time, outside of any sandbox. Of the workspace this is not said: what a project runs
//! of its own is written there on purpose.

use crate::files::Resolver;
use crate::guard::{built_in, plain};
use crate::policy::{Access, PathRule, Policy};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Protects the command that a request names: the file, the links that lead to it, and the directory or package
/// that it is a part of. `search` is the `PATH` in which a name without a slash is looked for.
pub(crate) fn protect(
    command: &OsStr,
    search: Option<&OsStr>,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) {
    let by_path = command.as_encoded_bytes().contains(&b'/');
    // Beside the workspace. Who names the tree for this run means it to be written: an installer's, say.
    let counts = |rule: &&PathRule| {
        let named = rule.source.origin.starts_with("option ");
        rule.access == Access::Write && rule.path != policy.workdir && !named
    };
    let trees: Vec<PathBuf> =
        policy.paths.iter().filter(counts).map(|rule| rule.path.clone()).collect();
    if trees.is_empty() {
        return;
    }
    let candidates: Vec<PathBuf> = match by_path {
        true => vec![policy.workdir.join(command)],
        // All of that name: which one is taken depends on modes, and on what is there in a moment.
        false => std::env::split_paths(search.unwrap_or_default())
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(command))
            .collect(),
    };
    let mut found = Vec::new();
    for candidate in candidates {
        let Some(real) = resolver.real(&candidate).ok().filter(|real| real.exists) else {
            continue;
        };
        found.extend(real.links.into_iter().map(|(link, _)| link));
        found.extend(package(&real.path, resolver));
        found.push(real.path);
    }
    for path in found {
        let within = |tree: &PathBuf| path.starts_with(tree) && path != *tree;
        let known = |rule: &PathRule| {
            matches!(rule.access, Access::Protect | Access::Write) && rule.path == path
        };
        if !trees.iter().any(within)
            || path.starts_with(&policy.workdir)
            || policy.workdir.starts_with(&path)
            || policy.paths.iter().any(known)
        {
            continue;
        }
        let reason = Some("the command is started from there".to_owned());
        policy.paths.push(PathRule { reason, ..plain(Access::Protect, path, true, built_in()) });
    }
}

/// What a program is a part of: the directory that it is in, the modules of Node that it was installed among, the
/// virtual environment of Python that it belongs to.
fn package(program: &Path, resolver: &mut Resolver<'_>) -> Vec<PathBuf> {
    let Some(directory) = program.parent() else { return Vec::new() };
    let mut all = vec![directory.to_owned()];
    let modules = program.ancestors().filter(|above| above.ends_with("node_modules")).last();
    all.extend(modules.map(Path::to_owned));
    let environment = directory.parent();
    let environment = environment.filter(|above| resolver.exists(&above.join("pyvenv.cfg")));
    all.extend(environment.map(Path::to_owned));
    all
}
