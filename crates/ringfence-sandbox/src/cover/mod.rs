//! Mounts that hide or hold a name in a tree of the host's, kept in place while the sandbox lives.
//!
//! A mount on a name lasts as long as that name does. Where somebody outside removes what it stands on, or renames
//! something over it (editors save so, as does `git config`), the kernel takes the mount away in every namespace
//! (`detach_mounts`, Linux 3.18), and what is there now lies open. So the launcher watches the directories on the
//! way ([`watch`]), looks which mounts are gone, and has the warden make them again ([`again`]).
//!
//! Between the change outside and that there are some milliseconds, in which what is there can be read, or written
//! (SECURITY.md).
//!
//! A protected name that stays away is one that was removed: what is made there later is no replacement, and the guards
//! take it ([`crate::guard`]).

pub(crate) mod again;
pub(crate) mod watch;

use crate::plan::{MountOp, MountStep};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The launcher has the warden make one again: a byte of [`What`] and the path follow.
pub(crate) const AGAIN: u8 = b'M';

/// The launcher has found a protected name removed: what was there and the path follow. Should the launcher be killed,
/// the warden puts right what is made there.
pub(crate) const REMOVED: u8 = b'N';

/// The warden's answer: 0, or the error that it met, in four bytes.
pub(crate) const DONE: u8 = b'm';

/// What a mount does to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Nobody reads what is there.
    Hides,
    /// Nobody changes what is there, nor moves it away.
    Protects,
    /// Nobody moves it away.
    Holds,
}

impl What {
    /// As a message has it.
    pub fn letter(self) -> u8 {
        match self {
            What::Hides => b'h',
            What::Protects => b'p',
            What::Holds => b'o',
        }
    }

    /// From a message.
    pub fn of(letter: u8) -> Option<What> {
        [What::Hides, What::Protects, What::Holds].into_iter().find(|what| what.letter() == letter)
    }
}

/// A mount on a name in a tree of the host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cover {
    /// The name, the same inside and outside.
    pub path: PathBuf,
    /// What it is for.
    pub what: What,
    /// The tree that it is in.
    pub tree: PathBuf,
    /// It is protected: once it is gone, what is made there is none of the program's.
    pub protected: bool,
}

/// The mounts of a view that depend on a name of the host's.
pub(crate) fn covers(steps: &[MountStep]) -> Vec<Cover> {
    let what = |op: &MountOp| match op {
        MountOp::Mask { .. } | MountOp::MaskLink => Some(What::Hides),
        // Shown read-only in a tree that is not. What was empty is read-only as well, once its mount is gone.
        MountOp::Protect
        | MountOp::Emptied
        | MountOp::Bind { read_only: true, devices: false, .. } => Some(What::Protects),
        MountOp::Pin | MountOp::PinLink => Some(What::Holds),
        _ => None,
    };
    // What shows what lies below it, by its path; of two at one path the later one is seen.
    let shown: HashMap<&Path, &MountOp> =
        steps.iter().filter(|step| shows(&step.op)).map(|step| (&*step.path, &step.op)).collect();
    let cover = |step: &MountStep| {
        let what = what(&step.op)?;
        let tree = tree(&shown, &step.path)?;
        let protected = step.op == MountOp::Protect;
        Some(Cover { path: step.path.clone(), what, tree: tree.to_owned(), protected })
    };
    steps.iter().filter_map(cover).collect()
}

/// Whether names below a mount are its own.
fn shows(op: &MountOp) -> bool {
    !matches!(
        op,
        MountOp::Mask { .. }
            | MountOp::MaskLink
            | MountOp::Protect
            | MountOp::Pin
            | MountOp::PinLink
            | MountOp::Symlink { .. }
    )
}

/// The tree of the host's that a path lies in; none where something of the sandbox's own is nearer.
fn tree<'a>(shown: &HashMap<&'a Path, &MountOp>, path: &Path) -> Option<&'a Path> {
    let above = path.ancestors().skip(1);
    let (nearest, op) = above.filter_map(|above| shown.get_key_value(above)).next()?;
    let hosts = matches!(op, MountOp::Bind { directory: true, .. } | MountOp::HostRoot { .. });
    hosts.then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::built_in;

    fn step(path: &str, op: MountOp) -> MountStep {
        MountStep { path: PathBuf::from(path), op, rule: built_in("a test") }
    }

    fn bind(directory: bool, read_only: bool) -> MountOp {
        MountOp::Bind { directory, read_only, devices: false }
    }

    #[test]
    fn what_stands_on_a_name_of_the_hosts_is_a_cover_and_nothing_else_is() {
        let steps = [
            step("/", MountOp::Root { size: None }),
            step("/dev/null", bind(false, false)),
            step("/etc", bind(true, true)),
            step("/etc/shadow", MountOp::Mask { directory: false }),
            step("/home/u", MountOp::Private { mode: 0o700 }),
            step("/home/u/.gitconfig", bind(false, true)),
            step("/home/u/w", bind(true, false)),
            step("/home/u/w/.env", MountOp::MaskLink),
            step("/home/u/w/.git", MountOp::Pin),
            step("/home/u/w/.git/config", MountOp::Protect),
            step("/home/u/w/vendor", bind(true, true)),
            step("/proc", MountOp::Proc),
            step("/proc/kcore", MountOp::Mask { directory: false }),
        ];
        let found: Vec<_> = covers(&steps)
            .into_iter()
            .map(|cover| (cover.path.display().to_string(), cover.what, cover.tree))
            .collect();
        let work = || PathBuf::from("/home/u/w");
        let wanted = [
            ("/etc/shadow".to_owned(), What::Hides, PathBuf::from("/etc")),
            ("/home/u/w/.env".to_owned(), What::Hides, work()),
            ("/home/u/w/.git".to_owned(), What::Holds, work()),
            ("/home/u/w/.git/config".to_owned(), What::Protects, work()),
            ("/home/u/w/vendor".to_owned(), What::Protects, work()),
        ];
        assert_eq!(found, wanted);
        for what in [What::Hides, What::Protects, What::Holds] {
            assert_eq!(What::of(what.letter()), Some(what));
        }
        assert_eq!(What::of(b'x'), None);
    }
}
