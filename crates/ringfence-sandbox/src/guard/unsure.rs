//! Protected paths of which it is not known what was there before, or who made what is there: what was changed is
//! taken away, and nothing is put back.

use super::saved::Saved;
use super::work::{Directory, Work, harmless};
use super::{by_name, changed, locked};
use ringfence_policy::Guarded;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names in a path; what is further down is taken as a whole.
const DEEPEST: usize = 64;

impl Work<'_> {
    /// A name that was removed outside, and is there again: what lies in it as it did before all runs was only moved.
    pub fn came_back(&mut self, path: &Path) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(directory) = locked::open(self, parent)
        {
            self.unsure(&directory, name, path, by_name(path), true);
        }
    }

    /// Takes what changed in this run, and with `earlier` in an earlier one.
    pub fn unsure(
        &mut self,
        directory: &Directory,
        name: &OsStr,
        path: &Path,
        guarded: Guarded,
        earlier: bool,
    ) {
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        let sample = name.as_bytes().ends_with(b".sample");
        if guarded == Guarded::GitHooks && sample && data.is_file() {
            return;
        }
        let deep = path.iter().count() > DEEPEST;
        if let Some(inner) = directory.enter(name).filter(|_| data.is_dir() && !deep) {
            let entries = fs::read_dir(inner.at(".")).into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name();
                self.unsure(&inner, &name, &path.join(&name), guarded, earlier);
            }
            return;
        }
        let since = self.guarding.since;
        if changed(&data) < since && !(earlier && self.suspect(path, &data)) {
            return;
        }
        let now = Saved::of(&at).unwrap_or(Saved::Unknown);
        let project = self.guarding.project.as_deref();
        if harmless(guarded, path, &now, &Saved::Nothing, project) {
            self.alone(directory, name, path, &now);
        } else {
            self.take_away(&at, path, "created or changed");
        }
    }
}
