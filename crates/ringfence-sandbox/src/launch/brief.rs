//! Which commands may end their launcher before libc is up (`ringfence_start::brief`), and what it needs for that.

use super::Order;
use crate::guard::{Saved, noted_by_image};
use crate::plan::{Found, GuardedTree, LimitStep, Plan};
use ringfence_policy::{Guarded, path};
use ringfence_start::listing::ENDING;
use ringfence_start::quiet;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What such a launcher needs.
pub(super) struct Brief {
    /// The session is recorded.
    pub recorded: bool,
    /// The directory of all sessions.
    pub sessions: PathBuf,
    /// The file of notes of runs, and what is noted there.
    pub runs: Vec<u8>,
    /// Trees, each with the names that are looked for in it.
    pub trees: Vec<u8>,
}

/// `notes` are the directories that it looks at. None where more is to be done after the command than can be done there.
pub(super) fn brief(
    plan: &Plan,
    order: &Order,
    saved: &[Saved],
    notes: &[PathBuf],
) -> Option<Brief> {
    // Somebody is told of each step; a clock runs; sockets of the host stand in for published ones.
    let timed = |limit: &LimitStep| matches!(limit, LimitStep::Timeout { .. });
    if order.announce || plan.limits.iter().any(timed) || !plan.publish.is_empty() {
        return None;
    }
    // What was there has to be compared.
    let absent = plan.guards.iter().all(|step| step.found == Found::Absent);
    if !absent || saved.iter().any(|saved| *saved != Saved::Nothing) {
        return None;
    }
    let (sessions, recorded) = order.keeper.as_ref()?.brief(plan)?;
    let trees = plan.guarded_trees.iter().map(tree).collect::<Option<Vec<_>>>()?.concat();
    let runs = noted_by_image(&plan.guarded_trees, notes)?;
    Some(Brief { recorded, sessions, runs, trees })
}

/// A tree's path and its list of names.
fn tree(tree: &GuardedTree) -> Option<Vec<u8>> {
    let mut names: BTreeMap<&[u8], u8> = BTreeMap::new();
    for (name, guarded) in &tree.nested {
        let first = name.split('/').next()?.as_bytes();
        let (mark, first) = match first.strip_prefix(b"*") {
            Some(end) => (ENDING, end),
            // Written in its place, of which the directory tells nothing.
            None if *guarded == Guarded::GitState && first != b".git" => (quiet::ANYWHERE, first),
            None => (mark(name, first), first),
        };
        // The rest of a pattern is not understood there.
        if first.is_empty() || first.contains(&b'*') {
            return None;
        }
        let known = names.entry(first).or_insert(mark);
        *known = match (mark, *known) {
            (one, other) if one == other => one,
            // A name that is nothing but the ending ends with it.
            (ENDING, quiet::NAME) | (quiet::NAME, ENDING) => ENDING,
            (ENDING, _) | (_, ENDING) => return None,
            _ => quiet::ANYWHERE,
        };
    }
    // A repository's names are many, and of one kind but for those further in.
    if let Some(mark) = names.get_mut(b".git".as_slice()) {
        let inner = |name: &str| {
            let within = name.strip_prefix(".git/").unwrap_or_default();
            let mut known = quiet::IN_REPOSITORY.into_iter().chain(quiet::LISTED);
            !name.contains('*')
                || known.any(|place| path::within(Path::new(within), Path::new(place)))
        };
        // What git keeps for itself is looked at there by names of its own.
        let names = tree.nested.iter().filter(|(_, guarded)| *guarded != Guarded::GitState);
        let git = names.map(|(name, _)| name.as_ref());
        let mut git = git.filter(|name| path::within(Path::new(name), Path::new(".git")));
        let all = git.all(inner);
        *mark = if all { quiet::REPOSITORY } else { quiet::ANYWHERE };
    }
    let list = names.into_iter().flat_map(|(name, mark)| [&[mark], name, b"\0"].concat());
    let path = tree.tree.as_os_str().as_bytes();
    Some(path.iter().copied().chain([0]).chain(list).chain([0]).collect())
}

fn mark(name: &str, first: &[u8]) -> u8 {
    match &name.as_bytes()[first.len()..] {
        [] => quiet::NAME,
        rest if rest.contains(&b'*') => quiet::ANYWHERE,
        _ => quiet::WAY,
    }
}
