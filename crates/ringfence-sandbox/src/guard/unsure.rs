//! Protected paths of which it is not known what was there before, or who made what is there: what was changed is
//! taken away, and nothing is put back.

use super::directory::Directory;
use super::quarantine::rename_aside;
use super::said::{AGAIN, inside};
use super::work::Work;
use super::{by_name, changed, identity, locked};
use crate::cover::watch::Identity;
use crate::plan::GuardStep;
use ringfence_policy::Guarded;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names in a path; what is further down is taken as a whole.
const DEEPEST: usize = 64;

/// How far what is there can be trusted.
#[derive(Clone, Copy)]
struct Trust {
    guarded: Guarded,
    /// It is the directory that was there: that it was moved, and came back, is no change.
    same: bool,
    /// What earlier runs changed counts as well.
    earlier: bool,
}

impl Work<'_> {
    /// A name that was removed outside, and is there again: what lies in it as it did before all runs was only moved.
    pub fn came_back(&mut self, path: &Path, was: Option<Identity>) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(directory) = locked::open(self, parent)
        {
            let same = was.is_some() && identity(&directory.at(name)) == was;
            let trust = Trust { guarded: by_name(path), same, earlier: true };
            self.unsure(&directory, name, path, trust);
        }
    }

    /// A path of which another run that goes on knows what it held.
    pub fn not_known(&mut self, directory: &Directory, name: &OsStr, step: &GuardStep) {
        let was = self.guarding.unsure.get(&step.path).copied();
        let same = was.is_some() && identity(&directory.at(name)) == was;
        let trust = Trust { guarded: step.guarded, same, earlier: false };
        self.unsure(directory, name, &step.path, trust);
    }

    /// Takes what changed: a file, or a directory as a whole, for what is in one that is moved keeps its times.
    fn unsure(&mut self, directory: &Directory, name: &OsStr, path: &Path, trust: Trust) {
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        let sample = name.as_bytes().ends_with(b".sample");
        if trust.guarded == Guarded::GitHooks && sample && data.is_file()
            || trust.guarded == Guarded::Program && data.is_dir()
        {
            return;
        }
        let new = changed(&data) >= self.guarding.since;
        let new = new || trust.earlier && self.suspect(path, &data);
        let known = data.is_dir() && (trust.same || !new) && path.iter().count() <= DEEPEST;
        if let Some(inner) = directory.enter(name).filter(|_| known) {
            for entry in fs::read_dir(inner.at(".")).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let trust = Trust { same: false, ..trust };
                self.unsure(&inner, &name, &path.join(&name), trust);
            }
            return;
        }
        if !new {
            return;
        }
        if let Some(now) = self.stays(trust.guarded, &at, path) {
            self.alone(directory, name, path, &now);
        } else {
            if trust.earlier && !self.quarantine.keeps() {
                // It may be the user's. Nothing obeys the name that it has now, and a later run tells of it.
                let _ = rename_aside(&at);
                return;
            }
            let way = if trust.earlier { AGAIN.to_owned() } else { inside("created or changed") };
            self.take(&at, path, &way);
        }
    }
}
