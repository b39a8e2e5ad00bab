//! Many parts of one directory of the host, shown one by one (`--libs exact`): the directory is
//! taken once, made read-only once, and its parts are taken from that. A part then costs two
//! calls on mounts where it would cost four, and one walk of its path less.
//!
//! The copy is attached on the directory itself, in the tree that the child leaves behind with
//! its old root: there it is in nobody's way, and it goes when that tree goes.

use super::failure::OPEN;
use super::mounts::{attach, copy_tree};
use super::script::{CWD, Script};
use crate::plan::{MountOp, MountStep};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// From so many parts on it pays: taking the directory costs five calls.
const ENOUGH: usize = 4;

/// The directories of which parts are taken, and the one that is at hand.
#[derive(Default)]
pub(super) struct Shelf {
    /// Worth it, and nothing below them is shown in another way than read-only.
    worthy: Vec<PathBuf>,
    open: Option<(PathBuf, u8)>,
}

/// Shown read-only, by the name that it has on the host.
fn is_part(op: &MountOp) -> bool {
    matches!(op, MountOp::Bind { read_only: true, devices: false, .. })
}

/// What a step takes from the host: the tree, and where the layer of it is.
fn sources(step: &MountStep) -> impl Iterator<Item = &Path> {
    let (tree, layer) = match &step.op {
        MountOp::Bind { .. } => (Some(&step.path), None),
        MountOp::Overlay { apart, .. } => (Some(&step.path), Some(apart)),
        MountOp::NamedHome { from, apart } => (Some(from), apart.as_ref()),
        MountOp::Console { from } => (Some(from), None),
        _ => (None, None),
    };
    tree.into_iter().chain(layer).map(PathBuf::as_path)
}

impl Shelf {
    /// For these steps.
    pub fn new(steps: &[MountStep]) -> Shelf {
        let mut parts: HashMap<&Path, usize> = HashMap::new();
        for step in steps.iter().filter(|step| is_part(&step.op)) {
            if let Some(directory) = step.path.parent() {
                *parts.entry(directory).or_default() += 1;
            }
        }
        let otherwise: Vec<&Path> =
            steps.iter().filter(|step| !is_part(&step.op)).flat_map(sources).collect();
        // What is taken from below the copy has its attributes.
        let worthy = |directory: &Path, count: usize| {
            count >= ENOUGH
                && directory.parent().is_some()
                && !otherwise.iter().any(|other| other.starts_with(directory))
        };
        let worthy = parts.iter().filter(|(directory, count)| worthy(directory, **count));
        Shelf { worthy: worthy.map(|(directory, _)| directory.to_path_buf()).collect(), open: None }
    }

    /// A mount of a part, attached nowhere yet, if the shelf serves it: with these attributes,
    /// which are the same for all parts.
    pub fn take(&mut self, script: &mut Script, path: &Path, attributes: u64) -> Option<u8> {
        let (directory, name) = (path.parent()?, path.file_name()?);
        if !self.worthy.iter().any(|worthy| worthy == directory) {
            return None;
        }
        let shelf = match &self.open {
            Some((open, shelf)) if open == directory => *shelf,
            _ => self.lay_open(script, directory, attributes),
        };
        script.note("bind", Some(path));
        Some(copy_tree(script, shelf, Path::new(name), true, 0))
    }

    fn lay_open(&mut self, script: &mut Script, directory: &Path, attributes: u64) -> u8 {
        self.put_away(script);
        script.note(OPEN, Some(directory));
        let place = script.open_without_links(CWD, directory);
        script.note("bind", Some(directory));
        let shelf = copy_tree(script, place, Path::new(""), true, attributes);
        attach(script, shelf, place, Path::new(""));
        script.close(place);
        self.open = Some((directory.to_owned(), shelf));
        shelf
    }

    /// Lets go of the directory.
    pub fn put_away(&mut self, script: &mut Script) {
        if let Some((_, shelf)) = self.open.take() {
            script.close(shelf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(path: &str, op: MountOp) -> MountStep {
        MountStep { path: path.into(), op, rule: crate::planner::built_in("a test") }
    }

    fn part(path: &str) -> MountStep {
        step(path, MountOp::Bind { directory: false, read_only: true, devices: false })
    }

    #[test]
    fn only_directories_with_many_parts_and_nothing_writable_below_are_taken() {
        let writable = MountOp::Bind { directory: true, read_only: false, devices: false };
        let mut steps: Vec<MountStep> =
            ["a", "b", "c", "d"].iter().map(|name| part(&format!("/usr/lib/{name}"))).collect();
        assert!(Shelf::new(&steps[..3]).worthy.is_empty());
        assert_eq!(Shelf::new(&steps).worthy, [Path::new("/usr/lib")]);
        // Its source would be read-only as the copy is.
        steps.push(step("/usr/lib/x/state", writable));
        assert!(Shelf::new(&steps).worthy.is_empty());
        steps.pop();
        // So would the layer of a tree elsewhere, which the kernel refuses then.
        let apart = PathBuf::from("/usr/lib/state/0");
        let from = PathBuf::from("/srv/home");
        for op in [
            MountOp::Overlay { directory: true, apart: apart.clone() },
            MountOp::NamedHome { from, apart: Some(apart) },
        ] {
            steps.push(step("/srv/tree", op));
            assert!(Shelf::new(&steps).worthy.is_empty());
            steps.pop();
        }
        let tops: Vec<MountStep> =
            ["a", "b", "c", "d"].iter().map(|name| part(&format!("/{name}"))).collect();
        assert!(Shelf::new(&tops).worthy.is_empty(), "the root is left as it is");
    }
}
