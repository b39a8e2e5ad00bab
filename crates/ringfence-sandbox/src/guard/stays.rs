//! Whether what a run left at a protected name may stay, by what it says. How much is read for that is bounded, of one
//! file and of all ([`ringfence_policy::gitread`]): what is beyond a bound goes unread.

use super::saved::Saved;
use super::work::Work;
use ringfence_policy::gitconfig::{Executes, Unread, executes_in, executes_the_same};
use ringfence_policy::gitread::Unknown;
use ringfence_policy::path::normal;
use ringfence_policy::protect::git_common_allowed;
use ringfence_policy::{Guarded, shown};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl Work<'_> {
    /// What is at a path where nothing was, if it may stay there.
    pub fn stays(&mut self, guarded: Guarded, at: &Path, path: &Path) -> Option<Saved> {
        // Of these a part may stay, where something was.
        if matches!(guarded, Guarded::Settings | Guarded::Skills) {
            return None;
        }
        let now = self.found(guarded, at, path);
        self.harmless(guarded, path, &now, &Saved::Nothing).then_some(now)
    }

    /// What is at a path where nothing was, read as far as it decides what becomes of it.
    pub fn found(&mut self, guarded: Guarded, at: &Path, path: &Path) -> Saved {
        let data = match at.symlink_metadata() {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Saved::Nothing,
            Err(_) => return Saved::Unknown,
        };
        let read = match guarded {
            Guarded::GitConfig | Guarded::GitSettings | Guarded::GitCommon if data.is_file() => {
                if let Err(why) = self.pass.take(data.size()) {
                    self.beyond(path, why);
                    return Saved::Unknown;
                }
                Saved::of(at)
            }
            Guarded::GitHooks => Saved::within(at, &mut self.samples),
            Guarded::Settings | Guarded::Skills => Saved::of(at),
            Guarded::GitCommon => Saved::of(at),
            // What is in it is no matter.
            Guarded::Program if data.is_dir() => return Saved::Directory(BTreeMap::new()),
            // It goes, whatever it says.
            _ => return Saved::Unknown,
        };
        read.unwrap_or(Saved::Unknown)
    }

    /// Whether a created or changed git file holds nothing that is executed.
    pub fn harmless(&mut self, guarded: Guarded, path: &Path, now: &Saved, before: &Saved) -> bool {
        let directory = path.parent().unwrap_or(path);
        match (guarded, now, before) {
            (
                Guarded::GitConfig | Guarded::GitSettings,
                Saved::File { bytes, .. },
                Saved::Nothing,
            ) => {
                // It may be the worktree of repositories elsewhere.
                let project = self.guarding.project.as_deref();
                let executes = executes_in(bytes, directory, project);
                if let Some(Executes::Unread(Unread::Unknown(why))) = executes {
                    self.beyond(path, why);
                }
                executes.is_none()
            }
            (
                Guarded::GitSettings,
                Saved::File { bytes: now, .. },
                Saved::File { bytes: before, .. },
            ) => executes_the_same(before, now, directory),
            (Guarded::GitCommon, Saved::File { bytes, .. }, Saved::Nothing) => {
                git_common_allowed(path, bytes).is_some_and(|target| leads_straight(&target))
            }
            (Guarded::GitHooks, Saved::Directory(entries), Saved::Nothing) => {
                entries.iter().all(|(name, entry)| entry.is_sample(name))
            }
            (Guarded::Program, Saved::Directory(_), Saved::Nothing) => true,
            _ => false,
        }
    }

    /// Says why something is taken away unread.
    pub fn beyond(&mut self, path: &Path, why: Unknown) {
        let (path, (why, _)) = (shown::path(path), why.text());
        self.said.push(format!("{path} {why}: git could run anything by it"));
    }
}

/// Whether a path leads where its text says, over no link: git follows what is there, and another run could change it.
pub(super) fn leads_straight(path: &Path) -> bool {
    match fs::canonicalize(path) {
        Ok(real) => real == normal(path),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
