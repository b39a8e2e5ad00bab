//! `--libs exact`: in directories of libraries, only what the command needs.
//!
//! What that is comes with the facts, found by reading the command's files. It narrows: nothing
//! is granted here that the policy does not grant. A directory of libraries in a granted tree is
//! covered, and in it its files are granted one by one: by an overlay that shows them all, or, where the
//! kernel has none that can, or they are few, each by a mount of its own. Neither holds a copy. Where nothing can be covered (the
//! process tier), the tree is granted by its other parts.

use super::grants::{Grant, Grants};
use super::{PlanError, Planning, built_in};
use crate::facts::Kind;
use crate::plan::{MountOp, MountStep, Tier};
use ringfence_policy::path::within;
use ringfence_policy::{Access, Source};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

fn exact() -> Source {
    built_in("the command needs it (--libs exact)")
}

fn parts() -> Source {
    built_in("of it only what the command needs (--libs exact)")
}

/// Narrows the grants, if the policy asks for it.
pub(super) fn narrow(
    grants: &mut Grants,
    planning: &Planning<'_>,
    tier: Tier,
) -> Result<(), PlanError> {
    if !planning.policy.exact_libraries {
        return Ok(());
    }
    let Some(libraries) = &planning.facts.libraries else {
        return Err(PlanError::NoCommand);
    };
    let mut trees: Vec<(PathBuf, Grant)> = Vec::new();
    let mut narrowed: Vec<&PathBuf> = Vec::new();
    let mut covers: Vec<&PathBuf> = Vec::new();
    for root in &libraries.roots {
        let Some((tree, grant)) = grants.covering(root) else { continue };
        if grant.write || tree == Path::new("/") {
            let why = "--libs exact cannot narrow it: name what is needed of it, read-only";
            return Err(PlanError::unenforceable(&grant.rule, why));
        }
        narrowed.push(root);
        let outermost = tree.parent().is_some_and(|above| grants.covering(above).is_none());
        let directory = planning.paths.kind(root) == Kind::Directory;
        if tier == Tier::Namespace && tree != root && outermost && directory {
            covers.push(root);
            continue;
        }
        if !trees.iter().any(|(known, _)| known == tree) {
            trees.push((tree.to_owned(), grant.clone()));
        }
    }
    // What has to be granted by its parts anyway needs no cover in it.
    let whole = |root: &&&PathBuf| !trees.iter().any(|(tree, _)| root.starts_with(tree));
    let covers: Vec<PathBuf> = covers.iter().filter(whole).map(|root| root.to_path_buf()).collect();
    grants.covers.extend(covers.into_iter().map(|root| (root, parts())));
    for (tree, grant) in trees {
        grants.trees.remove(&tree);
        split(grants, planning, &tree, &grant, &libraries.roots);
    }
    let inside = |path: &Path| narrowed.iter().any(|root| path != **root && within(path, root));
    for rule in &planning.policy.paths {
        let write = match rule.access {
            Access::Write => true,
            Access::Read => false,
            Access::Deny | Access::Protect => continue,
        };
        if inside(&rule.path) {
            add(grants, planning, &rule.path, write, &rule.source);
        }
    }
    for path in &libraries.directories {
        if inside(path) && grants.covering(path).is_none() {
            add(grants, planning, path, false, &exact());
        }
    }
    // What covers them is a directory, and they are in few: each is looked up once.
    let mut last = None;
    for path in libraries.files.iter().filter(|path| inside(path)) {
        if !is_covered(grants, path, &mut last) {
            add(grants, planning, path, false, &exact());
        }
    }
    for (link, target) in &libraries.links {
        if inside(link) && !is_covered(grants, link, &mut last) {
            grants.links.insert(link.clone(), target.clone());
        }
    }
    let denials = std::mem::take(&mut grants.denials);
    grants.denials =
        denials.into_iter().filter(|denial| grants.covering(&denial.path).is_some()).collect();
    Ok(())
}

/// Whether a grant covers what is no directory. `last`: the last directory that was looked up, and whether a grant covers it.
fn is_covered<'p>(grants: &Grants, path: &'p Path, last: &mut Option<(&'p Path, bool)>) -> bool {
    let Some(directory) = path.parent() else { return grants.covering(path).is_some() };
    let covered = match *last {
        Some((known, covered)) if known.as_os_str() == directory.as_os_str() => covered,
        _ => grants.covering(directory).is_some(),
    };
    *last = Some((directory, covered));
    covered || grants.trees.contains_key(path)
}

/// From so many names on an overlay is less than a mount each.
const ENOUGH: usize = 24;

/// Has an overlay show what lies below a cover, where the kernel can, and there is enough of it.
pub(super) fn lay(steps: &mut [MountStep], planning: &Planning<'_>) {
    let Some(libraries) = planning.facts.libraries.as_ref() else { return };
    if !planning.facts.data_layers.yes() {
        return;
    }
    let files: HashSet<&Path> = libraries.files.iter().map(PathBuf::as_path).collect();
    let covers = steps.iter().filter(|step| step.op == MountOp::Cover);
    let covers: Vec<PathBuf> = covers.map(|step| step.path.clone()).collect();
    for cover in covers {
        let inside = |path: &Path| path != cover && within(path, &cover);
        let file = MountOp::Bind { directory: false, read_only: true, devices: false };
        let is_library = |step: &MountStep| step.op == file && files.contains(&*step.path);
        let is_name =
            |step: &MountStep| matches!(step.op, MountOp::Symlink { .. }) || is_library(step);
        let below: Vec<&MountStep> = steps.iter().filter(|step| inside(&step.path)).collect();
        let shown = |path: &Path| {
            let directory = MountOp::Bind { directory: true, read_only: true, devices: false };
            below.iter().any(|step| step.op == directory && within(path, &step.path))
        };
        // What is put into a tree that is shown there has its place; what is mounted in its own right is
        // a file or directory of the host.
        let fits = |step: &&MountStep| {
            is_name(step)
                || matches!(step.op, MountOp::Bind { read_only: true, devices: false, .. })
                || step.path.parent().is_some_and(shown)
        };
        let enough = below.iter().filter(|step| is_name(step)).count() >= ENOUGH;
        if !enough || !below.iter().all(fits) {
            continue;
        }
        for step in steps.iter_mut() {
            if step.path == cover && step.op == MountOp::Cover {
                step.op = MountOp::Skeleton;
            } else if inside(&step.path) && is_library(step) {
                step.op = MountOp::Library;
            }
        }
    }
}

/// Grants one path, unless it is denied or gone.
fn add(grants: &mut Grants, planning: &Planning<'_>, path: &Path, write: bool, rule: &Source) {
    if grants.denials.iter().any(|denial| within(path, &denial.path)) {
        return;
    }
    let directory = match planning.paths.kind(path) {
        Kind::Absent | Kind::Symlink(_) => return,
        Kind::File => false,
        Kind::Directory => true,
    };
    let grant = Grant { write, directory, rule: rule.clone() };
    grants.trees.insert(path.to_owned(), grant);
}

/// Grants a tree by its parts, without the roots in it.
fn split(
    grants: &mut Grants,
    planning: &Planning<'_>,
    tree: &Path,
    grant: &Grant,
    roots: &[PathBuf],
) {
    if roots.iter().any(|root| root == tree) {
        return;
    }
    for name in planning.paths.list(tree) {
        let path = tree.join(name);
        if roots.iter().any(|root| root.starts_with(&path)) {
            split(grants, planning, &path, grant, roots);
            continue;
        }
        let directory = match planning.paths.kind(&path) {
            Kind::Absent => continue,
            Kind::Symlink(target) => {
                grants.links.insert(path, target);
                continue;
            }
            Kind::File => false,
            Kind::Directory => true,
        };
        let grant = Grant { directory, ..grant.clone() };
        grants.trees.entry(path).or_insert(grant);
    }
}
