//! Who calls ringfence: root, and somebody ordinary.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Person {
    /// User 0.
    Root,
    /// Any other: the caller, or the user `daemon` when root runs the tests.
    Ordinary,
}

/// `daemon`: present on every machine, owner of nothing that matters here. Not `nobody`: inside
/// a user namespace, whatever has no name there is shown as nobody's.
const DAEMON: u32 = 1;

/// Whether root runs the tests.
fn root_runs() -> bool {
    rustix::process::geteuid().is_root()
}

/// Those that the caller may become.
pub fn people() -> Vec<Person> {
    if root_runs() { vec![Person::Root, Person::Ordinary] } else { vec![Person::Ordinary] }
}

impl Person {
    /// User and group.
    pub fn ids(self) -> (u32, u32) {
        match self {
            Person::Root => (0, 0),
            Person::Ordinary if root_runs() => (DAEMON, DAEMON),
            Person::Ordinary => {
                (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
        }
    }

    /// Makes a command this person's.
    pub fn becomes(self, command: &mut Command) {
        if root_runs() {
            let (user, group) = self.ids();
            // Also drops the supplementary groups, as root's Command does.
            command.gid(group).uid(user);
        }
    }

    /// Makes a path this person's.
    ///
    /// # Panics
    /// The path does not exist.
    pub fn owns(self, path: &std::path::Path) {
        if root_runs() {
            let (user, group) = self.ids();
            std::os::unix::fs::lchown(path, Some(user), Some(group)).expect("a path to give away");
        }
    }
}
