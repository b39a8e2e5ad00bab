//! Directories in a bound tree that are shown by their parts only (`--libs exact`): an empty
//! directory is laid over each, and its parts are put there. The tree is bound once, where its
//! other parts would be so many mounts of their own.
//!
//! The empty directory is made in the view's own file system, at the place where the tree is
//! about to be bound: there nothing sees it afterwards, and it goes with the view. Most are made before all
//! else, so that the process that becomes the command makes the places in them while the rest is built
//! (`ringfence_start::beside`).

use super::mounts::{attach, copy_tree, make_directory, relative, set_attributes};
use super::script::{Part, Script};
use super::view::is_inside;
use crate::plan::{MountOp, MountStep};
use ringfence_policy::path::within;
use ringfence_start::image::special;
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_SUID, READ_ONLY};
use std::path::{Path, PathBuf};

/// One of them.
struct Cover {
    path: PathBuf,
    register: u8,
    /// What is in it is made by the process that becomes the command.
    aside: bool,
}

/// The covers of a view.
#[derive(Default)]
pub(super) struct Covers {
    wanted: Vec<PathBuf>,
    /// Those that can be made before all else: what they lie in is bound from the host, and made by nothing
    /// that gives it a mode.
    soon: Vec<PathBuf>,
    /// Made, and attached nowhere yet.
    ready: Vec<Cover>,
    /// In their places; still writable.
    laid: Vec<Cover>,
    /// The places in them are still being made.
    awaited: bool,
}

impl Covers {
    /// For these steps.
    pub fn new(steps: &[MountStep]) -> Covers {
        let covers = steps.iter().filter(|step| step.op == MountOp::Cover);
        let wanted: Vec<PathBuf> = covers.map(|step| step.path.clone()).collect();
        let above = |path: &Path, kind: fn(&MountOp) -> bool| {
            steps.iter().any(|step| kind(&step.op) && within(path, &step.path))
        };
        let soon = |path: &&PathBuf| {
            above(path, |op| matches!(op, MountOp::Bind { .. }))
                && !above(path, |op| !matches!(op, MountOp::Bind { .. } | MountOp::Cover))
        };
        let soon = wanted.iter().filter(soon).cloned().collect();
        Covers { wanted, soon, ..Covers::default() }
    }

    /// Makes those that can be made soon, and has the places in them made.
    pub fn begin(&mut self, script: &mut Script, root: u8) {
        for path in std::mem::take(&mut self.soon) {
            self.make(script, root, Path::new("/"), &path, true);
        }
        self.awaited = !self.ready.is_empty();
        if self.awaited {
            script.note("make the places of libraries", None);
            script.step(special::PLACES_START, &[]);
        }
    }

    /// Makes what will be laid over parts of a tree, before that is bound at its path.
    pub fn prepare(&mut self, script: &mut Script, root: u8, tree: &Path) {
        let made = |path: &PathBuf| self.ready.iter().any(|cover| cover.path == *path);
        let wanted = self.wanted.iter().filter(|path| path.starts_with(tree) && !made(path));
        for path in wanted.cloned().collect::<Vec<_>>() {
            self.make(script, root, tree, &path, false);
        }
    }

    fn make(&mut self, script: &mut Script, root: u8, tree: &Path, path: &Path, aside: bool) {
        let below = path.strip_prefix(tree).unwrap_or(path);
        let mut at = tree.to_path_buf();
        for name in below.components() {
            at.push(name);
            script.note("make the directory", Some(&at));
            make_directory(script, root, relative(&at), 0o755);
        }
        script.note("make a cover for", Some(path));
        let register = copy_tree(script, root, relative(path), false, NO_SUID | NO_DEVICES);
        self.ready.push(Cover { path: path.to_owned(), register, aside });
    }

    /// Lays the cover for a path over the place that it is in the view; whether there was one.
    pub fn lay(&mut self, script: &mut Script, path: &Path, place: u8) -> bool {
        let Some(at) = self.ready.iter().position(|ready| ready.path == path) else { return false };
        let cover = self.ready.swap_remove(at);
        script.note("cover", Some(path));
        attach(script, cover.register, place, Path::new(""));
        if cover.aside && std::mem::take(&mut self.awaited) {
            script.note("make the places of libraries", None);
            script.step(special::PLACES_MADE, &[]);
        }
        self.laid.push(cover);
        true
    }

    /// The cover that a path lies below.
    pub fn over(&self, path: &Path) -> Option<&Path> {
        let over = |cover: &&Cover| is_inside(path, &cover.path);
        self.laid.iter().find(over).map(|cover| cover.path.as_path())
    }

    /// The cover that a path lies below, and the path from there.
    pub fn place<'p>(&self, path: &'p Path) -> Option<(u8, &'p Path)> {
        self.below(path).map(|(cover, below)| (cover.register, below))
    }

    /// Goes on to the list of the process that makes a place, where that is another one.
    pub fn makes(&self, script: &mut Script, path: &Path) {
        let aside = self.below(path).is_some_and(|(cover, _)| cover.aside);
        script.part(if aside { Part::Confine } else { Part::Build });
    }

    fn below<'p>(&self, path: &'p Path) -> Option<(&Cover, &'p Path)> {
        self.laid.iter().find_map(|cover| {
            let below = path.strip_prefix(&cover.path).ok()?;
            (!below.as_os_str().is_empty()).then_some((cover, below))
        })
    }

    /// Makes them read-only, when all is in its place, and lets go of them.
    pub fn seal(&mut self, script: &mut Script) {
        for Cover { path, register, .. } in self.laid.drain(..) {
            script.note("make read-only", Some(&path));
            set_attributes(script, register, READ_ONLY, false);
            script.close(register);
        }
    }
}
