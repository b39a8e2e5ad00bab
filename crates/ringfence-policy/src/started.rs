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

/// Protects the command that a request names, and those that its profiles are for: the file, the links that lead
/// to it, and the directory or package that it is a part of. `search` is the `PATH` in which a name without a slash
/// is looked for.
pub(crate) fn protect(
    commands: &[&OsStr],
    search: Option<&OsStr>,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) {
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
    let mut candidates = Vec::new();
    for command in commands {
        if command.as_encoded_bytes().contains(&b'/') {
            candidates.push(policy.workdir.join(command));
            continue;
        }
        // All of that name: which one is taken depends on modes, and on what is there in a moment.
        let directories = std::env::split_paths(search.unwrap_or_default());
        let absolute = directories.filter(|directory| directory.is_absolute());
        candidates.extend(absolute.map(|directory| directory.join(command)));
    }
    let mut found = Vec::new();
    for candidate in candidates {
        let Some(real) = resolver.real(&candidate).ok().filter(|real| real.exists) else {
            continue;
        };
        found.extend(real.links.into_iter().map(|(link, _)| link));
        found.extend(package(&real.path, resolver));
        found.push(real.path);
    }
    // Directories first: what is in one of them is protected with it, and granted with it.
    found.sort_unstable();
    found.dedup();
    let mut held: Vec<PathBuf> = Vec::new();
    for path in found {
        let within = |tree: &PathBuf| path.starts_with(tree) && path != *tree;
        let known = |rule: &PathRule| rule.access == Access::Protect && rule.path == path;
        if !trees.iter().any(within)
            || path.starts_with(&policy.workdir)
            || policy.workdir.starts_with(&path)
            || held.iter().any(|above| path.starts_with(above))
            || policy.paths.iter().any(known)
            || named(policy, &path)
        {
            continue;
        }
        held.push(path.clone());
        let reason = Some("the command is started from there".to_owned());
        policy.paths.push(PathRule { reason, ..plain(Access::Protect, path, true, built_in()) });
    }
}

/// Whether the innermost tree that a path can be written in is one that is named for this run, or itself.
fn named(policy: &Policy, path: &Path) -> bool {
    let covers = |rule: &&PathRule| rule.access == Access::Write && path.starts_with(&rule.path);
    let innermost =
        policy.paths.iter().filter(covers).max_by_key(|rule| rule.path.as_os_str().len());
    innermost.is_some_and(|rule| rule.path == path || rule.source.origin.starts_with("option "))
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
