//! Directories in a bound tree that are shown by their parts only (`--libs exact`): an empty
//! directory is laid over each, and its parts are put there. The tree is bound once, where its
//! other parts would be so many mounts of their own.
//!
//! The empty directory is made in the view's own file system, at the place where the tree is
//! about to be bound: there nothing sees it afterwards, and it goes with the view.

use super::mounts::attribute::{NO_DEVICES, NO_SUID, READ_ONLY};
use super::mounts::{attach, copy_tree, make_directory, relative, set_attributes};
use super::script::Script;
use crate::plan::{MountOp, MountStep};
use std::path::{Path, PathBuf};

/// The covers of a view.
#[derive(Default)]
pub(super) struct Covers {
    wanted: Vec<PathBuf>,
    /// Made, and attached nowhere yet.
    ready: Vec<(PathBuf, u8)>,
    /// In their places; still writable.
    laid: Vec<(PathBuf, u8)>,
}

impl Covers {
    /// For these steps.
    pub fn new(steps: &[MountStep]) -> Covers {
        let covers = steps.iter().filter(|step| step.op == MountOp::Cover);
        Covers { wanted: covers.map(|step| step.path.clone()).collect(), ..Covers::default() }
    }

    /// Makes what will be laid over parts of a tree, before that is bound at its path.
    pub fn prepare(&mut self, script: &mut Script, root: u8, tree: &Path) {
        for path in self.wanted.iter().filter(|path| path.starts_with(tree)) {
            let below = path.strip_prefix(tree).unwrap_or(path);
            let mut at = tree.to_path_buf();
            for name in below.components() {
                at.push(name);
                script.note("make the directory", Some(&at));
                make_directory(script, root, relative(&at), 0o755);
            }
            script.note("make a cover for", Some(path));
            let cover = copy_tree(script, root, relative(path), false, NO_SUID | NO_DEVICES);
            self.ready.push((path.clone(), cover));
        }
    }

    /// Lays the cover for a path over the place that it is in the view; whether there was one.
    pub fn lay(&mut self, script: &mut Script, path: &Path, place: u8) -> bool {
        let Some(at) = self.ready.iter().position(|(ready, _)| ready == path) else { return false };
        let (path, cover) = self.ready.swap_remove(at);
        script.note("cover", Some(&path));
        attach(script, cover, place, Path::new(""));
        self.laid.push((path, cover));
        true
    }

    /// The cover that a path lies below.
    pub fn over(&self, path: &Path) -> Option<&Path> {
        let over = |(cover, _): &&(PathBuf, u8)| path != cover && path.starts_with(cover);
        self.laid.iter().find(over).map(|(cover, _)| cover.as_path())
    }

    /// The cover that a path lies below, and the path from there.
    pub fn place<'p>(&self, path: &'p Path) -> Option<(u8, &'p Path)> {
        self.laid.iter().find_map(|(cover, register)| {
            let below = path.strip_prefix(cover).ok()?;
            (!below.as_os_str().is_empty()).then_some((*register, below))
        })
    }

    /// Makes them read-only, when all is in its place, and lets go of them.
    pub fn seal(&mut self, script: &mut Script) {
        for (path, cover) in self.laid.drain(..) {
            script.note("make read-only", Some(&path));
            set_attributes(script, cover, READ_ONLY, false);
            script.close(cover);
        }
    }
}
