//! The directories on the way to a tree of the host's, where the sandbox made them itself.
//!
//! All that holds and hides names in a tree goes by their paths, which are the same inside and outside: a program that
//! renamed a directory of its private home would take the tree in it along, and what looks for the tree's names at
//! their places would find what the program has put there.

use crate::plan::{MountOp, MountStep};
use ringfence_policy::Source;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Whether it is a directory in which the program may rename what is there, and nothing is the host's.
fn is_own(op: &MountOp) -> bool {
    matches!(op, MountOp::Private { .. } | MountOp::NamedHome { .. } | MountOp::Emptied)
}

/// Whether something is held or hidden by it.
fn guards(op: &MountOp) -> bool {
    use MountOp::{Emptied, Mask, MaskLink, Pin, PinLink, Protect};
    matches!(op, Mask { .. } | MaskLink | Protect | Emptied | Pin | PinLink)
}

/// Pins the ways to what can be written, and to what has guarded names in it. What is only read, all of it, is wherever
/// the program has put it.
pub(super) fn pins(steps: &[MountStep]) -> Vec<MountStep> {
    let all: HashMap<&Path, &MountOp> =
        steps.iter().filter(|step| !guards(&step.op)).map(|step| (&*step.path, &step.op)).collect();
    if !all.values().any(|op| is_own(op)) {
        return Vec::new();
    }
    let nearest = |path: &Path| path.ancestors().skip(1).find_map(|above| all.get_key_value(above));
    let written = |step: &&MountStep| {
        matches!(
            step.op,
            MountOp::Bind { read_only: false, devices: false, .. } | MountOp::Overlay { .. }
        )
    };
    let mut wanted: BTreeMap<&Path, &Source> = BTreeMap::new();
    for step in steps {
        // A guarded name's tree is the nearest thing that is shown around it.
        let tree = if guards(&step.op) {
            nearest(&step.path).map(|(tree, _)| *tree)
        } else {
            Some(step).filter(written).map(|step| &*step.path)
        };
        if let Some(tree) = tree {
            wanted.entry(tree).or_insert(&step.rule);
        }
    }
    let mut pins: BTreeMap<PathBuf, &Source> = BTreeMap::new();
    for (tree, rule) in wanted {
        for above in tree.ancestors().skip(1) {
            let own = nearest(above).is_some_and(|(_, op)| is_own(op));
            if own && !all.contains_key(above) {
                pins.entry(above.to_owned()).or_insert(rule);
            }
        }
    }
    let pin =
        |(path, rule): (PathBuf, &Source)| MountStep { path, op: MountOp::Pin, rule: rule.clone() };
    pins.into_iter().map(pin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::built_in;

    fn step(path: &str, op: MountOp) -> MountStep {
        MountStep { path: PathBuf::from(path), op, rule: built_in("a test") }
    }

    fn bind(read_only: bool) -> MountOp {
        MountOp::Bind { directory: true, read_only, devices: false }
    }

    #[test]
    fn ways_are_pinned_where_they_are_the_sandboxs_own_and_lead_to_what_is_guarded() {
        let steps = [
            step("/", MountOp::Root { size: None }),
            step("/dev/shm", MountOp::Private { mode: 0o1777 }),
            step("/home/u", MountOp::Private { mode: 0o700 }),
            step("/home/u/.cache/tool", bind(true)),
            step("/home/u/code/a/proj", bind(false)),
            step("/home/u/code/a/proj/deep/lib", bind(true)),
            step("/home/u/code/a/proj/deep/lib/.env", MountOp::Mask { directory: false }),
            step("/home/u/read/only", bind(true)),
            step("/home/u/read/only/some/.env", MountOp::MaskLink),
            step("/home/u/straight", bind(false)),
            step("/srv/a/b", bind(false)),
            step("/tmp", MountOp::Private { mode: 0o1777 }),
            step("/tmp/x/own", MountOp::Private { mode: 0o755 }),
            step("/tmp/x/own/y/z", bind(false)),
        ];
        let found: Vec<_> =
            pins(&steps).iter().map(|step| step.path.display().to_string()).collect();
        let wanted = ["/home/u/code", "/home/u/code/a", "/home/u/read", "/tmp/x", "/tmp/x/own/y"];
        assert_eq!(found, wanted);
    }
}
