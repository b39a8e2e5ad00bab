//! What an interrupted commit left under its temporary name: what it was making, or what it had replaced and not removed.

use super::apply::Apply;
use super::steps::Step;
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, shown, split};
use crate::snapshot::entry::Stamp;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, RenameFlags};
use std::collections::HashMap;

impl Apply<'_> {
    /// Puts right what an interrupted commit left under its temporary name.
    pub fn sweep(&self, steps: &[Step]) -> Result<()> {
        let mut befores: HashMap<(&[u8], u64, u64), &Step> = HashMap::new();
        for step in steps {
            let (parent, _) = split(step.path());
            let before = step.before.map_or((0, 0), |stamp| (stamp.device, stamp.inode));
            befores.insert((parent, before.0, before.1), step);
        }
        let mut parents: Vec<&[u8]> = befores.keys().map(|(parent, ..)| *parent).collect();
        parents.sort_unstable();
        parents.dedup();
        for path in parents {
            let Ok(parent) = beneath::open_directory(self.lower.as_fd(), path) else { continue };
            let Ok(found) = beneath::stat(&parent, self.temporary) else { continue };
            let step = befores.get(&(path, found.stamp.device, found.stamp.inode));
            let changed = match step.and_then(|step| Some((step, step.before?))) {
                Some((step, before)) if !beneath::untouched(Some(before), &found) => {
                    self.was_there(&parent, path, before)?.then_some(step)
                }
                _ => None,
            };
            let done = match changed {
                // The host wrote to it at the last moment: it goes back.
                Some(step) => {
                    let name = split(step.path()).1;
                    let back = |flags| {
                        rustix::fs::renameat_with(&parent, self.temporary, &parent, name, flags)
                    };
                    back(RenameFlags::NOREPLACE).or_else(|_| back(RenameFlags::EXCHANGE))
                }
                None => rustix::fs::unlinkat(&parent, self.temporary, AtFlags::empty()),
            };
            done.map_err(self.failed("unlink", path))?;
        }
        Ok(())
    }

    /// Whether what is left was there before: what a later step was making can have the number of what an earlier one
    /// replaced, which is gone.
    fn was_there(&self, parent: &OwnedFd, path: &[u8], before: Stamp) -> Result<bool> {
        let born = beneath::born(parent, self.temporary);
        let now = i64::try_from(ringfence_sys::file::time_mark()).unwrap_or(i64::MAX);
        born.and_then(|born| is_older(born, before.changed, now)).ok_or_else(|| self.unknown(path))
    }

    /// On a file system that does not note when things were made, or of a time to come.
    fn unknown(&self, path: &[u8]) -> SessionError {
        let left = self.root.join(shown(path)).join(shown(self.temporary));
        SessionError::usage(format!(
            "{} is left of an interrupted commit, and may be what the host wrote at the last moment, or half of what the \
             commit put into place: look at it, remove it, then commit again",
            left.display()
        ))
    }
}

/// Whether what was made at one time is what was changed at another one. Of a time to come, as a clock leaves it that was
/// set back, nothing is known.
fn is_older(born: i64, changed: i64, now: i64) -> Option<bool> {
    (changed <= now).then_some(born <= changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_time_to_come_nothing_is_known() {
        assert_eq!([is_older(1, 2, 5), is_older(4, 2, 5)], [Some(true), Some(false)]);
        assert_eq!([is_older(1, 9, 5), is_older(4, 9, 5)], [None; 2]);
    }
}
