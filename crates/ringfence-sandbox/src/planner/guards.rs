//! Protected paths: those the kernel can hold, and those that are put right at the end.
//!
//! A path that exists is held by a read-only mount (namespace tier). One that does not exist
//! cannot be mounted over without leaving a ghost on the host, a symbolic link cannot be
//! mounted over at all, and the process tier has no mounts: these are recorded before the run
//! and put right after it, when nothing of the sandbox lives any more.

use super::grants::{Grants, expand};
use super::{PlanError, Planning};
use crate::facts::Kind;
use crate::plan::{Found, GuardStep, NestedGuard, Tier};
use ringfence_policy::{Access, Guarded, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A path held by a mount.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub path: PathBuf,
    /// The writable tree it lies in.
    pub tree: PathBuf,
    pub rule: Source,
}

/// What is protected, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Guards {
    pub held: Vec<Held>,
    pub steps: Vec<GuardStep>,
    pub nested: Vec<NestedGuard>,
}

pub(super) fn guards(
    planning: &mut Planning<'_>,
    grants: &Grants,
    tier: Tier,
) -> Result<Guards, PlanError> {
    let mut wanted = Wanted { planning, grants, rules: BTreeMap::new() };
    wanted.named_paths()?;
    wanted.known_names();
    let wanted = wanted.rules;
    let mut guards = Guards { nested: nested(planning, grants), ..Guards::default() };
    for (path, (tree, guarded, rule)) in wanted {
        let found = match planning.paths.kind(&path) {
            Kind::Absent if guarded == Guarded::ExistingOnly => continue,
            Kind::Absent => Found::Absent,
            Kind::Symlink(_) => Found::Symlink,
            Kind::File | Kind::Directory => Found::Present,
        };
        if found == Found::Present && tier == Tier::Namespace {
            guards.held.push(Held { path, tree, rule });
        } else {
            guards.steps.push(GuardStep { path, found, guarded, rule });
        }
    }
    Ok(guards)
}

/// Protected path → its writable tree, how a new one is judged, and the rule.
type Rules = BTreeMap<PathBuf, (PathBuf, Guarded, Source)>;

struct Wanted<'a, 'b> {
    planning: &'a Planning<'b>,
    grants: &'a Grants,
    rules: Rules,
}

impl Wanted<'_, '_> {
    /// The writable tree that a path lies in.
    fn tree(&self, path: &Path) -> Option<PathBuf> {
        let (tree, grant) = self.grants.covering(path)?;
        grant.write.then(|| tree.to_owned())
    }

    fn add(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        if self.planning.policy.unprotected.contains(&path) {
            return;
        }
        if let Some(tree) = self.tree(&path) {
            self.rules.entry(path).or_insert_with(|| (tree, guarded, rule.clone()));
        }
    }

    /// `protect` rules, and `deny` rules about what does not exist yet.
    fn named_paths(&mut self) -> Result<(), PlanError> {
        for rule in &self.planning.policy.paths {
            match (rule.access, &rule.pattern) {
                (Access::Protect, None) => self.add(rule.path.clone(), rule.guarded, &rule.source),
                (Access::Protect, Some(pattern)) | (Access::Deny, Some(pattern))
                    if pattern.split('/').any(|component| component == "**") =>
                {
                    let why = "`**` between components would need a walk through the tree at each \
                               start; name the directories";
                    return Err(PlanError::unenforceable(&rule.source, why));
                }
                (Access::Protect, Some(pattern)) => {
                    for path in expand(self.planning.paths, &rule.path, pattern) {
                        self.add(path, rule.guarded, &rule.source);
                    }
                }
                (Access::Deny, None) if self.planning.paths.kind(&rule.path) == Kind::Absent => {
                    self.add(rule.path.clone(), Guarded::Plain, &rule.source);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The list of names that hosts execute or trust, at the top of each writable tree.
    fn known_names(&mut self) {
        let trees = self.grants.trees.iter().filter(|(_, grant)| grant.write && grant.directory);
        for tree in trees.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            // Many names share a first component: look at it once.
            let mut present: BTreeMap<&str, bool> = BTreeMap::new();
            for name in &self.planning.policy.protected_names {
                let rule = Source {
                    origin: "built in".to_owned(),
                    key: "protected names".to_owned(),
                    text: name.name.clone(),
                };
                let first = name.name.split('/').next().unwrap_or_default();
                let parent_there = first == name.name
                    || *present.entry(first).or_insert_with(|| {
                        self.planning.paths.kind(&tree.join(first)) != Kind::Absent
                    });
                if !name.name.contains(['*', '?']) {
                    self.add(tree.join(&name.name), name.guarded, &rule);
                } else if parent_there && first != name.name {
                    // A pattern at the very top would list the whole directory at each start;
                    // it is looked for at the end instead.
                    for path in expand(self.planning.paths, &tree, &name.name) {
                        self.add(path, name.guarded, &rule);
                    }
                }
            }
        }
    }
}

/// Names looked for at the end in the directories below each writable tree.
fn nested(planning: &Planning<'_>, grants: &Grants) -> Vec<NestedGuard> {
    let names: Vec<(String, Guarded)> = planning
        .policy
        .protected_names
        .iter()
        .filter(|name| name.nested && name.guarded != Guarded::ExistingOnly)
        .map(|name| (name.name.clone(), name.guarded))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let trees = grants.trees.iter().filter(|(_, grant)| grant.write && grant.directory);
    trees.map(|(tree, _)| NestedGuard { tree: tree.clone(), names: names.clone() }).collect()
}
